"""What a job prints and logs is in its log, and nobody else's."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nebula.spark.host.log_capture import Hearer, heard, listen


@contextmanager
def listening() -> Iterator[io.StringIO]:
    """Standard output and error of a process that listens."""
    streams = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", streams)
        patch.setattr(sys, "stderr", streams)
        listen()
        yield streams


def test_what_is_printed_is_logged_line_by_line_and_printed_all_the_same() -> None:
    log: list[str] = []
    with listening() as out, heard(Hearer(log.append)):
        print("one\n\ntwo", end="")
        print(" and a half", file=sys.stderr)
        print("three", end="")

    assert log == ["one", "two and a half", "three"]
    assert out.getvalue() == "one\n\ntwo and a half\nthree"


def test_what_is_printed_outside_of_the_job_is_not_in_its_log() -> None:
    log: list[str] = []
    with listening():
        print("before")
        with heard(Hearer(log.append)):
            other = threading.Thread(target=print, args=("another thread",))
            other.start()
            other.join()
            print("inside")
        print("after")

    assert log == ["inside"]


def test_loggers_that_write_to_the_streams_are_heard() -> None:
    log: list[str] = []
    logger = logging.getLogger("tests.hearing")
    logger.propagate = False
    with listening(), heard(Hearer(log.append)):
        handler = logging.StreamHandler()
        logger.addHandler(handler)
        logger.warning("careful")
    logger.removeHandler(handler)

    assert log == ["careful"]


def test_tasks_of_the_job_are_heard() -> None:
    async def work() -> None:
        await asyncio.gather(asyncio.to_thread(print, "in a thread of the loop"))

    log: list[str] = []
    with listening(), heard(Hearer(log.append)):
        asyncio.run(work())

    assert log == ["in a thread of the loop"]


def test_lines_are_given_on_by_and_by() -> None:
    log: list[str] = []
    hearer = Hearer(log.append)
    hearer.write("one\ntw")
    hearer.flush()
    assert log == ["one"]
    hearer.write("o\n")
    hearer.flush()

    assert log == ["one", "two"]


def test_end_of_a_job_waits_for_lines_that_another_thread_is_giving_on() -> None:
    log: list[str] = []
    giving, may_go_on = threading.Event(), threading.Event()

    def say(line: str) -> None:
        if threading.current_thread() is reporter:
            giving.set()
            may_go_on.wait()
        log.append(line)

    def end() -> None:
        with heard(hearer):
            hearer.log("last")
        log.append("done")

    hearer = Hearer(say)
    hearer.write("first\n")
    reporter, ender = threading.Thread(target=hearer.flush), threading.Thread(target=end)
    reporter.start()
    giving.wait()
    ender.start()
    ender.join(0.1)  # it would be over by now if it did not wait
    may_go_on.set()
    for thread in (reporter, ender):
        thread.join()

    assert log == ["first", "last", "done"]


def test_of_a_flood_the_last_lines_are_given_on_and_the_others_counted() -> None:
    log: list[str] = []
    hearer = Hearer(log.append)
    for number in range(1500):
        hearer.write(f"{number}\n")
    hearer.close()

    assert log[0] == "… 500 lines came too fast and are left out"
    assert log[1:] == [str(number) for number in range(500, 1500)]


def test_text_that_is_logged_stays_whole_between_what_is_printed() -> None:
    log: list[str] = []
    hearer = Hearer(log.append)
    hearer.write("printed before\n")
    hearer.log("two\nlines")
    hearer.write("printed after\n")
    hearer.close()

    assert log == ["printed before", "two\nlines", "printed after"]


def test_what_is_logged_is_given_on_at_once_with_what_was_printed_before() -> None:
    log: list[str] = []
    hearer = Hearer(log.append)
    hearer.write("printed\n")
    hearer.log("the last words before a crash")

    assert log == ["printed", "the last words before a crash"]


def test_flood_of_logged_lines_waits_for_the_next_look() -> None:
    log: list[str] = []
    hearer = Hearer(log.append)
    for number in range(500):
        hearer.log(str(number))
    given = len(log)
    hearer.flush()
    hearer.write("\n".join(map(str, range(500, 1000))) + "\n")
    hearer.log("behind many")
    assert len(log) == 500
    hearer.flush()
    hearer.log("at once again")

    assert given < 500
    assert log == [*map(str, range(1000)), "behind many", "at once again"]


def test_of_a_long_line_no_more_is_held_than_a_log_keeps() -> None:
    log: list[str] = []
    hearer = Hearer(log.append)
    hearer.write("x" * 10_000 + "\n")
    hearer.log("y" * 10_000)
    hearer.close()

    assert [len(line) for line in log] == [4001, 4001]


def test_line_without_end_is_cut() -> None:
    log: list[str] = []
    hearer = Hearer(log.append)
    for _ in range(10):
        hearer.write("x" * 1000)
    hearer.close()

    assert [len(line) for line in log] == [4001, 4001]


def test_failure_of_the_job_leaves_its_last_words() -> None:
    def fail() -> None:
        with heard(Hearer(log.append)):
            print("dividing", end="")
            raise ZeroDivisionError

    log: list[str] = []
    with listening(), pytest.raises(ZeroDivisionError):
        fail()

    assert log == ["dividing"]
