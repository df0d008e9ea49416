"""What Spark asks of a stream's source, without Spark: offsets, parts of batches, commits, limits."""

from __future__ import annotations

import errno
import os
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from nebula import sync
from nebula.errors import Refused, SettingsError
from nebula.record.disk import is_locked
from nebula.record.spool import Spool, Synced
from nebula.spark.source.options import stream_options
from nebula.spark.source.receiver import Receiver
from nebula.spark.source.stream import StreamReader
from nebula.testing import RunningBroker

QUEUE = "/queue/readings"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with RunningBroker(transport="tcp", data=tmp_path / "data") as running:
        yield running


class Query:
    """A query with one source, as far as the source sees it."""

    def __init__(self, url: str, folder: Path, **options: str) -> None:
        said = {"broker": url, "destination": QUEUE, "spool": str(folder / "spool"), "content": "text"}
        self.reader = StreamReader(stream_options({**said, "quietSeconds": "0.1", **options}), None)
        self.start = self.reader.initialOffset()

    def until(self, rows: int, limit: Any = None) -> dict[str, Any]:
        """The offset behind so many rows of the next batch, as soon as they are there."""
        end: dict[str, Any] = until(lambda: self.latest(limit), lambda end: self.size(end) >= rows)
        return end

    def latest(self, limit: Any = None) -> dict[str, Any]:
        return self.reader.latestOffset(self.start, limit or ReadAllAvailable())

    def size(self, end: dict[str, Any]) -> int:
        return int(end["position"]) - int(self.start["position"])

    def rows(self, end: dict[str, Any]) -> list[str]:
        parts = self.reader.partitions(self.start, end)
        return [
            text
            for part in parts
            for rows in self.reader.read(part)
            for text in rows.column("body").to_pylist()
        ]

    def __enter__(self) -> Query:
        return self

    def __exit__(self, *_: object) -> None:
        self.reader.stop()


def until(look: Callable[[], Any], is_so: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + 20
    while not is_so(found := look()):
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.005)
    return found


def publish(url: str, texts: list[str], destination: str = QUEUE) -> None:
    with sync.Client(url) as client:
        for text in texts:
            client.publish(destination, text, content_type="text/plain")


def test_batch_has_the_same_rows_however_often_it_is_asked_for(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, ["a", "b", "c"])
    with Query(broker.url, tmp_path) as query:
        end = query.until(3)
        assert [query.rows(end) for _ in range(2)] == [["a", "b", "c"]] * 2
    with Query(broker.url, tmp_path) as restarted:
        assert restarted.start == query.start
        assert restarted.rows(end) == ["a", "b", "c"]


def test_batch_has_no_more_rows_than_the_limit(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, ["a", "b", "c"])
    with Query(broker.url, tmp_path, maxRowsPerBatch="2") as query:
        assert query.reader.getDefaultReadLimit() == ReadMaxRows(2)
        query.until(3)
        end = query.latest(ReadMaxRows(2))

        assert query.rows(end) == ["a", "b"]


def test_spooled_file_goes_when_its_rows_are_committed(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, ["a", "b"])
    with Query(broker.url, tmp_path) as query:
        end = query.until(2)
        assert list((tmp_path / "spool").glob("*.avro"))
        until(lambda: query.reader.commit(end), lambda _: not list((tmp_path / "spool").glob("*.avro")))

        assert query.reader.partitions(end, end) == []


def test_new_checkpoint_begins_behind_what_was_committed(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, ["a", "b", "c"])
    with Query(broker.url, tmp_path) as query:
        query.until(3)
        query.reader.commit(query.latest(ReadMaxRows(2)))
    with Query(broker.url, tmp_path) as other:
        assert other.rows(other.latest()) == ["c"]


def test_checkpoint_of_another_spool_is_refused(broker: RunningBroker, tmp_path: Path) -> None:
    with Query(broker.url, tmp_path / "one") as one, Query(broker.url, tmp_path / "other") as other:
        with pytest.raises(SettingsError, match="belongs to another spool"):
            other.reader.latestOffset(one.start, ReadAllAvailable())
        with pytest.raises(SettingsError, match="at position 9, and the spool"):
            one.reader.latestOffset({**one.start, "position": 9}, ReadAllAvailable())


