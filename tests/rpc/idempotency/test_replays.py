"""Requests with a key, as their callers see them: handled once (G.idempotency)."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.from_thread
import pytest

from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import verb
from nebula.rpc.errors import VerbError
from nebula.rpc.idempotency import Claim, IdempotencyStore, MemoryStore, Reach, SqliteStore, StoreFailed
from nebula.rpc.idempotency.replays import Replays
from nebula.rpc.idempotency.store import sender_of
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.envelope import Envelope
from nebula.rpc.wire.reply_body import ReplyBody, success
from nebula.stomp.client import Message, StompClient
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio


class SoldOut(VerbError):
    """None are left."""

    code = "sold-out"


class Orders:
    """A service that counts its requests, and ends each as its caller asks."""

    def __init__(self, name: str | None = None, **options: Any) -> None:
        self.app = Responder(name or f"orders-{uuid4().hex}", **options)
        self.runs: list[Any] = []
        self.entered = anyio.Event()
        self.opened = anyio.Event()
        self.app.include(self)

    @verb
    async def order(self, what: Any = None) -> list[Any]:
        self.runs.append(what)
        return [what, len(self.runs)]

    @verb(errors=[SoldOut])
    async def refuse(self) -> None:
        self.runs.append(None)
        raise SoldOut(details={"run": len(self.runs)})

    @verb
    async def fail(self) -> None:
        self.runs.append(None)
        raise RuntimeError("the secret is 42")

    @verb
    async def be_busy(self) -> None:
        self.runs.append(None)
        raise VerbError("busy", "later")

    @verb
    async def wait(self) -> int:
        self.runs.append(None)
        self.entered.set()
        await self.opened.wait()
        return len(self.runs)

    @verb
    def compute(self, request: Request) -> int:
        self.runs.append(None)
        while not request.cancelled:
            threading.Event().wait(0.001)
        return len(self.runs)

    @verb
    async def whose(self, request: Request) -> str:
        self.runs.append(None)
        return str(request.principal)


class Caller:
    def __init__(self, stomp: StompClient, replies: Any, service: str) -> None:
        self._stomp = stomp
        self._replies = replies
        self._service = service

    def ask(self, what: str, key: str | None, parameters: Any = None, **headers: str) -> None:
        """Send a request without waiting for its answer."""
        fields = {"verb": what} if parameters is None else {"verb": what, "parameters": parameters}
        known = {
            "content-type": "application/json",
            "neb-reply-to": self._replies.push.destination,
            "neb-reply-id": "r",
        }
        if key is not None:
            known["neb-idempotency-key"] = key
        self._stomp.post(f"/queue/{self._service}", json.dumps(fields).encode(), known | headers)

    async def reply(self) -> Message:
        with anyio.fail_after(10):
            message: Message = await anext(self._replies)
        return message

    async def call(self, what: str, key: str | None, parameters: Any = None) -> Any:
        """The parameters of the answer."""
        self.ask(what, key, parameters)
        return json.loads((await self.reply()).body)["parameters"]


@asynccontextmanager
async def calling(broker_url: str, service: str) -> AsyncGenerator[Caller]:
    reply_queue = f"/queue/replies-{uuid4().hex}"
    async with StompClient(broker_url) as stomp, stomp.subscribe(reply_queue) as replies:
        yield Caller(stomp, replies, service)


@pytest.fixture
def orders() -> Orders:
    return Orders()


@pytest.fixture
async def caller(broker_url: str, serving: Serving, orders: Orders) -> AsyncGenerator[Caller]:
    async with serving(orders.app), calling(broker_url, orders.app.name) as one:
        yield one


async def test_same_key_gets_the_same_answer_and_runs_once(orders: Orders, caller: Caller) -> None:
    assert await caller.call("order", "k", {"what": "é"}) == ["é", 1]
    assert await caller.call("order", "k", {"what": "é"}) == ["é", 1]
    assert orders.runs == ["é"]


async def test_other_keys_and_requests_without_a_key_run_again(orders: Orders, caller: Caller) -> None:
    answers = [await caller.call("order", key, "x") for key in ("k", "l", None, None, "")]

    assert [number for _, number in answers] == [1, 2, 3, 4, 5]


async def test_key_is_known_for_its_verb_only(orders: Orders, caller: Caller) -> None:
    await caller.call("order", "k")
    assert await caller.call("whose", "k") == "anonymous"


async def test_key_belongs_to_its_principal_and_its_service() -> None:
    store = MemoryStore()
    asked: list[str] = []

    async def ask(service: str, principal: str | None) -> ReplyBody:
        async def run() -> ReplyBody:
            asked.append(f"{principal} at {service}")
            return success(asked[-1].encode())

        request = Request(Envelope("order"), {}, destination="/queue/orders", principal=principal)
        reply = await Replays(service, store, 600).reply("k", request, run)
        assert reply is not None
        return reply

    for _ in range(2):
        assert (await ask("orders", "alice")).parameters == b"alice at orders"
        assert (await ask("orders", "bob")).parameters == b"bob at orders"
        assert (await ask("orders", None)).parameters == b"None at orders"
        assert (await ask("depot", "alice")).parameters == b"alice at depot"
    assert len(asked) == 4


async def test_keys_tell_a_store_whose_they_are() -> None:
    seen: dict[str | None, set[str]] = {"alice": set(), "bob": set(), None: set()}

    class Noting(MemoryStore):
        async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
            seen[principal].add(key)
            return await super().claim(key, fingerprint, owner, lease)

    async def run() -> ReplyBody:
        return success()

    replays = Replays("orders", Noting(), 600)
    for principal in seen:
        request = Request(Envelope("order"), {}, destination="/queue/orders", principal=principal)
        for key in ("k", "l"):
            await replays.reply(key, request, run)

    senders = [{sender_of(key) for key in keys} for keys in seen.values()]
    assert [len(keys) for keys in seen.values()] == [2, 2, 2]
    assert [len(one) for one in senders] == [1, 1, 1]
    assert len(set().union(*senders)) == 3


async def test_order_of_fields_makes_no_other_parameters(orders: Orders, caller: Caller) -> None:
    await caller.call("order", "k", {"what": {"a": 1, "b": 2}})

    assert await caller.call("order", "k", {"what": {"b": 2, "a": 1}}) == [{"a": 1, "b": 2}, 1]


async def test_same_key_with_other_parameters_is_refused(orders: Orders, caller: Caller) -> None:
    await caller.call("order", "k", 1)

    error = await caller.call("order", "k", 2)

    assert error["code"] == "bad-request"
    assert "other parameters" in error["message"]
    assert orders.runs == [1]


async def test_declared_error_is_answered_again_too(orders: Orders, caller: Caller) -> None:
    errors = [await caller.call("refuse", "k") for _ in range(2)]

    assert [(one["code"], one["details"]) for one in errors] == [("sold-out", {"run": 1})] * 2
    caller.ask("refuse", "k")
    assert (await caller.reply()).headers["neb-error-code"] == "sold-out"


@pytest.mark.parametrize("what", ["fail", "be_busy"])
async def test_failure_that_may_pass_is_not_kept(orders: Orders, caller: Caller, what: str) -> None:
    for _ in range(2):
        await caller.call(what, "k")

    assert len(orders.runs) == 2


async def test_request_that_cannot_be_read_takes_no_key(orders: Orders, caller: Caller) -> None:
    assert (await caller.call("order", "k", {"nothing": 1}))["code"] == "bad-parameters"
    assert await caller.call("order", "k", {"what": 1}) == [1, 1]


async def test_second_one_waits_for_the_first_and_gets_its_answer(orders: Orders, caller: Caller) -> None:
    for _ in range(3):
        caller.ask("wait", "k")
    with anyio.fail_after(5):
        await orders.entered.wait()
    # Another one with other parameters does not wait to be refused.
    assert (await caller.call("wait", "k", []))["code"] == "bad-request"
    orders.opened.set()

    assert [json.loads((await caller.reply()).body)["parameters"] for _ in range(3)] == [1, 1, 1]
    assert len(orders.runs) == 1


async def test_one_that_waits_takes_over_when_the_first_is_ended(orders: Orders, caller: Caller) -> None:
    caller.ask("wait", "k", **{"neb-timeout": "1000"})
    with anyio.fail_after(5):
        await orders.entered.wait()
    orders.entered = anyio.Event()
    caller.ask("wait", "k")
    with anyio.fail_after(5):
        await orders.entered.wait()
    orders.opened.set()

    assert json.loads((await caller.reply()).body)["parameters"] == 2


async def test_answer_that_came_too_late_is_kept_for_the_retry(orders: Orders, caller: Caller) -> None:
    caller.ask("compute", "k", **{"neb-timeout": "1000"})
    # Waits for it, and then finds its answer.
    assert await caller.call("compute", "k") == 1
    assert len(orders.runs) == 1


async def test_one_that_waits_ends_with_its_own_time(orders: Orders, caller: Caller) -> None:
    caller.ask("wait", "k")
    with anyio.fail_after(5):
        await orders.entered.wait()
        caller.ask("wait", "k", **{"neb-timeout": "500"})
        while (await caller.call("stats", None))["expired"] == 0:
            await anyio.sleep(0)
    orders.opened.set()

    assert json.loads((await caller.reply()).body)["parameters"] == 1


# --- long requests ---


class RenewedStore(MemoryStore):
    """A store that fails at the first renewal and reports the second."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0
        self.renewed = anyio.Event()

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        self.tries += 1
        if self.tries == 1:
            raise StoreFailed("no disk")
        assert list(claims)
        self.renewed.set()


