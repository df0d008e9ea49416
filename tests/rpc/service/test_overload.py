"""Limits of a service: how many requests of one verb are handled at once, and how many may wait."""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import anyio.from_thread
import pytest

from nebula.errors import CallTimeout, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import VerbOptions
from nebula.rpc.service.concurrency_limits import MAX_SET_ASIDE, ConcurrencyLimit
from nebula.rpc.service.responder import Responder
from nebula.rpc.service.worker_pool import Worker, WorkerPool
from nebula.rpc.wire.envelope import parse
from nebula.stomp.client import Message
from tests.rpc.conftest import Serving
from tests.rpc.subscriptions import unconnected

# --- one verb's limit ---


def message() -> Message:
    return Message({"destination": "/queue/a"}, b"", unconnected())


async def serve_nothing(message: Message, arrived: float, worker: Worker) -> None:
    raise AssertionError


def pool() -> WorkerPool:
    return WorkerPool(serve_nothing, 1)


def test_limit_admits_its_number_and_the_others_in_order_of_arrival() -> None:
    limit, waiting = ConcurrencyLimit(1, None), pool()
    first, second, third = message(), message(), message()

    assert limit.enter(first)
    for one in (second, third):
        assert not limit.enter(one)
        limit.set_aside(waiting, one, 0.0)
    limit.leave()

    assert limit.waiting == 1
    assert waiting.waiting == 1
    # The place is the second one's, also against one that comes just now.
    assert not limit.enter(message())
    assert limit.enter(second)
    assert not limit.enter(third)


def test_limit_is_open_again_when_no_request_waits() -> None:
    limit = ConcurrencyLimit(1, None)
    for _ in range(3):
        assert limit.enter(message())
        limit.leave()


@pytest.mark.parametrize(("max_waiting", "is_full"), [(None, False), (0, True), (1, True), (2, False)])
def test_limit_is_full_when_as_many_wait_as_may(max_waiting: int | None, is_full: bool) -> None:
    limit = ConcurrencyLimit(1, max_waiting)
    if max_waiting != 0:
        limit.set_aside(pool(), message(), 0.0)

    assert limit.is_full is is_full


def test_requests_set_aside_before_a_loss_hold_up_no_others() -> None:
    limit, waiting, lost = ConcurrencyLimit(1, 1), pool(), unconnected()
    inside, aside, again, another = (
        Message({"destination": "/queue/a"}, b"", by) for by in (lost, lost, unconnected(), unconnected())
    )
    assert limit.enter(inside)
    limit.set_aside(waiting, aside, 0.0)
    lost.is_closed = True

    limit.lose()

    assert limit.waiting == 0
    # Who is inside comes again, and does not wait behind itself.
    limit.set_aside(waiting, again, 0.0)
    with_one = limit.is_full
    limit.set_aside(waiting, another, 0.0)
    with_two = limit.is_full
    limit.leave()
    assert (with_one, with_two, limit.is_full) == (False, True, True)
    assert limit.enter(again)


def test_place_of_one_that_was_called_and_lost_is_free() -> None:
    limit, waiting, lost = ConcurrencyLimit(1, None), pool(), unconnected()
    first, second = (Message({"destination": "/queue/a"}, b"", lost) for _ in range(2))
    limit.enter(first)
    limit.set_aside(waiting, second, 0.0)
    limit.leave()
    lost.is_closed = True

    limit.lose()

    assert limit.enter(message())


# --- one queue's workers ---


@pytest.mark.anyio
async def test_what_is_handled_after_a_loss_counts_again_for_what_may_wait() -> None:
    first, again, more = message(), message(), message()
    begun: list[Message] = []
    refused: list[Message] = []
    may_end = anyio.Semaphore(0)
    # The same for all: a request may well get the memory of one that was lost.
    request = Request(parse({"content-type": "text/plain"}, b"verb: stay"), {}, destination="/queue/a")

    async def serve(message: Message, arrived: float, worker: Worker) -> None:
        worker.request = request
        begun.append(message)
        await may_end.acquire()
        worker.request = None

    def refuse(message: Message, arrived: float) -> bool:
        refused.append(message)
        return True

    one = WorkerPool(serve, 1, max_waiting=0, refuse=refuse)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.run, 0)
            await anyio.wait_all_tasks_blocked()
            one.put(first)
            await anyio.wait_all_tasks_blocked()
            one.lose()
            one.put(again)
            may_end.release()
            await anyio.wait_all_tasks_blocked()
            one.put(more)
            one.close()

    assert begun == [first, again]
    assert refused == [more]


