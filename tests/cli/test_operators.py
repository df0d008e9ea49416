"""The commands for operators, as a shell sees them: tables on a terminal, JSON off it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import argon2
import pytest
from typer.testing import CliRunner

from nebula.cli import app
from nebula.stomp.client import AckMode
from nebula.sync import Client
from tests.cli.answerer import Answerer
from tests.cli.programs import DEADLINE, NEBULA, environment, nebula, running
from tests.cli.strangers import run
from tests.faults.served import Wire

Ask = Callable[..., CompletedProcess[str]]

OPERATORS = (
    "top", "queues", "topics", "connections", "sessions", "principals", "peek", "purge", "disconnect",
    "delayed list", "delayed purge", "session end", "session purge", "settings check",
)  # fmt: skip


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker with some things in it."""
    with running("broker", "--port", "0", "--store", "memory") as (_, line):
        yield line["url"]


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def ask(url: str) -> Ask:
    return lambda *words: nebula(*words, env={"NEBULA_BROKER": url})


def told(ended: CompletedProcess[str]) -> Any:
    """The one line of JSON of a command that went well."""
    assert (ended.stderr, ended.returncode) == ("", 0)
    assert ended.stdout.count("\n") == 1
    return json.loads(ended.stdout)


class Terminal:
    """A command with a terminal of its own."""

    def __init__(self, url: str, *words: str) -> None:
        self._end, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [*NEBULA, *words],
            env=environment({"NEBULA_BROKER": url, "TERM": "xterm", "COLUMNS": "160", "LINES": "50"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._shown = ""

    def press(self, keys: str) -> None:
        os.write(self._end, keys.encode())

    def read_until(self, pattern: str) -> str:
        """Its output without colours, up to this text."""
        deadline = time.monotonic() + DEADLINE
        while not re.search(pattern, self._shown):
            assert time.monotonic() < deadline, self._shown
            ready, _, _ = select.select([self._end], [], [], 0.1)
            if ready:
                try:
                    data = os.read(self._end, 65536)
                except OSError:  # the other end is closed
                    break
                self._shown += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", data.decode(errors="replace"))
        assert re.search(pattern, self._shown), self._shown
        return self._shown

    def end(self) -> int:
        """Its exit status."""
        try:
            return self.process.wait(DEADLINE)
        finally:
            self.process.kill()
            os.close(self._end)


# --- looking ---


def test_queues_are_a_list_of_objects_off_a_terminal(ask: Ask, client: Client) -> None:
    client.publish("/queue/listed.a", 1)
    client.publish("/queue/listed.b", 2)
    client.publish("/queue/listed.b", 3)

    rows = told(ask("queues", "listed.*"))["rows"]
    deepest = told(ask("queues", "/queue/listed.*", "--order", "depth", "--limit", "1"))["rows"]

    assert [(row["queue"], row["depth"]) for row in rows] == [("/queue/listed.a", 1), ("/queue/listed.b", 2)]
    assert [row["queue"] for row in deepest] == ["/queue/listed.b"]


def test_queue_by_its_name_has_its_consumers(ask: Ask, client: Client) -> None:
    with client.subscribe("/queue/consumed", ack=AckMode.CLIENT):
        shown = told(ask("queues", "consumed"))

    assert shown["summary"]["consumers"] == 1
    assert shown["subscriptions"][0]["ack"] == "client"


def test_lists_are_read_page_by_page(ask: Ask, client: Client) -> None:
    for number in range(1_100):
        client.publish(f"X/page.{number:04}", number)

    rows = told(ask("topics", "X/page.*", "--limit", "5000"))["rows"]

    assert [row["topic"] for row in rows] == [f"X/page.{number:04}" for number in range(1_100)]


def test_program_is_told_how_many_there_are_beside_the_rows(ask: Ask, client: Client) -> None:
    for number in range(3):
        client.publish(f"/queue/counted.{number}", number)
    kill(client, "/queue/counted.dying", "one")

    listed = told(ask("queues", "counted.*", "--limit", "2"))
    letters = told(ask("dlq", "list", "--from", "/queue/counted.dying"))

    assert (len(listed["rows"]), listed["matched"]) == (2, 3)
    assert (len(letters["rows"]), letters["on_disk"]) == (1, 0)


def test_who_wants_more_by_rank_than_is_told_is_not_sent_for_a_higher_limit(url: str, client: Client) -> None:
    for number in range(1_100):
        client.publish(f"/queue/ranked.{number:04}", number)
    terminal = Terminal(url, "queues", "ranked.*", "--order", "depth", "--limit", "5000")

    text = terminal.read_until(r"1,000 of 1,100 queues; .*\n")

    assert terminal.end() == 0
    assert "--order name shows all" in text
    for number in range(1_100):
        with client.subscribe(f"/queue/ranked.{number:04}") as queue:
            next(queue)


def test_table_is_for_people_and_says_what_is_left_out(url: str, client: Client) -> None:
    for number in range(3):
        client.publish(f"/queue/table.{number}", number)
    terminal = Terminal(url, "queues", "table.*", "--limit", "2")

    text = terminal.read_until("--limit shows more")

    assert terminal.end() == 0
    assert re.search(r"queue\s+depth\s+un-ACKed", text)
    assert "/queue/table.1" in text
    assert "/queue/table.2" not in text
    assert "2 of 3 queues" in text


def test_details_are_shown_to_people_with_subscriptions(url: str, client: Client) -> None:
    with client.subscribe("/queue/details", ack=AckMode.CLIENT):
        terminal = Terminal(url, "queues", "details")
        text = terminal.read_until(r"client\s+1,?\d*")

    assert terminal.end() == 0
    assert re.search(r"depth\s+0", text)
    assert re.search(r"exclusive\s+false", text)


def test_peek_shows_messages_and_leaves_them(ask: Ask, url: str, client: Client) -> None:
    client.publish("/queue/peeked", {"order": 1}, headers={"kind": "new"})
    client.publish("/queue/peeked", {"order": 2})

    first, second = told(ask("peek", "peeked"))
    (later,) = told(ask("peek", "peeked", "--after", str(first["number"]), "--max-bytes", "4"))
    terminal = Terminal(url, "peek", "peeked", "--limit", "1")
    text = terminal.read_until('"order":1')

    assert terminal.end() == 0
    assert re.search(r"kind\s+new", text)
    assert first["headers"]["kind"] == "new"
    assert later == second | {"body": '{"or', "is_cut": True, "age_seconds": later["age_seconds"]}
    assert told(ask("queues", "peeked"))["summary"]["depth"] == 2


def test_connections_and_topics_and_sessions_are_listed(ask: Ask, url: str) -> None:
    with (
        Client(url, client_id="till-9") as client,
        client.subscribe("/topic/list.news", durable="news", ack=AckMode.CLIENT),
    ):
        connections = told(ask("connections", "--order", "traffic"))["rows"]
        shown = told(ask("connections", "till-9"))
        sessions = told(ask("sessions", "till-*"))["rows"]
        session = told(ask("sessions", "till-9"))
        topics = told(ask("topics", "/topic/list.*", "--kind", "topic"))["rows"]
        topic = told(ask("topics", "/topic/list.news"))

    assert {"till-9"} <= {row["session"] for row in connections}
    assert "/topic/list.news" in {each["destination"] for each in shown["subscriptions"]}
    assert [row["session"] for row in sessions] == ["till-9"]
    assert session["subscriptions"][0]["is_active"] is True
    assert [row["topic"] for row in topics] == ["/topic/list.news"]
    assert topic["summary"]["subscribers"] == 1


def test_topics_are_listed_in_an_order(ask: Ask, client: Client) -> None:
    client.publish("X/ordered.a", "small")
    client.publish("X/ordered.b", "large" * 100)

    largest = told(ask("topics", "X/ordered.*", "--order", "bytes", "--limit", "1"))

    assert [row["topic"] for row in largest["rows"]] == ["X/ordered.b"]
    assert largest["matched"] == 2


def test_internal_queues_are_counted_and_shown_where_they_are_asked_for(ask: Ask, url: str) -> None:
    own = "/queue/nebula.broker"
    some, every = told(ask("queues")), told(ask("queues", "--all"))
    named = told(ask("queues", "nebula.*"))
    topics = told(ask("topics"))
    terminal = Terminal(url, "queues")
    text = terminal.read_until(r"hidden: \d+; --all shows them")

    assert terminal.end() == 0
    assert own not in {row["queue"] for row in some["rows"]}
    assert some["hidden"] >= 1
    assert own in {row["queue"] for row in every["rows"]}
    assert "hidden" not in every
    assert own in {row["queue"] for row in named["rows"]}
    assert own not in text
    assert not any(row["topic"].startswith("X/nebula.") for row in topics["rows"])


def test_session_is_named_by_its_first_characters(ask: Ask, url: str) -> None:
    with Client(url) as client:
        # Who asks is there only once.
        looks = [told(ask("connections"))["rows"] for _ in range(2)]
        first, second = (
            {row["session"] for row in rows if row["principal"] == "anonymous"} for rows in looks
        )
        (session,) = first & second
        short = session[:8]
        terminal = Terminal(url, "connections")
        text = terminal.read_until(rf"{short}\s")
        full = Terminal(url, "connections", "--full")
        full.read_until(session)
        shown = told(ask("connections", short))
        ended = told(ask("disconnect", short, "--yes"))
        del client

    assert (terminal.end(), full.end()) == (0, 0)
    assert session not in text
    assert shown["summary"]["session"] == session
    assert ended == {"ended": session}


def test_name_that_a_client_has_chosen_is_given_as_a_whole(ask: Ask, url: str) -> None:
    with Client(url, client_id="abcdef-till"), Client(url, client_id="abcdef"):
        exact = told(ask("connections", "abcdef"))
        unknown = ask("disconnect", "abcd", "--yes")

    assert exact["summary"]["session"] == "abcdef"
    assert unknown.returncode == 1
    assert "not-found" in unknown.stderr


def test_prefix_of_several_sessions_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [{"session": "abcd" + end * 28} for end in "01"]
    answerer = Answerer({"connections.list": {"rows": rows, "matched": 2}})
    monkeypatch.setattr("nebula.cli.asking.ask", answerer.ask)
    env = {"NEBULA_STATE": str(tmp_path), "NEBULA_BROKER": "", "NEBULA_CONTEXTS": str(tmp_path / "none")}

    ended = run(monkeypatch, "disconnect", "abcd", "--yes", env=env)

    assert ended.status == 2
    assert f"abcd matches several ids: {rows[0]['session']}" in ended.err


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with logins, each of which is its own passcode."""
    folder = tmp_path_factory.mktemp("site")
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    lines = [f'{login} = "{hasher.hash(login)}"' for login in ("ops", "meter-1", "meter-2")]
    (folder / "users.toml").write_text("\n".join(["[users]", *lines]))
    (folder / "nebula.toml").write_text(f'[identity]\nusers = "{folder}/users.toml"\n')
    words = ("--config", str(folder / "nebula.toml"), "--store", "memory")
    with running("broker", "--port", "0", *words) as (_, line):
        yield line["url"]


def log_in(site: str, login: str) -> str:
    return site.replace("://", f"://{login}:{login}@")


def test_principals_are_listed_with_what_they_use(site: str) -> None:
    def ask(*words: str) -> CompletedProcess[str]:
        return nebula(*words, env={"NEBULA_BROKER": log_in(site, "ops")})

    with Client(log_in(site, "meter-1")) as one, Client(log_in(site, "meter-2")):
        one.publish("/queue/metered", "x" * 100_000)

        rows = told(ask("principals", "--pattern", "meter-*", "--order", "memory"))["rows"]
        first = told(ask("principals", "--order", "memory", "--limit", "1"))
        alone = told(ask("principals", "--pattern", "meter-2"))

    assert [row["principal"] for row in rows] == ["meter-1", "meter-2"]
    assert rows[0]["memory_bytes"] > 100_000 > rows[1]["memory_bytes"]
    assert (rows[0]["connections"], rows[0]["refusals"], rows[0]["is_operator"]) == (1, 0, False)
    assert rows[0]["used_fraction"] > 0
    assert [row["principal"] for row in first["rows"]] == ["meter-1"]
    assert first["matched"] > 1
    assert (alone["matched"], alone["rows"][0]["principal"]) == (1, "meter-2")


def test_principals_are_a_table_of_80_columns_with_a_mark_for_operators(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = {
        "used_fraction": 0.74, "memory_bytes": 123_400_000, "disk_bytes": 99_900_000, "connections": 12_345,
        "destinations": 123_456, "refusals": 1_234_567,
    }  # fmt: skip
    answerer = Answerer()
    answerer.otherwise = {
        "rows": [
            row | {"principal": "ada", "is_operator": True},
            row | {"principal": "sensor-000001", "is_operator": False},
        ],
        "matched": 2,
    }
    monkeypatch.setattr("nebula.cli.asking.ask", answerer.ask)
    env = {"NEBULA_STATE": str(tmp_path), "NEBULA_BROKER": "", "NEBULA_CONTEXTS": str(tmp_path / "none")}

    ended = run(monkeypatch, "principals", env=env | {"COLUMNS": "80"})

    head, first, second, legend = (line.rstrip() for line in ended.out.splitlines())
    assert head.split() == [
        "principal", "used", "memory", "disk", "connections", "destinations", "refusals",
    ]  # fmt: skip
    figures = ["74", "%", "123", "MB", "99.9", "MB", "12,345", "123,456", "1,234,567"]
    assert first.split() == ["ada", "*", *figures]
    assert second.split() == ["sensor-000001", *figures]
    assert legend == "* operator"


def test_delayed_messages_are_listed_and_dropped(site: str) -> None:
    def ask(*words: str) -> CompletedProcess[str]:
        return nebula(*words, env={"NEBULA_BROKER": log_in(site, "ops")})

    for login, queue in (("meter-1", "a"), ("meter-1", "b"), ("meter-2", "a")):
        with Client(log_in(site, login)) as client:
            client.publish(f"/queue/later.{queue}", 1, headers={"delay": "3600000"})

    listed = told(ask("delayed", "list", "--pattern", "/queue/later.*"))
    of_late = told(ask("delayed", "list", "--principal", "meter-2"))["rows"]
    dropped = told(ask("delayed", "purge", "--pattern", "/queue/later.a", "--principal", "meter-2", "--yes"))
    left = told(ask("delayed", "list", "--pattern", "/queue/later.*"))["rows"]

    assert [row["destination"][-1] for row in listed["rows"]] == ["a", "b", "a"]
    assert 3500 < listed["rows"][0]["due_seconds"] <= 3600
    assert [row["principal"] for row in of_late] == ["meter-2"]
    assert dropped == {"purged": 1}
    assert [row["principal"] for row in left] == ["meter-1", "meter-1"]
    assert told(ask("delayed", "purge", "--all", "--yes")) == {"purged": 2}


def test_delayed_messages_are_read_page_by_page(ask: Ask, client: Client) -> None:
    for number in range(1_001):
        client.publish("/queue/late.page", number, headers={"delay": "3600000"})

    listed = told(ask("delayed", "list", "--pattern", "/queue/late.page", "--limit", "5000"))

    numbers = [row["number"] for row in listed["rows"]]
    assert numbers == sorted(set(numbers))
    assert (len(numbers), listed["matched"]) == (1_001, 1_001)
    assert told(ask("delayed", "purge", "--pattern", "/queue/late.page", "--yes")) == {"purged": 1_001}


def test_delayed_messages_are_a_table_for_people(url: str, client: Client) -> None:
    client.publish("/queue/late.table", 1, headers={"delay": "3600000"})
    terminal = Terminal(url, "delayed", "list", "--pattern", "/queue/late.table")

    text = terminal.read_until("/queue/late.table .*")

    assert terminal.end() == 0
    assert re.search(r"number\s+queue\s+principal\s+due in\s+memory\s+persistent", text)
    assert re.search(r"anonymous\s+59 m \d+ s\s+\S+ K?B\s+true", text)


@pytest.mark.parametrize("words", [[], ["--all", "--principal", "late"], ["--all", "--pattern", "**"]])
def test_a_forgotten_word_does_not_mean_all_delayed_messages(ask: Ask, words: list[str]) -> None:
    ended = ask("delayed", "purge", *words)

    assert ended.returncode == 2
    assert "--all alone" in ended.stderr


# --- interfering ---


def test_purge_off_a_terminal_asks_no_question(ask: Ask, client: Client) -> None:
    client.publish("/queue/purged", 1)

    assert told(ask("purge", "purged", "--yes")) == {"queue": "/queue/purged", "purged": 1}
    ended = ask("purge", "purged", "--yes")
    assert ended.returncode == 1
    assert ended.stderr.startswith("nebula: not-found: ")


@pytest.mark.parametrize(("key", "left", "status"), [("n", 1, 1), ("y", 0, 0)])
def test_purge_asks_a_person_first(url: str, client: Client, key: str, left: int, status: int) -> None:
    queue = f"/queue/asked.{key}"
    client.publish(queue, 1)
    terminal = Terminal(url, "purge", queue)
    terminal.read_until(r"\[y/N\]")
    terminal.press(f"{key}\n")

    assert terminal.end() == status
    rows = client.call("nebula.broker", "queues.list", {"pattern": queue})["rows"]
    assert sum(row["depth"] for row in rows) == left


def test_disconnect_ends_a_connection(ask: Ask, url: str) -> None:
    wire = Wire(int(url.rpartition(":")[2]))
    wire.send(b"CONNECT\naccept-version:1.2\nhost:h\nclient-id:till-8\n\n\0")
    wire.next()

    assert told(ask("disconnect", "till-8", "--yes")) == {"ended": "till-8"}

    assert [frame[0] for frame in wire.rest()] == ["ERROR"]


def test_disconnect_of_an_unknown_session_says_so(ask: Ask) -> None:
    ended = ask("disconnect", "nobody", "--yes")

    assert ended.returncode == 1
    assert ended.stderr == "nebula: not-found: no session 'nobody' is connected\n"


def leave_durable(url: str, name: str) -> None:
    """Have a session of this name that is away, for which one message waits."""
    topic = f"/topic/{name}"
    with Client(url, client_id=name) as client, client.subscribe(topic, durable="d", ack=AckMode.CLIENT):
        pass
    with Client(url) as client:
        client.publish(topic, "waits")


def test_backlog_of_a_durable_session_is_dropped_and_its_subscriptions_stay(ask: Ask, url: str) -> None:
    leave_durable(url, "backlog")
    assert told(ask("sessions", "backlog"))["summary"]["waiting"] == 1

    assert told(ask("session", "purge", "backlog", "--yes")) == {"session": "backlog", "purged": 1}

    summary = told(ask("sessions", "backlog"))["summary"]
    assert (summary["subscriptions"], summary["waiting"]) == (1, 0)


def test_durable_session_is_ended_for_good(ask: Ask, url: str) -> None:
    leave_durable(url, "gone-1")

    assert told(ask("session", "end", "gone-1", "--yes")) == {"ended": "gone-1"}

    assert told(ask("sessions", "gone-*"))["rows"] == []
    again = ask("session", "end", "gone-1", "--yes")
    assert again.returncode == 1
    assert again.stderr.startswith("nebula: not-found: ")


@pytest.mark.parametrize(("key", "status"), [("n", 1), ("y", 0)])
def test_end_of_a_session_and_purges_ask_a_person_first(
    url: str, client: Client, key: str, status: int
) -> None:
    leave_durable(url, f"asked-{key}")
    client.publish(f"/queue/late.{key}", 1, headers={"delay": "3600000"})

    def waits() -> list[int]:
        """The counts of messages that wait for the session, of delayed messages and of sessions."""
        sessions = client.call("nebula.broker", "sessions.list", {"pattern": f"asked-{key}"})
        late = client.call("nebula.broker", "delayed.list", {"pattern": f"/queue/late.{key}"})
        return [sum(row["waiting"] for row in sessions["rows"]), late["matched"], sessions["matched"]]

    after = []
    for words in (
        ("session", "purge", f"asked-{key}"),
        ("delayed", "purge", "--pattern", f"/queue/late.{key}"),
        ("session", "end", f"asked-{key}"),
    ):
        terminal = Terminal(url, *words)
        terminal.read_until(r"for good\? \[y/N\]")
        terminal.press(f"{key}\n")
        assert terminal.end() == status
        after.append(waits())

    assert after == ([[1, 1, 1]] * 3 if key == "n" else [[0, 1, 1], [0, 0, 1], [0, 0, 0]])


# --- dead letters ---


def kill(client: Client, queue: str, *bodies: Any) -> None:
    """Have these in the dead-letter queue."""
    for body in bodies:
        client.publish(queue, body)
    with client.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as subscription:
        for _ in bodies:
            subscription.nack(next(subscription), requeue="false")


def test_dead_letters_are_listed_shown_replayed_and_purged(ask: Ask, client: Client) -> None:
    kill(client, "/queue/dying", "one", "two", "three")

    first, second, third = told(ask("dlq", "list", "--from", "/queue/dying"))["rows"]
    shown = told(ask("dlq", "show", str(first["number"])))
    replayed = told(ask("dlq", "replay", str(second["number"]), str(third["number"])))
    purged = told(ask("dlq", "purge", "--from", "/queue/dying", "--yes"))

    assert (first["reason"], first["deliveries"]) == ("rejected", 1)
    assert shown["headers"]["dead-letter-from"] == "/queue/dying"
    assert replayed["replayed"] == 2
    assert purged == {"purged": 1, "on_disk": 0}
    assert [each["body"] for each in told(ask("peek", "dying"))] == ['"two"', '"three"']


def test_dead_letters_can_be_put_into_another_queue(ask: Ask, client: Client) -> None:
    kill(client, "/queue/elsewhere", "one")

    assert told(ask("dlq", "replay", "--from", "/queue/elsewhere", "--to", "found"))["replayed"] == 1
    assert [each["body"] for each in told(ask("peek", "found"))] == ['"one"']


@pytest.mark.parametrize(
    "words", [["replay"], ["purge"], ["purge", "--all", "7"], ["replay", "--all", "--from", "q"]]
)
def test_a_forgotten_word_does_not_mean_all_dead_letters(ask: Ask, words: list[str]) -> None:
    ended = ask("dlq", *words)

    assert ended.returncode == 2
    assert "--all alone" in ended.stderr


def test_dead_letters_are_a_table_for_people(url: str, client: Client) -> None:
    kill(client, "/queue/seen", "one")
    terminal = Terminal(url, "dlq", "list", "--from", "/queue/seen")

    text = terminal.read_until("/queue/seen")

    assert terminal.end() == 0
    assert re.search(r"number\s+from\s+why\s+when", text)


# --- top ---


def test_top_writes_a_line_for_each_interval_off_a_terminal(ask: Ask, client: Client) -> None:
    client.publish("/queue/topped", 1)

    shown = told(ask("top", "--once", "--interval", "0.2"))

    assert shown["status"]["not_ready"] is None
    row = next(row for row in shown["queues"] if row["queue"] == "/queue/topped")
    assert (row["depth"], row["in_per_second"]) == (1, 0.0)
    assert shown["rates"]["received"] > 0
    assert {"session", "read_per_second"} <= shown["connections"][0].keys()


def test_top_names_the_fullest_resource_and_who_used_most_of_its_share(site: str) -> None:
    url = log_in(site, "ops")
    with Client(log_in(site, "meter-1")) as greedy:
        for _ in range(4):
            greedy.publish("/queue/greedy", "x" * 8_000_000)
        shown = told(nebula("top", "--once", "--interval", "0.2", env={"NEBULA_BROKER": url}))
        terminal = Terminal(url, "top", "--once", "--interval", "0.2")
        text = terminal.read_until(r"shares: .*of its share")
        greedy.call("nebula.broker", "queue.purge", {"queue": "/queue/greedy"})

    assert terminal.end() == 0
    assert shown["principals"][0]["principal"] == "meter-1"
    pools = shown["status"]["pools"]
    assert max(pools, key=lambda name: pools[name]["used"] / pools[name]["limit"]) == "memory"
    assert re.search(r"shares: fullest is memory, \d+ % used; meter-1 uses \d+ % of its share", text)


def test_top_goes_without_principals_where_it_may_not_list_them(tmp_path: Path) -> None:
    rights = tmp_path / "rights.toml"
    verbs = '"broker.status", "queues.list", "connections.list"'
    rights.write_text(f'[capability.Look]\ncall = [{verbs}]\n[identity]\nanonymous = ["Look"]\n')
    with running("broker", "--port", "0", "--store", "memory", "--rights", str(rights)) as (_, line):
        shown = told(nebula("top", "--once", "--interval", "0.2", env={"NEBULA_BROKER": line["url"]}))
        terminal = Terminal(line["url"], "top", "--once", "--interval", "0.2")
        text = terminal.read_until(r"(?s)shares: .*session\s+principal")

    assert terminal.end() == 0
    assert shown["principals"] == []
    assert re.search(r"shares: fullest is [a-z-]+, \d+ % used\s", text)


def test_top_draws_on_a_terminal_until_q_is_pressed(url: str, client: Client) -> None:
    client.publish("/queue/drawn", 1)
    terminal = Terminal(url, "top", "--interval", "0.2")
    text = terminal.read_until(r"(?s)nebula \S+, ready.*queue\s+depth.*q quit")
    terminal.press("2")
    terminal.read_until(r"(?s)session\s+principal.*2 \[connections\]")
    assert "/queue/drawn" in text

    terminal.press("q")

    assert terminal.end() == 0


def test_help_of_each_command_for_operators_has_an_example() -> None:
    commands = [*OPERATORS, *(f"dlq {name}" for name in ("list", "show", "replay", "purge"))]
    for command in commands:
        shown = CliRunner().invoke(app, [*command.split(), "--help"])
        assert f"nebula {command}" in shown.output.split("Example", 1)[1]
