"""`nebula broker`: what it says, how it ends, and what it answers to wrong settings."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nebula.broker.assembly import files_wanted
from nebula.broker.settings import BrokerSettings
from nebula.sync import Client
from tests.cli.programs import DEADLINE, NEBULA, environment, nebula, running

# Less than what a stop waits for where it has to, and enough for a busy machine.
PATIENCE = 20.0
PATIENT = {"NEBULA_SERVER_LIMITS__DRAIN_SECONDS": "60"}


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    peer = socket.create_connection((parts.hostname, parts.port), timeout=20)
    peer.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
    assert peer.recv(4096).startswith(b"CONNECTED\n")
    return peer


def test_first_line_says_where_it_listens_and_a_client_can_connect_there() -> None:
    with running("broker", "--port", "0") as (_, line):
        assert line["event"] == "listening"
        assert line["url"].startswith("stomp://127.0.0.1:")
        connect(line["url"]).close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_it_cleanly_though_clients_are_connected(number: signal.Signals) -> None:
    with running("broker", "--port", "0", env=PATIENT) as (process, line):
        peer = connect(line["url"])

        process.send_signal(number)

        assert process.wait(timeout=PATIENCE) == 0
        assert b"ERROR\n" in peer.recv(4096)
        peer.close()


# Where a SIGHUP comes that the broker sends itself: it takes no luck to meet the moment.
HANGUPS = {
    "while modules are imported": (
        "import sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'typer':\n"
        "            hang_up()\n"
        "sys.meta_path.insert(0, Finder())"
    ),
    "before there is a loop": "from nebula.cli import programs\nprograms._raise_file_limit = hang_up",
    "before it listens": (
        "from nebula.broker.server.server import Server\n"
        "start = Server.start\n"
        "async def start_late(server):\n"
        "    hang_up()\n"
        "    await start(server)\n"
        "Server.start = start_late"
    ),
}


@pytest.mark.parametrize("patch", HANGUPS.values(), ids=HANGUPS)
def test_hangup_during_the_start_leads_to_a_reload_after_it(tmp_path: Path, patch: str) -> None:
    with started_with(tmp_path, patch) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "listening"
        process.terminate()
        _, log = process.communicate(timeout=DEADLINE)

    assert process.returncode == 0
    assert [line for line in log.splitlines() if "files reloaded" in line]


@pytest.mark.parametrize(
    "patch",
    [
        "import atexit\natexit.register(hang_up)",
        "class Last:\n    __del__ = hang_up\nlast = Last()",  # when Python has reset its handlers
    ],
    ids=["at exit", "after that"],
)
def test_hangup_when_the_broker_is_at_its_end_changes_no_status(tmp_path: Path, patch: str) -> None:
    with started_with(tmp_path, patch) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "listening"
        process.terminate()
        process.communicate(timeout=DEADLINE)

    assert process.returncode == 0


@contextmanager
def on_a_terminal(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """A broker whose controlling terminal is the end that is yielded with it; it listens."""
    end, theirs = pty.openpty()
    process = subprocess.Popen(
        [*words, *NEBULA, "broker", "--port", "0", "--store", "memory"],
        env=environment({"TERM": "xterm", "COLUMNS": "200"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        read_until(end, b"messages kept")
        yield process, end
    finally:
        process.kill()
        process.wait()
        with suppress(OSError):
            os.close(end)


def read_until(end: int, wanted: bytes) -> bytes:
    said = b""
    while wanted not in said and (data := os.read(end, 65536)):
        said += data
    return said


def test_closed_terminal_ends_the_broker_on_it_like_sigterm() -> None:
    with on_a_terminal() as (process, end):
        os.close(end)

        assert process.wait(DEADLINE) == 0


def test_hangup_ends_a_broker_on_a_terminal_and_reloads_one_that_is_to_survive_it() -> None:
    with on_a_terminal() as (process, _):
        process.send_signal(signal.SIGHUP)

        assert process.wait(DEADLINE) == 0
    with on_a_terminal("/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "-") as (process, end):
        process.send_signal(signal.SIGHUP)

        assert b"files reloaded" in read_until(end, b"files reloaded")
        assert process.poll() is None


def test_broker_says_where_it_keeps_messages_and_who_has_the_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running("broker", "--port", "0", "--data", str(data)) as (process, line):
        assert process.stderr is not None
        told = json.loads(process.stderr.readline())
        refused = nebula("broker", "--port", "0", "--data", str(data))

    assert (told["event"], told["folder"]) == ("messages kept", str(data))
    assert refused.returncode == 1
    assert refused.stderr == (
        f"nebula: {data}: another broker keeps its messages there (pid {process.pid}, {line['url']}); "
        "stop that one, or name another folder with --data DIR\n"
    )


@contextmanager
def started_with(folder: Path, patch: str) -> Iterator[subprocess.Popen[str]]:
    """A broker, after these lines, which may call `hang_up`."""
    program = folder / "program.py"
    program.write_text(
        "import os, signal\n"
        "def hang_up(*_, kill=os.kill, id=os.getpid(), number=signal.SIGHUP):\n"
        "    kill(id, number)\n"
        f"{patch}\n"
        "from nebula.cli import main\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(program), "broker", "--port", "0", "--store", "memory"],
        env=environment(),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_signal_ends_it_with_status_1_and_why_where_the_disk_hangs(tmp_path: Path) -> None:
    program = tmp_path / "hanging.py"
    program.write_text(
        "import threading\n"
        "from nebula.broker.store.sqlite import SqliteStore\n"
        "from nebula.cli import main\n"
        "SqliteStore.close = lambda store: threading.Event().wait()\n"
        "main()\n"
    )
    process = subprocess.Popen(
        [sys.executable, program, "broker", "--port", "0", "--data", tmp_path / "data"],
        env=environment({"NEBULA_SERVER_LIMITS__DRAIN_SECONDS": "0.2"}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.terminate()
        _, log = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.communicate()

    assert process.returncode == 1
    assert "store did not stop" in log


def test_signal_ends_it_at_once_though_clients_send_without_a_pause() -> None:
    def flood(peer: socket.socket) -> None:
        with suppress(OSError):
            while True:
                peer.sendall(b"SEND\ndestination:/queue/flood\n\n\0" * 10_000)

    with running("broker", "--port", "0", env=PATIENT) as (process, line):
        peers = [connect(line["url"]) for _ in range(8)]
        last = connect(line["url"])
        for peer in peers:
            threading.Thread(target=flood, args=[peer], daemon=True).start()
        last.sendall(b"SEND\ndestination:/topic/t\nreceipt:r\n\n\0")
        assert last.recv(4096).startswith(b"RECEIPT\n")

        process.terminate()

        assert b"ERROR\n" in last.recv(4096)
        assert process.wait(timeout=PATIENCE) == 0
        for peer in [*peers, last]:
            peer.close()


BUSY = """
import asyncio
import time

