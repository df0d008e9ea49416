"""The help of the commands: grouped, whole, and within 80 columns."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from nebula.broker.settings import BrokerSettings, ListenerSettings
from nebula.cli import app
from nebula.cli.grouped import HEADINGS
from tests.cli.programs import environment


def paths(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from paths(inner, (*path, name))


def shown(*words: str) -> str:
    result = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.output


def get_command_of(path: tuple[str, ...]) -> Any:
    command: Any = get_command(app)
    for name in path:
        command = command.commands[name]
    return command


def test_commands_stand_under_headings_in_order() -> None:
    lines = shown().splitlines()

    assert [line[:-1] for line in lines if line.endswith(":") and line[:-1] in HEADINGS] == list(HEADINGS)
    jobs = lines[lines.index("Jobs:") + 1 : lines.index("Operate:")]
    assert [line.split()[0] for line in jobs if line] == ["job", "engine"]


@pytest.mark.parametrize("path", list(paths(get_command(app))), ids=" ".join)
def test_help_fits_80_columns_and_cuts_no_summary(path: tuple[str, ...]) -> None:
    lines = shown(*path).splitlines()

    assert [line for line in lines if len(line) > 80] == []
    assert [line for line in lines if re.search(r"\w\.\.\.$", line)] == []
    assert [line for line in lines if "[[" in line.partition("]]")[0] and line.startswith("Usage:")] == []


@pytest.mark.parametrize("path", [path for path in paths(get_command(app)) if path], ids=" ".join)
def test_examples_are_lines_that_can_be_copied(path: tuple[str, ...]) -> None:
    shown_lines = [line.strip() for line in shown(*path).splitlines()]
    examples = [
        line.removeprefix("Example:").strip()
        for line in (get_command_of(path).help or "").splitlines()
        if re.match(r" *(Example: |  )nebula [a-z]", line)
    ]

    assert [example for example in examples if not any(line.endswith(example) for line in shown_lines)] == []


def test_flags_of_the_broker_are_described_by_its_settings() -> None:
    words = " ".join(shown("broker").split())
    flags = {option.name for option in get_command_of(("broker",)).params}
    listener = ListenerSettings.model_fields
    fields = BrokerSettings.model_fields | {name: listener[name] for name in ("host", "port")}
    described = {name: (field.description or "").replace("`", "") for name, field in fields.items()}

    assert flags - fields.keys() == {"config", "print_settings", "as_json"}
    assert [name for name in flags & fields.keys() if described[name] not in words] == []
    assert "One of sqlite, memory. [default: sqlite]" in words
    assert "[default: 61613]" in words


@pytest.mark.parametrize(("short", "long"), [("jobs", "list"), ("watch", "watch"), ("cancel", "cancel")])
def test_short_form_is_the_command_of_its_group(short: str, long: str) -> None:
    assert shown(short).partition("Arguments:")[2] == shown("job", long).partition("Arguments:")[2] != ""


def test_package_is_a_program() -> None:
    command = [sys.executable, "-m", "nebula", "--version"]

    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=20)

    assert ended.stdout.startswith("nebula ")
