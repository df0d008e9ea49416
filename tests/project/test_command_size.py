"""Commands are thin: each declares its options, calls one function and shows the outcome."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from nebula.cli import app
from tests.project.code_lines import lines_of_code

ROOT = Path(__file__).parents[2]

LIMIT = 25
"""Lines of code of a command with its signature; docstring, comments and empty lines do not count."""

LONGER = {"record.record": 34}
"""Commands with a limit of their own. The signature of `nebula record` takes twenty lines, one an option."""


def commands(program: typer.Typer) -> Iterator[Callable[..., Any]]:
    """The functions that typer calls, of all groups."""
    yield from (found.callback for found in program.registered_commands if found.callback is not None)
    for group in program.registered_groups:
        if group.typer_instance is not None:
            yield from commands(group.typer_instance)


def size(command: Callable[..., Any]) -> int:
    """The lines of code of a command, without its decorators."""
    code = command.__code__
    source = Path(code.co_filename).read_text(encoding="utf-8")
    (function,) = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef)
        and node.name == command.__name__
        and code.co_firstlineno <= node.lineno <= code.co_firstlineno + len(node.decorator_list)
    )
    lines = source.splitlines()[function.lineno - 1 : function.end_lineno]
    return lines_of_code(textwrap.dedent("\n".join(lines)) + "\n")


def name_of(command: Callable[..., Any]) -> str:
    return f"{command.__module__.rpartition('.')[2]}.{command.__name__}"


COMMANDS = {name_of(command): command for command in commands(app)}


@pytest.mark.parametrize("name", COMMANDS)
def test_command_is_short(name: str) -> None:
    assert size(COMMANDS[name]) <= LONGER.get(name, LIMIT)


def test_longer_commands_exist_and_need_their_limit() -> None:
    assert {name: size(COMMANDS[name]) for name in LONGER} == LONGER


def test_commands_are_found_in_groups_too() -> None:
    assert len(COMMANDS) > 40
    assert {"queues.queues", "job.rerun", "store.export_", "broker.broker"} <= set(COMMANDS)


def test_docstrings_and_comments_do_not_count() -> None:
    def command() -> int:
        """Says
        something."""
        # Why.
        return 1

    assert size(command) == 2