# --- over the wire ---


class Rooms:
    """Verbs that wait for a signal, and count how many wait."""

    def __init__(self, **options: Any) -> None:
        self.app = Responder(f"rooms-{uuid4().hex}", **options)
        self.opened = anyio.Event()
        self.inside = 0
        self.most = 0
        self.order: list[int] = []

    def open_with(self, **options: Any) -> None:
        """Declare the verb `stay`."""

        @self.app.verb(**options)
        async def stay(number: int = 0) -> str:
            return await self._stay(number)

    async def _stay(self, number: int) -> str:
        self.inside += 1
        self.most = max(self.most, self.inside)
        self.order.append(number)
        try:
            await self.opened.wait()
        finally:
            self.inside -= 1
        return "done"

    async def until_inside(self, count: int) -> None:
        with anyio.fail_after(5):
            while self.inside < count:
                await anyio.lowlevel.checkpoint()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    with anyio.fail_after(5):
        while not await condition():
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("concurrency", [0, -1])
def test_concurrency_of_a_verb_is_one_or_more(concurrency: int) -> None:
    with pytest.raises(ValueError, match="1 or more"):
        VerbOptions(concurrency=concurrency)


@pytest.mark.parametrize(
    "options",
    [
        {"max_waiting": -1},
        {"idempotency_window": 0.0},
        {"stream_idle": 0.0},
        {"stream_idle": -1.0},
        {"stream_idle": math.nan},
        {"max_reply_bytes": 0},
    ],
)
def test_options_below_their_least_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="service 'prices'"):
        Responder("prices", **options)


@pytest.mark.anyio
async def test_limited_verb_leaves_the_workers_to_others(serving: Serving, client: Client) -> None:
    rooms = Rooms(concurrency=4)
    rooms.open_with(concurrency=2)
    answers: list[Any] = []

    async def ask(number: int) -> None:
        answers.append(await client.call(rooms.app.name, "stay", number))

    async with serving(rooms.app), anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(ask, number)

        async def are_aside() -> bool:
            return bool((await client.call(rooms.app.name, "stats"))["waiting"] == 4)

        await until(are_aside)
        rooms.opened.set()

    assert answers == ["done"] * 6
    assert rooms.most == 2
    assert sorted(rooms.order) == list(range(6))


@pytest.mark.anyio
async def test_limited_verb_lets_the_broker_send_others(serving: Serving, client: Client) -> None:
    rooms = Rooms(concurrency=2)
    rooms.open_with(concurrency=1)
    codes: list[str] = []
    more = 2 * 2 + 10  # than the broker would send without what is set aside

    async def ask() -> None:
        try:
            await client.call(rooms.app.name, "stay")
        except RemoteError as error:
            codes.append(error.code)

    async with serving(rooms.app), anyio.create_task_group() as tasks:
        for _ in range(1 + MAX_SET_ASIDE + more):
            tasks.start_soon(ask)
        with anyio.fail_after(5):
            while len(codes) < more:
                await anyio.lowlevel.checkpoint()
            stats = await client.call(rooms.app.name, "stats")
        rooms.opened.set()

    assert (stats["waiting"], stats["overloaded"]) == (MAX_SET_ASIDE, more)
    assert len(rooms.order) == 1 + MAX_SET_ASIDE
    assert codes == ["busy"] * more


@pytest.mark.anyio
async def test_threads_of_one_queue_hold_up_no_other(serving: Serving, client: Client) -> None:
    name = f"two-{uuid4().hex}"
    app = Responder(name, queues=[name, f"{name}-slow"], concurrency=1)
    begun, opened = anyio.Event(), threading.Event()

    @app.verb(queue=f"{name}-slow")
    def slow() -> None:
        anyio.from_thread.run_sync(begun.set)
        opened.wait()

    @app.verb
    def quick() -> int:
        return 1

    async with serving(app), anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, slow)
        await begun.wait()
        try:
            assert await client.call(quick) == 1
        finally:
            opened.set()


