"""Fields of jobs, engines and statistics: declared once, in replies and on a page of the docs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from nebula import Spark
from nebula.rpc.jobs.model.views import EngineView, JobDetails, JobRow, StepView
from nebula.rpc.service.statistics import (
    HandlerStatistics,
    ProcessView,
    Tally,
    VerbStatistics,
    subscriber_to_json,
)
from nebula.shown import Unit, shown_fields
from nebula.spark.runner import SparkRunner
from tests.cli.job_commands import Ask, start

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "service-verbs.md"

VIEWS: dict[str, type] = {
    "`verbs` of `stats`": VerbStatistics,
    "`listens` of `stats`": HandlerStatistics,
    "`process` of `stats`": ProcessView,
    "`job.list`": JobRow,
    "`job.show`": JobDetails,
    "`steps` of `job.show`": StepView,
    "`engine.status`": EngineView,
}

OPENING = """\
# Verbs of services for operators

Every service replies to `stats`, and one with jobs to `job.list`, `job.show` and `engine.status`.
The commands `nebula stats`, `nebula job list`, `nebula job show` and `nebula engines` show the replies as
tables, and all fields of them with `--json`. [Discovery](../how-to/discovery.md),
[jobs](../how-to/jobs.md) and [engines](../how-to/engines.md) explain how to use them. Replies may get
more fields.

Each entry of `listens` also has the time and error fields listed under `verbs`. `job.show` also has
the fields of `job.list`. `engine.status` has an object for each engine, by its name.
"""


def page() -> str:
    return OPENING + "".join(
        "\n".join(["", f"## {verb}", "", "| field | unit | |", "| --- | --- | --- |", *_rows(view), ""])
        for verb, view in VIEWS.items()
    )


def _rows(view: type) -> Iterator[str]:
    for name, shown in shown_fields(view).items():
        yield f"| `{name}` | {_kind(get_type_hints(view)[name], shown.unit)} | {shown.about} |"


def _kind(hint: Any, unit: Unit) -> str:
    """What JSON has for a field: its unit, or that it is an object or a list."""
    kinds = [hint, *get_args(hint)]
    if Any in kinds:
        return "any JSON"
    of = next((kind for kind in kinds if get_origin(kind) in (Mapping, Sequence, list)), None)
    if of is None:
        return str(unit)
    if get_origin(of) is Mapping:
        return "object of counts" if unit is Unit.COUNT else "object"
    return "list of objects" if get_origin(get_args(of)[0]) is Mapping else "list of texts"


def test_page_says_what_the_views_declare() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.cli.test_service_views"


@pytest.mark.parametrize("view", VIEWS.values())
def test_each_field_is_declared_with_its_unit(view: type) -> None:
    hints = get_type_hints(view)
    shown = shown_fields(view)

    assert list(shown) == list(hints)
    assert [
        name for name, one in shown.items() if one.unit is Unit.TEXT and hints[name] in (int, float)
    ] == []


def test_statistics_have_the_declared_fields() -> None:
    counts = dict.fromkeys(("unreadable", "given_up", "waiting"), 0)

    verb = Tally().to_json()
    handler = subscriber_to_json("/queue/orders", "take", Tally(), counts)

    assert set(verb) == set(shown_fields(VerbStatistics))
    assert set(handler) == set(shown_fields(HandlerStatistics)) | set(verb) - {"requests"}


def test_engine_has_the_declared_fields(tmp_path: Path) -> None:
    runner = SparkRunner(Spark(), tmp_path, "reports")

    # The verb adds it, which alone knows the caller.
    assert set(runner.status()) | {"may_restart"} == set(shown_fields(EngineView))


def test_job_has_the_declared_fields(ask: Ask) -> None:
    job = start(ask, "stock", "items:=2")
    assert ask("watch", job).returncode == 0
    again = json.loads(ask("job", "rerun", job).stdout)["job"]

    listed: list[dict[str, Any]] = json.loads(ask("jobs", "shop").stdout)
    known = json.loads(ask("job", "show", again).stdout)

    row = next(one for one in listed if one["job"] == again)
    assert set(row) == set(shown_fields(JobRow))
    assert set(known) == set(shown_fields(JobRow)) | set(shown_fields(JobDetails))


def test_step_has_the_declared_fields(ask: Ask) -> None:
    job = start(ask, "count", "items:=1")
    assert ask("watch", job).returncode == 0

    steps = json.loads(ask("job", "show", job).stdout)["steps"]

    assert [set(step) for step in steps] == [set(shown_fields(StepView))] * 2


if __name__ == "__main__":
    PAGE.write_text(page())
