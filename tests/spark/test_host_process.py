"""The engine host as a process, before any Spark is started in it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from nebula.spark import lines

Host = subprocess.Popen[bytes]


def start_host(errors: int | None = None) -> Host:
    command, pipe = [sys.executable, "-m", "nebula.spark.host"], subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, start_new_session=True)


@pytest.fixture
def host() -> Iterator[Host]:
    process = start_host(subprocess.PIPE)
    yield process
    end(process)


def end(process: Host) -> None:
    with process:
        process.kill()


def tell(process: Host, line: lines.Line) -> None:
    assert process.stdin is not None
    process.stdin.write(lines.LineWriter().encode(line))
    process.stdin.flush()


def hear(process: Host) -> str:
    """The next line that is no beat, as bytes that a person can compare."""
    assert process.stdout is not None
    while b'"line":"beat"' in (line := process.stdout.readline()):
        pass
    return line.decode()


def test_hello_comes_first_with_version_and_pid(host: Host) -> None:
    assert hear(host) == f'{{"n":0,"line":"hello","version":{lines.VERSION},"pid":{host.pid}}}\n'


def test_stop_is_obeyed_with_a_farewell(host: Host) -> None:
    hear(host)
    tell(host, lines.Stop())

    assert '"line":"bye","reason":"asked to stop"' in hear(host)
    assert host.wait(10) == 0


def test_end_of_the_input_is_the_end_of_the_host(host: Host) -> None:
    hear(host)
    assert host.stdin is not None
    host.stdin.close()

    assert '"line":"bye","reason":"the service is gone"' in hear(host)
    assert host.wait(10) == 1


@pytest.mark.parametrize("said", [b"?\n", b'{"n":5,"line":"stop"}\n', b'{"n":0,"line":"bye","reason":""}\n'])
def test_what_is_no_command_ends_the_host(host: Host, said: bytes) -> None:
    hear(host)
    assert host.stdin is not None
    host.stdin.write(said)
    host.stdin.flush()

    assert '"line":"bye"' in hear(host)
    assert host.wait(10) == 1


def test_interrupt_from_the_terminal_is_left_to_the_service(host: Host) -> None:
    hear(host)
    host.send_signal(signal.SIGINT)
    tell(host, lines.Stop())

    assert "asked to stop" in hear(host)


def test_terminated_host_says_so(host: Host) -> None:
    hear(host)
    host.terminate()

    assert '"line":"bye","reason":"terminated"' in hear(host)
    assert host.wait(10) == 1


def test_host_that_fails_by_itself_prints_why(host: Host) -> None:
    hear(host)
    # Nobody has told it what to start.
    tell(host, lines.Submit("A", 1, "count", "tests.spark.jobs:count", None))

    assert hear(host) == ""
    assert host.wait(10) == 4
    assert printed(host).endswith("AssertionError\n")


def test_host_whose_native_code_crashes_prints_where(host: Host) -> None:
    hear(host)
    host.send_signal(signal.SIGSEGV)

    assert host.wait(10) == -signal.SIGSEGV
    assert printed(host).startswith("Fatal Python error: Segmentation fault\n")


def printed(process: Host) -> str:
    """What a host that has ended said outside of the protocol."""
    assert process.stderr is not None
    return process.stderr.read().decode()


def test_host_outlives_the_thread_that_started_it() -> None:
    """The kernel tells of the end of that thread as if it were the end of the process."""
    started: list[Host] = []

    def start() -> None:
        started.append(start_host())
        hear(started[0])

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    try:
        tell(started[0], lines.Stop())

        assert "asked to stop" in hear(started[0])
    finally:
        end(started[0])
