"""`nebula record`, killed and starved as a machine does it."""

from __future__ import annotations

import errno
import io
import json
import os
import pty
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import anyio
import pytest

from nebula import sync
from nebula.avro import encode
from nebula.cli.record import _Shown
from nebula.cli.render import Output
from nebula.record.status import RecorderStatus
from nebula.stomp.client import StompClient
from tests.cli.programs import DEADLINE, Program, broker_process, environment, nebula, running
from tests.record.messages import QUEUE, READING, hidden, recorded

RECORD = ("record", QUEUE, "--sync-seconds", "0.01", "--sync-messages", "50", "--rotate-seconds", "1")


def until(is_so: Callable[[], bool]) -> None:
    end = monotonic() + DEADLINE
    while not is_so():
        assert monotonic() < end
        sleep(0.002)


def size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def status(into: Path) -> dict[str, Any]:
    file = into / ".recorder/recorder/status.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"state": "none", "total": 0}
    return found


def stop(process: Program) -> list[dict[str, Any]]:
    """Let it end as an operator does; what it wrote."""
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, err
    return [json.loads(line) for line in out.splitlines()]


def send(url: str, *bodies: bytes, to: str = QUEUE) -> None:
    """Send many quickly; when this returns the broker has all of them on disk."""

    async def sending() -> None:
        async with StompClient(url) as client:
            for body in bodies[:-1]:
                client.post(to, body, {"persistent": "true"})
                await client.drain()
            await client.send(to, bodies[-1], {"persistent": "true"}, receipt=True)

    anyio.run(sending)


def numbers(into: Path) -> list[int]:
    return sorted(int(record["body"]) for record in recorded(into))


def test_it_says_what_it_does_and_what_it_has_done(url: str, tmp_path: Path) -> None:
    queue = "/queue/record.said"
    with running("record", queue, "X/said", "--into", str(tmp_path), env={"NEBULA_BROKER": url}) as (
        process,
        line,
    ):
        send(url, b"one", b"two", to=queue)
        until(lambda: status(tmp_path)["total"] == 2)
        shown = nebula("record", "--status", "--into", str(tmp_path))
        last = stop(process)[-1]

    assert line["event"] == "recording"
    assert "only the latest values" in line["notes"][0]
    assert [(each["state"], each["messages"]) for each in json.loads(shown.stdout)] == [("recording", 2)]
    assert (last["event"], last["messages"], last["files"]) == ("stopped", 2, 1)
    assert json.loads(nebula("record", "--status", "--into", str(tmp_path)).stdout)[0]["state"] == "stopped"
    assert len(recorded(tmp_path)) == 2


def test_it_asks_the_broker_for_schemas(tmp_path: Path) -> None:
    into = tmp_path / "into"
    row = {"machine": "EGM1", "turnover": 5}
    with running("broker", "--port", "0", "--schemas", str(tmp_path / "schemas")) as (_, line):
        url = line["url"]
        with sync.Client(url) as client:
            client.call("nebula.broker", "schema.register", {"definition": READING.definition})
        with running("record", QUEUE, "--into", str(into), env={"NEBULA_BROKER": url}) as (process, _):
            send(url, encode(row, READING))
            until(lambda: status(into)["total"] == 1)
            stop(process)

    assert recorded(into) == [row]


