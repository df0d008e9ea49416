"""The pipe turned by hand: order, bounds, pauses and ends, in every order of events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nebula.broker.server.tcp_acks import send_ack
from nebula.host.pipe import HIGH_WATER_BYTES
from tests.host.loops import HandPipe

SIZES = st.one_of(
    st.integers(0, 100), st.integers(HIGH_WATER_BYTES // 4 - 2, HIGH_WATER_BYTES + 2), st.just(1_000_000)
)


def octets(size: int, seed: int) -> bytes:
    """So many octets, of which no two neighbours of a period are alike for two seeds."""
    pattern = bytes((seed * 7 + index) % 251 for index in range(251))
    return (pattern * (size // 251 + 1))[:size]


@given(st.lists(st.tuples(st.sampled_from(["broker", "app", "turn broker", "turn app"]), SIZES), max_size=30))
def test_octets_arrive_in_order_and_complete_however_they_are_split(steps: list[tuple[str, int]]) -> None:
    pipe = HandPipe()
    sent = {"broker": bytearray(), "app": bytearray()}
    for number, (step, size) in enumerate(steps):
        data = octets(size, number)
        if step == "turn broker":
            pipe.broker_loop.turn()
        elif step == "turn app":
            pipe.app_loop.turn()
        else:
            (pipe.broker_end if step == "broker" else pipe.app_end).write(data)
            sent[step] += data
    pipe.settle()

    assert pipe.app.received == sent["broker"]
    assert pipe.broker.received == sent["app"]
    assert not pipe.broker.is_told_to_stop


ACTS: dict[str, Callable[[HandPipe], object]] = {
    "broker writes little": lambda pipe: pipe.broker_end.write(b"b" * 10),
    "broker writes much": lambda pipe: pipe.broker_end.write(b"B" * (HIGH_WATER_BYTES + 1)),
    "app writes little": lambda pipe: pipe.app_end.write(b"a" * 10),
    "app writes much": lambda pipe: pipe.app_end.write(b"A" * (HIGH_WATER_BYTES + 1)),
    "broker pauses": lambda pipe: pipe.broker_end.pause_reading(),
    "broker resumes": lambda pipe: pipe.broker_end.resume_reading(),
    "app pauses": lambda pipe: pipe.app_end.pause_reading() if pipe.is_started else None,
    "app resumes": lambda pipe: pipe.app_end.resume_reading() if pipe.is_started else None,
    "broker turns": lambda pipe: pipe.broker_loop.turn(),
    "app turns": lambda pipe: pipe.app_loop.turn(),
    "app starts": lambda pipe: None if pipe.is_started else pipe.start(),
}
CLOSES: dict[str, Callable[[HandPipe], object]] = {
    "broker closes": lambda pipe: pipe.broker_end.close(),
    "app closes": lambda pipe: pipe.app_end.close(),
}


@given(st.lists(st.sampled_from(list(ACTS)), max_size=40))
# Told to go on, but it has filled the pipe again before it heard of that.
@example(["broker writes much", "app turns", "broker writes much", "broker turns"])
def test_who_was_told_to_stop_may_go_on_once_all_is_read(acts: list[str]) -> None:
    pipe = HandPipe()
    for act in acts:
        ACTS[act](pipe)
        if pipe.app_end.unread_bytes > HIGH_WATER_BYTES:
            assert pipe.broker.is_told_to_stop
    pipe.broker_end.resume_reading()
    pipe.app_end.resume_reading()
    pipe.settle()

    assert pipe.app_end.unread_bytes == pipe.broker_end.unread_bytes == 0
    assert not pipe.broker.is_told_to_stop


@given(
    st.lists(st.sampled_from(list(ACTS)), max_size=15),
    st.sampled_from(list(CLOSES)),
    st.lists(st.sampled_from([*ACTS, *CLOSES]), max_size=15),
    st.booleans(),
)
def test_each_side_is_told_of_the_end_once_and_last(
    before: list[str], close: str, after: list[str], starts_late: bool
) -> None:
    pipe = HandPipe(start=not starts_late)
    for act in [*before, close, *after]:
        (ACTS | CLOSES)[act](pipe)
    pipe.broker_end.resume_reading()
    ACTS["app starts"](pipe)
    pipe.app_end.resume_reading()
    pipe.settle()

    assert pipe.broker.losses == [None]
    assert pipe.app.losses == [None]


@pytest.mark.parametrize("size", [1, HIGH_WATER_BYTES, 3 * HIGH_WATER_BYTES + 5])
def test_what_was_written_before_close_still_arrives(size: int) -> None:
    pipe = HandPipe()
    pipe.app_end.write(octets(size, 1))
    pipe.app_end.close()
    pipe.settle()

    assert pipe.broker.received == octets(size, 1)
    assert pipe.broker.losses == [None]


def test_what_is_written_after_either_end_closed_is_not_kept() -> None:
    pipe = HandPipe()
    pipe.broker_end.close()
    for _ in range(100):
        pipe.app_end.write(b"x" * 100_000)

    assert pipe.broker_end.unread_bytes == 0
    assert pipe.broker.received == b""


def test_nothing_is_delivered_before_start_and_nothing_is_lost() -> None:
    pipe = HandPipe(start=False)
    pipe.broker_end.write(b"early")
    pipe.settle()
    assert pipe.app.received == b""

    pipe.start()
    pipe.settle()

    assert pipe.app.received == b"early"


def test_start_on_a_pipe_that_the_app_has_closed_tells_of_the_end() -> None:
    pipe = HandPipe(start=False)
    pipe.app_end.close()
    pipe.settle()

    pipe.start()
    pipe.settle()

    assert pipe.app.losses == [None]


def test_many_writes_cost_the_reader_one_wake_up_and_one_delivery() -> None:
    pipe = HandPipe()
    deliveries: list[bytes] = []
    pipe.broker.on_data = deliveries.append
    for _ in range(10_000):
        pipe.app_end.write(b"0123456789")
    pipe.settle()

    assert pipe.broker_loop.wake_ups == 1
    assert deliveries == [b"0123456789" * 10_000]


def test_one_turn_takes_no_more_than_its_share_so_that_others_have_theirs() -> None:
    pipe = HandPipe()
    for _ in range(100):
        pipe.app_end.write(b"x" * 10_000)
    pipe.broker_loop.turn()

    assert len(pipe.broker.received) < 300_000
    pipe.settle()
    assert len(pipe.broker.received) == 1_000_000


def test_paused_reader_gets_nothing_and_all_of_it_when_it_resumes() -> None:
    pipe = HandPipe()
    pipe.broker_end.pause_reading()
    pipe.app_end.write(b"one")
    pipe.settle()
    pipe.app_end.write(b"two")
    pipe.settle()
    assert pipe.broker.received == b""

    pipe.broker_end.resume_reading()
    pipe.settle()

    assert pipe.broker.received == b"onetwo"


def test_reader_that_pauses_in_a_delivery_gets_no_other() -> None:
    pipe = HandPipe()

    def take_and_pause(data: bytes) -> None:
        pipe.broker.received.extend(data)
        pipe.broker_end.pause_reading()

    pipe.broker.on_data = take_and_pause
    for _ in range(10):
        pipe.app_end.write(b"x" * 100_000)
    pipe.settle()

    assert len(pipe.broker.received) == 300_000


@pytest.mark.parametrize("high", [100, 50_000])
def test_writer_is_stopped_at_the_limit_it_set_and_goes_on_when_all_is_read(high: int) -> None:
    pipe = HandPipe()
    pipe.broker_end.set_write_buffer_limits(high=high)
    pipe.broker_end.write(b"x" * high)
    at_the_limit = pipe.broker.is_told_to_stop
    pipe.broker_end.write(b"x")
    pipe.broker_loop.turn()
    above_it = pipe.broker.is_told_to_stop
    waiting_bytes = pipe.broker_end.get_write_buffer_size()
    pipe.settle()

    assert (at_the_limit, above_it, waiting_bytes) == (False, True, high + 1)
    assert not pipe.broker.is_told_to_stop


def test_writer_whose_octets_are_read_before_it_has_stopped_goes_on_once_its_write_has_returned() -> None:
    pipe = HandPipe()

    class Raced(int):
        """A limit during whose comparison the other thread reads all that there is."""

        def __lt__(self, size: int) -> bool:
            is_less = super().__lt__(size)
            while pipe.app_loop.turn():
                pass
            return is_less

    pipe.broker_end.set_write_buffer_limits(high=Raced(1_000))
    pipe.broker_end.write(b"x" * 1_001)
    when_it_returned = pipe.broker.is_told_to_stop
    pipe.settle()

    assert when_it_returned
    assert not pipe.broker.is_told_to_stop


def test_delivery_that_fails_does_not_keep_the_end_from_being_told() -> None:
    pipe = HandPipe()

    def fail(data: bytes) -> None:
        raise ZeroDivisionError

    pipe.broker.on_data = fail
    pipe.app_end.write(b"x")
    pipe.app_end.close()
    with pytest.raises(ZeroDivisionError):
        pipe.settle()

    assert pipe.broker.losses == [None]


def test_writer_learns_that_the_other_loop_has_closed() -> None:
    pipe = HandPipe()
    pipe.settle()
    pipe.app_loop.is_closed = True
    for _ in range(100):
        pipe.broker_end.write(b"x" * 100_000)
    pipe.settle()

    assert pipe.broker.losses == [None]
    assert pipe.app_end.unread_bytes <= 100_000


def test_octets_written_before_their_loop_closed_are_all_read() -> None:
    pipe = HandPipe()
    pipe.app_end.write(b"x" * HIGH_WATER_BYTES)
    pipe.app_end.write(b"y" * 30_000)
    pipe.app_end.close()
    pipe.app_loop.is_closed = True
    pipe.settle()

    assert len(pipe.broker.received) == HIGH_WATER_BYTES + 30_000
    assert pipe.broker.losses == [None]


def test_both_loops_closed_is_no_endless_story() -> None:
    pipe = HandPipe()
    pipe.app_loop.is_closed = pipe.broker_loop.is_closed = True

    pipe.broker_end.write(b"x")
    pipe.app_end.write(b"x")

    assert pipe.broker.received == pipe.app.received == b""


def test_acknowledgement_of_a_socket_means_nothing_to_a_pipe() -> None:
    pipe = HandPipe()
    pipe.app_end.write(b"hello")
    send_ack(cast("asyncio.BaseTransport", pipe.broker_end))
    pipe.settle()

    assert pipe.broker.received == b"hello"
