"""What a command does, `nebula.sync` does in one to three lines: command by command, with the same result.

`python -m tests.cli.test_side_by_side` writes the page that shows both.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import shlex
import textwrap
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command

from nebula import Job, Responder
from nebula.cli import app as program
from nebula.cli.terminal import json_of
from nebula.errors import NebulaError
from nebula.host.apps import AppThread
from nebula.rpc.jobs.model.status import JobStatus
from nebula.rpc.service.statistics import without_buckets
from nebula.stomp.client import AckMode
from nebula.sync import Client
from nebula.testing import RunningBroker
from tests.cli.side_by_side import NO_EQUIVALENT, PAIRS, Pair
from tests.cli.strangers import run

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli-and-python.md"

# What differs of one thing at two moments: counters of the connections that ask, and numbers of messages.
# Times and ages are found by their names, see `is_volatile`.
VOLATILE = {
    "at", "busy", "read_bytes", "written_bytes", "received", "sent_frames", "memory_bytes", "outbox_bytes",
    "connections", "events", "pools", "kinds", "ended", "dropped", "taken", "waiting", "number", "message-id",
    "timestamp", "dead-letter-at", "size_bytes", "stored_bytes",
    # Lists of the broker come in pages; a command asks for the next one itself.
    "after", "hidden",
}  # fmt: skip


def shop() -> Responder:
    """A small service with jobs."""
    app = Responder("shop")

    @app.verb
    def price(item: str, qty: int = 1) -> float:
        """Price of some pieces."""
        assert item
        return 1.25 * qty

    @app.verb
    def prices(item: str) -> Iterator[float]:
        """Prices of one piece, two and so on."""
        assert item
        for qty in range(1, 1_000_000):
            yield 1.25 * qty

    @app.job(engine=None)
    def count(ctx: Job, items: int) -> int:
        """Count."""
        ctx.log("begun")
        return items

    @app.job(engine=None)
    def stock(ctx: Job, items: int) -> list[dict[str, int]]:
        """Take stock."""
        for item in range(items):
            ctx.log(f"item {item + 1}")
        return [{"item": item} for item in range(items)]

    @app.job(engine=None)
    def forever(ctx: Job) -> None:
        """Run until cancelled."""
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.01)

    return app


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker in this process with the service, reached by TCP."""
    with pytest.MonkeyPatch.context() as patch, RunningBroker(transport="tcp") as broker:
        patch.setenv("NEBULA_STATE", str(tmp_path_factory.mktemp("state")))
        thread = AppThread(shop(), broker.server)
        thread.start().result()
        yield broker.url
        thread.stop()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url, client_id="till") as client:
        yield client


@pytest.fixture(scope="module")
def job(client: Client) -> str:
    """A job that has ended, with a log and rows."""
    started = client.start("shop", "stock", {"items": 3})
    started.wait()
    client.start("shop", "count", {"items": 3}).wait()
    return started.id


def bury(client: Client) -> None:
    """Have one dead letter."""
    client.call("nebula.broker", "dlq.purge")
    client.publish("/queue/dying", "cup")
    with client.subscribe("/queue/dying", ack=AckMode.CLIENT_INDIVIDUAL) as messages:
        messages.nack(next(messages), requeue="false")
    while not client.call("nebula.broker", "dlq.list")["rows"]:
        time.sleep(0.01)


def leave_durable(url: str) -> None:
    """Have a durable subscription whose session is away, with one message that waits."""
    with Client(url, client_id="away") as client:
        with client.subscribe("/topic/away", durable="d", ack=AckMode.CLIENT) as messages:
            messages.remove()
        with client.subscribe("/topic/away", durable="d", ack=AckMode.CLIENT):
            pass
        client.publish("/topic/away", "cup")


class Guest:
    """A connection that is there until it is ended."""

    def __init__(self) -> None:
        self._client: Client | None = None

    def admit(self, url: str) -> None:
        self.leave()
        self._client = Client(url, client_id="guest", reconnect=False).__enter__()

    def leave(self) -> None:
        if self._client is not None:
            self._client.__exit__(None, None, None)
            self._client = None


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    guest = Guest()
    yield guest
    guest.leave()


# --- running both ---


class Outcome(NamedTuple):
    """What one of the two gave, and what is there afterwards."""

    value: Any
    effect: Any


def evaluated(python: str, names: dict[str, Any]) -> Any:
    """Run lines; the value of the last one if it is an expression."""
    *lines, last = ast.parse(textwrap.dedent(python)).body or [ast.parse("None").body[0]]
    exec(compile(ast.Module(lines, []), "<pair>", "exec"), names)  # our own table
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), "<pair>", "exec"), names)
        return None
    return eval(compile(ast.Expression(last.value), "<pair>", "eval"), names)


def is_volatile(name: object) -> bool:
    return name in VOLATILE or str(name).endswith(("_seconds", "_at"))


