"""Duplicate detection: messages that repeat a `dedup-id` (G.dedup)."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, NamedTuple

from nebula.broker.core.account import Account
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.journal import Journal
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.tables import DUPLICATES, DuplicateRow, Put

# Memory that CPython uses for an id, without its texts.
ID_COST_BYTES: Final = 350

# For each id that is added where there is no room. So a principal whose share became smaller, because others
# came, shrinks to it with what it sends, and none of its SENDs has to forget them all.
_FORGOTTEN_AT_ONCE: Final = 2


class DedupKey(NamedTuple):
    """A `dedup-id` with its scope: no principal can use up the ids of another.

    Attributes:
        principal: who sent it; empty in rows of an older store, which apply to all principals.
    """

    destination: str
    principal: str
    id: str


class _Known(NamedTuple):
    """A remembered id: until when, whether it is stored, and who pays for it."""

    until: float
    is_kept: bool
    usage: Usage


class Duplicates:
    """The `dedup-id`s of the current window.

    A principal that has used up its share loses those of its own ids that would end first.

    Args:
        account: what all principals use.
        journal: gets those that a crash must not forget.
    """

    def __init__(self, account: Account, journal: Journal | None) -> None:
        self._account = account
        self._journal = journal
        self._known: dict[DedupKey, _Known] = {}
        # For each principal, a heap by the time at which they end.
        self._ends: dict[Usage, list[tuple[float, DedupKey]]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def knows(self, key: DedupKey, now: float) -> bool:
        """Whether a message with this id was accepted there, within the window."""
        found = (self._known.get(key), self._known.get(DedupKey(key.destination, "", key.id)))
        return any(known is not None and known.until > now for known in found)

    def add(self, key: DedupKey, until: float, usage: Usage, *, is_kept: bool) -> None:
        """A message with this id was accepted.

        Args:
            usage: who pays for it.
            is_kept: it must be known after a crash.
        """
        if key not in self._known:
            self._make_room(usage)
        self.know(key, until, usage, is_kept=is_kept)
        if is_kept and self._journal is not None:
            self._journal.put(Put(DUPLICATES, DuplicateRow(*key, until + self._journal.wall_offset)))

    def advance(self, now: float) -> None:
        """Forget those whose time is over."""
        for usage, ends in list(self._ends.items()):
            while ends and ends[0][0] <= now:
                self._forget_first(usage)

    def _make_room(self, usage: Usage) -> None:
        account = self._account
        for _ in range(_FORGOTTEN_AT_ONCE):
            has_room = account.has_room(Resource.DEDUP_IDS, usage) and not account.is_overdrawn(usage)
            if has_room or usage not in self._ends:
                return
            account.exceed(Resource.DEDUP_IDS, usage)
            self._forget_first(usage)

    def know(self, key: DedupKey, until: float, usage: Usage, *, is_kept: bool) -> None:
        """Remember an id, also one that an earlier run has stored."""
        former = self._known.get(key)
        if former is None:
            self._account.take(Resource.DEDUP_IDS, usage, _cost_bytes(key))
        else:
            # The store may still have the expired one, and must be told when this one is dropped.
            is_kept = is_kept or former.is_kept
            usage = former.usage
        self._known[key] = _Known(until, is_kept, usage)
        heappush(self._ends.setdefault(usage, []), (until, key))

    def _forget_first(self, usage: Usage) -> None:
        ends = self._ends[usage]
        until, key = heappop(ends)
        if not ends:
            del self._ends[usage]
        known = self._known.get(key)
        # It may have been used again since, before this was looked at.
        if known is None or known.until > until:
            return
        del self._known[key]
        self._account.give_back(Resource.DEDUP_IDS, usage, _cost_bytes(key))
        if known.is_kept and self._journal is not None:
            self._journal.drop(DUPLICATES, *key)


def _cost_bytes(key: DedupKey) -> int:
    return ID_COST_BYTES + text_cost_bytes(*key)
