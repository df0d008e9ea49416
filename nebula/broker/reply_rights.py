"""Reply rights: whoever received a request may answer it, and nothing else (DESIGN 4)."""

from __future__ import annotations

from typing import TypeAlias

from nebula.broker.messages import Message
from nebula.headers import REPLY_ID

# A request without a time to live may be answered for an hour.
_SECONDS = 3600.0

# A consumer that never answers collects rights: so many are kept, the oldest are forgotten first.
_MAX_RIGHTS = 100_000


_Key: TypeAlias = tuple[str, str | None]
"""Where an answer goes, and which request it names."""

_Right: TypeAlias = tuple[float, str]
"""Until when, and whose request it is."""


class ReplyRights:
    """What one connection may answer. They belong to it alone and survive the ACK of the request.

    Each delivery of a request gives one right, so requests without an id, or with the same one, can
    be answered once each.
    """

    __slots__ = ("_count", "_found", "_rights")

    def __init__(self) -> None:
        # Oldest first, in both.
        self._rights: dict[_Key, list[_Right]] = {}
        self._count = 0
        self._found: _Key | None = None

    def grant(self, message: Message, now: float) -> None:
        """The connection receives a request: it may answer once where that asks for the answer."""
        if self._count >= _MAX_RIGHTS:
            self._take(next(iter(self._rights)))
        head = message.head
        exchange = message.exchange
        if exchange is not None and exchange[0] == REPLY_ID:
            reply_id: str | None = exchange[1]
        else:
            reply_id = message.header(REPLY_ID)
        until = message.expires_at
        assert head.reply_to is not None
        key = (head.reply_to, reply_id)
        right = (now + _SECONDS if until is None else until, head.sender)
        rights = self._rights.get(key)
        if rights is None:
            self._rights[key] = [right]
        else:
            rights.append(right)
        self._count += 1

    def find(self, destination: str, reply_id: str | None, now: float) -> str | None:
        """Whose request may be answered at `destination` with this id; None: nobody's.

        What was found last is what `spend` spends.
        """
        key = (destination, reply_id)
        while rights := self._rights.get(key):
            until, requester = rights[0]
            if until > now:
                self._found = key
                return requester
            self._take(key)
        self._found = None
        return None

    def find_none(self) -> None:
        """The next SEND needs no right, so that `spend` spends none."""
        self._found = None

    def spend(self) -> tuple[_Key, _Right] | None:
        """The answer was accepted. Returns what it took, if it took any."""
        key, self._found = self._found, None
        return None if key is None else (key, self._take(key))

    def give_back(self, spent: tuple[_Key, _Right]) -> None:
        """Nothing came of the answer after all."""
        key, right = spent
        self._rights.setdefault(key, []).insert(0, right)
        self._count += 1

    def _take(self, key: _Key) -> _Right:
        rights = self._rights[key]
        self._count -= 1
        if len(rights) == 1:
            del self._rights[key]
        return rights.pop(0)
