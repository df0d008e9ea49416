"""Threads that are prepared for jobs to come."""

from __future__ import annotations

import threading

from nebula.spark.host.standby import Standby


def test_thread_prepares_itself_before_it_is_wanted_and_then_does_one_thing() -> None:
    done: list[tuple[str, int]] = []
    is_prepared = threading.Event()

    def prepare() -> None:
        done.append(("prepared", threading.get_ident()))
        is_prepared.set()

    standby = Standby(prepare)
    assert is_prepared.wait(10.0)
    standby.begin("job-1", lambda: done.append((threading.current_thread().name, threading.get_ident())))
    standby.thread.join(10.0)

    assert done == [("prepared", standby.thread.ident), ("job-1", standby.thread.ident)]
    assert not standby.thread.is_alive()


def test_what_is_wanted_waits_until_the_thread_is_prepared() -> None:
    may_prepare, done = threading.Event(), list[str]()

    def prepare() -> None:
        may_prepare.wait(10.0)
        done.append("prepared")

    standby = Standby(prepare)
    standby.begin("job-1", lambda: done.append("job"))
    may_prepare.set()
    standby.thread.join(10.0)

    assert done == ["prepared", "job"]
