"""The page of states is drawn from both sides' tables; `python -m tests.docs.test_states_page` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TypeVar

from nebula.broker.protocol import states as server
from nebula.stomp import client_states as client
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS
from nebula.stomp.state_table import Row, StateTable

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "states.md"

S = TypeVar("S", bound=Enum)

OPENING = """\
# States of a connection

One table for each side of a connection lists the STOMP frames that are legal in each state. The code uses
only these tables, and this page is generated from them. Words in lower case are events, not frames.

A client that sends a frame without a row for its state gets an ERROR, and its connection ends. Nebula's
client refuses to send such a frame (`LocalProtocolError`), and ends the connection if a server sends one.
"""

SERVER = """\
## The broker's side

The table is in `nebula/broker/protocol/states.py`. AUTHENTICATING takes no time if the client's identity is
known beforehand, as with a certificate. Frames after a CONNECT wait until the client is admitted.
"""

CLIENT = """\
## The client's side

The table is in `nebula/stomp/client_states.py`. `→` is a frame to the server, `←` a frame from the server,
whose headers may be empty.
"""

HEADERS = """\
Headers in the column "needs" must be present and not empty. In STOMP 1.1, ACK and NACK may have the form of
1.2 (`id`) instead; on listeners of the profile `standard` they may leave out `subscription`.
"""


def arrow(command: str) -> str:
    if command in CLIENT_COMMANDS:
        return f"→ {command}"
    return f"← {command}" if command in SERVER_COMMANDS else command


def diagram(table: StateTable[S], *, directed: bool) -> Iterator[str]:
    """A Mermaid diagram: one arrow for each pair of states, with all that leads from one to the other."""
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {table.initial.name}"
    edges: dict[tuple[S, S], list[str]] = {}
    for row in table.rows:
        label = arrow(row.command) if directed else row.command
        edges.setdefault((row.state, row.next_state), []).append(label)
    for (state, next_state), labels in edges.items():
        yield f"    {state.name} --> {next_state.name}: {', '.join(labels)}"
    for state in type(table.initial):
        if table.is_final(state):
            yield f"    {state.name} --> [*]"
    yield "```\n"


def needs(row: Row[S]) -> str:
    """The headers that a frame must have, by version where versions differ."""
    by_version = {
        version: ", ".join(f"`{need.header}`" for need in row.needs if need.when(dialect)) or "none"
        for version, dialect in DIALECTS.items()
    }
    texts = set(by_version.values())
    if len(texts) == 1:
        return "" if texts == {"none"} else texts.pop()
    return "; ".join(f"{version}: {text}" for version, text in by_version.items())


def rows(table: StateTable[S], *, directed: bool) -> Iterator[str]:
    yield "| state | frame or event | next state | needs | clause |"
    yield "| --- | --- | --- | --- | --- |"
    for row in table.rows:
        command = arrow(row.command) if directed else row.command
        next_state = "" if row.next_state is row.state else row.next_state.name
        yield f"| {row.state.name} | {command} | {next_state} | {needs(row)} | {row.clause} |"
    yield ""


def page() -> str:
    parts = [
        OPENING,
        SERVER,
        *diagram(server.TABLE, directed=False),
        *rows(server.TABLE, directed=False),
        HEADERS,
        CLIENT,
        *diagram(client.TABLE, directed=True),
        *rows(client.TABLE, directed=True),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def test_page_shows_the_tables() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.test_states_page"


def test_no_other_module_knows_a_state() -> None:
    """States of connections are compared in the two tables alone."""
    tables = {Path(server.__file__), Path(client.__file__)}
    # Of a WebSocket, which is a library's.
    others = {"nebula/broker/server/websocket.py", "nebula/stomp/client/websocket_link.py"}
    named = re.compile(r"\bState\.[A-Z]")
    found = {
        str(path.relative_to(ROOT))
        for folder in ("nebula/broker", "nebula/stomp")
        for path in (ROOT / folder).rglob("*.py")
        if path not in tables and named.search(path.read_text(encoding="utf-8"))
    }

    assert found <= others


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
