"""The shell alone knows an event loop, and its connections have no tasks."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import nebula.broker
from tests.faults.served import serve

_PACKAGE = Path(nebula.broker.__file__).parent
_LOOPS = {"anyio", "asyncio", "trio", "uvloop"}


def libraries_of(file: Path) -> set[str]:
    """What a file imports, anywhere in it, by the first part of the names."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found.add(node.module.partition(".")[0])
    return found


def test_shell_and_the_stores_writer_alone_know_an_event_loop() -> None:
    knowing = {file.relative_to(_PACKAGE) for file in _PACKAGE.rglob("*.py") if libraries_of(file) & _LOOPS}

    assert {str(file) for file in knowing if file.parts[0] != "server"} == {"store/writer.py"}
    assert Path("server/connection.py") in knowing


def test_no_connection_has_a_task() -> None:
    with serve() as broker:
        before = broker.ask(lambda: len(asyncio.all_tasks()))
        wires = [broker.connect() for _ in range(20)]
        for wire in wires:
            wire.say("SUBSCRIBE id:s; destination:/topic/t", "SEND destination:/queue/a | x")
            assert wire.is_in_order()
        tasks = broker.ask(lambda: len(asyncio.all_tasks()))
        for wire in wires:
            wire.close()

    assert tasks == before