from nebula import Responder

app = Responder("busy")


@app.verb
async def wait():
    print("begun", flush=True)
    await asyncio.sleep(30)


@app.verb
def work():
    print("begun", flush=True)
    time.sleep(30)


@app.verb
async def block():
    print("begun", flush=True)
    time.sleep(30)
"""


# One that computes on its service's loop cannot even be asked to end.
@pytest.mark.parametrize("verb", ["wait", "work", "block"])
def test_signal_ends_it_soon_though_a_hosted_verb_goes_on(tmp_path: Path, verb: str) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    with (
        running(
            "broker",
            "--port",
            "0",
            "--app",
            "busy:app",
            cwd=tmp_path,
            env={"NEBULA_SERVER_LIMITS__DRAIN_SECONDS": "1"},
        ) as (process, line),
        Client(line["url"]) as client,
    ):
        client.send("busy", verb)
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"

        process.terminate()

        assert process.wait(timeout=PATIENCE) == 0


def test_log_is_json_on_stderr_and_stdout_has_its_line_alone() -> None:
    with running("broker", "--port", "0", "--log-level", "debug") as (process, line):
        connect(line["url"]).close()
        process.terminate()
        out, err = process.communicate(timeout=20)

    assert out == ""
    assert all("event" in json.loads(logged) for logged in err.splitlines())


def test_commands_leave_no_line_in_the_log() -> None:
    with running("broker", "--port", "0", "--store", "memory") as (process, line):
        for words in (("pub", "orders", "1"), ("queues",), ("services",)):
            assert nebula(*words, env={"NEBULA_BROKER": line["url"]}).returncode == 0
        process.terminate()
        _, err = process.communicate(timeout=20)

    events = [json.loads(logged)["event"] for logged in err.splitlines()]
    assert not [event for event in events if "session" in event], events


def test_second_broker_on_one_port_says_so_and_exits_2() -> None:
    with running("broker", "--port", "0") as (_, line):
        port = str(urlsplit(line["url"]).port)

        second = nebula("broker", "--port", port)

    assert second.returncode == 2
    assert second.stderr.startswith("nebula: the broker cannot listen: ")
    assert "Traceback" not in second.stderr


def test_each_listener_of_the_file_is_announced(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text("[[listener]]\nport = 0\n[[listener]]\nhost = '::1'\nport = 0\n")

    with running("broker", cwd=tmp_path) as (process, first):
        assert process.stdout is not None
        second = json.loads(process.stdout.readline())

    assert first["url"].startswith("stomp://127.0.0.1:")
    assert second["url"].startswith("stomp://[::1]:")


def test_wrong_settings_are_all_told_and_nothing_starts(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text("store = 'disk'\n")

    ended = nebula("broker", "--port", "70000", cwd=tmp_path)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == [
        "nebula: --port: [[listener]] 1: port 70000 is not at most 65535",
        'nebula: nebula.toml: store "disk" is not one of sqlite, memory',
    ]


def test_print_settings_shows_value_and_origin_and_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("[limits]\nmax_headers = 9\n")

    ended = nebula(
        "broker", "--config", "other.toml", "--port", "0", "--print-settings",
        cwd=tmp_path, env={"NEBULA_SERVER_LOG_LEVEL": "debug"},
    )  # fmt: skip

    assert ended.returncode == 0
    rows = {row["setting"]: (row["value"], row["from"]) for row in json.loads(ended.stdout)}
    assert rows["[limits] max_headers"] == (9, "other.toml")
    assert rows["[[listener]] 1: port"] == (0, "--port")
    assert rows["log_level"] == ("debug", "NEBULA_SERVER_LOG_LEVEL")
    assert rows["store"] == ("sqlite", "default")


_FILES = """
import logging, resource, sys
from nebula.cli import programs
logging.basicConfig()
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 500))
programs._raise_file_limit(int(sys.argv[1]))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("wanted", "limit", "warns"), [(50, 100, False), (300, 300, False), (900, 500, True)]
)
def test_process_may_open_as_many_files_as_there_may_be_connections(
    wanted: int, limit: int, warns: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FILES, str(wanted)], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.splitlines()[-1] == f"{limit} 500"
    assert ("open files limited" in done.stdout + done.stderr) == warns


def test_requests_by_http_and_calls_hold_files_of_their_own_at_each_listener() -> None:
    limits = {"max_connections": 1000, "max_http_requests": 100, "max_http_calls": 10}
    two = [{"http": True, "calls": True}, {}]

    def files(**more: object) -> int:
        return files_wanted(BrokerSettings.model_validate({"limits": limits, **more}))

    alone = files()
    assert alone >= 1000
    assert files(http=0) == alone + 100
    assert files(http=0, http_calls=True) == alone + 110
    assert files(http=0, listener=two) == alone + 210
