"""Completion by the shell of what a running broker has."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nebula.cli import completing
from nebula.sync import Client
from tests.cli.programs import DEADLINE, nebula_process, running
from tests.cli.strangers import EVIL, HOSTILE, Stranger, environment_in, strangers


def press_tab(url: str, line: str, **env: str) -> CompletedProcess[str]:
    """The completions that bash gets, with the cursor at the end of the line."""
    words = line.split(" ")
    asked = {"_NEBULA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    return nebula_process(env={"NEBULA_BROKER": url, **asked, **env})


@pytest.fixture
def _in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy is no reason to find nothing."""
    monkeypatch.setattr(completing, "_SECONDS", DEADLINE)


# --- in a shell ---


def test_tab_completes_a_line_from_the_running_broker(url: str) -> None:
    ended, deadline = press_tab(url, "nebula call sh"), time.monotonic() + DEADLINE
    # Within a second, or not at all: on a busy machine not the first time.
    while not ended.stdout.strip() and time.monotonic() < deadline:
        ended = press_tab(url, "nebula call sh")

    assert (ended.stdout.split(), ended.stderr, ended.returncode) == (["shop"], "", 0)


@pytest.mark.parametrize("line", ["nebula call ", "nebula job show ", "nebula peek ", "nebula call shop "])
def test_tab_is_silent_where_no_broker_answers(line: str) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        ended = press_tab(f"stomp://127.0.0.1:{nobody.getsockname()[1]}", line)

    assert (ended.stdout.strip(), ended.stderr, ended.returncode) == ("", "", 0)


def test_tab_does_not_wait_for_a_broker_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        ended = press_tab(f"stomp://127.0.0.1:{silent.getsockname()[1]}", "nebula call ")
        waited = time.monotonic() - began

    began = time.monotonic()
    nebula_process("--version")

    assert (ended.stdout.strip(), ended.stderr, ended.returncode) == ("", "", 0)
    # Of a busy machine the start of the program may take most of it.
    assert waited < 3 + 3 * (time.monotonic() - began)


@pytest.mark.parametrize(
    "broker", ["no-such-context", "stomp://", "http://127.0.0.1", "stomps://127.0.0.1:1"]
)
def test_tab_is_silent_where_the_broker_is_misnamed(broker: str) -> None:
    for line in (f"nebula call -b {broker} ", "nebula call "):
        ended = press_tab(broker, line)

        assert (ended.stdout.strip(), ended.stderr, ended.returncode) == ("", "", 0)


# --- what is found ---


@pytest.fixture
def found(url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The words that were typed before: a broker."""
    monkeypatch.setattr(completing, "_SECONDS", DEADLINE)
    return {"broker": url}


def test_services_and_the_brokers_own_are_completed(found: dict[str, str]) -> None:
    assert completing.complete_services(found, "") == ["nebula.broker", "shop"]
    assert completing.complete_services(found, "s") == ["shop"]


def test_verbs_are_those_of_the_service_before(found: dict[str, str]) -> None:
    of_shop = {**found, "service": "shop"}

    assert {"price", "stock"} < set(completing.complete_verbs(of_shop, ""))
    assert "ping" not in completing.complete_verbs(of_shop, "")
    assert completing.complete_verbs(of_shop, "pi") == ["ping"]
    assert "queues.list" in completing.complete_verbs({**found, "service": "nebula.broker"}, "")
    assert completing.complete_verbs({**found, "service": "nobody"}, "") == []
    assert completing.complete_verbs(found, "") == []


def test_queues_are_completed_by_bare_names_and_whole_ones(url: str, found: dict[str, str]) -> None:
    with Client(url) as client:
        client.publish("/queue/tabbed", 1)

    assert completing.complete_queues(found, "tab") == ["tabbed"]
    assert completing.complete_queues(found, "/queue/tab") == ["/queue/tabbed"]
    assert not any("inbox" in name for name in completing.complete_queues(found, ""))
    assert "nebula.broker" in completing.complete_queues(found, "nebula.")
    assert completing.complete_queues(found, "[") == []


def test_jobs_are_completed_with_their_services(url: str, found: dict[str, str]) -> None:
    with Client(url) as client:
        job = client.start("shop", "stock", {"items": 1}).id

    assert job in completing.complete_jobs(found, "")
    assert job in completing.complete_jobs(found, "sh")
    assert completing.complete_jobs(found, job[:-1]) == [job]
    assert completing.complete_jobs(found, "other/") == []


def test_sessions_are_completed(url: str, found: dict[str, str]) -> None:
    with Client(url, client_id="tab-session"):
        assert completing.complete_sessions(found, "tab-") == ["tab-session"]


@pytest.mark.usefixtures("_in_time")
def test_only_what_one_may_see_is_completed(tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    rights.write_text('[capability.Look]\ncall = ["connections.list"]\n[identity]\nanonymous = ["Look"]\n')
    with running("broker", "--port", "0", "--store", "memory", "--rights", str(rights)) as (_, line):
        asked = {"broker": line["url"]}

        assert completing.complete_queues(asked, "") == []
        assert len(completing.complete_sessions(asked, "")) > 0


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    with strangers() as stranger:
        stranger.answers = HOSTILE
        yield stranger


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize("name", [EVIL, "$(reboot)", "`id`", "a b", "a;b", "-rf", "~root", "a\nb", "a'b"])
def test_name_that_a_shell_would_obey_is_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stranger: Stranger, name: str
) -> None:
    for variable, value in environment_in(tmp_path, stranger).items():
        monkeypatch.setenv(variable, value)
    rows = [{"queue": f"/queue/{name}"}, {"queue": "/queue/plain"}]
    stranger.answers = {
        "queues.list": {"rows": rows, "matched": 2},
        "describe": {"verbs": [{"verb": name}, {"verb": "plain"}]},
    }

    assert completing.complete_queues({}, "") == ["plain"]
    assert completing.complete_verbs({"service": "shop"}, "") == ["plain"]


@pytest.mark.usefixtures("_in_time")
@pytest.mark.parametrize("answer", [None, "text", [], {"rows": 7}, {"rows": [7], "matched": 1}, {"verbs": 1}])
def test_answer_that_is_nonsense_completes_nothing(
    capfd: pytest.CaptureFixture[str], stranger: Stranger, answer: object
) -> None:
    asked = {"broker": stranger.broker.memory_url, "service": "shop"}
    stranger.answers, stranger.otherwise = {}, answer

    for complete in (completing.complete_queues, completing.complete_verbs, completing.complete_sessions):
        assert complete(asked, "") == []
    assert capfd.readouterr() == ("", "")