def test_bare_data_are_recorded_by_the_schema_of_a_file(url: str, tmp_path: Path) -> None:
    queue, file = "/queue/record.bare", tmp_path / "reading.avsc"
    file.write_text(json.dumps(READING.definition))
    row = {"machine": "EGM1", "turnover": 5}
    words = (
        "record",
        queue,
        "--into",
        str(tmp_path / "into"),
        "--bare",
        f"{queue}={file}",
        "--codec",
        "zstandard",
    )
    with running(*words, env={"NEBULA_BROKER": url}) as (process, _):
        send(url, READING.encode(row), to=queue)
        until(lambda: status(tmp_path / "into")["total"] == 1)
        stop(process)

    assert recorded(tmp_path / "into") == [row]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--into", "x"), "name what to record"),
        ((QUEUE, "--into", "x", "--bare", "y"), "write DEST=FILE"),
        ((QUEUE, "--into", "x", "--codec", "lzw"), "null, deflate, zstandard"),
        ((QUEUE, "--into", "x", "--name", "a/b"), "letters, digits"),
        ((QUEUE, "--into", "pyproject.toml"), "pyproject.toml"),
    ],
)
def test_wrong_words_exit_2_and_say_why(url: str, words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    ended = nebula("record", *words, env={"NEBULA_BROKER": url}, cwd=tmp_path)

    assert ended.returncode == 2
    assert why in ended.stderr


def test_no_broker_exits_3(tmp_path: Path) -> None:
    ended = nebula("record", QUEUE, "--into", str(tmp_path), env={"NEBULA_BROKER": "stomp://127.0.0.1:1"})

    assert ended.returncode == 3


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_recorder_and_broker_killed_again_and_again_have_each_message_once(tmp_path: Path) -> None:
    into, data = tmp_path / "into", tmp_path / "data"
    ledger = into / ".recorder/recorder/ledger"
    sent = 0
    with ExitStack() as stack:
        broker, url = stack.enter_context(broker_process(data))
        port = url.rpartition(":")[2]
        for round_number in range(4):
            batch = [b"%d" % number for number in range(sent, sent + 200)]
            send(url, *batch)
            sent += len(batch)
            with running(*RECORD, "--into", str(into), env={"NEBULA_BROKER": url}) as (recorder, _):
                # A moment that depends on the disk: groups are written, their ACKs are under way.
                before, groups = size(ledger), round_number % 4
                # All of it may be there before we have looked.
                until(lambda: size(ledger) > before + groups * 400 or status(into)["total"] == sent)  # noqa: B023
                if round_number % 4 == 3:
                    broker.kill()
                    broker.wait()
                    broker, url = stack.enter_context(broker_process(data, port))
                recorder.kill()
                recorder.wait()

        with running(*RECORD, "--into", str(into), env={"NEBULA_BROKER": url}) as (recorder, _):
            send(url, b"%d" % sent)
            until(lambda: status(into)["total"] == sent + 1)
            stop(recorder)

    assert numbers(into) == list(range(sent + 1))
    assert hidden(into) == []


@pytest.mark.parametrize(("room_bytes", "why"), [(2000, "too large"), (0, "no room")])
def test_a_full_disk_stops_the_taking_and_room_or_a_new_start_lets_it_go_on(
    url: str, tmp_path: Path, room_bytes: int, why: str
) -> None:
    queue = f"/queue/record.full.{room_bytes}"
    words = ("record", queue, "--into", str(tmp_path), "--codec", "null")

    def fill(process: Program, numbers: range) -> tuple[int, int]:
        limits = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (room_bytes, limits[1]))
        send(url, *(b"%d" % number for number in numbers), to=queue)
        until(lambda: status(tmp_path)["state"] == "full")
        return limits

    with running(*words, env={"NEBULA_BROKER": url}) as (process, _):
        limits = fill(process, range(100))
        shown = json.loads(nebula("record", "--status", "--into", str(tmp_path)).stdout)[0]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, limits)
        until(lambda: status(tmp_path)["total"] == 100)
        fill(process, range(100, 200))
        stop(process)
    with running(*words, env={"NEBULA_BROKER": url}) as (process, _):
        until(lambda: status(tmp_path)["total"] == 200)
        stop(process)

    assert shown["state"] == "full"
    assert why in shown["failure"]
    assert numbers(tmp_path) == list(range(200))


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", text)


def test_output_that_is_on_a_full_disk_ends_no_recorder() -> None:
    output = Output(as_json=True)
    output.console.file = FullDisk()

    _Shown(output).tell(RecorderStatus("one", told=100.0))


@pytest.mark.slow
def test_a_recorder_that_stands_still_holds_up_nobody_else(tmp_path: Path) -> None:
    topic, count = "/topic/readings", 20_000
    words = ("record", topic, "--durable", "archive", "--into", str(tmp_path / "into"))
    with (
        broker_process(tmp_path / "data") as (_, url),
        running(*words, env={"NEBULA_BROKER": url}) as (recorder, _),
        sync.Client(url) as reader,
    ):
        os.kill(recorder.pid, signal.SIGSTOP)
        with reader.subscribe(topic) as messages:
            send(url, *(b"%d" % number for number in range(count)), to=topic)
            found = [next(messages).body for _ in range(count)]
        os.kill(recorder.pid, signal.SIGCONT)
        until(lambda: status(tmp_path / "into")["total"] == count)
        stop(recorder)

    assert found == [b"%d" % number for number in range(count)]
    assert numbers(tmp_path / "into") == list(range(count))


def test_program_in_the_background_leaves_the_terminal_alone() -> None:
    """`set -m` has `sh` put what ends in `&` into the background, as a person's shell does."""
    program = "from nebula.cli import terminal; print(terminal.is_in_foreground())"
    asked = f"{sys.executable} -c '{program}'"
    process, end = pty.fork()
    if process == 0:
        os.execvpe("sh", ["sh", "-c", f"set -m; {asked}; {asked} & wait"], environment())

    said = b""
    with suppress(OSError):  # Linux has EIO for the end
        while piece := os.read(end, 1024):
            said += piece
    os.close(end)
    os.waitpid(process, 0)

    assert said.split() == [b"True", b"False"]
