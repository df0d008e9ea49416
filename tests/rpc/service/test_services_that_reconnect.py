"""A service whose connection ends: it comes back, and no request is lost or answered twice."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.broker.server.server import Listener
from nebula.errors import ConnectFailed, ConnectionLost, ServerError, SettingsError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.retry import Retry
from nebula.rpc.service.responder import Responder
from tests.cli.programs import running
from tests.own_logs import all_logs
from tests.rpc.conftest import RunningBroker
from tests.rpc.scripted import brokers, header
from tests.stomp.peer import Peer, receipt_of

pytestmark = pytest.mark.anyio


async def listening(peer: Peer, requests: dict[str, str]) -> None:
    """Let a service listen; requests (by destination) are sent as it subscribes, in the order of coming."""
    await peer.accept("1.2", "server:MaXaM/0\n")
    while True:
        frame = await peer.hear()
        if not frame.startswith("SUBSCRIBE\n"):
            raise AssertionError(frame)
        await peer.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n\n^@")
        if (body := requests.get(header(frame, "destination"))) is not None:
            await peer.say(
                f"MESSAGE\nsubscription:{header(frame, 'id')}\nmessage-id:{body}\nack:{body}\n"
                "destination:/queue/shop\nneb-reply-to:/queue/inbox\nneb-reply-id:r1\n\n"
                f"verb: {body}\nparameters: \n^@"
            )
        if header(frame, "destination").startswith("/topic/nebula.services"):
            return


async def test_service_answers_again_when_its_broker_is_back(free_port: int) -> None:
    app = Responder("shop")

    @app.verb
    async def price() -> int:
        return 5

    def broker() -> RunningBroker:
        return RunningBroker(Listener("127.0.0.1", free_port))

    first = await anyio.to_thread.run_sync(broker)
    started = anyio.Event()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(app.run, first.url, started=started, grace=0.05))
            await started.wait()
            async with Client(first.url) as client:
                assert await client.call(price) == 5
                await anyio.to_thread.run_sync(first.stop)
                second = await anyio.to_thread.run_sync(broker)
                assert await client.call("shop", "price", wait_for_responder=15) == 5
                stats = await client.call("shop", "stats")
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(second.stop)

    assert stats["verbs"]["price"]["requests"] == 2


async def test_request_under_way_at_the_loss_is_finished_and_not_answered_by_the_next_connection() -> None:
    app = Responder("shop")
    cut, finished = anyio.Event(), anyio.Event()
    said: list[str] = []

    @app.verb
    async def slow() -> int:
        cut.set()
        await again.wait()
        finished.set()
        return 5

    again = anyio.Event()

    async def first(peer: Peer) -> None:
        await listening(peer, {"/queue/shop": "slow"})
        await cut.wait()

    async def second(peer: Peer) -> None:
        await listening(peer, {})
        again.set()
        await finished.wait()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
        said.append(await peer.hear())

    async with brokers(first, second) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=0.05))

    assert said[0].startswith("DISCONNECT\n")


async def test_requests_that_waited_at_the_loss_are_not_begun() -> None:
    app = Responder("shop", concurrency=1)
    cut = anyio.Event()
    begun: list[str] = []

    @app.verb
    async def slow() -> None:
        begun.append("slow")
        cut.set()
        await again.wait()

    @app.verb
    async def quick() -> None:
        begun.append("quick")

    again = anyio.Event()

    async def first(peer: Peer) -> None:
        await listening(peer, {"/queue/shop": "slow"})
        await cut.wait()
        await peer.say(
            "MESSAGE\nsubscription:1\nmessage-id:q\nack:q\ndestination:/queue/shop\nneb-reply-to:/queue/inbox\n"
            "neb-reply-id:r2\n\nverb: quick\nparameters: \n^@"
        )

    async def second(peer: Peer) -> None:
        await listening(peer, {})
        again.set()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()

    async with brokers(first, second) as url, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(app.run, url, grace=0.05))

    assert begun == ["slow"]


async def test_jobs_go_on_over_the_loss_and_their_watchers_see_the_end(
    free_port: int, tmp_path: Path
) -> None:
    app = Responder("shop", state=tmp_path)
    is_running, go_on = anyio.Event(), anyio.Event()

    @app.job(engine=None)
    async def count() -> int:
        is_running.set()
        await go_on.wait()
        return 3

    def broker() -> RunningBroker:
        return RunningBroker(Listener("127.0.0.1", free_port))

    async def wait(job: Any) -> None:
        results.append(await job.result())

    results: list[Any] = []
    first = await anyio.to_thread.run_sync(broker)
    started = anyio.Event()
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(app.run, first.url, started=started, grace=0.05))
            await started.wait()
            async with Client(first.url) as client:
                # The service may come back after the client.
                job = await client.with_options(wait_for_responder=15).start(count)
                await is_running.wait()
                async with anyio.create_task_group() as watching:
                    watching.start_soon(wait, job)
                    await anyio.wait_all_tasks_blocked()
                    await anyio.to_thread.run_sync(first.stop)
                    second = await anyio.to_thread.run_sync(broker)
                    await client.call("shop", "ping", wait_for_responder=15)
                    # The new broker has its status too, though it has not changed.
                    async with client.subscribe(f"X/jobs.{job.id.replace('/', '.')}", eager=True) as told:
                        assert b"running" in (await anext(told)).body
                    go_on.set()
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(second.stop)

    assert results == [3]


async def test_service_that_waits_starts_once_there_is_a_broker(free_port: int) -> None:
    app = Responder("shop")
    started = anyio.Event()
    url = f"stomp://127.0.0.1:{free_port}"
    with anyio.fail_after(20):
        with pytest.raises(ConnectFailed):
            await app.run(url)
        async with anyio.create_task_group() as tasks:
            with all_logs() as logged:
                tasks.start_soon(partial(app.run, [url, url], wait=True, started=started, grace=0.05))
                while not any(entry["event"] == "connect failed" for entry in logged):
                    await anyio.sleep(0.001)
            broker = await anyio.to_thread.run_sync(RunningBroker, Listener("127.0.0.1", free_port))
            await started.wait()
            tasks.cancel_scope.cancel()
        await anyio.to_thread.run_sync(broker.stop)


async def test_malformed_address_is_refused_even_if_the_client_would_wait() -> None:
    with pytest.raises(SettingsError, match="gopher"):
        await Responder("shop").run("gopher://there", wait=True)


@pytest.mark.slow
async def test_killed_broker_costs_calls_in_flight_only_what_they_do_not_bear(free_port: int) -> None:
    app = Responder("shop")
    runs: list[str] = []
    are_running, go_on = anyio.Event(), anyio.Event()
    often = Retry(attempts=100)

    @app.verb
    async def work(name: str) -> str:
        runs.append(name)
        if len(runs) == 4:
            are_running.set()
        await go_on.wait()
        return name

    async def call(client: Client, name: str, **options: Any) -> None:
        try:
            outcomes[name] = await client.call("shop", "work", {"name": name}, **options)
        except (ConnectionLost, ServerError) as error:
            outcomes[name] = type(error)

    outcomes: dict[str, Any] = {}
    broker = partial(running, "broker", "--port", str(free_port))
    started = anyio.Event()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as serving:
            with broker() as (first, line):
                serving.start_soon(partial(app.run, line["url"], started=started, grace=0.05))
                await started.wait()
                async with Client(line["url"]) as client, anyio.create_task_group() as calls:
                    for name in ("plain", "plain too"):
                        calls.start_soon(call, client, name)
                    for name in ("keyed", "keyed too"):
                        calls.start_soon(partial(call, client, name, idempotency_key=name, retry=often))
                    await are_running.wait()
                    first.kill()
                    await anyio.to_thread.run_sync(first.wait)
                    with broker():
                        go_on.set()
                        while len(outcomes) < 4:
                            await anyio.sleep(0.01)
            serving.cancel_scope.cancel()

    assert outcomes == {
        "plain": ConnectionLost,
        "plain too": ConnectionLost,
        "keyed": "keyed",
        "keyed too": "keyed too",
    }
    # What the first ones came to was remembered: with a key a request runs once.
    assert sorted(runs) == ["keyed", "keyed too", "plain", "plain too"]
