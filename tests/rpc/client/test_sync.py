"""The client without `await`."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from anyio.from_thread import start_blocking_portal

from nebula.errors import (
    CallTimeout,
    CircuitOpen,
    ConnectFailed,
    JobEnded,
    LocalProtocolError,
    NoResponder,
    RemoteError,
)
from nebula.rpc.client.breaker import Breaker
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.verbs import verb
from nebula.rpc.discovery import Change, Instance
from nebula.rpc.middleware.chain import Call, MakeCall
from nebula.rpc.service.responder import Responder
from nebula.stomp.client import AckMode
from nebula.sync import Client, Subscription

# Of this process, and removed at its end: other workers import this module too.
_state = tempfile.TemporaryDirectory(prefix="nebula-tests-")
app = Responder(f"shop-{uuid4().hex}", state=Path(_state.name))


@app.job(engine=None)
async def add(first: int) -> int:
    return first + 1


@app.job(engine=None)
async def endless() -> None:
    await anyio.sleep_forever()


@app.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    if not symbol:
        raise ValueError
    return Decimal("1.5") * qty


@app.verb
async def forever() -> None:
    await anyio.sleep_forever()


@verb
def shout(word: str) -> str:
    return word.upper()


app.include(type("Holder", (), {"shout": staticmethod(shout)}))


@pytest.fixture(scope="module", autouse=True)
def no_state_is_left() -> Iterator[None]:
    yield
    _state.cleanup()


@pytest.fixture
def client(broker_url: str) -> Iterator[Client]:
    with start_blocking_portal() as portal:
        started = portal.call(anyio.Event)

        async def serve() -> None:
            with scope:
                await app.run(broker_url, started=started, grace=0.05)

        scope = portal.call(anyio.CancelScope)
        serving = portal.start_task_soon(serve)
        portal.call(started.wait)
        with Client(broker_url, timeout=5) as one:
            yield one
        portal.call(scope.cancel)
        serving.result(5)


def test_calls_by_name_and_by_function_return_values(client: Client) -> None:
    assert client.call(app.name, "quote", {"symbol": "ABC", "qty": 2}, result=Decimal) == Decimal("3.0")
    assert client.call(quote, "ABC", qty=2) == Decimal("3.0")
    assert client.service(app.name).call(shout, "x") == "X"


def test_errors_are_those_of_the_async_client(client: Client) -> None:
    with pytest.raises(RemoteError):
        client.call(quote, "")
    with pytest.raises(NoResponder):
        client.call("nobody", "ping")
    with pytest.raises(CallTimeout):
        client.with_options(timeout=0.05).call(app.name, "forever")


def test_messages_without_an_answer_are_sent(client: Client) -> None:
    client.send(quote, "ABC")
    client.publish(f"/topic/{uuid4().hex}", {"a": 1})

    assert client.call(app.name, "stats")["verbs"]["quote"]["requests"] >= 1


def test_threads_may_share_a_client(client: Client) -> None:
    totals: list[Decimal] = []
    threads = [
        threading.Thread(target=lambda qty=qty: totals.append(client.call(quote, "A", qty=qty)))
        for qty in range(10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)

    assert sorted(totals) == [Decimal("1.5") * qty for qty in range(10)]


@pytest.mark.usefixtures("client")
def test_options_are_those_of_the_async_client(broker_url: str) -> None:
    states: list[str] = []
    breaker = Breaker(failures=3, seconds=60)
    options: dict[str, Any] = {"retry": Retry(attempts=2, first=0.0), "breaker": breaker, "wait": True}
    with Client([broker_url], on_state=states.append, connect_timeout=5, **options) as client:
        assert client.state == "connected"
        assert client.with_options(timeout=5, idempotency_key="one").call(quote, "ABC") == Decimal("1.5")
        with pytest.raises(NoResponder):
            client.call("nobody", "quote", retry=None, wait_for_responder=0.01)
        with pytest.raises(CircuitOpen):
            client.call("nobody", "quote", retry=Retry(attempts=9, first=0.0))

    assert states == ["connecting", "connected", "closed"]


@pytest.mark.usefixtures("client")
def test_middleware_is_that_of_the_async_client_and_sees_the_callers_context(broker_url: str) -> None:
    seen: list[str] = []
    who = ContextVar("who", default="nobody")

    async def note(call: Call, call_next: MakeCall) -> Any:
        seen.append(f"{call.verb} for {who.get()}")
        return await call_next(call)

    who.set("me")
    with Client(broker_url, timeout=5, middleware=[note]) as client:
        assert client.call(quote, "ABC") == Decimal("1.5")
    assert seen == ["quote for me"]


def test_client_that_finds_no_broker_says_so(free_port: int) -> None:
    with pytest.raises(ConnectFailed), Client(f"stomp://127.0.0.1:{free_port}"):
        raise AssertionError


def test_call_outside_of_the_context_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="`with`"):
        Client().call("prices", "ping")


def test_error_of_the_block_comes_out_as_it_is(client: Client, broker_url: str) -> None:
    with pytest.raises(KeyError, match="mine"), Client(broker_url):
        raise KeyError("mine")


def test_jobs_are_started_and_watched_without_await(client: Client) -> None:
    job = client.start(add, 1)

    assert list(job.watch())[-1].state == "done"
    assert job.result(int) == 2
    assert client.job(job.id).wait().is_final
    assert job.status().is_final
    assert job.log() == []


def test_job_is_ended_without_await(client: Client) -> None:
    job = client.start(app.name, "endless")
    job.cancel()

    with pytest.raises(JobEnded):
        job.result()


def test_watching_may_stop_early(client: Client) -> None:
    job = client.start(app.name, "endless")
    for _ in job.watch():
        break
    job.cancel()

    assert job.wait().state == "cancelled"


def test_subscription_gives_its_snapshot_and_what_changes(client: Client) -> None:
    destination = f"X/{uuid4().hex}"
    client.publish(destination, {"n": 1})
    mode = AckMode.CLIENT_INDIVIDUAL
    with client.subscribe(destination, as_=dict, ack=mode, eager=True) as values:
        (first,) = values.snapshot()
        client.publish(destination, {"n": 2})
        # Not sent before the first one was acked.
        values.ack(first)
        second = next(values)
        values.nack(second)

    assert (first.value, second.value) == ({"n": 1}, {"n": 2})


def test_durable_subscription_is_paused_and_removed(client: Client) -> None:
    destination = f"X/{uuid4().hex}"
    for end, is_kept in ((Subscription.pause, True), (Subscription.remove, False)):
        with client.subscribe(destination, ack=AckMode.CLIENT, durable="mine") as messages:
            end(messages)
            assert list(messages) == []
        client.publish(destination, "missed")
        with client.subscribe(destination, ack=AckMode.CLIENT, durable="mine") as messages:
            client.publish(destination, "later")
            seen = next(messages)
            messages.remove()

        assert seen.body == (b'"missed"' if is_kept else b'"later"')


def test_all_instances_are_found_and_asked_in_one_call(client: Client) -> None:
    (instance,) = client.services(app.name)
    found = client.call_all(app.name, "ping", timeout=5)

    assert found.values == {instance.name: None}
    assert found.missing == []
    assert client.call_all(quote, "ABC", qty=2).values == {instance.name: Decimal("3.0")}


def test_instance_is_asked_on_its_own_queue(client: Client) -> None:
    (instance,) = client.services(app.name)
    assert instance.queue is not None

    assert client.call_queue(instance.queue, "describe")["service"] == app.name


def test_instances_are_seen_to_come_and_go(client: Client) -> None:
    one = Instance(f"brief-{uuid4().hex}", "i1")
    with client.watch_services(one.service) as presence:
        assert presence.instances == []
        client.publish(one.destination, one.to_json())
        changes = presence.changes()
        seen = [next(changes)]
        assert presence.instances == [one]
        client.publish(one.destination, b"")
        seen.append(next(changes))
        changes.close()

    assert seen == [Change(one), Change(one, is_gone=True)]


@pytest.mark.usefixtures("client")
def test_answers_may_come_to_a_shared_queue(broker_url: str) -> None:
    with Client(broker_url, timeout=5, reply_to=f"/queue/replies-{uuid4().hex}") as client:
        assert client.call(quote, "ABC") == Decimal("1.5")


@pytest.mark.usefixtures("client")
def test_view_that_is_made_before_entering_works_with_its_client(broker_url: str) -> None:
    client = Client(broker_url)
    quick = client.with_options(timeout=5)
    with client:
        assert quick.call(quote, "ABC") == Decimal("1.5")
    with pytest.raises(LocalProtocolError, match="`with`"):
        quick.call(quote, "ABC")


def test_last_value_is_followed_until_the_reader_leaves(client: Client) -> None:
    value = client.value(f"X/{uuid4().hex}", as_=int)
    seen = []
    for now in value:
        seen.append(now)
        if now == 2:
            break
        value.put((now or 0) + 1)

    assert (seen[0], seen[-1]) == (None, 2)
