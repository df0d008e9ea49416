"""`nebula services`, `ping` and `stats`, as a shell sees them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import IO, Any, TypeAlias

import anyio
import pytest
from anyio.abc import TaskStatus

from nebula import Client, Responder
from nebula.cli import counts, describing, instances
from nebula.cli.render import Output
from nebula.cli.terminal import Screen
from nebula.rpc.discovery import Instance
from nebula.testing import TestClient
from tests.cli.conftest import state
from tests.cli.programs import DEADLINE, NEBULA, environment, running

Ask: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def told(ended: subprocess.CompletedProcess[str]) -> Any:
    """The one line of JSON of a command that went well."""
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert ended.stdout.count("\n") == 1
    return json.loads(ended.stdout)


def drawn(shown: Any) -> str:
    """The output for people."""
    out = StringIO()
    Screen(file=out, width=120).show(shown)
    return out.getvalue()


def test_describe_marks_verbs_that_the_caller_may_not_call() -> None:
    parameters = {"type": "object", "properties": {}, "additionalProperties": False}
    verb = {"verb": "secret", "description": "", "parameters": parameters, "result": {"type": "string"}}

    assert "[not allowed]" in drawn(describing._head({**verb, "allowed": False}))
    assert "[" not in drawn(describing._head(verb))


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


OTHER_SHOP = """
from nebula import Responder

app = Responder("shop", version="other")


@app.verb
async def weigh(item: str) -> float:
    return 1.0
"""


def test_two_programs_with_one_name_are_warned_of_marked_and_refused_if_wanted(
    url: str, folder: Path, tmp_path: Path, ask: Ask
) -> None:
    (tmp_path / "other.py").write_text(OTHER_SHOP)
    words = ("run", "other:app", "--broker", url)
    refused = subprocess.run(
        [*NEBULA, *words, "--exclusive"],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    with running(*words, cwd=tmp_path) as (process, _):
        assert process.stderr is not None
        lines = (json.loads(line) for line in process.stderr)
        warned = next(line for line in lines if line["event"] == "other contract seen")
        rows = told(ask("services", "shop"))
    (alone,) = told(ask("services", "shop"))

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].startswith(
        "nebula: service 'shop' already runs with another contract (instance "
    )
    assert "it has " in refused.stderr
    assert "and it lacks weigh)" in refused.stderr
    assert refused.stdout == ""
    assert (warned["service"], warned["instance"], warned["level"]) == ("shop", alone["name"], "warning")
    assert [row["differs"] for row in rows] == [True, True]
    assert alone["differs"] is False
    shown = drawn(instances._drawn(rows))
    assert shown.count(" *") == 2
    assert "* instances of shop have different contracts" in shown
    assert "*" not in drawn(instances._drawn([alone]))


def test_exclusive_service_starts_beside_its_like(url: str, folder: Path) -> None:
    words = ("run", "shop:app", "--broker", url, "--exclusive")
    with running(*words, cwd=folder, env=state(folder)) as (_, line):
        assert line["event"] == "serving"


def test_ping_says_how_fast_each_instance_answers(ask: Ask) -> None:
    (one,) = told(ask("ping", "shop"))

    assert one["instance"] == told(ask("services", "shop"))[0]["name"]
    assert 0 < one["seconds"] < 5


def test_ping_of_a_service_that_does_not_make_itself_known_asks_its_queue(ask: Ask) -> None:
    (one,) = told(ask("ping", "nebula.broker"))

    assert one["instance"] is None
    assert 0 < one["seconds"] < 5


def test_ping_of_an_unknown_service_fails_as_any_call(ask: Ask) -> None:
    ended = ask("ping", "nobody")

    assert (ended.returncode, ended.stdout) == (3, "")
    assert ended.stderr == "nebula: no service listens on /queue/nobody; is the service running?\n"


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


@pytest.fixture
def watching(url: str) -> Iterator[Callable[..., IO[str]]]:
    """Start a command that goes on, and get its stdout."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str) -> IO[str]:
        told = environment({"NEBULA_BROKER": url})
        running.append(subprocess.Popen([*NEBULA, *words], env=told, stdout=subprocess.PIPE, text=True))
        stdout = running[-1].stdout
        assert stdout is not None
        return stdout

    yield start
    for each in running:
        each.kill()
        each.communicate()


