"""Heads differ in every message, and are heads that brokers take."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from benchmarks import echo, heads, load
from benchmarks.heads import Frames
from benchmarks.own import nebula_broker
from benchmarks.peers import Broker
from benchmarks.stream import Measurement
from benchmarks.wire import BODY, message

_KINDS = [heads.CORRELATION, heads.TRACEPARENT, heads.IDS, heads.JMS]


def _split(taken: bytes) -> list[bytes]:
    *frames, rest = taken.split(b"\0")
    assert rest == b""
    return frames


@pytest.mark.parametrize("head", _KINDS)
@pytest.mark.parametrize("sizes", [[1] * 600, [256, 256], [3, 0, 255, 700, 1]])
def test_no_two_frames_are_the_same_however_many_are_taken_at_once(head: str, sizes: list[int]) -> None:
    frames = Frames("/queue/a", head)

    taken = [frame for size in sizes for frame in _split(frames.take(size))]

    assert len(taken) == sum(sizes)
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("head", _KINDS)
def test_frame_is_whole_and_has_no_mark_left(head: str) -> None:
    (frame,) = _split(Frames("/queue/a", head).take(1))

    lines, _, body = frame.decode().partition("\n\n")
    names = [line.partition(":")[0] for line in lines.splitlines()[1:]]
    assert names == ["destination", *re.findall(r"^([a-z-]+):", head, re.MULTILINE), "content-length"]
    assert "#" not in lines
    assert "NOW" not in lines
    assert body.encode() == BODY


def test_differing_values_have_the_form_that_their_readers_expect() -> None:
    (traced,) = _split(Frames("/queue/a", heads.TRACEPARENT).take(1))
    (jms,) = _split(Frames("/queue/a", heads.JMS).take(1))

    assert re.search(rb"\ntraceparent:00-[0-9a-f]{32}-[0-9a-f]{16}-01\n", traced)
    assert re.search(rb"\ntimestamp:\d{13}\n", jms)
    assert len(jms.partition(b"\n\n")[0].splitlines()) == 1 + 12


def test_head_without_marks_is_the_plain_frame() -> None:
    assert Frames("/queue/a").take(2) == message("/queue/a") * 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with nebula_broker() as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("head", _KINDS)
@pytest.mark.parametrize("measure", [load.queue_auto, load.fan_out, echo.request_many])
def test_rows_with_differing_heads_are_measured(
    broker: Broker, measure: Callable[..., Measurement], head: str
) -> None:
    assert measure(broker, 0.3, head=head).rate > 0
