"""Mailbox: an unbounded queue for one reading task.

Putting never waits, so a synchronous call can put. Not `asyncio.Queue`, since services run on Trio as
well; not a memory stream of anyio, which must be closed on both sides.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import anyio

_Item = TypeVar("_Item")


class Mailbox(Generic[_Item]):
    """What was put in comes out in order. Putting never waits; one task takes."""

    def __init__(self) -> None:
        self._items: deque[_Item] = deque()
        self._has_items = anyio.Event()

    def put(self, item: _Item) -> None:
        """Add one."""
        self._items.append(item)
        self._has_items.set()

    async def take(self) -> _Item:
        """The first one, when there is one."""
        while not self._items:
            self._has_items = anyio.Event()
            await self._has_items.wait()
        return self._items.popleft()
