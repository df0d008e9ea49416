"""Known heads: header blocks that following messages of a connection may share, and their costs.

Theory. A publisher sends the same headers again and again. The parser remembers header blocks by their
bytes, and hands out the same dict and the same `Memo` for the same bytes; in the memo the protocol keeps the
`Head` made from them. So most SENDs cost no parsing of headers, no judgement of rights, and no memory for a
head of their own.

That memory has to be paid for all the same. The first message with a head pays for it, and the others count
nothing. But the first one may be consumed long before the others. While the parser may still hand out the
head, it is bounded here (64 KiB for each connection), so this does no harm. When it cannot be handed out any
more, the head is closed: if several messages have used it, the sender's principal pays for it until the last
of them is gone (`Account.hold_head`).
"""

from __future__ import annotations

from collections import deque

from nebula.broker.core.account import Account
from nebula.broker.core.fixed_limits import MAX_KNOWN_HEAD_BYTES, MAX_KNOWN_HEAD_CHARACTERS
from nebula.broker.core.messages import Head
from nebula.broker.core.shares import Usage


class KnownHeads:
    """Heads of a connection that later messages with the same headers may share.

    Args:
        account: what all principals use.
        usage: of the principal of the connection.
    """

    __slots__ = ("_account", "_heads", "_size_bytes", "_usage")

    def __init__(self, account: Account, usage: Usage) -> None:
        self._account = account
        self._usage = usage
        self._heads: deque[Head] = deque()
        self._size_bytes = 0

    def add(self, head: Head) -> None:
        """A head is new. It can be shared until many others have come, or until `clear`."""
        if head.text_characters > MAX_KNOWN_HEAD_CHARACTERS:
            return
        self._heads.append(head)
        self._size_bytes += head.own_bytes
        while self._size_bytes > MAX_KNOWN_HEAD_BYTES:
            self._close(self._heads.popleft())

    def clear(self) -> None:
        """The connection has ended."""
        while self._heads:
            self._close(self._heads.popleft())

    def _close(self, head: Head) -> None:
        self._size_bytes -= head.own_bytes
        for each in (head, head.copy):
            if each is not None and each.close():
                self._account.hold_head(each, self._usage)