async def test_claims_of_long_requests_are_renewed_also_after_a_failure() -> None:
    store = RenewedStore()
    replays = Replays("orders", store, 600, lease=0.003)

    async def run() -> ReplyBody:
        await store.renewed.wait()
        return success()

    request = Request(Envelope("order"), {}, destination="/queue/orders")
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replays.run)
            assert await replays.reply("k", request, run) == success()
            tasks.cancel_scope.cancel()


# --- what is not kept ---


class NotingStore(MemoryStore):
    """A store that counts releases."""

    def __init__(self) -> None:
        super().__init__()
        self.released = 0

    async def release(self, key: str, owner: str) -> None:
        self.released += 1
        await super().release(key, owner)


@pytest.mark.parametrize("is_thread", [True, False])
async def test_claim_of_a_thread_that_outlives_its_service_is_left_to_its_lease(
    broker_url: str, is_thread: bool
) -> None:
    store = NotingStore()
    app = Responder(f"orders-{uuid4().hex}", idempotency=store)
    started, begun, go_on = anyio.Event(), anyio.Event(), threading.Event()

    @app.verb
    def plain() -> None:
        anyio.from_thread.run_sync(begun.set)
        go_on.wait()

    @app.verb
    async def awaited() -> None:
        begun.set()
        await anyio.sleep_forever()

    with anyio.fail_after(10):
        async with calling(broker_url, app.name) as caller, anyio.create_task_group() as tasks:
            tasks.start_soon(partial(app.run, broker_url, started=started, grace=0.01))
            await started.wait()
            caller.ask("plain" if is_thread else "awaited", "k")
            await begun.wait()
            tasks.cancel_scope.cancel()
    go_on.set()

    assert store.released == (0 if is_thread else 1)


