"""Deadlines of requests: seen by the handler, passed on to its calls, and the end of the handler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest

from nebula.errors import CallTimeout
from nebula.milliseconds import Milliseconds
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Ending, Request, attempts_before
from nebula.rpc.middleware.chain import CallNext
from nebula.rpc.service.cancellation import Cancellation
from nebula.rpc.service.responder import Responder
from nebula.rpc.service.worker_pool import Worker, WorkerPool
from nebula.rpc.wire.cancel import Cancel
from nebula.rpc.wire.deadlines import AMBIENT, Deadlines, deadline_of, handler_seconds, whole_milliseconds
from nebula.rpc.wire.envelope import Envelope
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.stomp.client import Message
from tests.rpc.conftest import Serving


def request(
    reply_id: str = "r1", *, deadline: float | None = None, headers: dict[str, str] | None = None
) -> Request:
    replies = {"neb-reply-to": "/queue/replies", "neb-reply-id": reply_id}
    return Request(
        Envelope("quote"),
        replies | (headers or {}),
        destination="/queue/prices",
        principal="alice",
        deadline=deadline,
    )


# --- what a request says ---


def test_deadline_is_counted_from_the_arrival() -> None:
    assert deadline_of({"neb-timeout": "1500"}, 10.0) == 11.5


@pytest.mark.parametrize("text", [None, "", "-1", "1.5", "soon", "²", "1" * 5000])
def test_malformed_number_of_milliseconds_is_no_deadline(text: str | None) -> None:
    assert deadline_of({} if text is None else {"neb-timeout": text}, 10.0) is None


def test_request_tells_what_remains_and_never_less_than_nothing() -> None:
    later = request(deadline=monotonic() + 100).remaining

    assert later is not None
    assert 99 < later <= 100
    assert request(deadline=monotonic() - 1).remaining == 0
    assert request().remaining is None


def test_request_is_cancelled_when_its_time_is_over_or_its_caller_said_so() -> None:
    withdrawn = request(deadline=monotonic() + 100)
    withdrawn.end(Ending.CANCELLED)

    assert withdrawn.cancelled
    assert request(deadline=monotonic()).cancelled
    assert not request(deadline=monotonic() + 100).cancelled
    assert not request().cancelled


def test_first_reason_to_end_a_request_counts() -> None:
    one = request()
    one.end(Ending.EXPIRED)
    one.end(Ending.CANCELLED)

    assert one.ending is Ending.EXPIRED


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [
        ({}, 1),
        ({"redelivered": "true"}, 2),
        ({"redelivered": "true", "delivery-count": "3"}, 4),
        ({"x-delivery-count": "1"}, 2),
        ({"delivery-count": "1" * 5000}, 1),
        ({"delivery-count": "many", "redelivered": "true"}, 2),
    ],
)
def test_request_tells_the_how_many_th_attempt_it_is(headers: dict[str, str], attempt: int) -> None:
    assert request(headers=headers).attempt == attempt
    assert attempts_before(headers) == attempt - 1


# --- those that are being handled ---


async def serve_nothing(message: Message, arrived: float, worker: Worker) -> None:
    raise AssertionError


def watching(*requests: Request) -> Cancellation:
    """Workers that handle these, and one that rests."""
    pool = WorkerPool(serve_nothing, len(requests) + 1)
    for one in (*requests, None):
        worker = Worker(pool)
        worker.request = one
        pool.workers.append(worker)
    cancellation = Cancellation()
    cancellation.watch([pool])
    return cancellation


@pytest.mark.parametrize(
    ("one", "principal", "counts"),
    [
        (Cancel("/queue/replies", "r1"), "alice", True),
        (Cancel("/queue/replies", "r1"), None, True),
        (Cancel("/queue/replies", "r1"), "mallory", False),
        (Cancel("/queue/replies", "r2"), "alice", False),
        (Cancel("/queue/others", "r1"), "alice", False),
    ],
)
def test_cancel_has_to_name_the_request_and_be_its_principals(
    one: Cancel, principal: str | None, counts: bool
) -> None:
    asked = request()
    cancellation = watching(asked)

    assert cancellation.cancel(one, principal) is counts
    assert asked.cancelled is counts


def test_cancel_finds_nothing_where_nothing_is_handled() -> None:
    assert not watching().cancel(Cancel("/queue/replies", "r1"), "alice")


@pytest.mark.anyio
async def test_sweep_ends_those_whose_time_is_over_and_no_others() -> None:
    later, endless, soon = request("r1", deadline=monotonic() + 100), request("r2"), request("r3")
    cancellation = watching(later, endless, soon)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cancellation.run)
        await anyio.wait_all_tasks_blocked()
        # Earlier than what the sweep waits for.
        soon.deadline = monotonic() + 0.01
        assert soon.deadline < cancellation.next_sweep
        with anyio.fail_after(5), anyio.CancelScope() as scope:
            soon.scope = scope
            cancellation.sweep_earlier(soon.deadline)
            await anyio.sleep_forever()
        tasks.cancel_scope.cancel()

    assert soon.ending is Ending.EXPIRED
    assert later.ending is None
    assert endless.ending is None


# --- over the wire ---


def fresh(**options: Any) -> Responder:
    return Responder(f"deadline-{uuid4().hex}", **options)


@pytest.mark.anyio
async def test_async_handler_past_its_deadline_is_cancelled_and_its_worker_goes_on(
    serving: Serving, client: Client
) -> None:
    app = fresh(concurrency=1)
    cancelled = anyio.Event()

    @app.verb
    async def wait() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async with serving(app):
        with pytest.raises(CallTimeout):
            await client.with_options(timeout=0.5).call(wait)
        with anyio.fail_after(5):
            await cancelled.wait()
        stats = await client.call(app.name, "stats")

    assert stats["expired"] == 1
    assert stats["verbs"]["wait"]["errors"] == 0


@pytest.mark.anyio
async def test_no_scope_is_made_for_each_call_or_request(
    serving: Serving, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = fresh()
    made: list[object] = []
    make = anyio.CancelScope.__new__

    def note(*arguments: Any, **options: Any) -> Any:
        made.append(options)
        return make(*arguments, **options)

    @app.verb
    async def double(number: int) -> int:
        return 2 * number

    async with serving(app):
        await client.call(double, 0)
        monkeypatch.setattr(anyio.CancelScope, "__new__", note)
        for number in range(100):
            assert await client.with_options(timeout=5).call(double, number) == 2 * number

    # The end of the service makes a few.
    assert len(made) < 20


@pytest.mark.anyio
async def test_thread_sees_that_its_time_is_over_and_ends_without_an_answer(
    serving: Serving, client: Client
) -> None:
    app = fresh(concurrency=1)

    @app.verb
    def compute(request: Request) -> str:
        while not request.cancelled:
            threading.Event().wait(0.001)
        return "late"

    async with serving(app):
        with pytest.raises(CallTimeout):
            await client.with_options(timeout=0.5).call(compute)
        # By the only worker, after the thread has ended.
        assert (await client.call(app.name, "stats"))["expired"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize("verb", ["on_loop", "in_thread"])
async def test_handler_hands_on_the_time_that_remains(serving: Serving, client: Client, verb: str) -> None:
    app = fresh()

    @app.verb
    async def on_loop(request: Request) -> tuple[float | None, float | None]:
        return AMBIENT.get(), request.deadline

    @app.verb
    def in_thread(request: Request) -> tuple[float | None, float | None]:
        return AMBIENT.get(), request.deadline

    async with serving(app):
        ambient, deadline = await client.call(app.name, verb, timeout=3)

    assert ambient is not None
    assert ambient == deadline


@pytest.mark.anyio
async def test_handler_without_a_deadline_inherits_none_from_the_one_before(
    broker_url: str, serving: Serving, client: Client
) -> None:
    app = fresh(concurrency=1)
    seen: list[float | None] = []
    done = anyio.Event()

    @app.verb
    async def look(last: bool = False) -> None:
        seen.append(AMBIENT.get())
        if last:
            done.set()

    async with serving(app):
        await client.call(app.name, "look", timeout=5)
        await client.send(app.name, "look", {"last": True})
        with anyio.fail_after(5):
            await done.wait()

    assert seen[0] is not None
    assert seen[1] is None


@pytest.mark.anyio
async def test_call_within_a_handler_ends_with_its_own_callers_time(serving: Serving, client: Client) -> None:
    outer, inner = fresh(), fresh()
    remaining: list[float | None] = []
    ended = anyio.Event()

    @inner.verb
    async def last(request: Request) -> None:
        remaining.append(request.remaining)
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    @outer.verb
    async def first() -> None:
        await client.call(last)

    async with serving(outer, inner):
        with pytest.raises(CallTimeout):
            await client.with_options(timeout=1).call(first)
        with anyio.fail_after(5):
            await ended.wait()

    assert remaining[0] is not None
    assert remaining[0] <= 1


@pytest.mark.anyio
async def test_job_does_not_inherit_the_time_of_the_request_that_started_it(
    serving: Serving, client: Client, tmp_path: Path
) -> None:
    app = fresh(state=tmp_path)

    @app.job(engine=None)
    async def look() -> float | None:
        return AMBIENT.get()

    async with serving(app):
        job = await client.start(app.name, "look", expires_in=30)
        with anyio.fail_after(10):
            assert await job.result() is None


@pytest.mark.anyio
async def test_stopping_service_still_ends_at_the_grace(broker_url: str, client: Client) -> None:
    """A worker whose request was ended by its deadline before ends with the service all the same."""
    app = fresh(concurrency=1)
    entered = anyio.Event()
    started = anyio.Event()

    @app.verb
    async def wait(mark: bool = False) -> None:
        if mark:
            entered.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, broker_url, started=started, grace=0.01))
        with anyio.fail_after(5):
            await started.wait()
            with pytest.raises(CallTimeout):
                await client.with_options(timeout=0.5).call(wait)
            await client.send(app.name, "wait", {"mark": True})
            await entered.wait()
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_call_in_a_scope_that_is_over_ends_with_that_scope_and_sends_nothing(
    serving: Serving, client: Client
) -> None:
    app = fresh()
    begun: list[str] = []

    @app.verb
    async def note(word: str) -> None:
        begun.append(word)

    async with serving(app):
        with pytest.raises(TimeoutError), anyio.fail_after(0):
            await client.call(note, "late")
        with anyio.move_on_after(0.01) as scope:
            try:
                await anyio.sleep_forever()
            finally:
                await client.call(note, "cancelled")
        assert scope.cancelled_caught
        await client.call(note, "last")

    assert begun == ["last"]


@pytest.mark.anyio
async def test_call_may_wait_for_ever(serving: Serving, client: Client) -> None:
    app = fresh()

    @app.verb
    async def note() -> str:
        return "noted"

    async with serving(app):
        assert await client.with_options(timeout=float("inf")).call(note) == "noted"


@pytest.mark.anyio
async def test_job_that_is_asked_for_when_the_time_is_over_is_not_taken_for_one(client: Client) -> None:
    token = AMBIENT.set(monotonic() - 1)
    try:
        with pytest.raises(CallTimeout):
            await client.start("reports", "delays")
    finally:
        AMBIENT.reset(token)


@pytest.mark.anyio
async def test_undo_at_the_deadline_calls_with_a_time_of_its_own(serving: Serving, client: Client) -> None:
    app = fresh()
    undone = anyio.Event()

    @app.verb
    async def undo() -> None:
        undone.set()

    @app.verb
    async def reserve() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.move_on_after(5, shield=True):
                AMBIENT.set(None)
                await client.call(undo)

    async with serving(app):
        with pytest.raises(CallTimeout):
            await client.with_options(timeout=0.6).call(reserve)
        with anyio.fail_after(5):
            await undone.wait()
        # It was for that handler alone.
        assert await client.call(app.name, "ping") is None


@pytest.mark.anyio
async def test_calls_of_middleware_have_the_time_of_its_own_request(serving: Serving, client: Client) -> None:
    left: list[float | None] = []

    async def look(request: Request, call_next: CallNext) -> ReplyBody:
        deadline = AMBIENT.get()
        left.append(None if deadline is None else deadline - monotonic())
        return await call_next(request)

    app = Responder(f"looked-at-{uuid4().hex}", concurrency=1, middleware=[look])

    @app.verb
    async def note() -> str:
        return "noted"

    async with serving(app):
        for seconds in (30.0, 600.0):
            await client.with_options(timeout=seconds).call(note)

    first, second = left
    assert first is not None
    assert first <= 30
    assert second is not None
    assert 30 < second <= 600


@pytest.mark.parametrize(("seconds", "milliseconds"), [(2, 2000), (0.0015, 1), (0.0001, 1), (-1, 1)])
def test_time_on_the_wire_is_whole_milliseconds_and_never_none(seconds: float, milliseconds: int) -> None:
    assert whole_milliseconds(seconds) == Milliseconds(milliseconds)


# --- how long a call may take ---


@pytest.fixture
def handling() -> Iterator[Callable[[float], None]]:
    """Makes the test the handler of a request with that many seconds left."""
    token = AMBIENT.set(None)

    def begin(left: float) -> None:
        AMBIENT.set(monotonic() + left)

    yield begin
    AMBIENT.reset(token)


def rules(scope: float = inf) -> Deadlines:
    """Rules of a client with 30 s by default, in a scope that ends in that many seconds."""
    return Deadlines(30.0, lambda: 1000.0 + scope, lambda: 1000.0)


def test_call_without_any_limit_has_the_seconds_of_its_client() -> None:
    assert rules().seconds(None) == 30.0


def test_scope_around_a_call_replaces_the_seconds_of_its_client() -> None:
    assert rules(scope=5).seconds(None) == 5.0
    assert rules(scope=100).seconds(None) == 100.0


def test_timeout_of_a_call_counts_before_the_scope_which_cancels_by_itself() -> None:
    assert rules(scope=5).seconds(7.0) == 7.0


def test_call_of_a_handler_never_waits_longer_than_the_caller_of_that_handler(
    handling: Callable[[float], None],
) -> None:
    handling(60)

    assert rules().seconds(7.0) == 7.0
    assert 59 < rules().seconds(None) <= 60
    assert 59 < rules().seconds(90.0) <= 60
    assert rules(scope=5).seconds(None) == 5.0
    left = handler_seconds()
    assert left is not None
    assert 59 < left <= 60


def test_call_of_a_handler_whose_time_is_over_is_not_made(handling: Callable[[float], None]) -> None:
    handling(-1)

    with pytest.raises(CallTimeout):
        rules().seconds(7.0)


def test_stream_ends_with_the_earliest_of_all_limits_and_without_any_never(
    handling: Callable[[float], None],
) -> None:
    now = monotonic()

    assert rules().end_of_stream(None) == inf
    assert rules().end_of_stream(9.0) - now == pytest.approx(9, abs=1)
    assert rules(scope=5).end_of_stream(9.0) - now == pytest.approx(5, abs=1)
    handling(2)
    assert rules(scope=5).end_of_stream(9.0) - now == pytest.approx(2, abs=1)


def test_nothing_limits_code_outside_of_handlers() -> None:
    assert handler_seconds() is None