def plain(value: Any) -> Any:
    """A value as JSON has it, without what differs from one moment to the next."""
    match value:
        case JobStatus():
            return plain(value.to_json())
        case tuple() if hasattr(value, "_asdict"):
            return plain(value._asdict())
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return plain(dataclasses.asdict(value))
        case dict():
            return {str(name): plain(each) for name, each in value.items() if not is_volatile(name)}
        case set():
            return sorted(value)
        case list() | tuple():
            return [plain(each) for each in value]
        case _:
            return json.loads(json_of(value))


def by_python(pair: Pair, names: dict[str, Any]) -> Outcome:
    evaluated(pair.before, names)
    if pair.fails:
        with pytest.raises(NebulaError) as failure:
            evaluated(pair.python, names)
        return Outcome(str(failure.value), None)
    result = evaluated(pair.python, names)
    names.setdefault("value", result)
    value = plain(evaluated(pair.of_python, names))
    return Outcome(value, plain(evaluated(pair.effect, names)))


def by_command(pair: Pair, names: dict[str, Any], monkeypatch: pytest.MonkeyPatch, folder: Path) -> Outcome:
    evaluated(pair.before, names)
    words = [str(names.get(word, word)) for word in shlex.split(pair.words)]
    env = {"NEBULA_BROKER": names["url"], "NEBULA_CONTEXTS": str(folder / "none")}
    ended = run(monkeypatch, *words, env=env, is_terminal=False, stop_at=pair.stop_at)
    if pair.fails:
        assert ended.status == 1, ended
        return Outcome(ended.err.removeprefix("nebula: ").rstrip("\n"), None)
    assert ended.status == (130 if pair.stop_at else 0), ended
    lines = [json.loads(line) for line in ended.out.splitlines()]
    names["told"] = lines[0] if len(lines) == 1 else lines
    value = plain(evaluated(pair.of_command, names))
    return Outcome(value, plain(evaluated(pair.effect, names)))


ALL = [pair for pairs in PAIRS.values() for pair in pairs]


@pytest.mark.parametrize("pair", ALL, ids=lambda pair: pair.words)
def test_command_and_python_do_the_same(
    pair: Pair,
    url: str,
    client: Client,
    job: str,
    guest: Guest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (instance,) = client.services("shop")
    # `connections` shows the subscription of `services` until its UNSUBSCRIBE has arrived.
    client.call("shop", "ping")
    names = {
        "client": client, "url": url, "INSTANCE": instance.name, "JOB": job, "islice": islice, "bury": bury,
        "without_buckets": without_buckets, "leave_durable": leave_durable, "admit": guest.admit,
    }  # fmt: skip

    told = by_command(pair, names, monkeypatch, tmp_path)
    value = by_python(pair, names)

    assert told == value
    assert len(pair.python.splitlines()) <= 3


# --- the table is complete ---


def commands(command: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands by their words; not the hidden short forms, such as `jobs` for `job list`."""
    command = get_command(program) if command is None else command
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, each in inner.items():
        if not each.hidden:
            yield from commands(each, (*path, name))


def paired(command: str) -> bool:
    return any(pair.has_command(command) for pair in ALL)


def test_every_command_has_its_python_or_a_reason() -> None:
    names = {name for name, _ in commands()}

    assert [name for name in sorted(names) if paired(name) == (name in NO_EQUIVALENT)] == []
    assert NO_EQUIVALENT.keys() <= names


def test_short_forms_are_commands_of_a_group() -> None:
    callbacks = {command.callback.__wrapped__ for _, command in commands()}
    short = [each for each in get_command(program).commands.values() if each.hidden]  # type: ignore[attr-defined]

    assert len(short) == 4
    assert {each.callback.__wrapped__ for each in short} <= callbacks


# --- the page ---

OPENING = """\
# Commands and Python side by side

What a command does, a program does in a few lines: `client` is a [`nebula.sync.Client`](api/nebula.sync.md),
as in `with Client("stomp://127.0.0.1:61613") as client`. [`nebula.Client`](api/nebula.md) has the same
methods for `async` code. Tests run both columns against one broker and compare the results, and check that
no command is missing here.

A command adds what a person needs: it understands the first characters of an id, asks before it deletes
something, reads long lists page by page, and [draws tables](../how-to/command-line.md). Names in capitals
stand for your own values, such as a job's id.
"""

OTHERS = """\
## Commands without an equivalent

| command | why |
| --- | --- |
"""


def page() -> str:
    parts = [OPENING]
    for heading, pairs in PAIRS.items():
        parts += [f"## {heading}\n", "| shell | Python |\n| --- | --- |"]
        for pair in pairs:
            python = "<br>".join(f"`{line.strip()}`" for line in shown(pair.python))
            parts.append(f"| `nebula {pair.words}` | {python} |")
        parts[-1] += "\n"
    parts.append(OTHERS + "\n".join(f"| `nebula {name}` | {why} |" for name, why in NO_EQUIVALENT.items()))
    return "\n".join(parts) + "\n"


def shown(python: str) -> list[str]:
    """The lines of a pair; one whose block has one line stands on one line."""
    lines = python.splitlines()
    if len(lines) > 1 and lines[0].endswith(":"):
        return [f"{lines[0]} {lines[1].strip()}", *lines[2:]]
    return lines


def test_page_shows_both() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.cli.test_side_by_side"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