class Locked(VerbError):
    """A row is locked."""

    code = "locked"


async def test_error_of_a_service_that_was_called_is_not_kept(broker_url: str, serving: Serving) -> None:
    inner, outer = Responder(f"inner-{uuid4().hex}"), Responder(f"outer-{uuid4().hex}")
    runs: list[int] = []

    @inner.verb(errors=[Locked])
    async def deep() -> int:
        raise Locked("row 42 of accounts", details={"account": 42})

    @outer.verb
    async def shallow() -> int:
        runs.append(1)
        return await client.call(deep)

    async with serving(inner, outer), Client(broker_url) as client, calling(broker_url, outer.name) as caller:
        errors = [await caller.call("shallow", "k") for _ in range(2)]

    assert [one["code"] for one in errors] == ["upstream-error"] * 2
    assert "row 42" not in str(errors)
    assert len(runs) == 2


# --- several instances ---


@asynccontextmanager
async def two_instances(
    broker_url: str, serving: Serving, stores: Iterable[IdempotencyStore]
) -> AsyncGenerator[tuple[list[Orders], Caller]]:
    name = f"orders-{uuid4().hex}"
    both = [Orders(name, idempotency=store) for store in stores]
    # Each takes its queue's messages in turn.
    async with serving(*(one.app for one in both)), calling(broker_url, name) as caller:
        yield both, caller


async def test_other_instance_on_the_same_file_answers_what_was_kept(
    broker_url: str, serving: Serving, tmp_path: Path
) -> None:
    stores = [SqliteStore(tmp_path / "answers.db") for _ in range(2)]
    async with two_instances(broker_url, serving, stores) as (both, caller):
        answers = [await caller.call("order", "k", 1) for _ in range(4)]
        described = await caller.call("describe", None)

    assert answers == [[1, 1]] * 4
    assert sum(len(one.runs) for one in both) == 1
    assert described["idempotency"] == "machine"


