"""Processes that are kept alive: `nebula run --workers` and `--reload`."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest

from nebula.cli.service import host_and_port, worker_of
from nebula.cli.supervising import Supervisor, Worker
from nebula.logs import Level
from tests.cli.conftest import state
from tests.cli.programs import Program, nebula, running
from tests.http_requests import get


def worker(program: str) -> Worker:
    """A process of some lines of Python."""
    return Worker([sys.executable, "-c", textwrap.dedent(program)], dict(os.environ))


SERVES = """
    import os, signal, sys
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print('{"event": "serving", "service": "s", "queues": ["/queue/s"], "pid": %d}' % os.getpid(), flush=True)
"""
PAUSE = "    signal.pause()\n"
STAYS = SERVES + PAUSE
DEAF = SERVES.replace("sys.exit(0)", "None")


class Told(list[Mapping[str, Any]]):
    """Log events of a supervisor about its workers, with their times."""

    def __init__(self) -> None:
        super().__init__()
        self.serving = anyio.Event()

    def __call__(self, told: Sequence[Mapping[str, Any]]) -> None:
        self.extend(told)
        self.serving.set()


pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Programs run on asyncio."""
    return "asyncio"


async def run_until(supervisor: Supervisor, wait: Callable[[], Any]) -> None:
    """Run a supervisor until something was waited for."""
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(supervisor.run)
            await wait()
            tasks.cancel_scope.cancel()


class Doorbell:
    """Where processes of a test say that they are there, by the line that `rings` adds to them."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)

    @property
    def rings(self) -> str:
        address = self._socket.getsockname()
        return f"    import socket; socket.create_connection({address}).sendall(b'%d' % os.getpid())\n"

    async def pid(self) -> int:
        """The next process that rings."""
        await anyio.wait_readable(self._socket)
        visitor, _ = self._socket.accept()
        with visitor:
            visitor.setblocking(False)
            await anyio.wait_readable(visitor)
            return int(visitor.recv(100))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def doorbell() -> Iterator[Doorbell]:
    bell = Doorbell()
    yield bell
    bell.close()


async def test_it_serves_once_all_workers_do() -> None:
    told = Told()
    supervisor = Supervisor([worker(STAYS), worker(STAYS)], told)

    await run_until(supervisor, told.serving.wait)

    assert [facts["service"] for facts in told] == ["s", "s"]
    assert told[0]["pid"] != told[1]["pid"]
    assert supervisor.status == 0


async def test_worker_that_ends_is_started_again(doorbell: Doorbell) -> None:
    async def wait() -> None:
        os.kill(await doorbell.pid(), signal.SIGTERM)
        await doorbell.pid()

    await run_until(Supervisor([worker(SERVES + doorbell.rings + PAUSE)], Told(), first_delay=0.01), wait)


async def test_worker_that_cannot_even_start_is_given_up() -> None:
    supervisor = Supervisor(
        [worker("import sys; sys.exit(2)"), worker("import signal; signal.pause()")], Told()
    )

    with anyio.fail_after(20):
        await supervisor.run()

    assert supervisor.status == 2


async def test_status_of_a_worker_that_was_killed_is_that_of_shells() -> None:
    supervisor = Supervisor([worker("import os; os.kill(os.getpid(), 9)")], Told())

    with anyio.fail_after(20):
        await supervisor.run()

    assert supervisor.status == 128 + signal.SIGKILL


async def test_worker_that_finds_no_broker_is_tried_again(doorbell: Doorbell) -> None:
    program = "    import os, sys\n" + doorbell.rings + "    sys.exit(3)\n"

    async def wait() -> None:
        for _ in range(3):
            await doorbell.pid()

    await run_until(Supervisor([worker(program)], Told(), first_delay=0.01), wait)


async def test_worker_that_does_not_stop_is_killed() -> None:
    told = Told()
    deaf = DEAF + "    while True: signal.pause()\n"

    await run_until(Supervisor([worker(deaf)], told, stop_seconds=0.1), told.serving.wait)

    assert not psutil.pid_exists(told[0]["pid"])


async def test_worker_that_does_not_stop_does_not_hold_up_a_reload(
    doorbell: Doorbell, tmp_path: Path
) -> None:
    source = tmp_path / "service.py"
    deaf = worker(DEAF + doorbell.rings + "    while True: signal.pause()\n")

    async def wait() -> None:
        before = await doorbell.pid()
        async with rewritten(source):
            assert await doorbell.pid() != before

    await run_until(Supervisor([deaf], Told(), watched=tmp_path, stop_seconds=0.1), wait)


@asynccontextmanager
async def rewritten(file: Path) -> AsyncIterator[None]:
    """Write a file during the block, again and again: the watch does not say when it begins."""

    async def write() -> None:
        number = 0
        while True:
            file.write_text(f"x = {number}")
            number += 1
            await anyio.sleep(0.5)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        yield
        tasks.cancel_scope.cancel()


async def test_what_workers_say_beside_is_handed_on(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    told = Told()

    await run_until(
        Supervisor([worker("print('hello')" + STAYS.replace("\n    ", "\n"))], told), told.serving.wait
    )

    assert b"hello\n" in capfdbinary.readouterr().out


# --- the command ---


@contextmanager
def broker() -> Iterator[str]:
    with running("broker", "--port", "0", "--store", "memory") as (_, line):
        yield line["url"]


def pids(process: Program) -> list[int]:
    return [child.pid for child in psutil.Process(process.pid).children()]


def instances(url: str) -> list[str]:
    return [one["name"] for one in json.loads(nebula("services", "shop", "--broker", url).stdout)]


def test_run_with_workers_has_an_instance_for_each_and_ends_them_all(folder: Path) -> None:
    with (
        broker() as url,
        running("run", "shop:app", "--workers", "2", "--broker", url, cwd=folder, env=state(folder)) as (
            service,
            line,
        ),
    ):
        found, children = instances(url), pids(service)
        service.send_signal(signal.SIGTERM)
        status = service.wait(20)
        left = instances(url)

    assert line == {"event": "serving", "service": "shop", "queues": ["/queue/shop"], "workers": 2}
    assert (len(found), len(children), status, left) == (2, 2, 0, [])
    assert not any(psutil.pid_exists(pid) for pid in children)


TALKER = """
from nebula import Responder

