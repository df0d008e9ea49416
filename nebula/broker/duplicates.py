"""Messages that were sent twice: what a `dedup-id` says (PROTOCOL G)."""

from __future__ import annotations

from heapq import heappop, heappush

from nebula.broker.journal import Journal


class Duplicates:
    """The `dedup-id`s that are not to be used again for a while, by destination.

    Args:
        max_ids: that are remembered; beyond it the one whose time is over first may be used again.
        journal: is told of those whose message is on disk, so that a crash does not forget them.
    """

    def __init__(self, max_ids: int, journal: Journal | None) -> None:
        self._max_ids = max_ids
        self._journal = journal
        # Whether the store knows it, by destination and id.
        self._is_kept: dict[tuple[str, str], bool] = {}
        self._ends: list[tuple[float, tuple[str, str]]] = []

    def __len__(self) -> int:
        return len(self._is_kept)

    def knows(self, destination: str, dedup_id: str, now: float) -> bool:
        """Whether a message with this id was accepted there, within the window."""
        self.advance(now)
        return (destination, dedup_id) in self._is_kept

    def add(self, destination: str, dedup_id: str, until: float, *, is_kept: bool) -> None:
        """A message with this id was accepted.

        Args:
            is_kept: it is on disk.
        """
        self.restore(destination, dedup_id, until)
        self._is_kept[destination, dedup_id] = is_kept
        if is_kept and self._journal is not None:
            self._journal.put_duplicate(destination, dedup_id, until)
        if len(self._is_kept) > self._max_ids:
            self._forget_first()

    def restore(self, destination: str, dedup_id: str, until: float) -> None:
        """Know what an earlier run has known."""
        self._is_kept[destination, dedup_id] = True
        heappush(self._ends, (until, (destination, dedup_id)))

    def advance(self, now: float) -> None:
        """Forget those whose time is over."""
        while self._ends and self._ends[0][0] <= now:
            self._forget_first()

    def _forget_first(self) -> None:
        _, (destination, dedup_id) = heappop(self._ends)
        if self._is_kept.pop((destination, dedup_id)) and self._journal is not None:
            self._journal.drop_duplicate(destination, dedup_id)
