"""An app without verbs, for what a responder would not do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from nebula.stomp.client.link import Link


class RawApp:
    """An app that is no responder: `work` gets the link's opener and the event to set."""

    def __init__(self, work: Callable[[Callable[[], Awaitable[Link]], anyio.Event], Awaitable[None]]) -> None:
        self.name = "raw"
        self._work = work

    async def run(
        self,
        url: str | None = None,
        *,
        link: Callable[[], Awaitable[Link]] | None = None,
        started: anyio.Event | None = None,
        grace: float = 5.0,
    ) -> None:
        assert link is not None
        assert started is not None
        await self._work(link, started)
