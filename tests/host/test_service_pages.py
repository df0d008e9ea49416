"""A service's HTTP port."""

from __future__ import annotations

import re
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from prometheus_client import REGISTRY, Counter

from nebula.errors import SettingsError
from nebula.host.service_pages import pages_served
from nebula.rpc.client.client import Client
from nebula.rpc.service.responder import Responder
from nebula.spark import Spark, SparkRunner
from tests.http_requests import get
from tests.rpc.conftest import broker_url  # noqa: F401  # a fixture
from tests.spark.fakes import fake_command

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The port is of asyncio's."""
    return "asyncio"


async def ask(url: str) -> tuple[int, str]:
    with anyio.fail_after(10):
        return await anyio.to_thread.run_sync(get, url)


async def status_by_name(port: int, path: str, name: str) -> int:
    """Of a request that names this host."""

    def get_it() -> int:
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("GET", path, headers={"Host": name})
            return connection.getresponse().status
        finally:
            connection.close()

    return await anyio.to_thread.run_sync(get_it)


async def test_service_that_does_not_run_yet_lives_and_is_not_ready() -> None:
    async with pages_served(Responder("prices"), "127.0.0.1", 0) as url:
        assert await ask(f"{url}/healthz") == (200, "ok\n")
        assert await ask(f"{url}/readyz") == (503, "no requests are taken now\n")
        assert (await ask(f"{url}/metrics"))[0] == 200


async def test_hooks_decide_what_probes_hear(broker_url: str) -> None:  # noqa: F811
    app, is_well = Responder("probed"), {"database": True, "loop": True}

    @app.ready
    async def database() -> bool:
        return is_well["database"]

    @app.live
    async def loop() -> bool:
        return is_well["loop"]

    async with pages_served(app, "127.0.0.1", 0) as url, anyio.create_task_group() as tasks:
        started = anyio.Event()
        tasks.start_soon(partial(app.run, broker_url, started=started))
        await started.wait()
        well = [await ask(f"{url}/{page}") for page in ("healthz", "readyz")]
        is_well.update(database=False, loop=False)
        ill = [await ask(f"{url}/{page}") for page in ("healthz", "readyz")]
        tasks.cancel_scope.cancel()

    assert well == [(200, "ok\n"), (200, "ready\n")]
    assert ill == [(503, "loop\n"), (503, "database\n")]


async def test_metrics_count_requests_errors_and_times_of_each_verb(broker_url: str) -> None:  # noqa: F811
    app = Responder("measured")

    @app.verb
    async def quote(symbol: str) -> float:
        return 1.0

    async with pages_served(app, "127.0.0.1", 0) as url, anyio.create_task_group() as tasks:
        started = anyio.Event()
        tasks.start_soon(partial(app.run, broker_url, started=started))
        await started.wait()
        async with Client(broker_url) as client:
            await client.call("measured", "quote", {"symbol": "ABC"})
        text = (await ask(f"{url}/metrics"))[1]
        tasks.cancel_scope.cancel()

    of_quote = '{service="measured",verb="quote"}'
    assert f"nebula_service_requests_total{of_quote} 1.0" in text
    assert f"nebula_service_errors_total{of_quote} 0.0" in text
    assert f"nebula_service_request_seconds_count{of_quote} 1.0" in text
    assert 'le="0.001"' in text
    assert 'nebula_service_ready{service="measured"} 1.0' in text


async def test_what_the_program_counts_is_among_the_metrics_and_the_process_once() -> None:
    counter = Counter("lamps_sold", "By us.")
    try:
        counter.inc(3)
        async with pages_served(Responder("prices"), "127.0.0.1", 0) as url:
            _, text = await ask(f"{url}/metrics")
    finally:
        REGISTRY.unregister(counter)

    assert "lamps_sold_total 3.0\n" in text
    assert text.count("# TYPE process_open_fds ") == 1
    assert "python_info" not in text


@pytest.mark.parametrize(
    ("interface", "name", "status"),
    [
        ("127.0.0.1", "localhost", 200),
        ("127.0.0.1", "127.0.0.1:9000", 200),
        ("127.0.0.1", "evil.example", 421),
        ("0.0.0.0", "prices.example", 200),
    ],
)
async def test_metrics_on_loopback_are_for_who_asks_for_this_machine(
    interface: str, name: str, status: int
) -> None:
    async with pages_served(Responder("prices"), interface, 0) as url:
        port = url.rpartition(":")[2]

        assert await status_by_name(int(port), "/metrics", name) == status
        assert await status_by_name(int(port), "/healthz", name) == 200


async def test_nothing_else_is_there() -> None:
    async with pages_served(Responder("prices"), "127.0.0.1", 0) as url:
        assert await ask(f"{url}/") == (404, "nothing is here\n")
        assert await ask(f"{url}/stomp") == (404, "nothing is here\n")


async def test_port_that_is_taken_is_a_wrong_setting() -> None:
    app = Responder("prices")
    async with pages_served(app, "127.0.0.1", 0) as url:
        with pytest.raises(SettingsError, match=r"--http 127\.0\.0\.1:"):
            async with pages_served(app, "127.0.0.1", int(url.rpartition(":")[2])):
                pass


