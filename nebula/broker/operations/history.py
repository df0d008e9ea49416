"""The figures of the last hour, which the console draws: one sample each ten seconds."""

from __future__ import annotations

from collections import deque
from typing import Final

from nebula.broker.core.messages import QUEUE_KIND
from nebula.broker.core.shares import Resource
from nebula.broker.operations.views import BrokerStatus, HistorySample

SAMPLE_SECONDS: Final = 10.0
"""How often a sample is taken: each is a walk over all destinations."""

SAMPLES: Final = 360
"""How many are kept: those of an hour. At it: the oldest is dropped."""


class History:
    """A bounded row of samples, the oldest first."""

    def __init__(self) -> None:
        self._samples: deque[HistorySample] = deque(maxlen=SAMPLES)

    def note(self, at: float, status: BrokerStatus) -> None:
        """Add a sample.

        Args:
            at: seconds since 1970.
        """
        queues = status.kinds[QUEUE_KIND.name]
        disk = status.pools.get(Resource.DISK.value)
        self._samples.append(
            HistorySample(
                at=at,
                connections=status.connections,
                received=status.received,
                sent_frames=status.sent_frames,
                read_bytes=status.read_bytes,
                written_bytes=status.written_bytes,
                memory_bytes=status.memory_bytes,
                disk_bytes=0 if disk is None else disk.used,
                messages=queues.messages,
                unacked=queues.unacked,
                dead_letters=status.dead_letters,
            )
        )

    def since(self, at: float) -> list[HistorySample]:
        """The samples after a time."""
        return [each for each in self._samples if each.at > at]
