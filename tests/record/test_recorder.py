"""The recorder at the real broker: nothing is lost, nothing is doubled, nobody else is held up."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.avro import encode
from nebula.errors import ConnectFailed, SettingsError
from nebula.record.intake import Intake
from nebula.record.lossless import notes_on
from nebula.record.parts import Rotation
from nebula.record.recorder import Recorder, Recording
from nebula.record.status import RecorderState
from nebula.rpc.wire.brokers import RABBITMQ
from nebula.stomp.client import AckMode, StompClient
from nebula.testing import broker
from tests.own_logs import all_logs
from tests.record.messages import QUEUE, READING, files, hidden, recorded

pytestmark = pytest.mark.anyio

DEADLINE = 20.0


@asynccontextmanager
async def recording(url: str, into: Path, *destinations: str, **options: Any) -> AsyncGenerator[Recorder]:
    """Record for the block; then all that was received is in files."""
    recorder = Recorder(Recording(destinations or (QUEUE,), into, **options), url)
    began = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorder.run, began.set)
        with anyio.fail_after(DEADLINE):
            await began.wait()
        yield recorder
        recorder.stop()


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(DEADLINE):
        while not is_so():
            await anyio.sleep(0.01)


async def send(url: str, *bodies: bytes, to: str = QUEUE) -> None:
    async with StompClient(url) as client:
        for body in bodies[:-1]:
            client.post(to, body, {})
        await client.send(to, bodies[-1], receipt=True)


def bodies(folder: Path) -> list[bytes]:
    return [record["body"] for record in recorded(folder) if "body" in record]


async def left_in(url: str, queue: str) -> list[bytes]:
    """What the queue still has."""
    found: list[bytes] = []
    async with StompClient(url) as client, client.subscribe(queue, ack=AckMode.CLIENT) as messages:
        await client.send(queue, b"end", receipt=True)
        async for message in messages:
            if message.body == b"end":
                return found
            found.append(message.body)
    return found


async def test_all_messages_are_in_files_and_acked(tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(2500)]
    async with broker() as url:
        await send(url, *sent[:500])
        async with recording(url, tmp_path, sync_messages=300) as recorder:
            await send(url, *sent[500:])
            await until(lambda: recorder.status.messages == len(sent))
            # The broker's word on the last ones is told though none comes after them.
            await until(lambda: recorder.status.in_doubt == 0)
        assert await left_in(url, QUEUE) == []

    assert bodies(tmp_path) == sent
    assert hidden(tmp_path) == []


async def test_envelopes_go_under_their_type_if_the_folder_of_schemas_has_it(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "reading.avsc").write_text(json.dumps(READING.definition))
    rows = [{"machine": f"EGM{number}", "turnover": number} for number in range(10)]
    into, schemas = tmp_path / "into", tmp_path / "schemas"
    async with broker() as url, recording(url, into, schemas=schemas) as recorder:
        await send(url, *(encode(row, READING) for row in rows), b"text")
        await until(lambda: recorder.status.messages == 11)

    assert [path.parents[2].name for path in files(tmp_path / "into")] == [
        "message.queue.readings",
        "venue.Reading_v1",
    ]
    assert recorded(tmp_path / "into")[1:] == rows


async def test_messages_that_were_not_acked_come_again_and_are_recorded_once(tmp_path: Path) -> None:
    sent = [b"%d" % number for number in range(50)]
    async with broker() as url:
        async with anyio.create_task_group() as tasks:
            recorder = Recorder(Recording((QUEUE,), tmp_path), url)
            tasks.start_soon(recorder.run)
            await send(url, *sent[:25])
            await until(lambda: recorder.status.messages > 0)
            await send(url, *sent[25:])
            tasks.cancel_scope.cancel()  # at once: what was received and not synced was not ACKed
        async with recording(url, tmp_path) as recorder:
            await until(lambda: recorder.status.total == 50)
        assert await left_in(url, QUEUE) == []

    assert sorted(bodies(tmp_path)) == sorted(sent)


async def test_durable_topic_keeps_what_is_sent_while_the_recorder_is_away(tmp_path: Path) -> None:
    topic = "/topic/news"
    async with broker() as url:
        async with recording(url, tmp_path, topic, durable="archive"):
            await send(url, b"one", to=topic)
        await send(url, b"two", to=topic)
        async with recording(url, tmp_path, topic, durable="archive") as recorder:
            await send(url, b"three", to=topic)
            await until(lambda: recorder.status.messages == 2)

    assert bodies(tmp_path) == [b"one", b"two", b"three"]


async def test_several_destinations_are_recorded_by_one_recorder(tmp_path: Path) -> None:
    places = (QUEUE, "/topic/a.*", "/topic/a.b", "X/EGM.*")
    async with broker() as url, recording(url, tmp_path, *places, durable="archive") as recorder:
        for place in (QUEUE, "/topic/a.b", "X/EGM.1"):
            await send(url, place.encode(), to=place)
        await until(lambda: recorder.status.messages == 4)

    assert sorted(path.parents[2].name for path in files(tmp_path)) == [
        "message.X.EGM._",
        "message.queue.readings",
        "message.topic.a._",
        "message.topic.a.b",
    ]


async def test_each_change_of_a_last_value_is_recorded_from_the_queue_of_its_copies(tmp_path: Path) -> None:
    copies = "/queue/copies"
    destination = [{"pattern": "X/EGM.*", "copy_to": copies}]
    async with broker(destination=destination) as url, recording(url, tmp_path, copies) as recorder:
        await send(url, b"1", b"2", b"", b"3", to="X/EGM.7")
        await until(lambda: recorder.status.messages == 4)

    assert bodies(tmp_path) == [b"1", b"2", b"", b"3"]
    assert {record["destination"] for record in recorded(tmp_path)} == {"X/EGM.7"}


async def test_it_says_at_the_start_what_is_not_lossless(tmp_path: Path) -> None:
    async with broker() as url:
        with all_logs() as logs:
            async with recording(url, tmp_path, QUEUE, "X/EGM.*"):
                pass

    notes = [entry["note"] for entry in logs if entry["event"] == "lossless recording ruled out"]
    assert len(notes) == 1
    assert "X/EGM.*: only the latest values" in notes[0]


def test_notes_are_on_last_values_on_topics_that_nobody_keeps_and_on_ids_that_change() -> None:
    assert notes_on([QUEUE, "/topic/a"], "archive") == []
    assert "while the recorder is away" in notes_on(["/topic/a"], None)[0]
    assert "copy_to" in notes_on(["X/a"], "archive")[0]
    assert "dedup-id" in notes_on([QUEUE], None, RABBITMQ)[0]


async def test_a_lost_connection_is_made_again_and_nothing_is_lost(tmp_path: Path) -> None:
    async with broker() as url, recording(url, tmp_path, durable="archive") as recorder:
        await send(url, b"one")
        await until(lambda: recorder.status.messages == 1)
        # Who comes with the same name takes the session over.
        async with StompClient(url, client_id="archive") as other:
            await other.send(QUEUE, b"two", receipt=True)
        await until(lambda: recorder.status.messages == 2)

    assert bodies(tmp_path) == [b"one", b"two"]


async def test_a_recorder_that_is_stopped_has_what_it_received_in_files(tmp_path: Path) -> None:
    async with broker() as url:
        async with recording(url, tmp_path, sync_seconds=60.0, sync_messages=1000) as recorder:
            await send(url, b"one", b"two")
            # They wait for others, and it says so all the while.
            await until(lambda: recorder.status.waiting == 2)
            assert recorder.status.messages == 0
        assert await left_in(url, QUEUE) == []

    assert bodies(tmp_path) == [b"one", b"two"]
    assert hidden(tmp_path) == []


async def test_a_full_disk_is_told_once_whatever_the_connection_does_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, has_room, tried, lost = os.pwrite, False, 0, anyio.Event()

    def pwrite(file: int, octets: bytes, offset: int) -> int:
        nonlocal tried
        tried += 1
        if has_room:
            return write(file, octets, offset)
        raise OSError(errno.ENOSPC, "No space left on device")

    with all_logs() as logs:
        async with broker() as url, recording(url, tmp_path, durable="archive") as recorder:
            monkeypatch.setattr("nebula.record.disk.os.pwrite", pwrite)
            monkeypatch.setattr("nebula.record.recorder._FULL_SECONDS", 0.01)
            await send(url, b"one")
            await until(lambda: tried > 1)
            async with StompClient(url, client_id="archive") as other:
                other.on_lost = lambda _: lost.set()
                # The recorder takes its session back.
                with anyio.fail_after(DEADLINE):
                    await lost.wait()
            before = tried
            await until(lambda: tried > before + 2)
            assert recorder.status.state is RecorderState.FULL
            has_room = True
            await until(lambda: recorder.status.state is RecorderState.RECORDING)

    events = [entry["event"] for entry in logs]
    assert events.count("recording paused") == 1
    assert events.count("recording resumed") == 1


async def test_it_ends_by_itself_when_nothing_comes_if_it_is_to(tmp_path: Path) -> None:
    async with broker() as url:
        await send(url, b"one", b"two")
        with anyio.fail_after(DEADLINE):
            await Recorder(Recording((QUEUE,), tmp_path, idle_seconds=1.5), url).run()
        assert await left_in(url, QUEUE) == []

    assert bodies(tmp_path) == [b"one", b"two"]


async def test_no_broker_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed):
        await Recorder(Recording((QUEUE,), tmp_path), "stomp://127.0.0.1:1").run()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"destinations": ()}, "name one or more"),
        ({"destinations": (QUEUE, QUEUE)}, "each once"),
        ({"bare": {"/queue/other": READING}}, "/queue/other is not recorded"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, options: dict[str, Any], why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        Recording(**{"destinations": (QUEUE,), "into": tmp_path, **options})


async def test_what_waits_is_bounded_whatever_the_broker_sends() -> None:
    body = bytes(256 * 1024)
    intake = Intake(enough=1000)
    async with (
        broker(transport="tcp") as url,
        StompClient(url, max_buffered_bytes=4 * len(body)) as client,
        StompClient(url) as publisher,
    ):
        intake.attach(client)
        await client.listen(QUEUE, intake.on_message, ack=AckMode.CLIENT)
        for _ in range(60):
            await publisher.send(QUEUE, body, receipt=True)
        await until(lambda: len(intake) >= 4)
        assert len(intake) < 20, "the connection is read no further"

        # When some of it is done, more comes.
        batch = intake.take()
        assert batch is not None
        batch.messages[-1][0].ack()
        intake.done(batch)
        await until(lambda: len(intake) > 0)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"prefetch": 0}, "prefetch is 0: 1 to 100,000 is wanted"),
        ({"prefetch": 10**9}, "prefetch is 1000000000"),
        ({"sync_messages": 0}, "sync_messages is 1 or more"),
    ],
)
def test_numbers_with_which_nothing_is_recorded_are_refused(
    tmp_path: Path, wrong: dict[str, Any], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        Recording(["/queue/q"], tmp_path, **wrong)


@pytest.mark.parametrize("wrong", [(0, 60.0), (1000, 0.0)])
def test_file_that_holds_nothing_is_refused(wrong: tuple[int, float]) -> None:
    with pytest.raises(SettingsError, match="rotation: a file has more than 0 bytes"):
        Rotation(*wrong)
