"""`nebula call`, `describe` and `run`, as a shell sees them: what they print and how they exit."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.main import get_command

from nebula import __version__
from nebula.cli import app
from nebula.compiled import build_name
from nebula.sync import Client
from tests.cli.conftest import state
from tests.cli.programs import NEBULA, Program, environment, nebula, running
from tests.cli.strangers import run as on_a_terminal
from tests.ports import free_port

Ask: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def test_call_prints_the_verbs_value_as_json(ask: Ask) -> None:
    ended = ask("call", "shop", "price", "item=lamp", "qty:=3")

    assert (ended.stdout, ended.stderr, ended.returncode) == ('"3.75"\n', "", 0)


def test_job_is_begun_at_its_time_and_by_its_priority(ask: Ask) -> None:
    words = ["call", "shop", "stock", "items:=1", "--not-before", "2099-01-31T06:00+0000", "--priority", "8"]
    job = json.loads(ask(*words).stdout)["job"]
    shown = json.loads(ask("job", "show", job).stdout)
    ask("cancel", job)

    assert (shown["state"], shown["position"], shown["priority"]) == ("queued", None, 8)
    assert shown["not_before"] == 4073522400.0


def test_call_of_a_verb_with_nothing_to_report_prints_null(ask: Ask) -> None:
    ended = ask("call", "shop", "close")

    assert (ended.stdout, ended.returncode) == ("null\n", 0)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["shop", "price", "item=ghost"], 1, "nebula: sold-out: no ghosts left"),
        (["shop", "prize"], 1, "nebula: unknown-verb: "),
        (["shop", "price", "item=lamp", "qty=x"], 1, "nebula: bad-parameters: qty: "),
        (["shop", "price", "lamp"], 2, "nebula: 'lamp' is not a parameter: write name=text or name:=json"),
        (["nobody", "price"], 3, "nebula: no service listens on /queue/nobody; is the service running?"),
        (["shop", "nap", "seconds:=5", "--timeout", "0.2"], 3, "nebula: /queue/shop did not answer in time"),
        (["shop", "price", "--broker", "stomp://127.0.0.1:1"], 3, "nebula: 127.0.0.1:1: "),
        (["shop", "price", "--broker", "http://x"], 2, "nebula: broker address 'http://x': "),
    ],
)
def test_failure_is_a_sentence_on_stderr_and_a_status(
    ask: Ask, words: list[str], status: int, said: str
) -> None:
    ended = ask("call", *words)

    assert ended.returncode == status
    assert ended.stdout == ""
    assert ended.stderr.startswith(said)
    assert "Traceback" not in ended.stderr


def test_each_wrong_field_has_its_line(ask: Ask) -> None:
    ended = ask("call", "shop", "price", "qty=x")

    assert ended.returncode == 1
    first, *fields = ended.stderr.splitlines()
    assert first.startswith("nebula: bad-parameters: ")
    assert sorted(line.split(":")[1].strip() for line in fields) == ["item", "qty"]


def test_describe_off_a_terminal_has_the_full_schema(ask: Ask) -> None:
    described = json.loads(ask("describe", "shop").stdout)

    price = next(verb for verb in described["verbs"] if verb["verb"] == "price")
    assert described["service"] == "shop"
    assert price["parameters"]["required"] == ["item"]
    assert price["parameters"]["properties"]["qty"]["default"] == 1


Look = Callable[..., str]


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, url: str) -> Look:
    """The output of a command on a terminal of 80 columns."""

    def shown(*words: str) -> str:
        ended = on_a_terminal(monkeypatch, *words, env={"NEBULA_BROKER": url, "COLUMNS": "80"})
        assert (ended.status, ended.err) == (0, "")
        return ended.out

    return shown


def test_describe_for_people_has_signatures_and_no_verbs_that_all_have(look: Look) -> None:
    shown = look("describe", "shop")

    assert "price(item: str, qty: int = 1) -> Decimal" in shown
    assert "    Price of `qty` pieces." in shown
    assert "Not shown in tables" not in shown
    assert "stock(items: int) -> list[dict[str, int]]  [job]" in shown
    assert "job.status(" not in shown
    assert re.search(r"and \d+ that every such service has: --all", shown)
    assert "job.status(" in look("describe", "shop", "--all")


def test_describe_of_a_verb_has_its_schema_and_lines_that_call_it(look: Look, ask: Ask) -> None:
    shown = look("describe", "shop", "price")
    told = json.loads(ask("describe", "shop", "price").stdout)

    assert "Not shown in tables." in shown
    assert re.search(r"qty\s+int\s+1", shown)
    assert '"required": [' in shown
    assert "nebula call shop price item=text" in shown
    assert """curl --json '{"item": "text"}' http://127.0.0.1:61680/call/shop/price""" in shown
    assert told["verb"] == "price"
    assert told["parameters"]["required"] == ["item"]


def test_describe_of_a_misspelt_verb_names_the_nearest(ask: Ask) -> None:
    ended = ask("describe", "shop", "pirce")

    assert ended.returncode == 1
    assert "shop has no verb 'pirce'; did you mean 'price'?" in ended.stderr


