"""Reply rights: whoever received a request may answer it, and nothing else (DESIGN 4)."""

from __future__ import annotations

from typing import Final, TypeAlias

from nebula.broker.core.account import Account
from nebula.broker.core.fixed_limits import MAX_REPLY_RIGHTS, REPLY_RIGHT_SECONDS
from nebula.broker.core.messages import Message
from nebula.broker.core.shares import Resource, Usage, text_cost_bytes
from nebula.headers import REPLY_ID

# Memory that CPython uses for a right, without its texts.
RIGHT_COST_BYTES: Final = 250


_Key: TypeAlias = tuple[str, str | None]
"""Where an answer goes, and which request it names."""

Asker: TypeAlias = tuple[str, object]
"""Whose request it is: the principal, and the `Session.origin` of its connection. For a request that was read
from the store the origin is not known; its place takes the number of the request."""

_Right: TypeAlias = tuple[float, Asker, float | None, int]
"""Until when; whose request it is; where it asked for a stream, for how many more seconds each part of that
is a reason to expect the next; and what it costs to keep, in bytes."""


class ReplyRights:
    """What one connection may answer. They belong to it alone and survive the ACK of the request.

    Each delivery of a request gives one right, so requests without an id, or with the same one, can
    be answered once each. One that asked for a stream is answered by parts: what ends the stream, be it its
    last part or an error, spends the right.

    Args:
        account: what all principals use.
        usage: of the principal that has the rights, and pays for them.
    """

    __slots__ = ("_account", "_count", "_found", "_rights", "_size_bytes", "_usage")

    def __init__(self, account: Account, usage: Usage) -> None:
        self._account = account
        self._usage = usage
        # Oldest first. One key has hardly ever more than one right: only then it has a list.
        self._rights: dict[_Key, _Right | list[_Right]] = {}
        self._count = 0
        self._size_bytes = 0
        self._found: _Key | None = None

    def grant(self, message: Message, now: float) -> None:
        """The connection receives a request: it may answer once where that asks for the answer."""
        if self._count >= MAX_REPLY_RIGHTS:
            self._take(next(iter(self._rights)))
        elif self._rights and self._account.is_overdrawn(self._usage):
            self._take(next(iter(self._rights)))
            self._account.exceed(Resource.MEMORY, self._usage)
        head = message.head
        exchange = message.exchange
        if exchange is not None and exchange[0] == REPLY_ID:
            reply_id: str | None = exchange[1]
        else:
            reply_id = message.header(REPLY_ID)
        until = message.expires_at
        # A stream may last longer than anybody waits for an answer, but not than its caller said.
        more = None if not head.is_stream else REPLY_RIGHT_SECONDS if until is None else 0.0
        assert head.reply_to is not None
        asker = head.sender, message.number if head.origin is None else head.origin
        cost_bytes = RIGHT_COST_BYTES + text_cost_bytes(head.reply_to, reply_id or "")
        right = (now + REPLY_RIGHT_SECONDS if until is None else until, asker, more, cost_bytes)
        key = (head.reply_to, reply_id)
        held = self._rights.get(key)
        if held is None:
            self._rights[key] = right
        elif isinstance(held, list):
            held.append(right)
        else:
            self._rights[key] = [held, right]
        self._count_in(right)

    def find(self, destination: str, reply_id: str | None, now: float) -> Asker | None:
        """Whose request may be answered at `destination` with this id; None: nobody's.

        What was found last is what `spend` spends.
        """
        key = (destination, reply_id)
        while (held := self._rights.get(key)) is not None:
            until, asker, _, _ = _first(held)
            if until > now:
                self._found = key
                return asker
            self._take(key)
        self._found = None
        return None

    def find_none(self) -> None:
        """The next SEND needs no right, so that `spend` spends none."""
        self._found = None

    def spend(self, now: float, *, goes_on: bool = False) -> tuple[_Key, _Right] | None:
        """The answer was accepted. Returns what it took, if it took any.

        Args:
            now: the time.
            goes_on: it is a part of a stream, and not the last one.
        """
        key, self._found = self._found, None
        if key is None:
            return None
        if not goes_on:
            return key, self._take(key)
        held = self._rights[key]
        until, asker, more, cost_bytes = _first(held)
        if more is None:
            # Nobody asked for a stream.
            return key, self._take(key)
        right = (max(until, now + more), asker, more, cost_bytes)
        if isinstance(held, list):
            held[0] = right
        else:
            self._rights[key] = right
        return None

    def give_back(self, spent: tuple[_Key, _Right]) -> None:
        """Nothing came of the answer after all."""
        key, right = spent
        held = self._rights.pop(key, None)
        self._rights[key] = right if held is None else [right, *(held if isinstance(held, list) else [held])]
        self._count_in(right)

    def clear(self) -> None:
        """The connection has ended."""
        self._account.release(self._size_bytes, self._usage)
        self._rights.clear()
        self._count = self._size_bytes = 0

    def _count_in(self, right: _Right) -> None:
        cost_bytes = right[3]
        self._count += 1
        self._size_bytes += cost_bytes
        # `Account.hold` and `release` written out: every request passes here.
        self._account.stored_bytes += cost_bytes
        self._usage.memory_bytes += cost_bytes

    def _take(self, key: _Key) -> _Right:
        held = self._rights[key]
        right = held.pop(0) if isinstance(held, list) else held
        if right is held or not held:
            del self._rights[key]
        cost_bytes = right[3]
        self._count -= 1
        self._size_bytes -= cost_bytes
        self._account.stored_bytes -= cost_bytes
        self._usage.memory_bytes -= cost_bytes
        return right


def _first(held: _Right | list[_Right]) -> _Right:
    return held[0] if isinstance(held, list) else held
