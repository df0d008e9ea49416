"""Instances of services without `await`."""

from __future__ import annotations

from collections.abc import Generator

from nebula.rpc.discovery import Change, Instance
from nebula.rpc.discovery import Presence as AsyncPresence
from nebula.sync.loop import Loop

__all__ = ["Presence"]


class Presence:
    """The instances that are running. See `nebula.rpc.discovery.Presence`."""

    def __init__(self, presence: AsyncPresence, loop: Loop) -> None:
        self._presence = presence
        self._loop = loop

    @property
    def instances(self) -> list[Instance]:
        """The instances that are running, as far as is known, by service and name."""
        # On the loop, where they change.
        return self._loop.make(lambda: self._presence.instances)

    def changes(self) -> Generator[Change]:
        """Instances that come, go, or change their load, without end."""
        # It has no end: it waits for the next change until the reader leaves the loop or the block.
        return self._loop.each(self._presence.changes)
