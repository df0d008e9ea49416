"""Replies kept in memory, for idempotency keys of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from time import monotonic

from nebula.logs import get_logger
from nebula.rpc.idempotency.store import Claim, Reach, sender_of

_log = get_logger(__name__)

# What an entry takes besides its reply: key, fingerprint and objects, roughly.
_OVERHEAD_BYTES = 800


@dataclass(slots=True)
class _Entry:
    fingerprint: str
    owner: str
    until: float
    reply: bytes | None = None

    @property
    def size_bytes(self) -> int:
        return _OVERHEAD_BYTES + len(self.reply or b"")


@dataclass(slots=True)
class _Share:
    """What is kept for one sender: keys, the oldest first."""

    keys: dict[str, None] = field(default_factory=dict)
    size_bytes: int = 0


# Shares by sender: with one limit for all, a client that sends many keys would push out the replies of
# all others, and their retries would be handled twice. So a sender with more than an equal share loses
# its oldest.
class MemoryStore:
    """Keeps replies in memory, up to a size; beyond it, drops the oldest of the sender with the most.

    A request whose reply has gone is handled again when it comes again; the log says so, once.

    Args:
        max_bytes: of all replies, each with 800 for its overhead. A single one that is larger is not
            kept.
        clock: the time in seconds.
    """

    def __init__(
        self,
        *,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = lambda: monotonic(),  # noqa: PLW0108  # looked up each time: tests move it
    ) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        # Claims, as many as there are workers; and replies, in the order in which they were kept.
        self._claims: dict[str, _Entry] = {}
        self._kept: dict[str, _Entry] = {}
        self._shares: dict[str, _Share] = {}
        self._bytes = 0
        self._has_told = False

    @property
    def reach(self) -> Reach:
        """This process alone."""
        return Reach.INSTANCE

    @property
    def size_bytes(self) -> int:
        """What the replies take, roughly."""
        return self._bytes

    def __len__(self) -> int:
        return len(self._kept)

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        """Claim a key, or return what it stands for; see `IdempotencyStore`."""
        now = self._clock()
        found = self._kept.get(key) or self._claims.get(key)
        if found is not None and now < found.until:
            return Claim(found.fingerprint, reply=found.reply)
        self._drop(key)
        self._claims[key] = _Entry(fingerprint, owner, now + lease)
        return Claim(fingerprint, is_mine=True)

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        """Extend claims."""
        for key, owner in claims:
            found = self._claims.get(key)
            if found is not None and found.owner == owner:
                found.until = self._clock() + lease

    async def keep(self, key: str, owner: str, reply: bytes, window: float) -> None:
        """Keep a reply; older ones make room for it."""
        claim = self._claims.get(key)
        # The lease ended while the handler ran, and another request may have the key: its outcome counts.
        if claim is None or claim.owner != owner:
            return
        del self._claims[key]
        entry = _Entry(claim.fingerprint, owner, self._clock() + window, reply)
        if entry.size_bytes > self._max_bytes:
            self._tell()
            return
        self._make_room(entry.size_bytes, sender_of(key))
        self._kept[key] = entry
        share = self._shares.setdefault(sender_of(key), _Share())
        share.keys[key] = None
        share.size_bytes += entry.size_bytes
        self._bytes += entry.size_bytes

    async def release(self, key: str, owner: str) -> None:
        """Give up a claim."""
        claim = self._claims.get(key)
        if claim is not None and claim.owner == owner:
            del self._claims[key]

    async def close(self) -> None:
        """Nothing to close."""

    def _make_room(self, size_bytes: int, sender: str) -> None:
        now = self._clock()
        # Windows are alike, so the first is the first to end.
        while self._kept and (first := next(iter(self._kept.items())))[1].until <= now:
            self._drop(first[0])
        while self._bytes + size_bytes > self._max_bytes:
            self._tell()
            self._drop(next(iter(self._largest_share(sender).keys)))

    def _largest_share(self, sender: str) -> _Share:
        own = self._shares.get(sender)
        # More than the average is enough: to look at all of them takes long where there are many.
        if own is not None and own.size_bytes * len(self._shares) > self._bytes:
            return own
        return max(self._shares.values(), key=lambda share: share.size_bytes)

    def _drop(self, key: str) -> None:
        self._claims.pop(key, None)
        found = self._kept.pop(key, None)
        if found is not None:
            self._bytes -= found.size_bytes
            share = self._shares[sender_of(key)]
            share.size_bytes -= found.size_bytes
            del share.keys[key]
            if not share.keys:
                del self._shares[sender_of(key)]

    def _tell(self) -> None:
        if not self._has_told:
            self._has_told = True
            _log.warning("replies dropped before their time", max_bytes=self._max_bytes)
