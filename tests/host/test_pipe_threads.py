"""The pipe between two threads that run at the same time: nothing is lost, no wake-up either."""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import pytest

from nebula.host.pipe import HIGH_WATER_BYTES
from tests.host.loops import DEADLINE, LoopThread, Side, ThreadPipe, seat, thread_pipe


@pytest.fixture(autouse=True)
def restless_interpreter() -> Iterator[None]:
    """Switch threads as often as the interpreter can, to meet the races that there are."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def on(thread: LoopThread, work: Coroutine[Any, Any, Any]) -> Future[Any]:
    return asyncio.run_coroutine_threadsafe(work, thread.loop)


class Turns(Side):
    """A side that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = asyncio.Event()
        self.may_write.set()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.may_write.clear()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.may_write.set()


def test_ten_thousand_rounds_lose_no_wake_up() -> None:
    rounds = 10_000
    is_done = threading.Event()
    with thread_pipe() as pipe:
        answered = 0

        def ask(data: bytes) -> None:
            nonlocal answered
            answered += len(data)
            if answered < rounds:
                pipe.app_end.write(b"?")
            else:
                is_done.set()

        pipe.app.on_data = ask
        pipe.broker.on_data = lambda data: pipe.broker_end.write(b"!" * len(data))
        pipe.app_thread.do(lambda: pipe.app_end.write(b"?"))

        assert is_done.wait(DEADLINE), f"stuck after {answered} rounds"


@contextmanager
def counted(side: Side, total: int) -> Iterator[tuple[threading.Event, Any]]:
    """Hash what a side gets until `total` octets have come."""
    is_complete, digest, count = threading.Event(), hashlib.sha256(), 0

    def take(data: bytes) -> None:
        nonlocal count
        digest.update(data)
        count += len(data)
        if count >= total:
            is_complete.set()

    side.on_data = take
    yield is_complete, digest


def chunks_of(seed: int, total: int, largest: int) -> list[bytes]:
    chance = random.Random(seed)
    chunks = []
    while total:
        chunk = chance.randbytes(min(total, chance.randint(1, largest)))
        chunks.append(chunk)
        total -= len(chunk)
    return chunks


async def send_all_from_app(pipe: ThreadPipe, chunks: list[bytes]) -> None:
    for chunk in chunks:
        pipe.app_end.write(chunk)
        await pipe.app_end.drain()


async def send_all_from_broker(pipe: ThreadPipe, side: Turns, chunks: list[bytes]) -> None:
    for chunk in chunks:
        pipe.broker_end.write(chunk)
        await side.may_write.wait()


def test_many_megabytes_both_ways_at_once_arrive_in_order_under_back_pressure() -> None:
    total = 24 * 1024 * 1024
    up, down = chunks_of(1, total, 200_000), chunks_of(2, total, 200_000)
    with thread_pipe() as pipe:
        broker = pipe.broker_thread.do(Turns)
        seat(pipe.broker_end, broker)
        with counted(broker, total) as (is_up, digest_up), counted(pipe.app, total) as (is_down, digest_down):
            sending = [
                on(pipe.app_thread, send_all_from_app(pipe, up)),
                on(pipe.broker_thread, send_all_from_broker(pipe, broker, down)),
            ]
            assert is_up.wait(DEADLINE)
            assert is_down.wait(DEADLINE)
            for one in sending:
                one.result(DEADLINE)

    assert digest_up.digest() == hashlib.sha256(b"".join(up)).digest()
    assert digest_down.digest() == hashlib.sha256(b"".join(down)).digest()


def test_readers_that_pause_all_the_time_lose_no_wake_up() -> None:
    total = 2_000_000
    chunks = chunks_of(3, total, 3_000)
    with thread_pipe() as pipe:
        pipe.app_end.high_water_bytes = 4_000
        with counted(pipe.broker, total) as (is_complete, digest):
            take = pipe.broker.on_data

            def take_and_rest(data: bytes) -> None:
                take(data)
                pipe.broker_end.pause_reading()
                pipe.broker_end.loop.call_soon(pipe.broker_end.resume_reading)

            pipe.broker.on_data = take_and_rest
            sending = on(pipe.app_thread, send_all_from_app(pipe, chunks))
            assert is_complete.wait(DEADLINE)
            sending.result(DEADLINE)

    assert digest.digest() == hashlib.sha256(b"".join(chunks)).digest()


