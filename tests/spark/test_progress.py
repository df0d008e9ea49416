"""Progress from task counts, on the series of a recorded query and on what jobs declare."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from nebula.spark.host.progress import (
    MAX_STAGES,
    Meter,
    SparkJobSeen,
    Stages,
    StageSeen,
    Tasks,
    count_tasks,
)


def job(state: str, *stages: tuple[int, str, int, int]) -> SparkJobSeen:
    """`(id, state, tasks, done)` of each stage; "-" is not submitted, "+" is."""
    return SparkJobSeen(
        is_running=state == "running",
        stages=tuple(
            StageSeen(
                number, is_submitted == "+", tasks, done, active=min(2, tasks - done) * (is_submitted == "+")
            )
            for number, is_submitted, tasks, done in stages
        ),
    )


# A query with two shuffles and a sort, adaptive execution on: each shuffle is a Spark job of its own, and
# each job lists the stages of its ancestors again. Recorded from Spark 4.3, about every third change of its
# beginning. Tasks done over tasks listed falls from 100 % to 33 % here.
RECORDED = [
    [],
    [job("running", (3, "+", 16, 0))],
    [job("running", (3, "+", 16, 0))],
    [job("running", (3, "+", 16, 6))],
    [job("done", (3, "+", 16, 16))],
    [job("done", (3, "+", 16, 16)), job("running", (4, "-", 16, 0), (5, "-", 16, 0))],
    [job("done", (3, "+", 16, 16)), job("running", (4, "-", 16, 0), (5, "+", 16, 0))],
    [job("done", (3, "+", 16, 16)), job("running", (4, "-", 16, 0), (5, "+", 16, 8))],
    [job("done", (3, "+", 16, 16)), job("running", (4, "-", 16, 0), (5, "+", 16, 16))],
    [
        job("done", (3, "+", 16, 16)),
        job("done", (4, "-", 16, 0), (5, "+", 16, 16)),
        job("running", (6, "-", 16, 0), (7, "-", 16, 0), (8, "+", 16, 0)),
    ],
    [
        job("done", (3, "+", 16, 16)),
        job("done", (4, "-", 16, 0), (5, "+", 16, 16)),
        job("running", (6, "-", 16, 0), (7, "-", 16, 0), (8, "+", 16, 8)),
    ],
    [
        job("done", (3, "+", 16, 16)),
        job("done", (4, "-", 16, 0), (5, "+", 16, 16)),
        job("running", (6, "-", 16, 0), (7, "-", 16, 0), (8, "+", 16, 12)),
    ],
    [
        job("done", (3, "+", 16, 16)),
        job("done", (4, "-", 16, 0), (5, "+", 16, 16)),
        job("done", (6, "-", 16, 0), (7, "-", 16, 0), (8, "+", 16, 16)),
    ],
]


def test_skipped_stages_of_a_running_job_are_not_counted() -> None:
    assert count_tasks(RECORDED[7]) == Tasks(done=24, known=32, active=2)


def test_stages_still_to_come_are_counted() -> None:
    running = job("running", (4, "+", 16, 3), (5, "-", 8, 0))

    assert count_tasks([running]) == Tasks(done=3, known=24, active=2)


def test_recorded_query_ends_with_all_that_is_known_done() -> None:
    assert count_tasks(RECORDED[-1]) == Tasks(done=48, known=48, active=0)


def test_progress_of_the_recorded_query_never_falls_and_stays_below_one() -> None:
    meter = Meter()
    fractions = []
    for seen in RECORDED:
        meter.see(count_tasks(seen))
        fractions.append(meter.fraction)

    assert fractions[0] is None
    known = [fraction for fraction in fractions if fraction is not None]
    assert all(earlier <= later for earlier, later in pairwise(known))
    assert known[:3] == [0.0, 0.0, 0.375]
    assert known[-1] == 0.99


def test_step_that_is_begun_finishes_the_ones_before_it() -> None:
    meter = Meter()
    meter.begin_step(1, 4, "read")
    meter.see(Tasks(1, 2, 1))
    inside_first = meter.fraction
    meter.begin_step(3, 4, "write")

    assert inside_first == 0.125
    assert meter.fraction == 0.5
    assert (meter.step, meter.note) == ((3, 4, "write"), "write")


def test_first_step_alone_says_nothing_about_progress() -> None:
    meter = Meter()
    meter.begin_step(1, 2, "read")

    assert meter.fraction is None


def test_own_count_of_a_job_silences_the_tasks_of_its_step_only() -> None:
    meter = Meter()
    meter.begin_step(1, 2, "loop")
    meter.report(0.5, "file 5 of 10")
    meter.see(Tasks(8, 8, 0))
    own = (meter.fraction, meter.note)
    meter.begin_step(2, 2, "write")
    meter.see(Tasks(1, 2, 1))

    assert own == (0.25, "file 5 of 10")
    assert meter.fraction == 0.75


def test_note_without_a_number_leaves_the_count_to_the_tasks() -> None:
    meter = Meter()
    meter.report(None, "reading")
    meter.see(Tasks(1, 2, 1))

    assert (meter.fraction, meter.note) == (0.5, "reading")


@pytest.mark.parametrize("fraction", [-1.0, 2.0])
def test_fraction_outside_its_range_is_held_inside(fraction: float) -> None:
    meter = Meter()
    meter.report(fraction)

    assert meter.fraction is not None
    assert 0 <= meter.fraction <= 0.99


@pytest.mark.parametrize(("number", "total"), [(0, 2), (3, 2), (1, 0)])
def test_step_that_cannot_be_is_refused(number: int, total: int) -> None:
    with pytest.raises(ValueError, match=f"step {number} of {total}"):
        Meter().begin_step(number, total, "")


@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_number_that_is_none_says_nothing(odd: float) -> None:
    meter = Meter()
    meter.report(0.5)
    meter.report(odd, "still reading")

    assert (meter.fraction, meter.note) == (0.5, "still reading")


def test_names_and_notes_are_cut() -> None:
    meter = Meter()
    meter.begin_step(1, 2, "x" * 1000)
    name = meter.step and meter.step[2]
    meter.report(None, "y" * 1000)

    assert (name, meter.note) == ("x" * 300, "y" * 300)


def test_stages_that_have_begun_are_known_as_they_were_seen_last() -> None:
    stages = Stages()

    stages.see([job("running", (4, "-", 16, 0), (5, "+", 16, 8))])
    stages.see([job("done", (5, "+", 16, 16)), job("running", (6, "-", 16, 0), (8, "+", 4, 1))])

    assert [(stage.id, stage.done, stage.tasks) for stage in stages.newest] == [(5, 16, 16), (8, 1, 4)]


def test_the_newest_stages_are_known_however_many_a_step_has() -> None:
    stages = Stages()

    for number in range(100):
        stages.see([job("done", (number, "+", 1, 1))])

    assert [stage.id for stage in stages.newest] == list(range(100 - MAX_STAGES, 100))