@pytest.mark.anyio
async def test_place_of_a_request_whose_time_is_over_goes_to_the_next(
    serving: Serving, client: Client
) -> None:
    rooms = Rooms()
    rooms.open_with(concurrency=1)

    async with serving(rooms.app), anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, rooms.app.name, "stay", 1)
        await rooms.until_inside(1)
        with pytest.raises(CallTimeout):
            await client.call(rooms.app.name, "stay", 2, timeout=0.05)
        tasks.start_soon(client.call, rooms.app.name, "stay", 3)

        async def both_wait() -> bool:
            return bool((await client.call(rooms.app.name, "stats"))["waiting"] == 2)

        # The service counts from when a request came.
        await until(both_wait)
        await anyio.sleep(0.06)
        rooms.opened.set()

    assert rooms.order == [1, 3]


@pytest.mark.anyio
async def test_one_request_more_than_may_wait_is_answered_busy(serving: Serving, client: Client) -> None:
    rooms = Rooms(concurrency=2, max_waiting=3)
    rooms.open_with()
    answers: list[Any] = []

    async def ask() -> None:
        try:
            answers.append(await client.call(rooms.app.name, "stay"))
        except RemoteError as error:
            answers.append((error.code, error.retryable))

    async with serving(rooms.app), anyio.create_task_group() as tasks:
        for _ in range(7):
            tasks.start_soon(ask)
        with anyio.fail_after(5):
            while len(answers) < 2:
                await anyio.lowlevel.checkpoint()
        rooms.opened.set()

    assert answers == [("busy", True)] * 2 + ["done"] * 5
    assert rooms.most == 2


@pytest.mark.anyio
async def test_verb_that_is_full_is_answered_busy_and_others_are_not(
    serving: Serving, client: Client
) -> None:
    rooms = Rooms(concurrency=8, max_waiting=0)
    rooms.open_with(concurrency=1)

    async with serving(rooms.app), anyio.create_task_group() as tasks:
        tasks.start_soon(client.call, rooms.app.name, "stay")
        await rooms.until_inside(1)
        with pytest.raises(RemoteError) as caught:
            await client.call(rooms.app.name, "stay")
        stats = await client.call(rooms.app.name, "stats")
        rooms.opened.set()

    assert caught.value.code == "busy"
    assert stats["overloaded"] == 1


@pytest.mark.anyio
@pytest.mark.parametrize("limits", [{"concurrency": 1}, {"concurrency": 8}])
async def test_request_that_asks_for_no_answer_is_never_refused(
    serving: Serving, client: Client, limits: dict[str, int]
) -> None:
    rooms = Rooms(**limits, max_waiting=0)
    rooms.open_with(concurrency=1)

    async with serving(rooms.app):
        for number in range(3):
            await client.send(rooms.app.name, "stay", number)
        await rooms.until_inside(1)
        rooms.opened.set()
        with anyio.fail_after(5):
            while len(rooms.order) < 3:
                await anyio.lowlevel.checkpoint()

    assert sorted(rooms.order) == [0, 1, 2]


@pytest.mark.anyio
async def test_stopped_service_gives_back_what_it_had_set_aside(broker_url: str, client: Client) -> None:
    rooms = Rooms()
    rooms.open_with(concurrency=1)
    started = anyio.Event()
    queue = f"/queue/{rooms.app.name}"

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(rooms.app.run, broker_url, started=started, grace=0.01))
        with anyio.fail_after(5):
            await started.wait()
            for number in (1, 2):
                await client.send(rooms.app.name, "stay", number)
            await rooms.until_inside(1)
        tasks.cancel_scope.cancel()

    assert rooms.order == [1]
    async with client.stomp.subscribe(queue) as rest:
        with anyio.fail_after(5):
            bodies = [(await anext(rest)).body for _ in range(2)]
    assert bodies == [b'{"verb":"stay","parameters":1}', b'{"verb":"stay","parameters":2}']


@pytest.mark.anyio
async def test_limited_verb_acks_early_once(serving: Serving, client: Client) -> None:
    """A request that was set aside is not ACKed before its turn, and then once."""
    rooms = Rooms(ack="early")
    rooms.open_with(concurrency=1)

    async with serving(rooms.app), anyio.create_task_group() as tasks:
        for number in (1, 2):
            tasks.start_soon(partial(client.call, rooms.app.name, "stay", number))
            await rooms.until_inside(1)
        rooms.opened.set()

    assert rooms.order == [1, 2]
