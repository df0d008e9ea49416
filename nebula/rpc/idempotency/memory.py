"""Answers kept in this process: nothing to set up, and nothing left after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic

from nebula.rpc.idempotency.store import Claim, Reach

# What an entry takes beside its answer: key, fingerprint and objects, roughly.
_OVERHEAD_BYTES = 500


@dataclass(slots=True)
class _Entry:
    fingerprint: str
    owner: str
    until: float
    answer: bytes | None = None

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + len(self.answer or b"")


class MemoryStore:
    """Keeps answers in memory, up to a number and a size; beyond them the oldest go first.

    A request whose answer has gone is handled again when it comes again.

    Args:
        max_answers: kept at a time.
        max_bytes: of them together. A single answer that is larger is not kept.
        clock: the time in seconds.
    """

    def __init__(
        self,
        *,
        max_answers: int = 10_000,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._max_answers = max_answers
        self._max_bytes = max_bytes
        self._clock = clock
        # Claims, as many as there are workers; and answers, in the order in which they were kept.
        self._claims: dict[str, _Entry] = {}
        self._kept: dict[str, _Entry] = {}
        self._bytes = 0

    @property
    def reach(self) -> Reach:
        """This process alone."""
        return Reach.INSTANCE

    @property
    def size_bytes(self) -> int:
        """What the answers take, roughly."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        """Take a key, or tell what it stands for; see `IdempotencyStore`."""
        now = self._clock()
        found = self._kept.get(key) or self._claims.get(key)
        if found is not None and now < found.until:
            return Claim(found.fingerprint, answer=found.answer)
        self._drop(key)
        self._claims[key] = _Entry(fingerprint, owner, now + lease)
        return Claim(fingerprint, is_mine=True)

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        """Keep claims from ending."""
        for key, owner in claims:
            found = self._claims.get(key)
            if found is not None and found.owner == owner:
                found.until = self._clock() + lease

    async def keep(self, key: str, owner: str, answer: bytes, window: float) -> None:
        """Keep an answer; the oldest ones make room for it."""
        claim = self._claims.get(key)
        if claim is None or claim.owner != owner:
            return
        del self._claims[key]
        entry = _Entry(claim.fingerprint, owner, self._clock() + window, answer)
        if entry.size_bytes > self._max_bytes:
            return
        self._make_room(entry.size_bytes)
        self._kept[key] = entry
        self._bytes += entry.size_bytes

    async def release(self, key: str, owner: str) -> None:
        """Give up a claim."""
        claim = self._claims.get(key)
        if claim is not None and claim.owner == owner:
            del self._claims[key]

    async def close(self) -> None:
        """Nothing to let go of."""

    def _make_room(self, size_bytes: int) -> None:
        now = self._clock()
        while self._kept:
            # Windows are alike, so the first is the first to end.
            key, first = next(iter(self._kept.items()))
            is_room = len(self._kept) < self._max_answers and self._bytes + size_bytes <= self._max_bytes
            if is_room and now < first.until:
                return
            self._drop(key)

    def _drop(self, key: str) -> None:
        self._claims.pop(key, None)
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= found.size_bytes
