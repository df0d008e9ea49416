"""Requests that come again after their service lost its connection, and do not block themselves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

import anyio
import anyio.from_thread
import pytest

from nebula.rpc.service.responder import Responder
from tests.rpc.scripted import brokers, header
from tests.stomp.peer import Peer, receipt_of

pytestmark = pytest.mark.anyio


async def confirm(peer: Peer, destination: str, headers: str = "") -> str:
    """Answer SUBSCRIBEs up to that of a destination; its id."""
    while True:
        frame = await peer.hear()
        is_it = header(frame, "destination").startswith(destination)
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n{headers if is_it else ''}\n^@")
        if is_it:
            return header(frame, "id")


async def ask(peer: Peer, name: str, verb: str = "held", headers: str = "") -> None:
    """A request by the first subscription, /queue/shop's."""
    await peer.say(
        f"MESSAGE\nsubscription:1\nmessage-id:{name}\nack:{name}\ndestination:/queue/shop\n"
        f"neb-reply-to:/queue/inbox\nneb-reply-id:{name}\n{headers}\nverb: {verb}\nparameters: \n^@"
    )


async def answers(peer: Peer, count: int) -> list[tuple[str, str]]:
    """The next answers: to which request, and the code of the error, if it is one."""
    found: list[tuple[str, str]] = []
    while len(found) < count:
        frame = await peer.hear()
        if frame.startswith("SEND\n") and "neb-in-reply-to" in frame:
            code = header(frame, "neb-error-code") if "neb-error-code" in frame else ""
            found.append((header(frame, "neb-in-reply-to"), code))
    return found


@pytest.mark.parametrize(("workers", "of_verb"), [(1, None), (8, 1)])
async def test_requests_that_were_accepted_are_accepted_again(workers: int, of_verb: int | None) -> None:
    app = Responder("shop", concurrency=workers, max_waiting=1)
    begun, go_on = anyio.Event(), anyio.Event()
    found: list[tuple[str, str]] = []

    @app.verb(concurrency=of_verb)
    async def held() -> None:
        begun.set()
        await go_on.wait()

    async def first(peer: Peer) -> None:
        await peer.accept("1.2", "server:MaXaM/0\n")
        await confirm(peer, "/topic/nebula.services")
        await ask(peer, "one")
        await begun.wait()
        await ask(peer, "two")
        await anyio.wait_all_tasks_blocked()

    async def second(peer: Peer) -> None:
        await peer.accept("1.2", "server:MaXaM/0\n")
        await confirm(peer, "/topic/nebula.services")
        for name in ("one", "two", "three"):
            await ask(peer, name)
        await anyio.wait_all_tasks_blocked()
        go_on.set()
        found.extend(await answers(peer, 3))
        tasks.cancel_scope.cancel()

    async with brokers(first, second) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=0.05))

    # The third one is one more than may wait, as before.
    assert found == [("three", "busy"), ("one", ""), ("two", "")]


async def test_stream_that_a_thread_has_not_left_yet_may_be_asked_for_again() -> None:
    app = Responder("shop")
    begun, go_on = anyio.Event(), threading.Event()
    runs: list[int] = []
    found: list[tuple[str, str]] = []

    @app.verb
    def rows() -> Iterator[int]:
        runs.append(1)
        anyio.from_thread.run_sync(begun.set)
        if len(runs) == 1:
            go_on.wait()
        yield 5

    stream = "neb-stream:true\n"

    async def first(peer: Peer) -> None:
        await peer.accept("1.2", "server:MaXaM/0\n")
        await confirm(peer, "/topic/nebula.services")
        await ask(peer, "one", "rows", stream)
        await begun.wait()

    async def second(peer: Peer) -> None:
        await peer.accept("1.2", "server:MaXaM/0\n")
        await confirm(peer, "/topic/nebula.services")
        await ask(peer, "one", "rows", stream)
        try:
            found.extend(await answers(peer, 1))
        finally:
            go_on.set()
        tasks.cancel_scope.cancel()

    async with brokers(first, second) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=0.05))

    assert found == [("one", "")]


async def test_request_of_a_connection_that_could_not_be_had_is_not_answered_by_the_next() -> None:
    app = Responder("shop", queues=["shop", "till"])
    begun, go_on = anyio.Event(), anyio.Event()
    said: list[str] = []

    @app.verb
    async def held() -> None:
        begun.set()
        await go_on.wait()

    async def first(peer: Peer) -> None:
        await peer.accept("1.2", "server:MaXaM/0\n")
        await confirm(peer, "/topic/nebula.services")

    async def second(peer: Peer) -> None:
        await peer.accept("1.2", "server:MaXaM/0\n")
        await confirm(peer, "/queue/shop")
        await ask(peer, "one")
        await begun.wait()
        # The service may read one of its queues no more.
        await confirm(peer, "/queue/till", "result:ignored\n")
        while not (await peer.hear()).startswith("DISCONNECT"):
            pass

    async def third(peer: Peer) -> None:
        await peer.accept("1.2", "server:MaXaM/0\n")
        await confirm(peer, "/topic/nebula.services")
        go_on.set()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        while not (said and said[-1].startswith("DISCONNECT")):
            said.append(await peer.hear())

    async with brokers(first, second, third) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=5))

    assert not any(frame.startswith("SEND") and "neb-in-reply-to:one" in frame for frame in said)
