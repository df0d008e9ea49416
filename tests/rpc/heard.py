"""Recorded calls of a service's functions, for tests that wait for them."""

from __future__ import annotations

from typing import Any

import anyio

_DEADLINE = 20.0


class Heard:
    """The arguments of handlers, in order."""

    def __init__(self) -> None:
        self.all: list[Any] = []
        self._more = anyio.Event()

    def __call__(self, one: Any) -> None:
        self.all.append(one)
        self._more.set()
        self._more = anyio.Event()

    async def until(self, count: int) -> list[Any]:
        with anyio.fail_after(_DEADLINE):
            while len(self.all) < count:
                await self._more.wait()
        return self.all