def test_reader_that_does_not_read_stops_the_writer_at_the_high_water_mark() -> None:
    with thread_pipe() as pipe:
        pipe.broker_thread.do(pipe.broker_end.pause_reading)

        async def write_until_stopped() -> int:
            written = 0
            while True:
                pipe.app_end.write(b"x" * 1_000)
                written += 1_000
                try:
                    await asyncio.wait_for(pipe.app_end.drain(), 0.05)
                except TimeoutError:
                    return written

        written = on(pipe.app_thread, write_until_stopped()).result(DEADLINE)
        assert HIGH_WATER_BYTES < written <= HIGH_WATER_BYTES + 1_000

        waiting = on(pipe.app_thread, pipe.app_end.drain())
        pipe.broker_thread.do(pipe.broker_end.resume_reading)
        waiting.result(DEADLINE)


def test_writer_that_waits_for_room_and_does_not_read_learns_that_the_other_end_closed() -> None:
    with thread_pipe() as pipe:
        pipe.broker_thread.do(pipe.broker_end.pause_reading)
        pipe.app_thread.do(pipe.app_end.pause_reading)
        pipe.app_thread.do(lambda: pipe.app_end.write(b"x" * (HIGH_WATER_BYTES + 1)))
        waiting = on(pipe.app_thread, pipe.app_end.drain())

        pipe.broker_thread.do(pipe.broker_end.close)

        waiting.result(DEADLINE)


def test_writer_that_drains_leaves_the_loop_to_others_though_there_is_always_room() -> None:
    with thread_pipe() as pipe:

        async def write_until_somebody_else_had_a_turn() -> bool:
            others_turn = asyncio.Event()
            asyncio.get_running_loop().call_soon(others_turn.set)
            for _ in range(100_000):
                pipe.app_end.write(b"x" * 100)
                pipe.broker_end._taken_bytes = pipe.broker_end._given_bytes  # a reader that is never behind
                await pipe.app_end.drain()
                if others_turn.is_set():
                    return True
            return False

        assert on(pipe.app_thread, write_until_somebody_else_had_a_turn()).result(DEADLINE)


@pytest.mark.parametrize("closer", ["broker", "app", "both"])
def test_close_at_any_moment_ends_both_sides_once(closer: str) -> None:
    with thread_pipe() as shared:
        for number in range(200):
            pipe = ThreadPipe(shared.broker_thread, shared.app_thread)
            ends = [threading.Event(), threading.Event()]
            for side, is_ended in zip((pipe.broker, pipe.app), ends, strict=True):
                lose = side.connection_lost

                def note(
                    error: Exception | None, lose: Any = lose, is_ended: threading.Event = is_ended
                ) -> None:
                    lose(error)
                    is_ended.set()

                side.connection_lost = note  # type: ignore[method-assign]  # of this one side
            sending = on(pipe.app_thread, send_all_from_app(pipe, [b"x" * 50_000] * (number % 20)))
            if closer != "app":
                pipe.broker_end.loop.call_soon_threadsafe(pipe.broker_end.close)
            if closer != "broker":
                pipe.app_end.loop.call_soon_threadsafe(pipe.app_end.close)

            for is_ended in ends:
                assert is_ended.wait(DEADLINE)
            sending.result(DEADLINE)
            assert pipe.broker.losses == pipe.app.losses == [None]


def test_loop_that_has_closed_is_an_end_for_who_writes_to_it() -> None:
    with thread_pipe() as pipe:
        is_ended = threading.Event()
        lose = pipe.broker.connection_lost

        def note(error: Exception | None) -> None:
            lose(error)
            is_ended.set()

        pipe.broker.connection_lost = note  # type: ignore[method-assign]  # of this one side
        pipe.app_thread.do(lambda: None)  # it has nothing to read any more
        pipe.app_thread.close()

        pipe.broker_thread.do(lambda: pipe.broker_end.write(b"x"))

        assert is_ended.wait(DEADLINE)
        assert pipe.broker.losses == [None]
