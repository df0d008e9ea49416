"""`nebula engines` and `nebula engine restart`, as a shell sees them. A how-to runs the rest."""

from __future__ import annotations

import json

from tests.cli.job_commands import Ask


def test_engines_are_listed_with_all_that_is_known(ask: Ask) -> None:
    (row,) = json.loads(ask("engines", "shop").stdout)

    assert (row["engine"], row["state"], row["broken"]) == ("service", "ready", None)
    assert row["instance"]


def test_engines_of_one_instance_are_asked_there(ask: Ask) -> None:
    (row,) = json.loads(ask("engines", "shop").stdout)
    ended = ask("engines", "shop", "--instance", row["instance"])

    assert json.loads(ended.stdout)[0]["instance"] == row["instance"]


def test_restart_of_an_engine_that_is_not_there_says_which_are(ask: Ask) -> None:
    ended = ask("engine", "restart", "shop", "bulk", "--yes")

    assert ended.returncode == 1
    assert "which engine? there is none" in ended.stderr