def test_spool_that_another_query_holds_is_refused(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nebula.spark.source.stream._LOCK_SECONDS", 0.1)
    with (
        Query(broker.url, tmp_path),
        pytest.raises(SettingsError, match="in use by another"),
    ):
        Query(broker.url, tmp_path)


@pytest.mark.parametrize(
    ("moment", "status", "told"),
    [
        ("waiting", 0, "stopped\n"),
        ("stopping", 0, "stopped\n"),
        ("stuck-before", 143, ""),
        ("stuck-within", 143, ""),
    ],
)
def test_sigterm_at_any_moment_ends_the_process_and_releases_the_spool(
    broker: RunningBroker, tmp_path: Path, moment: str, status: int, told: str
) -> None:
    words = ["-m", "tests.spark.source.ended_query", broker.url, str(tmp_path / "spool"), moment]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=50, check=False)

    assert (ended.returncode, ended.stdout) == (status, told), ended.stderr
    assert is_locked(tmp_path / "spool") is False


def test_worker_that_does_not_see_the_spool_says_so(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, ["a"])
    with Query(broker.url, tmp_path) as query:
        end = query.until(1)
        (tmp_path / "spool").rename(tmp_path / "elsewhere")

        with pytest.raises(SettingsError, match="is not seen here"):
            query.rows(end)


def test_file_that_was_removed_from_a_spool_that_is_seen_is_told_so(
    broker: RunningBroker, tmp_path: Path
) -> None:
    publish(broker.url, ["a"])
    with Query(broker.url, tmp_path) as query:
        end = query.until(1)
        for segment in (tmp_path / "spool").glob("*.avro"):
            segment.unlink()

        with pytest.raises(SettingsError, match=r"\.avro was removed .*new checkpoint"):
            query.rows(end)


def test_full_spool_takes_no_more_until_spark_has_committed(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, [str(number) for number in range(10)])
    with Query(broker.url, tmp_path, maxSpoolRows="4", prefetch="2") as query:
        taken: list[str] = []
        while len(taken) < 10:
            end = query.until(1)
            assert query.size(end) <= 5  # a group may go one beyond it
            taken += query.rows(end)
            # Spark asks for more then, and would say no sooner than with the next batch that it committed.
            query.start = end

    assert taken == [str(number) for number in range(10)]


