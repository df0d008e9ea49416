"""Instances register, and clients see which ones are there."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from nebula import headers as names
from nebula.errors import ConnectionLost, ServerError
from nebula.rpc.client.client import Client
from nebula.rpc.discovery import Change, Instance, Presence
from nebula.rpc.discovery.presence import _Asked
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.brokers import brand_of
from nebula.stomp.client import StompClient
from nebula.testing import Faults
from tests.rpc.conftest import RunningBroker, Serving
from tests.rpc.discovery.instances import serving_at

pytestmark = pytest.mark.anyio


def fresh(name: str | None = None, **options: Any) -> Responder:
    return Responder(name or f"service-{uuid4().hex}", **options)


async def until(presence: Presence, count: int) -> list[Instance]:
    """The instances, as soon as there is this number of them."""
    if len(presence.instances) == count:
        return presence.instances
    async for _ in presence.changes():
        if len(presence.instances) == count:
            return presence.instances
    raise AssertionError


async def test_running_service_is_there_and_says_what_it_is(serving: Serving, client: Client) -> None:
    app = fresh(version="1.2")

    @app.verb
    async def quote(symbol: str) -> float:
        return 1.0

    async with serving(app):
        (found,) = await client.services(app.name)

    assert (found.service, found.version) == (app.name, "1.2")
    assert found.queues == (f"/queue/{app.name}",)
    assert set(found.verbs) >= {"describe", "ping", "quote", "stats"}
    assert len(found.schemas) == 16
    assert found.started_at > 0


async def test_instance_answers_on_a_queue_of_its_own(serving: Serving, client: Client) -> None:
    app = fresh()
    async with serving(app):
        (found,) = await client.services(app.name)
        assert found.queue is not None
        described = await client.call_queue(found.queue, "describe")

    assert described["service"] == app.name


async def test_instances_of_one_service_have_names_of_their_own_and_alike_contracts(
    serving: Serving, client: Client
) -> None:
    name = f"service-{uuid4().hex}"
    async with serving(fresh(name), fresh(name)):
        found = await client.services(name)

    assert len({one.name for one in found}) == 2
    assert len({one.schemas for one in found}) == 1


async def test_other_contracts_have_another_hash(serving: Serving, client: Client) -> None:
    apps = fresh(), fresh()

    @apps[0].verb
    async def quote(symbol: str) -> float:
        return 1.0

    async with serving(*apps):
        hashes = [one.schemas for app in apps for one in await client.services(app.name)]

    assert len(set(hashes)) == 2


async def test_all_services_are_seen_without_a_name(serving: Serving, client: Client) -> None:
    apps = fresh(), fresh()
    async with serving(*apps):
        found = {one.service for one in await client.services()}

    assert {app.name for app in apps} <= found


async def test_service_that_stops_is_gone_before_its_last_request_is_answered(
    broker_url: str, client: Client
) -> None:
    app, begun, may_end = fresh(), anyio.Event(), anyio.Event()

    @app.verb
    async def slow() -> str:
        begun.set()
        await may_end.wait()
        return "done"

    answers: list[str] = []

    async def call() -> None:
        answers.append(await client.call(app.name, "slow"))

    with anyio.fail_after(10):
        async with (
            client.watch_services(app.name) as presence,
            anyio.create_task_group() as tasks,
            anyio.create_task_group() as running,
        ):
            started = anyio.Event()
            running.start_soon(partial(app.run, broker_url, started=started, grace=5))
            await started.wait()
            await until(presence, 1)
            tasks.start_soon(call)
            await begun.wait()
            running.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                gone = await until(presence, 0)
                answered_when_gone = list(answers)
                may_end.set()

    assert (gone, answered_when_gone, answers) == ([], [], ["done"])


async def test_service_whose_connection_is_cut_is_gone(client: Client, broker_url: str) -> None:
    service = f"service-{uuid4().hex}"
    one = Instance(service, "i1", queue=f"/queue/{service}.i1")

    async def live() -> None:
        # Cancelled, it closes its link without a word.
        async with StompClient(broker_url) as stomp:
            stomp.post(one.destination, one.to_json(), {names.EPHEMERAL: "true"})
            await anyio.sleep_forever()

    with anyio.fail_after(10):
        async with client.watch_services(service) as presence:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(live)
                found = await until(presence, 1)
                tasks.cancel_scope.cancel()
            gone = await until(presence, 0)

    assert (found, gone) == ([one], [])


async def test_service_that_lost_its_connection_comes_back_under_its_name(
    mortal_broker: RunningBroker,
) -> None:
    # Where clients have to ask, it is back before they notice that it was gone.
    url = mortal_broker.url
    app, faults, started = fresh(), Faults(url), anyio.Event()
    with anyio.fail_after(10):
        async with (
            Client(url) as client,
            client.watch_services(app.name) as presence,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(partial(app.run, url, started=started, link=faults, reconnect=True))
            (before,) = await until(presence, 1)
            await started.wait()
            changes = presence.changes()
            faults.drop_connection()
            while not (await anext(changes)).is_gone:
                pass
            after = (await anext(changes)).instance
            tasks.cancel_scope.cancel()

    assert after.destination == before.destination


async def test_load_is_published_as_it_changes(serving: Serving, client: Client) -> None:
    app, may_end = fresh(), anyio.Event()

    @app.verb
    async def slow() -> None:
        await may_end.wait()

    with anyio.fail_after(10):
        async with (
            serving(app),
            anyio.create_task_group() as tasks,
            client.watch_services(app.name) as presence,
        ):
            tasks.start_soon(client.call, app.name, "slow")
            changes = presence.changes()
            busy = [(await anext(changes)).instance.busy]
            may_end.set()
            busy.append((await anext(changes)).instance.busy)

    assert busy == [1, 0]


class Asked(_Asked):
    """Questions whose replies are given: for each the names of the instances that replied in time."""

    def __init__(self, client: Client, *replies: str) -> None:
        super().__init__(client.stomp, brand_of(client.stomp.server), None, 0.0)
        self._replies = iter(replies)

    async def _ask(self) -> None:
        self._there = {name: Instance("prices", name) for name in next(self._replies)}


async def test_instance_that_is_asked_is_gone_when_it_misses_two_questions_in_a_row(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nebula.rpc.discovery.presence._ASK_EVERY", 0.0)
    # `b` misses one question, then two; `c` comes meanwhile.
    asked = Asked(client, "ab", "a", "b", "a", "c")
    async with asked.open(5.0):
        changes = asked.changes()
        told = [await anext(changes) for _ in range(2)]

    assert [(change.instance.name, change.is_gone) for change in told] == [("b", True), ("c", False)]
    assert [one.name for one in asked.instances] == ["a", "c"]


@pytest.mark.parametrize(
    "body",
    [
        b"nonsense",
        b"{}",
        b'{"service": "other", "name": "i1"}',
        b'{"service": "%b", "name": "i1", "queue": "/queue/other"}',
        b'{"service": "%b", "name": "i1", "started_at": -1}',
        b'{"service": "%b", "name": "i1", "started_at": -Infinity}',
        b'{"service": "%b", "name": "i1", "started_at": NaN}',
        b'{"service": "%b", "name": "i1", "started_at": 1e999}',
        b'{"service": "%b", "name": "i1", "busy": -1}',
        b'{"service": "%b", "name": "i1", "waiting": 1' + b"0" * 100 + b"}",
        b'{"service": "%b", "name": "i1", "version": "' + b"x" * 501 + b'"}',
    ],
)
async def test_impossible_entry_of_an_instance_is_ignored(client: Client, body: bytes) -> None:
    service = f"service-{uuid4().hex}"
    destination = f"{names.SERVICE_PREFIX}{service}.i1"
    await client.stomp.send(destination, body.replace(b"%b", service.encode()), receipt=True)

    assert await client.services(service) == []

    await client.stomp.send(destination, b"", receipt=True)


async def test_service_that_does_not_run_has_no_instances(client: Client) -> None:
    assert await client.services(f"service-{uuid4().hex}") == []


@pytest.mark.parametrize("name", ["a]", "[", "*", "?"])
async def test_name_of_a_service_is_no_glob(serving: Serving, client: Client, name: str) -> None:
    async with serving(fresh()):
        assert await client.services(name) == []
        # It was no ERROR of the broker's, either.
        assert len(await client.services()) > 0


async def test_instances_are_up_to_date_and_little_is_kept_without_a_reader_of_changes(
    broker_url: str, client: Client
) -> None:
    service = f"service-{uuid4().hex}"
    kept, brief = (Instance(service, name) for name in ("kept", "brief"))

    with anyio.fail_after(10):
        async with StompClient(broker_url) as stomp, client.watch_services(service) as presence:
            for load in range(50):
                now = kept.with_load(load, 0)
                await stomp.send(now.destination, now.to_json(), receipt=True)
                await stomp.send(brief.destination, brief.to_json(), receipt=True)
                await stomp.send(brief.destination, b"", receipt=True)
            while presence.instances != [kept.with_load(49, 0)]:
                await anyio.lowlevel.checkpoint()
            changes = presence.changes()
            assert await anext(changes) == Change(kept.with_load(49, 0))
            await stomp.send(kept.destination, b"", receipt=True)
            assert await anext(changes) == Change(kept.with_load(49, 0), is_gone=True)

    assert client.stomp.connection._buffered_bytes == 0


async def test_instance_that_went_and_came_back_between_two_looks_has_gone_and_is_there(
    broker_url: str, client: Client
) -> None:
    service = f"service-{uuid4().hex}"
    one, mark = Instance(service, "one"), Instance(service, "mark")

    with anyio.fail_after(10):
        async with StompClient(broker_url) as stomp:
            await stomp.send(one.destination, one.to_json(), receipt=True)
        async with StompClient(broker_url) as stomp, client.watch_services(service) as presence:
            for body in (b"", one.to_json(), b"", one.to_json()):
                await stomp.send(one.destination, body, receipt=True)
            await stomp.send(mark.destination, mark.to_json(), receipt=True)
            while len(presence.instances) < 2:
                await anyio.lowlevel.checkpoint()
            changes = presence.changes()
            seen = [await anext(changes) for _ in range(3)]
            for gone in (one, mark):
                await stomp.send(gone.destination, b"", receipt=True)

    assert [change for change in seen if change.instance == one] == [Change(one, is_gone=True), Change(one)]
    assert Change(mark) in seen


async def test_changes_end_with_the_connection(mortal_broker: RunningBroker) -> None:
    with anyio.fail_after(10):
        async with Client(mortal_broker.url) as client, client.watch_services() as presence:
            await anyio.to_thread.run_sync(mortal_broker.stop)
            with pytest.raises((ConnectionLost, ServerError)):
                await anext(presence.changes())


# --- brokers without last values ---


async def answering(client: Client, count: int, service: str | None = None) -> list[Instance]:
    """The instances that reply, asked again until all do: a busy machine may need more time."""
    with anyio.fail_after(20):
        while len(found := await client.services(service, timeout=0.5)) < count:
            pass
    return found


async def test_instances_reply_to_questions_where_there_are_no_last_values(plain_url: str) -> None:
    apps = fresh(), fresh()
    async with serving_at(plain_url, *apps), Client(plain_url) as client:
        everybody = await answering(client, 2)
        one = await answering(client, 1, apps[0].name)

    assert {found.service for found in everybody} == {app.name for app in apps}
    assert [found.service for found in one] == [apps[0].name]


async def test_only_the_instance_that_is_asked_replies(plain_url: str) -> None:
    apps = fresh(), fresh()
    inbox = f"{names.INBOX_PREFIX}{uuid4()}"
    async with (
        serving_at(plain_url, *apps),
        StompClient(plain_url) as stomp,
        stomp.subscribe(inbox, headers={names.EXCLUSIVE: "true"}) as answers,
    ):
        for app in apps:
            body = b'{"verb":"neb.who","parameters":{"service":"%b"}}' % app.name.encode()
            headers = {names.REPLY_TO: inbox, names.REPLY_ID: app.name}
            await stomp.send(names.SERVICES_TOPIC, body, headers, receipt=True)
        with anyio.fail_after(5):
            ids = [(await anext(answers)).headers[names.IN_REPLY_TO] for _ in apps]

    assert sorted(ids) == sorted(app.name for app in apps)


async def test_questions_are_answered_in_one_queue_where_there_are_no_last_values(plain_url: str) -> None:
    app, inboxes = fresh(), []
    async with (
        serving_at(plain_url, app),
        StompClient(plain_url) as stomp,
        stomp.subscribe(names.SERVICES_TOPIC) as questions,
        Client(plain_url) as client,
    ):
        with anyio.fail_after(20):
            async with (
                client.watch_services(app.name, timeout=0.1) as presence,
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(until, presence, 5)
                for _ in range(2):
                    inboxes.append((await anext(questions)).headers[names.REPLY_TO])
                tasks.cancel_scope.cancel()

    assert len(set(inboxes)) == 1


async def test_changes_are_seen_by_asking_again_where_there_are_no_last_values(plain_url: str) -> None:
    app = fresh()
    with anyio.fail_after(20):
        async with (
            Client(plain_url) as client,
            client.watch_services(app.name, timeout=0.2) as presence,
        ):
            assert presence.instances == []
            async with serving_at(plain_url, app):
                assert len(await until(presence, 1)) == 1
            assert await until(presence, 0) == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {names.REPLY_TO: "/queue/a"},
        {names.REPLY_ID: "1"},
        {names.REPLY_TO: "/queue/a", names.REPLY_ID: "x" * 256},
    ],
)
async def test_question_that_cannot_be_answered_does_no_harm(plain_url: str, headers: dict[str, str]) -> None:
    app = fresh()
    async with serving_at(plain_url, app), Client(plain_url) as client:
        await client.stomp.send(names.SERVICES_TOPIC, b'{"verb":"neb.who"}', headers, receipt=True)
        await client.stomp.send(names.SERVICES_TOPIC, b"\xff\x00", headers, receipt=True)

        assert len(await answering(client, 1, app.name)) == 1