async def test_other_instance_on_the_same_file_waits_for_the_first(
    broker_url: str, serving: Serving, tmp_path: Path
) -> None:
    stores = [SqliteStore(tmp_path / "answers.db") for _ in range(2)]
    async with two_instances(broker_url, serving, stores) as (both, caller):
        for _ in range(4):
            caller.ask("wait", "k")
        with anyio.fail_after(5):
            while not any(one.entered.is_set() for one in both):
                await anyio.lowlevel.checkpoint()
        for one in both:
            one.opened.set()
        answers = [json.loads((await caller.reply()).body)["parameters"] for _ in range(4)]

    assert answers == [1] * 4
    assert sum(len(one.runs) for one in both) == 1


async def test_other_instance_does_not_share_the_memory_of_this_one(
    broker_url: str, serving: Serving
) -> None:
    async with two_instances(broker_url, serving, [MemoryStore(), MemoryStore()]) as (both, caller):
        for _ in range(4):
            await caller.call("order", "k", 1)
        described = await caller.call("describe", None)

    assert [len(one.runs) for one in both] == [1, 1]
    assert described["idempotency"] == "instance"


# --- stores that fail ---


class BrokenStore:
    """A store that fails at chosen methods."""

    def __init__(self, *fails: str) -> None:
        self._fails = fails
        self._inner = MemoryStore()

    reach = Reach.SHARED

    def _try(self, what: str) -> None:
        if what in self._fails:
            raise StoreFailed(f"{what}: no disk")

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        self._try("claim")
        return await self._inner.claim(key, fingerprint, owner, lease)

    async def renew(self, claims: Iterable[tuple[str, str]], lease: float) -> None:
        self._try("renew")

    async def keep(self, key: str, owner: str, reply: bytes, window: float) -> None:
        self._try("keep")
        await self._inner.keep(key, owner, reply, window)

    async def release(self, key: str, owner: str) -> None:
        self._try("release")
        await self._inner.release(key, owner)

    async def close(self) -> None:
        """Nothing to let go of."""


async def test_request_is_not_run_where_its_key_cannot_be_looked_up(
    broker_url: str, serving: Serving
) -> None:
    orders = Orders(idempotency=BrokenStore("claim"))
    async with serving(orders.app), calling(broker_url, orders.app.name) as caller:
        error = await caller.call("order", "k")
        assert await caller.call("order", None) == [None, 1]

    assert (error["code"], error["retryable"]) == ("busy", True)


class LosesAnswers(BrokenStore):
    """A store that makes the first claim, and then raises as if it had failed."""

    async def claim(self, key: str, fingerprint: str, owner: str, lease: float) -> Claim:
        claim = await self._inner.claim(key, fingerprint, owner, lease)
        fails, self._fails = self._fails, ()
        if fails:
            raise StoreFailed("no answer")
        return claim


async def test_key_is_free_again_where_the_answer_to_its_claim_was_lost() -> None:
    replays = Replays("orders", LosesAnswers("claim"), 600)
    request = Request(Envelope("order"), {}, destination="/queue/orders")

    async def run() -> ReplyBody:
        return success()

    with anyio.fail_after(5):
        with pytest.raises(VerbError, match="later"):
            await replays.reply("k", request, run)
        assert await replays.reply("k", request, run) == success()


async def test_answer_that_is_too_long_to_be_sent_is_not_kept(broker_url: str, serving: Serving) -> None:
    store = MemoryStore()
    orders = Orders(idempotency=store, max_reply_bytes=1000)
    async with serving(orders.app), calling(broker_url, orders.app.name) as caller:
        errors = [await caller.call("order", "k", "x" * 2000) for _ in range(2)]

    assert [one["code"] for one in errors] == ["result-too-large"] * 2
    assert len(orders.runs) == 1
    assert store.size_bytes < 1500


async def test_answer_goes_out_where_it_cannot_be_kept(broker_url: str, serving: Serving) -> None:
    orders = Orders(idempotency=BrokenStore("keep", "release"))
    async with serving(orders.app), calling(broker_url, orders.app.name) as caller:
        assert await caller.call("order", "k") == [None, 1]
        assert (await caller.call("be_busy", "k"))["code"] == "busy"
