"""A real query whose processes are killed, and whose broker is, has each message once in its output."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow.parquet as pq  # type: ignore[import-untyped]  # it ships no types
import pytest

from nebula import sync
from nebula.stomp.client.messages import AckMode
from tests.cli.programs import broker_process
from tests.spark.source.killed_query import FORWARDED, QUEUE

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

_SOURCE = "python_streaming_source_runner"
_PATIENCE_SECONDS = 150.0


def test_output_equals_the_ledger_after_kills_of_all_that_take_part(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker, url = stack.enter_context(broker_process(tmp_path / "data"))
        ledger = publish(url, 0, 300)
        with query(url, tmp_path) as driver:
            until(lambda: commits(tmp_path) >= 1, "a batch is committed")
            jvm = child(driver, "java")
            os.kill(jvm.pid, signal.SIGKILL)
            driver.wait(_PATIENCE_SECONDS)
        ledger += publish(url, 300, 600)
        with query(url, tmp_path) as driver:
            begun = commits(tmp_path)
            until(lambda: commits(tmp_path) > begun, "another one is")
            os.kill(child(driver, _SOURCE).pid, signal.SIGKILL)
            driver.wait(_PATIENCE_SECONDS)
        ledger += publish(url, 600, 900)
        ids = tmp_path / "spool" / "ledger"
        with query(url, tmp_path) as driver:
            before = ids.stat().st_size
            until(lambda: ids.stat().st_size > before, "the first of them are spooled")
            broker.kill()
            broker.wait()
            _, url = stack.enter_context(broker_process(tmp_path / "data", url.rpartition(":")[2]))
            ledger += publish(url, 900, 1000)
            # The query goes on by itself.
            until(lambda: position(tmp_path) == len(ledger), "the last message is in the table")
            os.kill(driver.pid, signal.SIGKILL)
            driver.wait(_PATIENCE_SECONDS)
        with query(url, tmp_path, "--to-the-end") as driver:
            assert driver.wait(_PATIENCE_SECONDS) == 0

    assert sorted(output(tmp_path)) == sorted(ledger)


def test_sink_has_sent_each_row_once_after_kills_amid_its_batches(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker, url = stack.enter_context(broker_process(tmp_path / "data"))
        ledger = publish(url, 0, 400)
        with query(url, tmp_path, "--forward") as driver:
            sent = amid_a_batch(url, {}, 60)
            broker.kill()
            broker.wait()
            _, url = stack.enter_context(broker_process(tmp_path / "data", url.rpartition(":")[2]))
            # The query goes on by itself.
            sent = amid_a_batch(url, sent, 160)
            os.kill(child(driver, "java").pid, signal.SIGKILL)
            driver.wait(_PATIENCE_SECONDS)
        with query(url, tmp_path, "--forward", "--to-the-end") as driver:
            assert driver.wait(_PATIENCE_SECONDS) == 0
        with sync.Client(url) as client:
            client.publish(FORWARDED, {"body": "the end"})
        sent = forwarded(url, sent, lambda got: got[-1] == "the end")

    assert sorted(sent.values()) == sorted([*ledger, "the end"])


def amid_a_batch(url: str, sent: dict[str, str], count: int) -> dict[str, str]:
    """Wait until so many rows were sent, which end no batch."""
    return forwarded(url, sent, lambda got: len(got) >= count)


def forwarded(url: str, sent: dict[str, str], is_enough: Callable[[list[str]], bool]) -> dict[str, str]:
    """What was sent on, by message id: what comes to us twice was not sent twice."""
    sent = dict(sent)
    with (
        sync.Client(url) as client,
        client.subscribe(FORWARDED, ack=AckMode.CLIENT_INDIVIDUAL) as subscription,
    ):
        for message in subscription:
            sent[message.id] = json.loads(message.body)["body"]
            message.ack()
            if is_enough(list(sent.values())):
                return sent
    raise AssertionError("the broker has ended the subscription")


def publish(url: str, start: int, end: int) -> list[str]:
    texts = [f"message {number}" for number in range(start, end)]
    with sync.Client(url) as client:
        for text in texts:
            client.publish(QUEUE, text, content_type="text/plain")
    return texts


@contextmanager
def query(url: str, folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program; none of its processes is left behind."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.source.killed_query", url, str(folder), *words],
            stdout=log,
            stderr=log,
        )
    try:
        yield process
    finally:
        # The JVM sees that its parent is gone and ends; so do the workers.
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.kill()
        process.wait()
        for each in children:
            with suppress(psutil.NoSuchProcess):
                each.kill()


def child(driver: subprocess.Popen[bytes], what: str) -> psutil.Process:
    """The process below the driver that has this among its words."""
    for each in psutil.Process(driver.pid).children(recursive=True):
        with suppress(psutil.Error):  # it has ended meanwhile
            if any(what in word for word in each.cmdline()):
                return each
    raise AssertionError(f"{what} is not among the processes of the query")


def commits(folder: Path) -> int:
    """How many batches were committed; the oldest of their files may be gone."""
    names = [int(each.name) for each in (folder / "checkpoint" / "commits").glob("[0-9]*")]
    return max(names, default=-1) + 1


def position(folder: Path) -> int:
    """How many messages were committed."""
    offset = folder / "checkpoint" / "offsets" / str(commits(folder) - 1)
    return int(json.loads(offset.read_text().splitlines()[-1])["position"])


def output(folder: Path) -> list[str]:
    """What Spark's log of the output folder says is committed."""
    files = {
        Path(json.loads(line)["path"].removeprefix("file://"))
        for log in sorted((folder / "out" / "_spark_metadata").glob("[0-9]*"))
        for line in log.read_text().splitlines()[1:]
    }
    return [text for file in files for text in pq.read_table(file).column("body").to_pylist()]


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, f"not so after {_PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.02)
