"""A handler that blocks the event loop is named in a warning."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.injection import Depends
from nebula.rpc.middleware.chain import CallNext
from nebula.rpc.service import loop_watch
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.testing import TestClient

pytestmark = pytest.mark.anyio

_DEADLINE = 20.0


class Warned(logging.Handler):
    """The warnings so far. A handler that waits for one blocks its loop until it is there."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []
        self.is_there = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.is_there.set()

    def wait(self) -> None:
        assert self.is_there.wait(_DEADLINE)


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Warned]:
    monkeypatch.setattr(loop_watch, "_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(loop_watch, "_BLOCKED_SECONDS", 0.04)
    handler, logger = Warned(), logging.getLogger("nebula.rpc.service.loop_watch")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_verb_that_blocks_the_loop_is_named(warned: Warned) -> None:
    app = Responder("blocks")

    @app.verb("look.up")
    async def look_up() -> None:
        warned.wait()

    async with TestClient(app) as client:
        await client.call(look_up)

    (record,) = warned.records
    assert (record.levelname, record.event) == ("WARNING", "event loop blocked")
    assert (record.service, record.verb) == ("blocks", "look.up")
    line = look_up.__code__.co_firstlineno + 2
    assert Path(record.at).name == f"{Path(__file__).name}:{line}"


async def test_provider_middleware_and_listener_are_named_by_what_they_are_for(warned: Warned) -> None:
    async def provider() -> int:
        warned.wait()
        return 1

    async def around(request: Request, call_next: CallNext) -> ReplyBody:
        if request.verb == "quick":
            warned.is_there.clear()
            warned.wait()
        return await call_next(request)

    app = Responder("blocks", middleware=[around])

    @app.verb
    async def provided(*, one: int = Depends(provider)) -> int:
        return one

    @app.verb
    async def quick() -> None: ...

    heard = threading.Event()

    @app.on("/queue/notes")
    async def note(text: str) -> None:
        warned.is_there.clear()
        warned.wait()
        heard.set()

    @app.verb
    def has_heard() -> bool:
        return heard.wait(_DEADLINE)

    async with TestClient(app) as client:
        await client.call(provided)
        await client.call(quick)
        await client.stomp.send("/queue/notes", b"x")
        assert await client.call(has_heard)

    assert [record.verb for record in warned.records] == ["provided", "quick", "note"]


async def test_verb_is_named_once_a_minute(warned: Warned, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(loop_watch, "monotonic", lambda: now)
    app = Responder("blocks")

    async def until_seen() -> None:
        watch = app._running()._watch
        before = watch.blocks
        while watch.blocks == before:
            pass

    app.verb("first")(until_seen)
    app.verb("second")(until_seen)
    told: list[list[str]] = []
    async with TestClient(app) as client:
        for now, verb in [(0.0, "first"), (59.0, "first"), (59.0, "second"), (61.0, "first")]:  # noqa: B007
            await client.call("blocks", verb)
            told.append([record.verb for record in warned.records])

    # The second one was seen, and not told.
    assert told[-1] == ["first", "second", "first"]


async def test_plain_verb_and_one_that_waits_block_nothing(warned: Warned) -> None:
    app = Responder("waits")

    @app.verb
    def plain() -> None:
        # In a thread of its own: meanwhile the loop gives its signs of life.
        watch = app._running()._watch
        before = watch.signs
        while watch.signs < before + 5:
            pass

    async with TestClient(app) as client:
        await client.call(plain)

    assert warned.records == []


async def test_request_that_blocked_the_loop_is_not_kept(warned: Warned) -> None:
    app = Responder("blocks")
    kept: list[Any] = []

    class Large:
        pass

    @app.verb
    async def look_up() -> None:
        large = Large()
        kept.append(weakref.ref(large))
        warned.wait()

    async with TestClient(app) as client:
        await client.call(look_up)
        with anyio.fail_after(_DEADLINE):
            while gc.collect() >= 0 and kept[0]() is not None:
                await anyio.sleep(0.01)