LEDGER = """
from nebula import Responder

app = Responder("ledger")


@app.verb
def balance() -> int: return 0


@app.on("/topic/payments")
def note(amount: int) -> None:
    # Add a payment.
    if amount < 0: raise ValueError(amount)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    (tmp_path / "ledger.py").write_text(LEDGER)
    return tmp_path


def test_watched_description_has_a_line_for_each_change_of_who_is_there(
    watching: Callable[..., IO[str]], url: str, ledger: Path
) -> None:
    lines = watching("describe", "ledger", "--watch")

    seen = [json.loads(lines.readline())]
    with running("run", "ledger:app", "--broker", url, cwd=ledger):
        seen.append(json.loads(lines.readline()))
    seen.append(json.loads(lines.readline()))

    assert (seen[0], seen[2]) == (None, None)
    assert "balance" in {verb["verb"] for verb in seen[1]["verbs"]}


@pytest.mark.parametrize("command", ["ping", "stats"])
def test_watching_goes_on_while_nobody_is_there(
    watching: Callable[..., IO[str]], url: str, ledger: Path, command: str
) -> None:
    lines = watching(command, "ledger", "--watch", "--interval", "0.1")

    def next_look() -> bool:
        look = json.loads(lines.readline())
        return bool(look if command == "ping" else look["by_instance"])

    assert not next_look()
    with running("run", "ledger:app", "--broker", url, cwd=ledger):
        while not next_look():
            pass
    while next_look():
        pass


def test_stats_tell_what_a_service_was_called_for_without_being_asked(
    ask: Ask, url: str, ledger: Path
) -> None:
    with running("run", "ledger:app", "--broker", url, cwd=ledger):
        for amount in ("1", "2", "-1", "much"):
            assert ask("pub", "/topic/payments", "--", amount).returncode == 0
        found = told(ask("stats", "ledger"))
        while sum(found["listens"][0][count] for count in ("messages", "unreadable")) < 4:
            found = told(ask("stats", "ledger"))

    (one,) = found["listens"]
    assert (one["destination"], one["handler"]) == ("/topic/payments", "note")
    assert (one["messages"], one["errors"], one["unreadable"]) == (3, 1, 1)
    assert "latency" not in one


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
    "failed": {},
    "verbs": {"price": {"requests": 12_000, "errors": 1, "mean_seconds": 0.0004, "p50_seconds": 0.0003,
                        "p99_seconds": 0.02, "longest_seconds": 1.5}},
    "by_instance": {},
}  # fmt: skip


def test_statistics_are_a_table_with_units() -> None:
    text = drawn(counts.draw_stats(SHOWN, by_instance=False))

    assert "shop: 1 instance; no answer: i2" in text
    assert text.split("longest")[1].split() == [
        "price", "12,000", "1", "0.40", "ms", "0.30", "ms", "20", "ms", "1.5", "s",
    ]  # fmt: skip


def test_statistics_by_instance_name_each() -> None:
    shown = {**SHOWN, "by_instance": {"i1": {"verbs": SHOWN["verbs"]}}}

    assert drawn(counts.draw_stats(shown, by_instance=True)).split("longest")[1].split()[:2] == [
        "i1",
        "price",
    ]


def test_names_of_strangers_are_only_text_in_a_title() -> None:
    shown = {**SHOWN, "missing": ["[/x]", "\x1b]0;owned\x07"], "failed": {"[b]i3": "\x1b[2J"}}

    text = drawn(counts.draw_stats(shown, by_instance=False))

    assert "no answer: [/x], \\x1b]0;owned\\x07; [b]i3: \\x1b[2J" in text
    assert "\x1b" not in text


def test_what_a_service_is_called_for_has_a_table_of_its_own() -> None:
    listens = {"destination": "/topic/news", "handler": "note", "messages": 3, "errors": 1, "unreadable": 2,
               "given_up": 0, "waiting": 0, "mean_seconds": 0.001, "p50_seconds": 0.001, "p99_seconds": None,
               "longest_seconds": 0.002}  # fmt: skip

    text = drawn(counts.draw_stats({**SHOWN, "listens": [listens]}, by_instance=False))

    assert text.splitlines()[-1].split() == [
        "/topic/news", "note", "3", "1", "2", "0", "0", "1.00", "ms",
    ]  # fmt: skip


@pytest.mark.anyio
async def test_instances_that_answer_something_else_are_told_apart_from_those_that_count() -> None:
    async def be(name: str, answer: Any, *, task_status: TaskStatus[None]) -> None:
        """An instance that others wrote."""
        queue = f"/queue/shop.{name}"
        async with Client(client.url) as stranger, stranger.subscribe(queue) as requests:
            instance = {"service": "shop", "name": name, "queue": queue}
            await stranger.publish(f"X/nebula.services.shop.{name}", instance, headers={"ephemeral": "true"})
            task_status.started()
            async for request in requests:
                asked = request.headers
                about = {"neb-in-reply-to": asked["neb-reply-id"], "neb-response": "true"}
                await stranger.publish(asked["neb-reply-to"], answer, headers=about)

    file = StringIO()
    output = Output(console=Screen(file=file))
    error = {"code": "no-counts", "message": "I lost them", "retryable": False}
    async with TestClient(Responder("shop")) as client, anyio.create_task_group() as tasks:
        await tasks.start(be, "i1", {"verb": "statsresponse", "parameters": {"busy": 1}})
        await tasks.start(be, "i2", {"verb": "error", "parameters": error})
        is_told = await counts.show_stats(client, output, "shop", 5.0, None, by_instance=False)
        tasks.cancel_scope.cancel()

    found = json.loads(file.getvalue())
    assert is_told
    assert (found["instances"], len(found["by_instance"]), found["missing"]) == (1, 1, [])
    assert sorted(found["failed"].values()) == [
        "no-counts: I lost them",
        "shop: an instance's reply to stats cannot be read (KeyError)",
    ]


def test_ping_that_was_not_answered_is_shown_as_such() -> None:
    text = drawn(
        instances.draw_pings([{"instance": "i1", "seconds": 0.0004}, {"instance": "i2", "seconds": None}])
    )

    assert text.split("answer")[1].split() == ["i1", "after", "0.40", "ms", "i2", "none"]


@pytest.mark.parametrize("command", ["services", "ping", "stats"])
def test_help_of_each_has_an_example(ask: Ask, command: str) -> None:
    assert f"nebula {command} " in ask(command, "--help").stdout.split("Example", 1)[1]
