"""Who pays for headers that several messages share."""

from __future__ import annotations

from collections import deque
from typing import Final

from nebula.broker.core.account import Account
from nebula.broker.core.messages import Head
from nebula.broker.core.shares import Usage

# Of the latest heads of a connection, what may still be shared: more than a parser remembers.
_MOST_BYTES: Final = 64 * 1024

# A longer head is new with each SEND, as no parser remembers it.
_MOST_CHARACTERS: Final = 1024


class SharedHeads:
    """The heads that coming messages of a connection may share with those before them.

    The first message with a head pays for it. It may be gone long before the others, so a head that can no
    longer be shared is paid for by its sender until no message has it.

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
        if head.text_characters > _MOST_CHARACTERS:
            return
        self._heads.append(head)
        self._size_bytes += head.own_bytes
        while self._size_bytes > _MOST_BYTES:
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
