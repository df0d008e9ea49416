"""Messages that were sent twice: what a `dedup-id` says (PROTOCOL G)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from nebula.broker.journal import Journal


class DedupKey(NamedTuple):
    """A `dedup-id` where it counts: nobody can use up another principal's ids.

    Attributes:
        principal: who sent it; empty in rows of an older store, which count for everybody.
    """

    destination: str
    principal: str
    id: str


class Duplicates:
    """The `dedup-id`s that are not to be used again for a while.

    Args:
        max_ids: that are remembered; beyond it the one whose time is over first may be used again.
        journal: is told of those that a crash must not forget.
    """

    def __init__(self, max_ids: int, journal: Journal | None) -> None:
        self._max_ids = max_ids
        self._journal = journal
        # Until when, and whether the store knows it.
        self._known: dict[DedupKey, tuple[float, bool]] = {}
        self._ends: list[tuple[float, DedupKey]] = []

    def __len__(self) -> int:
        return len(self._known)

    def knows(self, key: DedupKey, now: float) -> bool:
        """Whether a message with this id was accepted there, within the window."""
        everybodys = DedupKey(key.destination, "", key.id)
        return self._until(key, now) > now or self._until(everybodys, now) > now

    def add(self, key: DedupKey, until: float, *, is_kept: bool) -> None:
        """A message with this id was accepted.

        Args:
            is_kept: it is to be known after a crash.
        """
        self._know(key, until, is_kept=is_kept)
        if is_kept and self._journal is not None:
            self._journal.put_duplicate(*key, until)
        while len(self._known) > self._max_ids:
            self._forget_first()

    def restore(self, key: DedupKey, until: float) -> None:
        """Know what an earlier run has known."""
        self._know(key, until, is_kept=True)

    def advance(self, now: float) -> None:
        """Forget those whose time is over."""
        while self._ends and self._ends[0][0] <= now:
            self._forget_first()

    def _until(self, key: DedupKey, now: float) -> float:
        return self._known.get(key, (now, False))[0]

    def _know(self, key: DedupKey, until: float, *, is_kept: bool) -> None:
        # The store may still have it from a time that is over, and is to be told when it is forgotten.
        _, was_kept = self._known.get(key, (until, False))
        self._known[key] = (until, is_kept or was_kept)
        heappush(self._ends, (until, key))

    def _forget_first(self) -> None:
        until, key = heappop(self._ends)
        known_until, is_kept = self._known.get(key, (until, False))
        # It may have been used again since, before this was looked at.
        if known_until <= until:
            self._known.pop(key, None)
            if is_kept and self._journal is not None:
                self._journal.drop_duplicate(*key)
