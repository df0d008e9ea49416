"""`nebula jobs`, `watch` and `cancel`, as a shell sees them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cli.job_commands import Ask, start
from tests.cli.programs import DEADLINE, NEBULA, environment, nebula


def statuses(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_watch_follows_a_job_to_its_end_and_exits_0_when_it_is_done(ask: Ask) -> None:
    job = start(ask, "stock", "items:=3")

    ended = ask("watch", job)

    seen = statuses(ended)
    assert ended.returncode == 0
    assert {status["job"] for status in seen} == {job}
    assert [status["seq"] for status in seen] == sorted(status["seq"] for status in seen)
    assert (seen[-1]["state"], seen[-1]["progress"]) == ("done", 1.0)


def test_watch_can_show_the_result_after_the_last_status(ask: Ask) -> None:
    ended = ask("watch", start(ask, "stock", "items:=2"), "--result")

    assert json.loads(ended.stdout.splitlines()[-1]) == [{"item": 0}, {"item": 1}]


def test_watch_of_a_failed_job_shows_why_and_exits_1(ask: Ask) -> None:
    ended = ask("watch", start(ask, "stock", "items:=0"), "--result")

    assert ended.returncode == 1
    last = statuses(ended)[-1]
    assert (last["state"], last["error"]) == ("failed", {"code": "empty", "message": "nothing in stock"})


def test_watch_takes_the_job_from_what_call_answered(ask: Ask, url: str) -> None:
    answer = ask("call", "shop", "stock", "items:=1").stdout

    watching = subprocess.run(
        [*NEBULA, "watch", "-"],
        env=environment({"NEBULA_BROKER": url}),
        input=answer,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=True,
    )

    assert statuses(watching)[-1]["job"] == json.loads(answer)["job"]


def test_cancelled_job_is_cancelled_and_its_watcher_exits_1(ask: Ask) -> None:
    job = start(ask, "forever")

    cancelled = ask("cancel", job)
    watched = ask("watch", job)

    assert cancelled.returncode == 0
    assert json.loads(cancelled.stdout)["state"] in ("cancelling", "cancelled")
    assert watched.returncode == 1
    assert statuses(watched)[-1]["state"] == "cancelled"


def test_jobs_lists_the_latest_first_and_can_choose_a_state(ask: Ask) -> None:
    first, second = start(ask, "stock", "items:=1"), start(ask, "stock", "items:=0")
    for job in (first, second):
        ask("watch", job)

    listed = json.loads(ask("jobs", "shop", "--limit", "2").stdout)
    failed = json.loads(ask("jobs", "shop", "--state", "failed").stdout)

    assert [(job["job"], job["verb"], job["state"]) for job in listed] == [
        (second, "stock", "failed"),
        (first, "stock", "done"),
    ]
    assert {job["state"] for job in failed} == {"failed"}


def test_unknown_job_is_told_with_status_1(ask: Ask) -> None:
    ended = ask("watch", "shop/01JDB3QK6M0000000000000000")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("nebula: not-found: ")


def test_words_that_are_no_jobs_id_are_told_with_status_2(ask: Ask) -> None:
    for word, said in [
        ("shop", "'shop' is no job's id"),
        ("01JDB3QK6M0000000000000000", "it does not say whose job it is"),
        ("-", "on stdin there is no answer"),
    ]:
        ended = ask("cancel", word)

        assert ended.returncode == 2
        assert said in " ".join(ended.stderr.split())


def test_service_whose_jobs_cannot_be_kept_says_so_and_exits_with_2(folder: Path, url: str) -> None:
    file = folder / "file"
    file.touch()

    ended = nebula("run", "shop:app", env={"NEBULA_STATE": str(file), "NEBULA_BROKER": url}, cwd=folder)

    assert ended.returncode == 2
    assert ended.stderr.startswith(f"nebula: {file}/shop: jobs cannot be kept there, Not a directory; ")
