"""Reply rights: the receiver of a request may reply to it once, without a grant (G.reply-right)."""

from __future__ import annotations

from typing import Final, TypeAlias

from nebula.broker.core.account import Account
from nebula.broker.core.costs import text_cost_bytes
from nebula.broker.core.fixed_limits import MAX_REPLY_RIGHTS, REPLY_RIGHT_SECONDS
from nebula.broker.core.messages import Message
from nebula.broker.core.shares import Resource, Usage
from nebula.headers import REPLY_ID
from nebula.stomp import header_lines

_REPLY_ID: Final = header_lines.start_of(REPLY_ID)

# Memory that CPython uses for a right, without its texts.
RIGHT_COST_BYTES: Final = 250


_Key: TypeAlias = tuple[str, str | None]
"""Where a reply goes, and which request it names."""

Requester: TypeAlias = tuple[str, object]
"""Who sent a request: the principal, and the `Session.origin` of its connection. For a request that was read
from the store the origin is not known; its place takes the number of the request."""

ReplyRight: TypeAlias = tuple[float, Requester, float | None, int, _Key]
"""Until when; the requester; if it asked for a stream, for how many more seconds each part of that is a
reason to expect the next; what the right costs to keep, in bytes; and what it is for."""


class ReplyRights:
    """The requests that one connection may reply to. The rights are its own and survive the ACK of a request.

    Each delivery of a request gives one right, so requests without an id, or with the same one, can be
    replied to once each. The reply to a request for a stream comes in parts (G.stream): what ends the stream,
    its last part or an error, spends the right.

    Args:
        account: what all principals use.
        usage: of the principal that has the rights, and pays for them.
    """

    __slots__ = ("_account", "_count", "_rights", "_size_bytes", "_usage")

    def __init__(self, account: Account, usage: Usage) -> None:
        self._account = account
        self._usage = usage
        # Oldest first. One key has hardly ever more than one right: only then it has a list.
        self._rights: dict[_Key, ReplyRight | list[ReplyRight]] = {}
        self._count = 0
        self._size_bytes = 0

    def grant(self, message: Message, now: float) -> None:
        """The connection receives a request: it may reply once where that asks for the reply."""
        if self._count >= MAX_REPLY_RIGHTS:
            self._take(next(iter(self._rights)))
        elif self._rights and self._account.is_overdrawn(self._usage):
            self._take(next(iter(self._rights)))
            self._account.exceed(Resource.MEMORY, self._usage)
        head = message.head
        # Requests of an earlier run have it among the headers that are read.
        reply_id = header_lines.find(message.unread, _REPLY_ID) or message.header(REPLY_ID)
        until = message.expires_at
        # A stream may last longer than a caller waits for a reply, but not than its caller said.
        more = None if not head.is_stream else REPLY_RIGHT_SECONDS if until is None else 0.0
        assert head.reply_to is not None
        requester = head.sender, message.number if head.origin is None else head.origin
        cost_bytes = RIGHT_COST_BYTES + text_cost_bytes(head.reply_to, reply_id or "")
        key = (head.reply_to, reply_id)
        right = (now + REPLY_RIGHT_SECONDS if until is None else until, requester, more, cost_bytes, key)
        held = self._rights.get(key)
        if held is None:
            self._rights[key] = right
        elif isinstance(held, list):
            held.append(right)
        else:
            self._rights[key] = [held, right]
        self._count_in(right)

    def find(self, destination: str, reply_id: str | None, now: float) -> ReplyRight | None:
        """The right to reply at `destination` with this id; `spend` it when the reply is accepted."""
        key = (destination, reply_id)
        while (held := self._rights.get(key)) is not None:
            right = held[0] if isinstance(held, list) else held
            if right[0] > now:
                return right
            self._take(key)
        return None

    def spend(self, right: ReplyRight, now: float, *, goes_on: bool = False) -> ReplyRight | None:
        """The reply was accepted. Returns what it took, if it took any, for `give_back`.

        Args:
            right: as found.
            goes_on: the reply is a part of a stream, and not the last one.
        """
        until, requester, more, cost_bytes, key = right
        if not goes_on or more is None:  # without `more`, no stream was asked for
            return self._take(key)
        longer = (max(until, now + more), requester, more, cost_bytes, key)
        held = self._rights[key]
        if isinstance(held, list):
            held[0] = longer
        else:
            self._rights[key] = longer
        return None

    def give_back(self, right: ReplyRight) -> None:
        """The reply had no effect after all."""
        key = right[4]
        held = self._rights.pop(key, None)
        self._rights[key] = right if held is None else [right, *(held if isinstance(held, list) else [held])]
        self._count_in(right)

    def clear(self) -> None:
        """The connection has ended."""
        self._account.release(self._size_bytes, self._usage)
        self._rights.clear()
        self._count = self._size_bytes = 0

    def _count_in(self, right: ReplyRight) -> None:
        cost_bytes = right[3]
        self._count += 1
        self._size_bytes += cost_bytes
        # `Account.hold` and `release` written out: every request passes here.
        self._account.stored_bytes += cost_bytes
        self._usage.memory_bytes += cost_bytes

    def _take(self, key: _Key) -> ReplyRight:
        held = self._rights[key]
        right = held.pop(0) if isinstance(held, list) else held
        # No `is`: compiled code does not keep the identity of tuples.
        if not isinstance(held, list) or not held:
            del self._rights[key]
        cost_bytes = right[3]
        self._count -= 1
        self._size_bytes -= cost_bytes
        self._account.stored_bytes -= cost_bytes
        self._usage.memory_bytes -= cost_bytes
        return right