app = Responder("talker")


@app.verb
def say() -> None:
    print("hello", flush=True)
"""


@pytest.mark.slow
def test_workers_go_on_when_their_output_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "talker.py").write_text(TALKER)
    words = ("run", "talker:app", "--workers", "2")
    with broker() as url, running(*words, "--broker", url, cwd=tmp_path) as (service, _):
        assert service.stdout is not None
        service.stdout.close()
        said = [nebula("call", "talker", "say", "--broker", url).returncode for _ in range(3)]
        service.send_signal(signal.SIGTERM)
        status = service.wait(20)
        assert service.stderr is not None
        logged = service.stderr.read()
        service.stdout = None

    assert (said, status) == ([0, 0, 0], 0)
    assert "BrokenPipe" not in logged


def test_workers_do_not_outlive_their_supervisor(folder: Path) -> None:
    with (
        broker() as url,
        running("run", "shop:app", "--workers", "2", "--broker", url, cwd=folder, env=state(folder)) as (
            service,
            _,
        ),
    ):
        children = [psutil.Process(pid) for pid in pids(service)]
        service.kill()
        _, alive = psutil.wait_procs(children, timeout=15)

    assert alive == []


def test_service_that_is_none_ends_its_supervisor(folder: Path) -> None:
    ended = nebula("run", "shop:ap", "--workers", "2", cwd=folder, env=state(folder))

    assert ended.returncode == 2
    assert "nebula: shop:ap: 'ap' is not a Responder; did you mean app?" in ended.stderr
    assert "Traceback" not in ended.stderr


GREETER = """
from nebula import Responder

app = Responder("greeter")


@app.verb
def greet() -> str:
    return "%s"
"""


@pytest.mark.slow
def test_reload_runs_the_service_as_it_is_now(tmp_path: Path) -> None:
    source = tmp_path / "greeter.py"
    source.write_text(GREETER % "hello")
    with (
        broker() as url,
        running("run", "greeter:app", "--reload", "--broker", url, cwd=tmp_path) as (_, _line),
        running("services", "greeter", "--watch", "--broker", url) as (watching, before),
    ):
        first = nebula("call", "greeter", "greet", "--broker", url).stdout
        # Watchers look at times too; an older file would look the same.
        source.write_text(GREETER % "good evening")
        assert watching.stdout is not None
        while True:
            now = json.loads(watching.stdout.readline())
            if now and now[0]["name"] != before[0]["name"]:  # type: ignore[index]
                break
        second = nebula("call", "greeter", "greet", "--broker", url).stdout

    assert (first, second) == ('"hello"\n', '"good evening"\n')


def test_run_with_http_answers_probes_and_metrics(folder: Path) -> None:
    with (
        broker() as url,
        running("run", "shop:app", "--http", "0", "--broker", url, cwd=folder, env=state(folder)) as (
            _,
            line,
        ),
    ):
        nebula("call", "shop", "price", "item=lamp", "--broker", url)
        health, ready, metrics = (get(f"{line['http']}/{page}") for page in ("healthz", "readyz", "metrics"))

    assert (health, ready) == ((200, "ok\n"), (200, "ready\n"))
    assert 'nebula_service_requests_total{service="shop",verb="price"} 1.0' in metrics[1]


def test_run_with_workers_tells_where_each_of_them_answers(folder: Path) -> None:
    words = ("run", "shop:app", "--workers", "2", "--http", "0")
    with broker() as url, running(*words, "--broker", url, cwd=folder, env=state(folder)) as (_, line):
        pages = [get(f"{address}/readyz") for address in line["http"]]

    assert len(set(line["http"])) == 2
    assert pages == [(200, "ready\n")] * 2


def test_worker_beyond_the_last_port_is_refused(folder: Path) -> None:
    ended = nebula("run", "shop:app", "--workers", "2", "--http", "65535", cwd=folder)

    assert ended.returncode == 2
    assert "65536" in ended.stderr


@pytest.mark.parametrize("http", ["x", "127.0.0.1:", ":9000", "99999", "a:b"])
def test_port_that_is_none_is_refused(folder: Path, http: str) -> None:
    ended = nebula("run", "shop:app", "--http", http, cwd=folder)

    assert ended.returncode == 2
    assert "write PORT or HOST:PORT" in ended.stderr


def test_each_worker_has_a_port_of_its_own_and_no_passcode_among_its_words() -> None:
    url = "stomp://me:secret@127.0.0.1:61613"
    workers = [worker_of("shop:app", "[::1]:9000", number, url, Level.INFO) for number in range(2)]

    assert [each.command[-1] for each in workers] == ["::1:9000", "::1:9001"]
    assert host_and_port(workers[1].command[-1]) == ("::1", 9001)
    assert not any("secret" in word for each in workers for word in each.command)
    assert {each.environment["NEBULA_BROKER"] for each in workers} == {url}
    assert worker_of("shop:app", "0", 1, None, Level.INFO).command[-1] == "127.0.0.1:0"
