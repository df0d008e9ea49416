"""`nebula services`, `ping` and `stats`, as a shell sees them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from rich.console import Console

from nebula.cli import instances
from nebula.rpc.discovery import Instance
from tests.cli.conftest import state
from tests.cli.programs import NEBULA, environment, running

Ask: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def told(ended: subprocess.CompletedProcess[str]) -> Any:
    """The one line of JSON of a command that went well."""
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert ended.stdout.count("\n") == 1
    return json.loads(ended.stdout)


def drawn(shown: Any) -> str:
    """What a person reads."""
    out = StringIO()
    Console(file=out, width=120).print(shown)
    return out.getvalue()


def test_services_lists_the_instances_that_are_there(ask: Ask) -> None:
    (shop,) = [one for one in told(ask("services")) if one["service"] == "shop"]

    assert shop["queues"] == ["/queue/shop"]
    assert shop["queue"] == f"/queue/shop.{shop['name']}"
    assert "price" in shop["verbs"]


def test_services_of_one_name_are_those_alone(ask: Ask) -> None:
    assert [one["service"] for one in told(ask("services", "shop"))] == ["shop"]
    assert told(ask("services", "nobody")) == []


def test_watched_services_have_a_line_for_each_change(url: str, folder: Path) -> None:
    watching = subprocess.Popen(
        [*NEBULA, "services", "shop", "--watch"],
        env=environment({"NEBULA_BROKER": url}),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        counts = [len(json.loads(watching.stdout.readline()))]
        with running("run", "shop:app", "--broker", url, cwd=folder, env=state(folder)):
            counts.append(len(json.loads(watching.stdout.readline())))
        counts.append(len(json.loads(watching.stdout.readline())))
    finally:
        watching.kill()
        watching.communicate()

    assert counts == [1, 2, 1]


def test_ping_says_how_fast_each_instance_answers(ask: Ask) -> None:
    (one,) = told(ask("ping", "shop"))

    assert one["instance"] == told(ask("services", "shop"))[0]["name"]
    assert 0 < one["seconds"] < 5


def test_ping_of_a_service_that_does_not_make_itself_known_asks_its_queue(ask: Ask) -> None:
    (one,) = told(ask("ping", "nebula.broker"))

    assert one["instance"] is None
    assert 0 < one["seconds"] < 5


def test_ping_of_nobody_fails_as_any_call(ask: Ask) -> None:
    ended = ask("ping", "nobody")

    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr == "nebula: nobody listens on /queue/nobody; is the service running?\n"


def test_stats_count_what_verbs_did(ask: Ask) -> None:
    assert ask("call", "shop", "price", "item=lamp").returncode == 0
    assert ask("call", "shop", "price", "item=ghost").returncode == 1

    found = told(ask("stats", "shop"))

    price = found["verbs"]["price"]
    assert found["service"] == "shop"
    assert price["requests"] >= 2
    assert price["errors"] >= 1
    assert 0 < price["p50_seconds"] <= price["p99_seconds"]
    assert list(found["by_instance"]) == [told(ask("services", "shop"))[0]["name"]]
    assert found["missing"] == []


def test_stats_of_a_service_that_does_not_make_itself_known_are_those_of_who_answers(ask: Ask) -> None:
    assert told(ask("stats", "nebula.broker"))["instances"] == 1


def test_describe_of_one_instance_is_what_that_one_says(ask: Ask) -> None:
    (shop,) = told(ask("services", "shop"))

    described = told(ask("describe", "shop", "--instance", shop["name"]))

    assert described == told(ask("describe", "shop"))
    assert ask("describe", "shop", "--instance", "nobody").returncode == 3


# --- what people read ---


def test_instances_that_are_not_alike_are_told_apart() -> None:
    alike = [Instance("shop", name, schemas="a") for name in ("i1", "i2")]

    assert instances.differences(alike) == ""
    assert instances.differences([*alike, Instance("shop", "i3", schemas="b")]) == (
        "its instances are not alike: i1, i2; i3. --instance NAME shows one"
    )


SHOWN = {
    "service": "shop",
    "instances": 1,
    "missing": ["i2"],
    "verbs": {"price": {"requests": 12_000, "errors": 1, "mean_seconds": 0.0004, "p50_seconds": 0.0003,
                        "p99_seconds": 0.02, "longest_seconds": 1.5}},
    "by_instance": {},
}  # fmt: skip


def test_statistics_are_a_table_with_units() -> None:
    text = drawn(instances._draw_stats(SHOWN, by_instance=False))

    assert "shop: 1 instances; no answer: i2" in text
    assert text.split("longest")[1].split() == [
        "price", "12,000", "1", "0.40", "ms", "0.30", "ms", "20", "ms", "1.5", "s",
    ]  # fmt: skip


def test_statistics_by_instance_name_each() -> None:
    shown = {**SHOWN, "by_instance": {"i1": {"verbs": SHOWN["verbs"]}}}

    assert drawn(instances._draw_stats(shown, by_instance=True)).split("longest")[1].split()[:2] == [
        "i1",
        "price",
    ]


def test_ping_that_was_not_answered_is_shown_as_such() -> None:
    text = drawn(
        instances._draw_pings([{"instance": "i1", "seconds": 0.0004}, {"instance": "i2", "seconds": None}])
    )

    assert text.split("answer")[1].split() == ["i1", "after", "0.40", "ms", "i2", "none"]


@pytest.mark.parametrize("command", ["services", "ping", "stats"])
def test_help_of_each_has_an_example(ask: Ask, command: str) -> None:
    assert f"nebula {command} " in ask(command, "--help").stdout.split("Example", 1)[1]
