"""Rows of an action whose result is there before the status store has heard of its last tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from nebula.spark.host.classic import ClassicPlace, ClassicSession
from nebula.spark.host.context import SparkJob
from nebula.spark.host.log_capture import Hearer, heard
from nebula.spark.host.results import Results
from nebula.spark.lines import Event, Progressed, Submit


class LateSpark:
    """A Spark whose store knows of what has ended only when its queue of events was waited for.

    Args:
        looks: how often it shows the last action as running even then.
    """

    def __init__(self, looks: int = 0) -> None:
        self._looks = looks
        self._tag = ""
        self._ended: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def run(self, rows: int) -> None:
        """An action that reads so many rows, from its begin to its result."""
        self._ended[self._tag] = rows

    def add_tag(self, tag: str) -> None:
        self._tag = tag

    def catch_up(self, _milliseconds: int) -> None:
        self._known |= self._ended

    def jobs(self, tag: str) -> list[int]:
        return [list(self._ended).index(tag)] if tag in self._known else []

    def status(self) -> str:
        self._looks -= 1
        return "RUNNING" if self._looks >= 0 else "SUCCEEDED"

    def done(self) -> int:
        return 0 if self._looks >= 0 else 1

    def rows_of(self, number: int) -> int:
        return list(self._ended.values())[number]


class _Fake:
    """An object with these members."""

    def __init__(self, **members: Any) -> None:
        vars(self).update(members)


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_arguments: value


def _session(spark: LateSpark) -> ClassicSession:
    def stage(number: int) -> _Fake:
        return _Fake(
            stageId=_always(number),
            submissionTime=_always(1),
            numActiveTasks=_always(0),
            name=_always("collect at /srv/jobs/report.py:7"),
            numTasks=_always(1),
            numCompletedTasks=spark.done,
        )

    def found(value: Any) -> _Fake:
        return _Fake(isDefined=_always(True), get=_always(value))

    java = _Fake(
        isLocal=_always(True),
        listenerBus=_always(_Fake(waitUntilEmpty=spark.catch_up)),
        statusTracker=_always(
            _Fake(
                getJobIdsForTag=spark.jobs,
                getJobInfo=lambda number: found(_Fake(stageIds=_always([number]), status=spark.status)),
                getStageInfo=lambda number: found(stage(number)),
            )
        ),
        statusStore=_always(
            _Fake(
                lastStageAttempt=lambda number: _Fake(
                    inputRecords=_always(spark.rows_of(number)), outputRecords=_always(0)
                )
            )
        ),
    )
    context = _Fake(
        setJobGroup=_always(None),
        setLocalProperty=_always(None),
        addJobTag=spark.add_tag,
        removeJobTag=_always(None),
        _jsc=_Fake(sc=_always(java)),
    )
    return cast(ClassicSession, _Fake(context=context, take_session=_always(None), name_thread=_always(None)))


@contextmanager
def _job(spark: LateSpark, folder: Path, say: Callable[[Event], None]) -> Iterator[SparkJob]:
    place = ClassicPlace(_session(spark), "R.1", "R.1", _always(None))
    results = Results(folder, "R", 1, max_rows=1, max_bytes=1, notes=folder)
    with heard(Hearer(_always(None))):
        yield SparkJob(Submit("R", 1, "copies", "tests:none", {}), place, results, threading.Event(), say)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_rows_of_the_last_tasks_of_each_step_are_counted_however_late_spark_tells(
    steps: int, tmp_path: Path
) -> None:
    spark, told = LateSpark(), list[Event]()
    with _job(spark, tmp_path, told.append) as job:
        job.report()
        for number in range(1, steps + 1):
            job.step(number, steps)
            spark.run(rows=1000)
        job.report_last()

    last = told[-1]
    assert isinstance(last, Progressed)
    assert last.counters == {"rows_read": 1000 * steps}


def test_end_is_told_with_all_tasks_though_spark_shows_them_late(tmp_path: Path) -> None:
    spark, told = LateSpark(looks=3), list[Event]()
    with _job(spark, tmp_path, told.append) as job:
        job.report()
        spark.run(rows=1)
        job.report_last()

    last = told[-1]
    assert isinstance(last, Progressed)
    assert last.tasks == (1, 1, 0)
    assert [stage[2:] for stage in last.stages] == [(1, 1, 0)]


def test_end_is_told_though_spark_never_shows_its_last_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nebula.spark.host.classic._LATE_SECONDS", 0.1)
    spark, told = LateSpark(looks=1_000_000), list[Event]()
    with _job(spark, tmp_path, told.append) as job:
        job.report()
        spark.run(rows=1)
        job.report_last()

    last = told[-1]
    assert isinstance(last, Progressed)
    assert last.tasks == (0, 1, 0)
