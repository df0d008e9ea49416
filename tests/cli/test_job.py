"""`nebula job show`, `log` and `rerun`, and the filters and pages of `nebula jobs`, as a shell sees them."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest

from nebula.cli.ids import find_job
from nebula.cli.job import LogView, _show
from nebula.cli.render import Output
from nebula.cli.result_rows import write_rows
from nebula.cli.terminal import Screen
from nebula.cli.times import moment_of
from nebula.errors import RemoteError, SettingsError
from nebula.rpc.jobs.model.record import LogLine
from nebula.rpc.jobs.results.types import ResultFormat
from tests.cli.job_commands import Ask, start

_UNKNOWN = "shop/01JDB3QK6M0000000000000000"


def ended(ask: Ask, *words: str) -> str:
    job = start(ask, *words)
    ask("watch", job)
    return job


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_job_that_is_shown_has_parameters_steps_result_and_log(ask: Ask) -> None:
    job = ended(ask, "count", "items:=2")

    (known,) = lines(ask("job", "show", job))

    assert (known["job"], known["verb"], known["state"]) == (job, "count", "done")
    assert known["parameters"] == {"items": 2}
    assert known["result"] == {"value": 2}
    assert [(step["number"], step["total"], step["name"]) for step in known["steps"]] == [
        (1, 2, "look"), (2, 2, "count"),
    ]  # fmt: skip
    assert all(step["ended_at"] >= step["started_at"] for step in known["steps"])
    assert [line["text"] for line in known["log"]] == ["item 1", "item 2"]


def test_log_is_numbered_and_can_be_read_on(ask: Ask) -> None:
    job = ended(ask, "count", "items:=3")

    everything = lines(ask("job", "log", job))
    later = lines(ask("job", "log", job, "--after", "1"))
    last = lines(ask("job", "log", job, "--lines", "1"))

    assert [(line["number"], line["text"]) for line in everything] == [
        (1, "item 1"), (2, "item 2"), (3, "item 3"),
    ]  # fmt: skip
    assert later == everything[1:]
    assert last == everything[2:]


def test_log_that_is_followed_ends_with_the_job(ask: Ask) -> None:
    job = start(ask, "count", "items:=5")

    followed = ask("job", "log", job, "--follow")

    assert followed.returncode == 0
    assert [line["number"] for line in lines(followed)] == [1, 2, 3, 4, 5]


def test_job_that_is_run_again_is_a_new_job_with_its_parameters(ask: Ask) -> None:
    job = ended(ask, "count", "items:=2")

    (new,) = lines(ask("job", "rerun", job))
    ask("watch", new["job"])
    (known,) = lines(ask("job", "show", new["job"]))

    assert new["job"] != job
    assert (known["rerun_of"], known["parameters"], known["state"]) == (job, {"items": 2}, "done")


def test_job_that_is_run_again_has_options_of_its_own(ask: Ask) -> None:
    job = ended(ask, "count", "items:=1")

    options = ("--priority", "8", "--not-before", "2099-01-01T06:00+00:00", "--notify", "/queue/ends")
    (new,) = lines(ask("job", "rerun", job, *options))
    (known,) = lines(ask("job", "show", new["job"]))
    ask("cancel", new["job"])

    assert (known["state"], known["priority"], known["not_before"]) == ("queued", 8, 4_070_930_400.0)
    assert known["note"] == "waits until 2099-01-01 06:00:00 UTC"


@pytest.mark.parametrize("command", ["show", "log", "rerun"])
def test_unknown_job_is_told_with_status_1(ask: Ask, command: str) -> None:
    done = ask("job", command, _UNKNOWN)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "nebula: not-found: shop knows no job 01JDB3QK6M0000000000000000: it was never"
    )


def test_service_that_is_away_is_told_with_status_3(ask: Ask) -> None:
    done = ask("job", "show", _UNKNOWN.replace("shop", "shut"))

    assert done.returncode == 3
    assert done.stderr == "nebula: no service listens on /queue/shut; is the service running?\n"


def test_jobs_are_chosen_by_several_states_verb_time_and_text(ask: Ask) -> None:
    good, bad = ended(ask, "count", "items:=1"), ended(ask, "stock", "items:=0")

    def listed(*words: str) -> list[str]:
        (rows,) = lines(ask("jobs", "shop", "--limit", "200", *words))
        found: Any = rows
        return [row["job"] for row in found]

    assert listed("--state", "done", "--state", "failed")[:2] == [bad, good]
    assert good in listed("--verb", "count")
    assert bad not in listed("--verb", "count")
    assert listed("--text", "NOTHING in", "--since", "1h")[:1] == [bad]
    assert listed("--until", "1h") == []
    assert listed("--before", bad)[:1] == [good]


def test_time_that_cannot_be_read_is_told_with_status_2(ask: Ask) -> None:
    done = ask("jobs", "shop", "--since", "yesterday")

    assert done.returncode == 2
    assert done.stderr.startswith("nebula: 'yesterday' is no time: write 90m")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 910.0), ("2m", 880.0), (None, None), ("1970-01-01T00:20:00+00:00", 1200.0)],
)
def test_time_is_so_long_ago_or_a_date(text: str | None, seconds: float | None) -> None:
    assert moment_of(text, 1000.0) == seconds


@pytest.mark.parametrize("text", ["", "1", "1y", "-1h", "2026-13-01"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is no time"):
        moment_of(text)


def terminal() -> Output:
    return Output(console=Screen(file=io.StringIO(), force_terminal=True, color_system=None, width=100))


def text_of(output: Output) -> str:
    file = output.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def test_job_that_waits_is_shown_with_what_decides_its_turn() -> None:
    output = terminal()
    known = {
        "job": "reports/2", "state": "queued", "position": 3, "priority": 8, "exclusive": "/data/a",
        "not_before": None, "expires_at": 4_000_000_000.0, "note": "waits for reports/1",
    }  # fmt: skip

    _show(output, known)
    _show(running := terminal(), known | {"state": "running", "not_before": 5.0})

    shown = dict(line.rstrip().split(maxsplit=1) for line in text_of(output).splitlines())
    assert (shown["priority"], shown["exclusive"], shown["position"]) == ("8", "/data/a", "3")
    assert "2096" in shown["expires_at"]
    assert "not_before" not in shown
    assert "expires_at" not in text_of(running)
    assert "not_before" not in text_of(running)


def test_lines_that_are_gone_are_told_to_people() -> None:
    output = terminal()

    LogView(output, 1).show([LogLine(0.0, "two", 2), LogLine(0.0, "[b]five\x1b[2J", 5)])

    shown = text_of(output).splitlines()
    assert [line.split("  ")[-1] for line in shown] == ["two", "… 2 lines are gone", "[b]five\\x1b[2J"]


def test_job_is_shown_to_people_as_tables() -> None:
    output = terminal()
    step = {"number": 1, "total": 2, "name": "read", "started_at": 10.0, "ended_at": 12.5}
    running = step | {"number": 2, "name": "write", "ended_at": None}
    known = {
        "job": "reports/1", "verb": "delays", "state": "running", "note": "", "owner": None, "seq": 7,
        "parameters": {"month": 1}, "steps": [step, running],
        "log": [{"at": 0.0, "text": "begun", "number": 1}],
        "result": {"path": "/p", "rows": 2, "preview": [{"carrier": "AA", "delay": 3}]},
    }  # fmt: skip

    _show(output, known)

    shown = text_of(output)
    assert "delays" in shown
    assert '{"month": 1}' in shown
    assert "2.5 s" in shown
    assert '{"path": "/p", "rows": 2}' in shown
    assert "carrier  delay\nAA           3\n" in shown
    assert shown.rstrip().endswith("begun")
    assert "owner" not in shown
    assert "seq" not in shown


# --- ids in short ---


def test_job_is_named_by_the_first_characters_of_its_id(ask: Ask) -> None:
    job = ended(ask, "count", "items:=1")
    short = job[: len("shop/") + 16].lower()

    for words in (("show", short), ("watch", short), ("cancel", short), ("rerun", short)):
        done = ask("job", *words)
        (told,) = lines(done)[-1:]

        assert done.returncode == 0, done.stderr
        assert job in (told["job"], told.get("rerun_of"))
    assert [line["text"] for line in lines(ask("job", "log", short))] == ["item 1"]
    assert ask("job", "result", short).stdout == "1\n"
    before = json.loads(ask("jobs", "shop", "--before", short[len("shop/") :]).stdout)
    assert job not in {one["job"] for one in before}


def test_short_id_of_several_jobs_is_refused_and_that_of_none_is_not_found(ask: Ask) -> None:
    first, _ = ended(ask, "count", "items:=1"), ended(ask, "count", "items:=1")
    prefix = first[: len("shop/") + 4]

    several = ask("job", "show", prefix)
    none = ask("job", "show", "shop/7ZZZ")
    alone = ask("job", "show", first[len("shop/") :][:8])

    assert several.returncode == 2
    # The oldest ones are named, which other tests may have begun.
    named = re.findall(r"shop/[0-9A-Z]{26}", several.stderr.partition("matches several ids: ")[2])
    assert len(named) >= 2
    assert all(name.startswith(prefix) for name in named)
    assert (none.returncode, "no job whose id begins with 7ZZZ" in none.stderr) == (1, True)
    assert alone.returncode == 2


def test_result_is_written_row_by_row_in_a_format_of_choice(ask: Ask) -> None:
    job = start(ask, "stock", "items:=2")
    items, table = ask("job", "result", job), ask("job", "result", job, "--format", "csv")

    assert (items.returncode, items.stdout) == (0, '{"item":0}\n{"item":1}\n')
    # Python's text mode reads \r\n as \n.
    assert (table.returncode, table.stdout) == (0, "item\n0\n1\n")


def test_result_that_is_no_table_is_told_as_json_alone(ask: Ask) -> None:
    job = start(ask, "stock", "items:=2")
    failed = ask("job", "result", job, "--format", "parquet")

    assert failed.returncode == 1
    assert "no-rows" in failed.stderr
    assert failed.stdout == ""


def test_result_of_a_failed_job_is_its_error(ask: Ask) -> None:
    ended = ask("job", "result", start(ask, "stock", "items:=0"))

    assert ended.returncode == 1
    assert "nothing in stock" in ended.stderr


@pytest.mark.anyio
async def test_service_cannot_have_a_short_id_mean_a_job_of_another_one() -> None:
    told = {"jobs": [{"job": f"{service}/01JD3Z7VTP5W0Q4YH2X8K6M9NB"} for service in ("payments", "shop")]}

    class Hostile:
        async def call_all(self, *_: Any, **__: Any) -> Any:
            return SimpleNamespace(answers=[SimpleNamespace(value=told)])

    assert await find_job(cast(Any, Hostile()), "shop/01JD3Z7V", 1.0) == told["jobs"][1]["job"]
    with pytest.raises(RemoteError, match="no job whose id begins with 01JD4"):
        await find_job(cast(Any, Hostile()), "shop/01JD4", 1.0)


@pytest.mark.anyio
async def test_reader_of_a_result_that_takes_its_time_does_not_keep_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Handle:
        async def pages(self, _form: str) -> AsyncIterator[dict[str, Any]]:
            yield {"schema": None, "data": ["x" * 300_000]}

    came, got = threading.Event(), list[bytes]()
    source, sink = os.pipe()

    def read() -> bool:
        is_alive = came.wait(2)
        with os.fdopen(source, "rb") as file:
            got.append(file.read())
        return is_alive

    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read)
        with os.fdopen(sink, "w") as file:
            monkeypatch.setattr(sys, "stdout", file)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write_rows, cast(Any, Handle()), ResultFormat.NDJSON)
                await anyio.sleep(0.1)
                came.set()
        assert reading.result()
    assert len(got[0]) == 300_003
