"""Stopping a service: requests in progress get a reply, all others go to other instances at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from nebula.errors import RemoteError
from nebula.headers import DELIVERY_COUNT, NO_REPLY
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.envelope import BOO
from tests.rpc.scripted import brokers, header
from tests.stomp.peer import Peer, receipt_of

pytestmark = pytest.mark.anyio

# Calls while one stops: more than that one would have fetched before it stopped.
_CALLS = 300

# More than any queue here is sent before the first of it is acked.
_AHEAD = 500


class Duo:
    """Two instances of one service. The verb `held` waits for a signal; orders may fail at one."""

    def __init__(self, *, fails: bool = False, **options: Any) -> None:
        self.fails = fails
        self.name = f"duo-{uuid4().hex}"
        self.options = options
        self.is_held, self.go_on = anyio.Event(), anyio.Event()
        self.handled: list[int] = []
        self.counts: set[str | None] = set()

    def make(self, number: int) -> Responder:
        app = Responder(self.name, **self.options)

        @app.verb
        async def which() -> int:
            return number

        @app.verb
        async def held() -> int:
            self.is_held.set()
            await self.go_on.wait()
            return number

        @app.verb(concurrency=1)
        async def alone(ask: int, request: Request) -> int:
            self.handled.append(ask)
            self.counts.add(request.headers.get(DELIVERY_COUNT))
            if not self.is_held.is_set():
                self.is_held.set()
                await self.go_on.wait()
            return number

        @app.verb
        async def numbers(most: int) -> AsyncIterator[int]:
            for item in range(most):
                yield item

        if "state" in self.options:
            app.job(engine=None, name="report")(held)

        @app.on(f"/queue/{self.name}.orders")
        async def order(item: int) -> None:
            self.handled.append(item)
            if number == 0:
                self.is_held.set()
                await self.go_on.wait()
            elif self.fails:
                raise ValueError(item)

        return app

    @asynccontextmanager
    async def running(self, url: str, number: int, scope: anyio.CancelScope) -> AsyncGenerator[None]:
        """Run one of the instances for a block, or until the scope is cancelled."""
        started = anyio.Event()

        async def run() -> None:
            with scope:
                await self.make(number).run(url, started=started, grace=30)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await started.wait()
                yield
                scope.cancel()


async def test_calls_made_while_one_instance_stops_are_answered_by_the_other(
    broker_url: str, client: Client
) -> None:
    duo, first, second = Duo(concurrency=4), anyio.CancelScope(), anyio.CancelScope()
    answers: list[int] = []
    slow: list[int] = []

    async def ask() -> None:
        answers.append(await client.call(duo.name, "which", timeout=20))

    async def hold() -> None:
        slow.append(await client.call(duo.name, "held", timeout=20))

    async with duo.running(broker_url, 0, first), anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        await duo.is_held.wait()
        async with duo.running(broker_url, 1, second):
            async with anyio.create_task_group() as calls:
                for number in range(_CALLS):
                    if number == _CALLS // 3:
                        first.cancel()
                    calls.start_soon(ask)
                    await anyio.lowlevel.checkpoint()
            # The one that stops has not ended yet.
            assert slow == []
            assert len(answers) == _CALLS
            assert set(answers[-_CALLS // 3 :]) == {1}
            duo.go_on.set()

    assert slow == [0]


async def test_request_that_waited_for_a_worker_or_its_turn_goes_to_the_other_instance_uncounted(
    broker_url: str, client: Client
) -> None:
    duo, first, second = Duo(concurrency=2, max_attempts=1), anyio.CancelScope(), anyio.CancelScope()
    answers: list[int] = []

    async def ask(number: int) -> None:
        answers.append(await client.call(duo.name, "alone", number, timeout=20))

    async with duo.running(broker_url, 0, first), anyio.create_task_group() as calls:
        calls.start_soon(ask, 0)
        await duo.is_held.wait()
        for number in range(1, 20):
            calls.start_soon(ask, number)
        while (await client.call(duo.name, "stats"))["waiting"] < 19:
            await anyio.lowlevel.checkpoint()
        async with duo.running(broker_url, 1, second):
            first.cancel()
            while len(answers) < 19:
                await anyio.lowlevel.checkpoint()
            duo.go_on.set()

    assert answers == [1] * 19 + [0]
    assert sorted(duo.handled) == list(range(20))
    # One of those would be `too-many-attempts`.
    assert duo.counts == {None}


async def test_messages_of_a_queue_go_to_the_other_instance_while_one_stops(
    broker_url: str, client: Client
) -> None:
    duo, first, second = Duo(), anyio.CancelScope(), anyio.CancelScope()
    queue = f"/queue/{duo.name}.orders"

    async with duo.running(broker_url, 0, first):
        for item in range(3):
            await client.publish(queue, item)
        await duo.is_held.wait()
        async with duo.running(broker_url, 1, second):
            first.cancel()
            while len(duo.handled) < 3:
                await anyio.lowlevel.checkpoint()
            duo.go_on.set()

    assert sorted(duo.handled) == [0, 1, 2]


async def test_message_that_an_instance_gave_back_may_fail_as_often_as_any_other(
    broker_url: str, client: Client
) -> None:
    duo, first, second = Duo(fails=True, max_attempts=3), anyio.CancelScope(), anyio.CancelScope()
    queue = f"/queue/{duo.name}.orders"

    async with duo.running(broker_url, 0, first):
        for item in range(3):
            await client.publish(queue, item)
        await duo.is_held.wait()
        async with duo.running(broker_url, 1, second):
            first.cancel()
            while (await client.call(duo.name, "stats"))["listens"][0]["given_up"] < 2:
                await anyio.lowlevel.checkpoint()
            duo.go_on.set()

    assert sorted(duo.handled) == [0, *[1] * 3, *[2] * 3]


async def test_instance_that_stops_alone_leaves_messages_of_a_queue_as_they_were(
    broker_url: str, client: Client
) -> None:
    duo, first = Duo(), anyio.CancelScope()
    queue = f"/queue/{duo.name}.orders"

    async with duo.running(broker_url, 0, first):
        (instance,) = await client.services(duo.name)
        assert instance.queue is not None
        for item in range(4):
            await client.publish(queue, item)
        await duo.is_held.wait()
        first.cancel()
        # Until it says that it is stopping.
        with suppress(RemoteError):
            while True:
                await client.call(instance.queue, "which")
        duo.go_on.set()
    async with client.stomp.subscribe(queue) as rest:
        with anyio.fail_after(5):
            found = [await anext(rest) for _ in range(3)]

    # Other brokers do not promise the order of what comes back.
    assert sorted(one.body for one in found) == [b"1", b"2", b"3"]
    assert [one.headers.get(DELIVERY_COUNT) for one in found] == [None] * 3


async def test_request_to_an_instance_that_stops_is_answered_busy(broker_url: str, client: Client) -> None:
    duo, first = Duo(), anyio.CancelScope()

    async with duo.running(broker_url, 0, first), anyio.create_task_group() as tasks:
        (instance,) = await client.services(duo.name)
        assert instance.queue is not None
        tasks.start_soon(client.call, duo.name, "held")
        await duo.is_held.wait()
        first.cancel()
        while await client.services(duo.name):
            await anyio.lowlevel.checkpoint()
        with pytest.raises(RemoteError) as caught:
            await client.call(instance.queue, "which")
        duo.go_on.set()

    assert caught.value.code == "busy"
    assert caught.value.retryable


@pytest.mark.parametrize("has_jobs", [False, True])
async def test_stream_goes_on_whatever_an_instance_that_stops_is_sent_beside(
    broker_url: str, client: Client, tmp_path: Path, *, has_jobs: bool
) -> None:
    options: dict[str, Any] = {"state": tmp_path} if has_jobs else {}
    duo, first = Duo(concurrency=2, **options), anyio.CancelScope()

    async with duo.running(broker_url, 0, first):
        (instance,) = await client.services(duo.name)
        assert instance.queue is not None
        async with client.stream(duo.name, "numbers", 100, credit=2) as items:
            found = [await anext(items)]
            first.cancel()
            while await client.services(duo.name):
                await anyio.lowlevel.checkpoint()
            # Credit comes behind them.
            for _ in range(_AHEAD):
                if has_jobs:
                    # The next process of its name answers requests. This is none.
                    await client.stomp.send(instance.queue, BOO)
                else:
                    await client.publish(instance.queue, {"verb": "which"}, headers={NO_REPLY: "true"})
            found += [item async for item in items]

    assert found == list(range(100))


async def test_call_is_withdrawn_from_an_instance_that_stops(broker_url: str, client: Client) -> None:
    duo, first = Duo(), anyio.CancelScope()

    async with duo.running(broker_url, 0, first), anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, duo.name, "held")
        await duo.is_held.wait()
        first.cancel()
        while await client.services(duo.name):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    # It ended without `go_on`, and long before its grace.
    assert not duo.go_on.is_set()


def request(subscription: str, name: str, *headers: str) -> str:
    lines = "".join(f"{one}\n" for one in headers)
    return (
        f"MESSAGE\nsubscription:{subscription}\nmessage-id:{name}\nack:{name}\ndestination:/queue/shop\n"
        f"neb-reply-to:/queue/inbox\nneb-reply-id:{name}\n{lines}\nverb: {name}\nparameters: \n^@"
    )


async def subscribing(peer: Peer) -> str:
    """Let a service listen; the subscription to its queue."""
    await peer.accept("1.2", "server:Strange/1\n")
    found = ""
    while True:
        frame = await peer.hear()
        if frame.startswith("SUBSCRIBE\n"):
            await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@")
            if header(frame, "destination") == "/queue/shop":
                found = header(frame, "id")
            if header(frame, "destination").startswith("/topic/nebula.services"):
                return found


async def test_request_not_begun_over_a_foreign_broker_is_answered_busy() -> None:
    app = Responder("shop", concurrency=1)
    is_held, go_on = anyio.Event(), anyio.Event()
    said: list[str] = []

    @app.verb
    async def held() -> None:
        is_held.set()
        await go_on.wait()

    async def broker(peer: Peer) -> None:
        subscription = await subscribing(peer)
        await peer.say(request(subscription, "held"))
        await is_held.wait()
        await peer.say(request(subscription, "waited"))
        await peer.say(request(subscription, "quiet", "neb-no-reply:true"))
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        await peer.say(request(subscription, "late"))
        while len(said) < 4:
            said.append(await peer.hear())
        go_on.set()
        while not said[-1].startswith("DISCONNECT"):
            said.append(await peer.hear())

    async with brokers(broker) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=10))

    answered = {
        header(frame, "neb-in-reply-to"): header(frame, "neb-error-code") if "neb-error-code" in frame else ""
        for frame in said
        if frame.startswith("SEND\n") and "neb-in-reply-to" in frame
    }
    acked = [header(frame, "id") for frame in said if frame.startswith("ACK\n")]
    assert answered == {"waited": "busy", "late": "busy", "held": ""}
    assert acked == ["waited", "late", "held"]
    assert not any(frame.startswith(("UNSUBSCRIBE", "NACK")) for frame in said)


async def test_service_stopped_while_it_begins_to_listen_answers_what_it_has_begun() -> None:
    app = Responder("shop")
    is_held, go_on = anyio.Event(), anyio.Event()
    said: list[str] = []

    @app.verb
    async def held() -> None:
        is_held.set()
        await go_on.wait()

    async def broker(peer: Peer) -> None:
        await peer.accept("1.2", "server:Strange/1\n")
        frame = await peer.hear()
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@")
        await peer.say(request(header(frame, "id"), "held"))
        await is_held.wait()
        # All other SUBSCRIBEs stay without an answer.
        tasks.cancel_scope.cancel()
        await anyio.wait_all_tasks_blocked()
        go_on.set()
        while not (said and said[-1].startswith("DISCONNECT")):
            said.append(await peer.hear())

    async with brokers(broker) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=10))

    assert [header(frame, "neb-in-reply-to") for frame in said if frame.startswith("SEND\n")] == ["held"]
    assert [header(frame, "id") for frame in said if frame.startswith("ACK\n")] == ["held"]
