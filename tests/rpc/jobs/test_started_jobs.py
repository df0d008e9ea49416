"""Jobs end to end, in the service itself: started by a message, watched, ended, read."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest

from nebula.errors import CallTimeout, JobEnded, JobError, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.job_context import Job
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.service.responder import Responder
from tests.rpc.conftest import Serving

pytestmark = pytest.mark.anyio


class Shop:
    """A service with jobs, fresh for each test."""

    def __init__(self, state: Path) -> None:
        self.app = app = Responder(f"shop-{uuid4().hex}", state=state)

        @app.job(engine=None)
        async def add(job: Job, first: int, second: int = 1) -> int:
            job.progress(1, 2, "half")
            return first + second

        @app.job(engine=None)
        async def forever() -> None:
            await anyio.sleep_forever()

        @app.job(engine=None)
        def fail() -> None:
            raise JobError("no stock", code="sold-out")

        @app.job(engine=None, allow=["alice"])
        async def closed() -> None: ...

        @app.verb
        async def quick() -> str:
            return "at once"

        self.add, self.forever, self.fail, self.quick = add, forever, fail, quick


@pytest.fixture
async def shop(tmp_path: Path, serving: Serving) -> AsyncGenerator[Shop]:
    one = Shop(tmp_path)
    async with serving(one.app):
        yield one


async def test_job_is_accepted_and_gives_its_result(client: Client, shop: Shop) -> None:
    with anyio.fail_after(5):
        by_name = await client.start(shop.app.name, "add", {"first": 1, "second": 2})
        by_function = await client.start(shop.add, 1, second=3)

        assert await by_name.result() == 3
        assert await by_function.result(int) == 4

    assert by_name.id.startswith(f"{shop.app.name}/")


async def test_watched_job_shows_its_end_last(client: Client, shop: Shop) -> None:
    with anyio.fail_after(5):
        job = await client.start(shop.add, 1)
        states = [status.state async for status in job.watch()]

    assert states[-1] == JobState.DONE


async def test_job_can_be_found_again_by_its_id(client: Client, shop: Shop) -> None:
    with anyio.fail_after(5):
        job = await client.start(shop.add, 1)

        assert await client.job(job.id).result() == 2


async def test_cancelled_job_ends(client: Client, shop: Shop) -> None:
    with anyio.fail_after(5):
        job = await client.start(shop.forever)
        await job.cancel()
        with pytest.raises(JobEnded) as caught:
            await job.result()

    assert caught.value.state == "cancelled"


async def test_failed_job_gives_its_code(client: Client, shop: Shop) -> None:
    with anyio.fail_after(5):
        job = await client.start(shop.fail)
        with pytest.raises(JobEnded) as caught:
            await job.result()

    assert (caught.value.state, caught.value.code, caught.value.message) == ("failed", "sold-out", "no stock")


@pytest.mark.parametrize(
    ("verb", "parameters", "code"),
    [
        ("add", {"first": "x"}, "bad-parameters"),
        ("closed", None, "not-allowed"),
        ("gone", None, "unknown-verb"),
    ],
)
async def test_refused_job_is_an_error(
    client: Client, shop: Shop, verb: str, parameters: Any, code: str
) -> None:
    with anyio.fail_after(5), pytest.raises(RemoteError) as caught:
        await client.start(shop.app.name, verb, parameters)

    assert caught.value.code == code


async def test_same_dedupe_text_gives_the_same_job(client: Client, shop: Shop) -> None:
    with anyio.fail_after(5):
        first = await client.start(shop.app.name, "add", [1], dedupe="today", priority=3)
        second = await client.start(shop.app.name, "add", [1], dedupe="today")

    assert first.id == second.id


async def test_verb_that_is_no_job_cannot_be_started(client: Client, shop: Shop) -> None:
    with anyio.fail_after(5), pytest.raises(UnexpectedReply, match=r"'quick' .* is not a job"):
        await client.start(shop.app.name, "quick")


@pytest.mark.parametrize(
    "answer",
    [
        {"job": "payments/" + "0" * 26},
        {"job": "sho/" + "0" * 26},
        {"job": "0" * 26},
        {"job": "shop/" + "0" * 26, "via": "/queue/payments"},
    ],
)
async def test_answer_that_names_a_job_or_a_queue_of_another_service_is_not_believed(
    client: Client, serving: Serving, answer: dict[str, str]
) -> None:
    hostile = Responder("shop")

    @hostile.verb
    async def add() -> dict[str, str]:
        return answer

    async with serving(hostile):
        with anyio.fail_after(5), pytest.raises(UnexpectedReply):
            await client.start("shop", "add")


async def test_job_cannot_be_called_by_function(client: Client, shop: Shop) -> None:
    with pytest.raises(TypeError, match=r"client\.start"):
        await client.call(shop.add, 1)  # type: ignore[arg-type]  # wrong for the checker, too


async def test_verb_cannot_be_started_by_function(client: Client, shop: Shop) -> None:
    with pytest.raises(TypeError, match=r"client\.call"):
        await client.start(shop.quick)


async def test_job_begins_when_its_service_comes(client: Client, tmp_path: Path, serving: Serving) -> None:
    shop = Shop(tmp_path)
    with anyio.fail_after(5):
        job = await client.start(shop.app.name, "add", [1], timeout=0.05)
        async with serving(shop.app):
            await client.call(shop.app.name, "ping")
            assert await job.result() == 2


async def test_statuses_go_to_the_notify_destination_too(client: Client, shop: Shop) -> None:
    topic = f"/topic/notify-{uuid4().hex}"
    with anyio.fail_after(5):
        async with client.stomp.subscribe(topic) as news:
            job = await client.start(shop.app.name, "add", [1], notify=topic)
            async for message in news:
                if b'"done"' in message.body:
                    break

    assert job.id.encode() in message.body


async def test_describe_shows_jobs_and_the_verbs_that_manage_them(client: Client, shop: Shop) -> None:
    described = await client.call(shop.app.name, "describe")

    verbs = {one["verb"]: one for one in described["verbs"]}
    assert verbs["add"]["job"]
    assert list(verbs["add"]["parameters"]["properties"]) == ["first", "second"]
    assert {"job.status", "job.list", "job.cancel", "job.result"} <= verbs.keys()


async def test_job_verbs_are_answered_while_every_worker_is_busy(
    client: Client, tmp_path: Path, serving: Serving
) -> None:
    app = Responder(f"busy-{uuid4().hex}", state=tmp_path, concurrency=1)

    @app.job(engine=None)
    async def add(first: int) -> int:
        return first + 1

    @app.verb
    async def hold() -> None:
        await anyio.sleep_forever()

    async with serving(app):
        with anyio.fail_after(5):
            job = await client.start(add, 1)
            with pytest.raises(CallTimeout):
                await client.with_options(timeout=0.05).call(hold)
            assert await job.result() == 2


def test_job_without_its_engine_is_refused_with_the_cure() -> None:
    def add() -> None: ...

    with pytest.raises(ValueError, match=r"spark=Spark\(\)"):
        Responder("shop").job(add)


async def test_service_without_jobs_keeps_no_state(client: Client, tmp_path: Path, serving: Serving) -> None:
    app = Responder(f"plain-{uuid4().hex}", state=tmp_path)
    async with serving(app):
        await client.call(app.name, "ping")

    assert not list(tmp_path.iterdir())


async def test_option_that_does_not_exist_is_refused_before_anything_is_sent(
    client: Client, shop: Shop
) -> None:
    misspelt: Any = {"dedup": "once"}

    with pytest.raises(TypeError, match="no option dedup"):
        await client.start(shop.app.name, "add", {"first": 1}, **misspelt)