def test_full_disk_takes_no_more_until_there_is_room(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_room = False
    tried: list[int] = []
    write = os.pwrite

    def pwrite(file: int, octets: bytes, offset: int) -> int:
        tried.append(file)
        if has_room:
            return write(file, octets, offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with Query(broker.url, tmp_path) as query:
        monkeypatch.setattr("nebula.record.disk.os.pwrite", pwrite)
        publish(broker.url, ["a", "b"])
        until(lambda: len(tried), lambda count: count > 1)
        assert query.size(query.latest()) == 0
        has_room = True

        assert query.rows(query.until(2)) == ["a", "b"]


def test_full_disk_and_a_lost_connection_double_nothing(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried, may_go, has_room = threading.Event(), threading.Event(), threading.Event()
    write = os.pwrite
    texts = ["a", "b", "c"]

    def pwrite(file: int, octets: bytes, offset: int) -> int:
        tried.set()
        may_go.wait(20)
        if has_room.is_set() or len(spool._waiting) == 1:
            return write(file, octets, offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with Query(broker.url, tmp_path) as query:
        spool, receiver = query.reader._run().spool, query.reader._run().receiver
        monkeypatch.setattr("nebula.record.disk.os.pwrite", pwrite)
        publish(broker.url, ["first"])
        assert tried.wait(20)
        publish(broker.url, texts)
        # They become one group, whose sync finds no room.
        until(lambda: len(receiver._waiting), lambda count: count == 3)
        may_go.set()
        until(lambda: len(spool._waiting), lambda count: count == 3)
        broker.stop()
        until(lambda: receiver._is_connected, lambda is_connected: not is_connected)
        # They come again one by one.
        monkeypatch.setattr(receiver, "_options", replace(receiver._options, prefetch=1))
        has_room.set()
        broker.start()
        publish(broker.url, ["last"])
        end = until(query.latest, lambda end: query.rows(end)[-1:] == ["last"])

        assert query.rows(end) == ["first", *texts, "last"]


def test_stream_goes_on_when_the_broker_comes_back(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, ["a"])
    with Query(broker.url, tmp_path) as query:
        query.until(1)
        broker.stop()
        broker.start()
        publish(broker.url, ["b"])

        assert query.rows(query.until(2)) == ["a", "b"]


def test_query_that_the_broker_refuses_fails(broker: RunningBroker, tmp_path: Path) -> None:
    of_its_own = "/queue/nebula.broker"

    with (
        Query(broker.url, tmp_path, destination=of_its_own, timeout="0.5") as query,
        pytest.raises(Refused, match=f"refuses {of_its_own} .*: check the destination"),
    ):
        until(query.latest, lambda _: False)


class _Refuses(socketserver.BaseRequestHandler):
    """A broker that takes no login."""

    def handle(self) -> None:
        self.request.recv(65_536)
        self.request.sendall(b"ERROR\nmessage:no such login\n\n\0")


def test_query_whose_login_is_refused_fails(tmp_path: Path) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Refuses) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            url = f"stomp://127.0.0.1:{server.server_address[1]}"
            with (
                Query(url, tmp_path, timeout="0.5") as query,
                pytest.raises(Refused, match=f"refuses {QUEUE} .*no such login"),
            ):
                until(query.latest, lambda _: False)
        finally:
            server.shutdown()


def test_durable_subscription_gets_what_came_while_the_query_was_away(
    broker: RunningBroker, tmp_path: Path
) -> None:
    said = {"destination": "/topic/readings", "durable": "hourly", "clientId": "warehouse"}
    with Query(broker.url, tmp_path, **said) as query:
        query.reader.prepareForTriggerAvailableNow()
        publish(broker.url, ["a"], "/topic/readings")
        until(query.reader.reportLatestOffset, lambda offset: query.size(offset) == 1)
    publish(broker.url, ["b"], "/topic/readings")
    with Query(broker.url, tmp_path, **said) as query:
        assert query.rows(query.until(2)) == ["a", "b"]


def test_available_now_ends_where_the_queue_was_empty(broker: RunningBroker, tmp_path: Path) -> None:
    publish(broker.url, ["a", "b"])
    with Query(broker.url, tmp_path) as query:
        query.until(2)
        query.reader.prepareForTriggerAvailableNow()
        publish(broker.url, ["c"])
        end = query.latest()
        until(query.reader.reportLatestOffset, lambda offset: query.size(offset) == 3)

        assert query.rows(end) == ["a", "b"]
        assert query.latest() == end


def test_quiet_begins_when_the_broker_may_send_again_however_long_the_disk_took(
    broker: RunningBroker, tmp_path: Path
) -> None:
    options = stream_options({
        "broker": broker.url, "destination": QUEUE, "spool": str(tmp_path / "spool"), "content": "text",
        "quietSeconds": "1",
    })  # fmt: skip
    clock, looks = [1000.0], 0

    class SlowSpool(Spool):
        def sync(self) -> Synced:
            clock[0] += 60
            return super().sync()

    def wait(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        clock[0] += 0.5

    publish(broker.url, ["a"])
    with (
        SlowSpool(tmp_path / "spool") as spool,
        Receiver(options, spool, now=lambda: clock[0]) as receiver,
    ):
        until(lambda: (spool.end, receiver._is_busy), lambda seen: seen == (1, False))
        receiver.wait_quiet(wait)

    assert looks == 2


def test_available_now_begins_though_messages_keep_coming(broker: RunningBroker, tmp_path: Path) -> None:
    is_over = threading.Event()
    sent: list[int] = []

    def keep_publishing() -> None:
        with sync.Client(broker.url) as client:
            while not is_over.wait(0.005):
                client.publish(QUEUE, "x", content_type="text/plain")
                sent.append(1)

    publisher = threading.Thread(target=keep_publishing)
    with Query(broker.url, tmp_path, quietSeconds="30", quietLimitSeconds="0.2") as query:
        publisher.start()
        try:
            until(lambda: len(sent), bool)
            query.until(1)
            query.reader.prepareForTriggerAvailableNow()
            assert publisher.is_alive()
            assert query.size(query.latest()) > 0
        finally:
            is_over.set()
            publisher.join()


def test_full_spool_is_emptied_though_receipts_were_lost_with_their_connection(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(broker.url, [str(number) for number in range(10)])
    with monkeypatch.context() as patched:
        patched.setattr(Receiver, "_confirm", lambda *_: None)
        with Query(broker.url, tmp_path, maxSpoolBytes="1", prefetch="5") as query:
            end = query.until(5)
            first = query.rows(end)
    with Query(broker.url, tmp_path, maxSpoolBytes="1", prefetch="5") as restarted:
        restarted.start = end

        assert first + restarted.rows(restarted.until(5)) == [str(number) for number in range(10)]