def test_run_says_where_it_serves_and_answers(folder: Path) -> None:
    with running("broker", "--port", "0") as (_, broker):
        env = {"NEBULA_BROKER": broker["url"], **state(folder)}
        with running("run", "shop:app", env=env, cwd=folder) as (_, line):
            assert line == {"event": "serving", "service": "shop", "queues": ["/queue/shop"]}
            assert nebula("call", "shop", "price", "item=lamp", env=env).stdout == '"1.25"\n'


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_service_answers_the_request_under_way_and_exits_0(
    folder: Path, tmp_path: Path, number: signal.Signals
) -> None:
    begun = tmp_path / "begun"
    with running("broker", "--port", "0") as (_, broker):
        env = {"NEBULA_BROKER": broker["url"], **state(folder)}
        with running("run", "shop:app", env=env, cwd=folder) as (service, _):
            asking = subprocess.Popen(
                [*NEBULA, "call", "shop", "nap", "seconds:=0.5", f"begun={begun}"],
                env=environment(env),
                stdout=subprocess.PIPE,
                text=True,
            )
            while not begun.exists():
                assert asking.poll() is None
                time.sleep(0.01)
            service.send_signal(number)

            assert asking.communicate(timeout=10)[0] == '"slept"\n'
            assert service.wait(timeout=10) == 0


def _read_until(service: Program, event: str) -> str:
    """What it has logged, up to the line of this event."""
    assert service.stderr is not None
    logged = ""
    for line in service.stderr:
        logged += line
        if event in line:
            break
    return logged


def test_service_whose_broker_is_killed_goes_on_with_the_next_one(folder: Path) -> None:
    port = str(free_port())
    with (
        running("broker", "--port", port) as (broker, line),
        running("run", "shop:app", "--broker", line["url"], cwd=folder, env=state(folder)) as (service, _),
    ):
        broker.kill()
        broker.wait()
        with running("broker", "--port", port), Client(line["url"]) as client:
            price = client.call("shop", "price", {"item": "lamp", "qty": 3}, wait_for_responder=20)
            # It replies as soon as it has subscribed, and says so a moment later.
            logged = _read_until(service, "service came back")
            service.terminate()
            assert service.stderr is not None
            logged += service.stderr.read()
            service.wait(timeout=10)

    assert (price, service.returncode) == ("3.75", 0)
    assert "Traceback" not in logged
    assert [event for event in ("connection lost", "service came back") if event in logged] == [
        "connection lost",
        "service came back",
    ]


def test_hosted_service_that_is_none_keeps_the_broker_from_starting(folder: Path) -> None:
    ended = nebula("broker", "--port", "0", "--app", "shop:ap", cwd=folder)

    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr == "nebula: shop:ap: 'ap' is not a Responder; did you mean app?\n"


def test_hosted_service_that_fails_ends_the_broker_with_its_sentence(tmp_path: Path) -> None:
    (tmp_path / "broken_shop.py").write_text(
        "from nebula import JobError, Responder\n"
        "class Broken(Responder):\n"
        "    async def run(self, *_args, **_options):\n"
        "        raise JobError('the shelves fell down')\n"
        "app = Broken('shop')\n"
    )

    ended = nebula("broker", "--port", "0", "--app", "broken_shop:app", cwd=tmp_path)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "nebula: the shelves fell down\n"


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """All that can be run, by their words. Short forms are hidden: their help is that of the long ones."""
    if hasattr(command, "commands"):
        for word, each in command.commands.items():
            if not each.hidden:
                yield from commands(each, f"{name} {word}")
    else:
        yield name, command


COMMANDS = dict(commands(get_command(app), "nebula"))


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_json_and_an_example(name: str) -> None:
    command = COMMANDS[name]

    assert "--json" in {option for each in command.params for option in each.opts}
    _, example = (command.help or "").split("Example", 1)
    assert name in example or name == "nebula contexts"


def test_version_is_the_packages() -> None:
    assert nebula("--version").stdout == f"nebula {__version__} ({build_name()})\n"


def test_misspelt_names_have_suggestions(ask: Ask) -> None:
    service = ask("call", "shpo", "price", "item=cup")
    verb = ask("call", "shop", "pirce", "item=cup")
    parameter = ask("call", "shop", "price", "item=cup", "qyt:=2")

    assert (service.returncode, verb.returncode, parameter.returncode) == (3, 1, 1)
    assert "no service listens on /queue/shpo; did you mean shop?" in service.stderr
    assert "did you mean 'price'?" in verb.stderr
    assert "qyt: Unexpected keyword argument; did you mean 'qty'?" in parameter.stderr


def test_jobs_of_a_service_without_jobs_say_so(ask: Ask) -> None:
    ended = ask("jobs", "nebula.broker")

    assert ended.returncode == 1
    assert "nebula.broker has no jobs" in ended.stderr


def test_broker_is_named_by_host_and_port(url: str) -> None:
    place = url.removeprefix("stomp://")

    assert nebula("call", "shop", "price", "item=cup", "-b", place).stdout == '"1.25"\n'
    assert nebula("call", "shop", "price", "item=cup", env={"NEBULA_BROKER": place}).stdout == '"1.25"\n'
