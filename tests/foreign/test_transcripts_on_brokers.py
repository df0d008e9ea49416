"""The transcripts about STOMP itself, on RabbitMQ and ActiveMQ.

Where another broker differs, the transcript says so: `except rabbitmq: …` stands above the first line that is
different there. The test is red if the exchange departs earlier, later or not at all.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from uuid import uuid4

import pytest
from typing_extensions import override

from nebula.broker.core.access import Grants
from tests.broker.script import Received
from tests.conformance.cases import TRANSCRIPTS, Case, read_cases
from tests.conformance.player import Different, play
from tests.conformance.wires import TcpOctets, Wire
from tests.conformance.worlds import OverSockets

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]

CASES = [case for case in read_cases(TRANSCRIPTS) if case.is_of_stomp]

# What ought to happen at once does not happen later either.
_LACKING_SECONDS = 2.0
# A message to another peer follows the RECEIPT of its SEND within this time.
_PASSING_SECONDS = 0.1


class _PatientWire(Wire):
    """A peer of a broker that says RECEIPT before it has delivered the message."""

    def __init__(self, port: int) -> None:
        octets = TcpOctets(port, timeout=_LACKING_SECONDS)
        super().__init__(octets, probe=f"SEND destination:/topic/probe-{uuid4().hex}")

    @override
    def send(self, data: bytes) -> None:
        # A peer that listens notices that the broker has closed its connection.
        with contextlib.suppress(ConnectionError):
            super().send(data)

    @override
    def waiting(self) -> list[Received]:
        super().waiting()
        time.sleep(_PASSING_SECONDS)
        return super().waiting()


class _Foreign:
    """What a world asks of its broker besides bytes."""

    def reload(self, grants: Grants) -> None:
        raise NotImplementedError

    def see_one_go(self, go: Callable[[], None]) -> None:
        go()
        time.sleep(_PASSING_SECONDS)


@pytest.mark.parametrize("broker", ["rabbitmq", "activemq"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_transcript_departs_where_it_says(broker: str, case: Case, request: pytest.FixtureRequest) -> None:
    port = int(request.getfixturevalue(f"{broker}_url").rpartition(":")[2])
    world = OverSockets(_Foreign(), "standard", lambda _who: _PatientWire(port), str)
    world.offer = world.offer.replace("host:h", "host:/")
    departure, difference = None, "the exchange is what the transcript says, to its end"

    try:
        play(_apart(case.text), world)
    except Different as different:
        departure, difference = different.number, str(different)
    finally:
        world.close()

    assert departure == case.departure(broker), difference


def _apart(text: str) -> str:
    """With destinations of its own, which are empty, and the virtual host that every broker has."""
    tag = uuid4().hex[:8]
    return re.sub(r"/(queue|topic)/", rf"/\1/{tag}.", re.sub(r"\bhost:h\b", "host:/", text))