async def test_metrics_of_jobs_are_by_verb_and_state(tmp_path: Path, broker_url: str) -> None:  # noqa: F811
    app, may_end = Responder("measuring", state=tmp_path), anyio.Event()

    @app.job(engine=None)
    async def add(first: int) -> int:
        return 1 // first

    @app.job(engine=None, max_running=1)
    async def wait() -> None:
        await may_end.wait()

    async with pages_served(app, "127.0.0.1", 0) as url, anyio.create_task_group() as tasks:
        assert "nebula_service_jobs" not in (await ask(f"{url}/metrics"))[1]
        started = anyio.Event()
        tasks.start_soon(partial(app.run, broker_url, started=started))
        await started.wait()
        before = (await ask(f"{url}/metrics"))[1]
        async with Client(broker_url) as client:
            for first in (1, 2, 0):
                await (await client.start(add, first)).wait()
            waiting = [await client.start(wait) for _ in range(2)]
            text = (await ask(f"{url}/metrics"))[1]
            may_end.set()
            for job in waiting:
                await job.wait()
            after = (await ask(f"{url}/metrics"))[1]
        tasks.cancel_scope.cancel()

    def of(state: str, verb: str = "add") -> str:
        return f'{{service="measuring",state="{state}",verb="{verb}"}}'

    assert f"nebula_service_jobs_ended_total{of('done')} 2.0" in text
    assert f"nebula_service_jobs_ended_total{of('failed')} 1.0" in text
    assert f"nebula_service_jobs_open{of('queued', 'wait')} 1.0" in text
    assert f"nebula_service_jobs_open{of('queued', 'wait')} 0.0" in after
    assert f"nebula_service_jobs_ended_total{of('done', 'wait')} 2.0" in after
    assert 'nebula_service_job_run_seconds_count{service="measuring",verb="add"} 3.0' in text
    assert 'nebula_service_job_wait_seconds_bucket{le="86400.0",service="measuring",verb="add"} 3.0' in text
    # Whatever happens, there are as many series.
    series = [one.count("\nnebula_service_job") for one in (before, text, after)]
    assert len(set(series)) == 1


class _FakeEngine:
    """An engine that says how it is, and runs nothing."""

    operators, can_isolate, is_broken, max_running = None, False, None, 1

    def runner(self, state: Path, service: str, name: str, *, is_shared: bool) -> Any:
        return self

    def status(self) -> dict[str, Any]:
        isolated = [{"rss_bytes": 5}, {"rss_bytes": None}]
        return {"state": "ready", "starts": 4, "rss_bytes": 100, "isolated": isolated}

    async def run(self, listener: Any, *, started: anyio.Event) -> None:
        started.set()
        await anyio.sleep_forever()


async def test_page_lists_what_is_shown(tmp_path: Path, broker_url: str) -> None:  # noqa: F811
    engine: Any = _FakeEngine()
    app = Responder("listed", state=tmp_path, spark=engine)

    @app.job
    def report() -> None: ...

    async with pages_served(app, "127.0.0.1", 0) as url, anyio.create_task_group() as tasks:
        started = anyio.Event()
        tasks.start_soon(partial(app.run, broker_url, started=started))
        await started.wait()
        text = (await ask(f"{url}/metrics"))[1]
        tasks.cancel_scope.cancel()

    of_engine = '{engine="default",service="listed"}'
    assert f"nebula_service_engine_ready{of_engine} 1.0" in text
    assert f"nebula_service_engine_restarts_total{of_engine} 3.0" in text
    assert f"nebula_service_engine_memory_bytes{of_engine} 105.0" in text
    told = re.findall(r"^# HELP (nebula_service_\w+) (.+)\n# TYPE \1 (\w+)$", text, re.MULTILINE)
    page = Path(__file__).parents[2] / "docs" / "reference" / "service-metrics.md"
    rows = re.findall(r"^\| `(nebula_\w+)` \| (\w+) \| [^|]+ \| (.+) \|$", page.read_text(), re.MULTILINE)
    assert rows == [(name, kind, about) for name, about, kind in told]


class _Engine(Spark):
    """An engine that only pretends, and starts at the second time."""

    def runner(
        self, state: Path, service: str, name: str = "default", *, is_shared: bool = True
    ) -> SparkRunner:
        command = fake_command("mended", state)
        return SparkRunner(
            self, state, service, name, is_shared=is_shared, command=command, back_off=(3600.0,)
        )


async def test_service_whose_engine_failed_is_not_ready_until_one_has_started(
    broker_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    app = Responder("reports", spark=_Engine(operators=["anonymous"]), state=tmp_path)

    @app.job
    def report() -> int:
        return 5

    async with pages_served(app, "127.0.0.1", 0) as url, anyio.create_task_group() as tasks:
        started = anyio.Event()
        tasks.start_soon(partial(app.run, broker_url, started=started))
        await started.wait()
        with anyio.fail_after(20):
            while await ask(f"{url}/readyz") != (503, "engine default\n"):
                await anyio.sleep(0.05)
            async with Client(broker_url) as client:
                await client.call("reports", "engine.restart", {"engine": "default"})
            while await ask(f"{url}/readyz") != (200, "ready\n"):
                await anyio.sleep(0.05)
        tasks.cancel_scope.cancel()
