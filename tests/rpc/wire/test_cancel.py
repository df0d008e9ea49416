"""Cancels: how they are read and remembered, and what happens to the request.

Rules: G.cancel.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from nebula.broker.core.access import AccessPolicy, Capability, Grants
from nebula.rpc.client.client import Client
from nebula.rpc.client.inbox import publish_cancel
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import verb
from nebula.rpc.service.request_handler import RequestHandler
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.cancel import Cancel, PendingCancels, cancel_topics
from nebula.stomp.client import Message, StompClient
from tests.rpc.conftest import RunningBroker, Serving

JSON = {"content-type": "application/json"}
INBOX = "/queue/replies"

# --- the message ---


def test_cancel_is_read_as_the_protocol_has_it() -> None:
    body = b'{"reply-to":"/queue/replies","reply-id":"r1","timeout":1500}'

    assert Cancel.parse(body) == Cancel(INBOX, "r1", 1.5)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"boo",
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"\xff",
        b'{"reply-to":"/queue/a"}',
        b'{"reply-id":"1"}',
        b'{"reply-to":1,"reply-id":"1"}',
        b'{"reply-to":"/queue/a","reply-id":null}',
        b'{"reply-to":"/queue/a","reply-id":"' + b"1" * 501 + b'"}',
        b'{"reply-to":"' + b"a" * 501 + b'","reply-id":"1"}',
        b"[" * 100_000,
    ],
)
def test_malformed_cancel_is_ignored(body: bytes) -> None:
    assert Cancel.parse(body) is None


@pytest.mark.parametrize("timeout", ["-1", "1.5", '"5"', "true", "null", "[]"])
def test_malformed_time_of_a_cancel_is_ignored(timeout: str) -> None:
    body = f'{{"reply-to":"/queue/a","reply-id":"1","timeout":{timeout}}}'.encode()

    assert Cancel.parse(body) == Cancel("/queue/a", "1", None)


def test_endless_time_of_a_cancel_is_a_day() -> None:
    body = b'{"reply-to":"/queue/a","reply-id":"1","timeout":1' + b"0" * 400 + b"}"

    assert Cancel.parse(body) == Cancel("/queue/a", "1", 24 * 3600.0)


def test_service_listens_for_cancels_to_its_name_and_to_each_of_its_queues() -> None:
    topics = cancel_topics(
        "prices", ["/queue/prices", "/queue/slow", "/queue/prices.a1", "/amq/queue/prices"]
    )

    assert topics == ["/topic/nebula.cancel.prices", "/topic/nebula.cancel.slow"]


# --- remembering ---


def test_withdrawn_request_is_known_once() -> None:
    withdrawn = PendingCancels()
    withdrawn.remember(Cancel(INBOX, "r1"), "alice", 0)

    assert not withdrawn.take(INBOX, "r2", "alice", 1)
    assert not withdrawn.take("/queue/other", "r1", "alice", 1)
    assert not withdrawn.take(INBOX, "r1", "mallory", 1)
    assert not withdrawn.take(INBOX, "r1", None, 1)
    assert withdrawn.take(INBOX, "r1", "alice", 1)
    assert not withdrawn.take(INBOX, "r1", "alice", 1)


def test_cancel_without_a_known_principal_counts_for_any() -> None:
    withdrawn = PendingCancels()
    withdrawn.remember(Cancel(INBOX, "r1"), None, 0)

    assert withdrawn.take(INBOX, "r1", "alice", 1)


@pytest.mark.parametrize(("seconds", "until"), [(None, 30.0), (2.0, 2.0)])
def test_withdrawn_request_is_forgotten_when_it_cannot_come_any_more(
    seconds: float | None, until: float
) -> None:
    withdrawn = PendingCancels()
    for now in (until - 0.001, until):
        withdrawn.remember(Cancel(INBOX, "r1", seconds), None, 0)
        assert withdrawn.take(INBOX, "r1", None, now) is (now < until)


def test_no_more_than_ten_thousand_are_remembered() -> None:
    withdrawn = PendingCancels()
    for number in range(10_001):
        withdrawn.remember(Cancel(INBOX, str(number)), None, 0)

    assert len(withdrawn) == 10_000
    assert not withdrawn.take(INBOX, "0", None, 1)
    assert withdrawn.take(INBOX, "1", None, 1)
    assert withdrawn.take(INBOX, "10000", None, 1)


def test_those_that_are_over_make_room() -> None:
    withdrawn = PendingCancels()
    withdrawn.remember(Cancel(INBOX, "old", 1), None, 0)
    withdrawn.remember(Cancel(INBOX, "new", 1), None, 2)

    assert len(withdrawn) == 1


# --- what becomes of the request ---


class Caller:
    """A STOMP client that asks, and withdraws what it asked."""

    def __init__(self, stomp: StompClient, replies: Any, service: str) -> None:
        self.stomp = stomp
        self._replies = replies
        self._service = service
        self.reply_to: str = replies.push.destination

    def ask(self, what: str, reply_id: str, **headers: str) -> None:
        body = f'{{"verb":"{what}"}}'.encode()
        reply = {"neb-reply-to": self.reply_to, "neb-reply-id": reply_id}
        self.stomp.post(f"/queue/{self._service}", body, JSON | reply | headers)

    def cancel(self, reply_id: str, reply_to: str | None = None) -> None:
        publish_cancel(self.stomp, f"/queue/{self._service}", reply_to or self.reply_to, reply_id, 30)

    async def next_reply(self) -> Message:
        with anyio.fail_after(5):
            answer: Message = await anext(self._replies)
        return answer

    async def next_reply_id(self) -> str:
        return (await self.next_reply()).headers["neb-in-reply-to"]


@asynccontextmanager
async def calling(broker_url: str, app: Responder) -> AsyncGenerator[Caller]:
    reply_queue = f"/queue/replies-{uuid4().hex}"
    async with StompClient(broker_url) as stomp, stomp.subscribe(reply_queue) as replies:
        yield Caller(stomp, replies, app.name)


class Gated:
    """A service of one worker whose verb `wait` waits until it is let go, or cancelled."""

    def __init__(self) -> None:
        self.app = Responder(f"cancel-{uuid4().hex}", concurrency=1)
        self.entered = anyio.Event()
        self.opened = anyio.Event()
        self.cancelled = anyio.Event()
        self.runs: list[None] = []
        self.app.include(self)

    @verb
    async def wait(self) -> None:
        self.entered.set()
        try:
            await self.opened.wait()
        except anyio.get_cancelled_exc_class():
            self.cancelled.set()
            raise

    @verb
    async def run(self) -> None:
        self.runs.append(None)


@pytest.mark.anyio
async def test_cancelled_handler_is_cancelled_and_its_request_neither_answered_nor_given_back(
    broker_url: str, serving: Serving
) -> None:
    gated = Gated()
    async with calling(broker_url, gated.app) as caller:
        async with serving(gated.app):
            caller.ask("wait", "r1")
            with anyio.fail_after(5):
                await gated.entered.wait()
                caller.cancel("r1")
                await gated.cancelled.wait()
            # Its worker is the only one, and goes on.
            caller.ask("stats", "r2")
            assert await caller.next_reply_id() == "r2"

        async with caller.stomp.subscribe(f"/queue/{gated.app.name}") as rest:
            await caller.stomp.send(f"/queue/{gated.app.name}", b"only this")
            with anyio.fail_after(5):
                assert (await anext(rest)).body == b"only this"


@pytest.mark.anyio
async def test_cancelled_request_that_waits_never_starts(broker_url: str, serving: Serving) -> None:
    gated = Gated()
    async with calling(broker_url, gated.app) as caller, serving(gated.app):
        caller.ask("wait", "r1")
        with anyio.fail_after(5):
            await gated.entered.wait()
        caller.ask("run", "r2")
        caller.cancel("r2")
        # Both are on their way over one connection: who sees this one's end has had the cancel before.
        caller.cancel("r1")
        with anyio.fail_after(5):
            await gated.cancelled.wait()
        caller.ask("ping", "r3")
        assert await caller.next_reply_id() == "r3"

    assert not gated.runs


@pytest.mark.anyio
async def test_cancel_that_names_another_reply_queue_does_not_count(
    broker_url: str, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Message] = []
    withdraw = RequestHandler.withdraw

    def hear(handler: RequestHandler, message: Message) -> None:
        withdraw(handler, message)
        heard.append(message)

    monkeypatch.setattr(RequestHandler, "withdraw", hear)
    gated = Gated()
    async with calling(broker_url, gated.app) as caller, serving(gated.app):
        caller.ask("wait", "r1")
        with anyio.fail_after(5):
            await gated.entered.wait()
        caller.cancel("r1", reply_to="/queue/strange")
        caller.cancel("unknown")
        # Not a cancel at all.
        caller.stomp.post(f"/topic/nebula.cancel.{gated.app.name}", b"boo", {})
        # Comes after them, and is seen to have come.
        caller.ask("run", "r2")
        caller.cancel("r2")
        # RabbitMQ keeps no order between a queue and a topic.
        with anyio.fail_after(5):
            while len(heard) < 4:
                await anyio.sleep(0.01)
        gated.opened.set()
        assert await caller.next_reply_id() == "r1"

    assert not gated.cancelled.is_set()
    assert not gated.runs


@pytest.mark.anyio
async def test_thread_learns_that_its_request_is_cancelled_and_its_reply_is_dropped(
    broker_url: str, serving: Serving
) -> None:
    app = Responder(f"cancel-{uuid4().hex}", concurrency=1)
    entered, told = threading.Event(), threading.Event()

    @app.verb
    def compute(request: Request) -> str:
        entered.set()
        # The last one is as good as for ever: the test's time is over before.
        for _ in range(5_000):
            if request.cancelled:
                told.set()
                break
            threading.Event().wait(0.001)
        return "late"

    async with calling(broker_url, app) as caller, serving(app):
        caller.ask("compute", "r1")
        with anyio.fail_after(5):
            await anyio.to_thread.run_sync(entered.wait)
            caller.cancel("r1")
            await anyio.to_thread.run_sync(told.wait)
        caller.ask("ping", "r2")
        assert await caller.next_reply_id() == "r2"


@pytest.fixture
def strict_broker() -> Iterator[RunningBroker]:
    """A broker where every principal may serve and call at one queue, and nothing else."""
    capability = Capability(publish=("/queue/quick",), subscribe=("/queue/quick",))
    access = AccessPolicy(Grants({"Quick": capability}, {"anonymous": ("Quick",)}))
    broker = RunningBroker(access=access)
    yield broker
    broker.stop()


@pytest.mark.anyio
async def test_service_that_may_not_receive_cancels_replies_all_the_same(
    strict_broker: RunningBroker,
) -> None:
    # Its name is another than its queue's, so it may not listen where it would be cancelled by name.
    app = Responder("named-otherwise", queues=["quick"])
    started = anyio.Event()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, strict_broker.url, started=started, grace=0.05))
        with anyio.fail_after(5):
            await started.wait()
            async with Client(strict_broker.url) as client:
                assert await client.call("quick", "ping") is None
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_handler_that_swallows_its_cancellation_is_not_answered(
    broker_url: str, serving: Serving
) -> None:
    app = Responder(f"cancel-{uuid4().hex}", concurrency=1)
    entered, swallowed = anyio.Event(), anyio.Event()

    @app.verb
    async def insist() -> str:
        entered.set()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            swallowed.set()
        return "nevertheless"

    async with calling(broker_url, app) as caller, serving(app):
        caller.ask("insist", "r1")
        with anyio.fail_after(5):
            await entered.wait()
            caller.cancel("r1")
            await swallowed.wait()
        # Its worker rested meanwhile, and none is counted as busy but for this one.
        caller.ask("stats", "r2")
        answer = await caller.next_reply()

    assert answer.headers["neb-in-reply-to"] == "r2"
    assert json.loads(answer.body)["parameters"]["busy"] == 1


@pytest.mark.anyio
async def test_ended_request_never_takes_another_one_with_it(broker_url: str, serving: Serving) -> None:
    app = Responder(f"cancel-{uuid4().hex}", concurrency=2)

    @app.verb
    async def step() -> None:
        for _ in range(5):
            await anyio.sleep(0)

    kept = {f"keep-{number}" for number in range(150)}
    async with calling(broker_url, app) as caller, serving(app):
        for number in range(150):
            # Some are cancelled while they run, some before, some when they are done.
            caller.ask("step", f"drop-{number}")
            caller.ask("step", f"keep-{number}")
            caller.cancel(f"drop-{number}")
        while kept:
            kept.discard(await caller.next_reply_id())
