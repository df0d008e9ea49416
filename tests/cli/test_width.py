"""Output on a terminal of 80 columns and 24 lines: no line is longer, and no name is broken."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text

from nebula.cli.ids import shortened
from nebula.cli.layout import Facts, Fitted, Heading, Rows
from nebula.cli.live import Table
from nebula.cli.tables import Column, number, table
from nebula.cli.terminal import Screen
from nebula.cli.watching import TableSwitch, Wanted, draw
from tests.cli.answerer import Answerer
from tests.cli.asking import ASKING, Asking
from tests.cli.strangers import EVIL, HOSTILE, Ended, run

NAMES = {
    "long": "/queue/venue-12.floor-3.terminals.maintenance",
    "a-line": f"/queue/{'venue-12.floor-3.' * 4}end",
}
SENTENCE = "The reading was refused, because its sensor is away and nobody has asked for another one."


def screen(width: int = 80) -> Screen:
    return Screen(file=io.StringIO(), force_terminal=True, color_system=None, width=width)


def shown(renderable: Any, width: int = 80) -> list[str]:
    on = screen(width)
    on.show(renderable)
    file = on.file
    assert isinstance(file, io.StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def broken(text: str, name: str) -> list[str]:
    """Words that are a part of this name."""
    return [word for word in re.split(r"[\s,]+", text) if len(word) > 5 and word in name and word != name]


# --- each command ---


def renamed(value: Any, name: str) -> Any:
    """The same answer with this name in place of each hostile text."""
    if isinstance(value, dict):
        return {str(renamed(key, name)): renamed(each, name) for key, each in value.items()}
    if isinstance(value, list):
        return [renamed(each, name) for each in value]
    return name if isinstance(value, str) and EVIL in value else value


# They show texts, JSON or code, each of which has lines of its own.
_NO_TABLES = {"stubs", "schema", "bench", "stream"}

CASES = [
    pytest.param(case, id=" ".join(case.words))
    for cases in ASKING.values()
    for case in cases
    if not case.stop_at and case.words[0] not in _NO_TABLES
]


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("case", CASES)
def test_command_breaks_no_name_and_no_line_is_too_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, case: Asking, kind: str
) -> None:
    name = NAMES[kind]
    answerer = Answerer({verb: renamed(answer, name) for verb, answer in HOSTILE.items()})
    monkeypatch.setattr("nebula.cli.asking.ask", answerer.ask)

    ended = at_80_columns(monkeypatch, tmp_path, *case.words)

    assert "Traceback" not in ended.err
    assert broken(ended.out, name) == [], ended.out
    assert name in ended.out or not case.shows or case.words[0] in ("describe", "ping", "job"), ended.out
    # Only a word alone may be longer, such as a default in a signature with its quotes.
    long = [line for line in ended.out.splitlines() if len(line) > 80 and len(line.split()) > 1]
    assert [line for line in long if "{" not in line] == []


def at_80_columns(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *words: str) -> Ended:
    env = {"NEBULA_STATE": str(tmp_path), "NEBULA_BROKER": "", "NEBULA_CONTEXTS": str(tmp_path / "none")}
    return run(monkeypatch, *words, env={**env, "COLUMNS": "80"})


# --- layout ---


def rows_of(*rows: tuple[str, ...], headings: str = "name depth oldest") -> Rows:
    heads = [Heading(Text(each), is_figure=bool(place)) for place, each in enumerate(headings.split())]
    return Rows(heads, ([Text(cell) for cell in row] for row in rows))


def test_rows_that_fit_are_a_table() -> None:
    lines = shown(rows_of(("orders", "12", "3 s"), ("o", "1", "")))

    assert lines == ["name    depth  oldest", "orders     12     3 s", "o           1"]


def test_name_that_does_not_fit_stands_above_its_figures() -> None:
    lines = shown(rows_of(("orders", "12", "3 s"), ("a-name-of-30-characters-at-most", "1", "")), 40)

    assert lines == [
        "name    depth  oldest",
        "orders     12     3 s",
        "a-name-of-30-characters-at-most",
        "            1",
    ]


def test_row_of_several_long_names_is_a_block() -> None:
    heads = [Heading(Text("session")), Heading(Text("principal")), Heading(Text("depth"), is_figure=True)]
    rows = Rows(heads, [[Text("s" * 30), Text("p" * 30), Text("7")], [Text("s"), Text(""), Text("8")]])

    assert shown(rows, 45) == [
        f"session: {'s' * 30}", f"  principal: {'p' * 30},", "  depth: 7", "session: s", "  depth: 8",
    ]  # fmt: skip


def test_word_of_more_than_a_line_stays_in_one_piece() -> None:
    word = "w" * 100
    heads = [Heading(Text("session")), Heading(Text("principal"))]

    lines = shown(Rows(heads, [[Text(word), Text(word)]]))
    facts = shown(Facts([(Text("path"), Text(word))]))

    assert [line.strip() for line in lines] == ["session:", word, "principal:", word]
    assert facts == ["path", word]


def test_sentence_is_wrapped_between_words() -> None:
    heads = [Heading(Text("engine")), Heading(Text("why"))]

    lines = shown(Rows(heads, [[Text("spark"), Text(SENTENCE)]]), 50)

    assert lines[0].split() == ["engine", "why"]
    assert " ".join(line[8:] for line in lines[1:]) == SENTENCE
    assert max(map(len, lines)) <= 50


def test_facts_have_long_values_below_their_names() -> None:
    value = "v" * 35

    assert shown(Facts([(Text("job"), Text("a/1")), (Text("destination"), Text(value))]), 40) == [
        "job          a/1", "destination", f"  {value}",
    ]  # fmt: skip


# --- ids ---


def test_ids_are_as_long_as_they_need_to_be() -> None:
    alike = ["a" * 12 + "0" * 20, "a" * 12 + "1" * 20, "b" * 32, "till-9", "", "b" * 32]

    assert shortened(alike) == ["a" * 12 + "0", "a" * 12 + "1", "b" * 8, "till-9", "", "b" * 8]
    assert shortened(["shop/01JD3Z7VTP5W0Q4YH2X8K6M9NB"]) == ["shop/01JD3Z7VTP5W"]
    assert shortened(["x" * 32, "a" * 31, "A" * 32]) == ["x" * 32, "a" * 31, "A" * 32]


def test_table_has_full_ids_where_they_are_wanted() -> None:
    columns, session = [Column("session", "session", is_id=True), Column("depth", "depth", number)], "a" * 32

    assert shown(table(columns, [{"session": session, "depth": 1}]))[1].split() == ["a" * 8, "1"]
    assert (
        shown(table(columns, [{"session": session, "depth": 1}], has_full_ids=True))[1].split()[0] == session
    )


# --- nebula top ---


def a_look(rows: int) -> dict[str, Any]:
    status = renamed(HOSTILE["broker.status"], "some")
    link = {"peer": "192.168.100.200:65535"}
    figures = {"depth": 9_999_999, "unacked": 99_999, "consumers": 9_999, "outbox_bytes": 99_900_000}
    rates = dict.fromkeys(
        ("in_per_second", "out_per_second", "read_per_second", "written_per_second"), 99_999
    )
    return {
        "status": status | {"not_ready": None, "pools": {}},
        "rates": dict.fromkeys(("received", "sent_frames", "read_bytes", "written_bytes"), 99_999_999),
        "queues": [
            {"queue": f"{NAMES['long']}.{n}", "oldest_seconds": 4_000, **figures, **rates}
            for n in range(rows)
        ],
        "connections": [
            {"session": f"{n:032x}", "principal": "till-12", "link": link, **figures, **rates}
            for n in range(rows)
        ],
        "principals": [{**HOSTILE["principals.list"]["rows"][0], "principal": f"p{n}"} for n in range(rows)],
        "hidden_queues": 3,
    }  # fmt: skip


@pytest.fixture
def small() -> Screen:
    """A terminal of 80 columns and 24 lines."""
    return Screen(file=io.StringIO(), force_terminal=True, color_system=None, width=80, height=24)


@pytest.mark.parametrize("one", list(Table))
@pytest.mark.parametrize("rows", [0, 1, 200])
def test_top_fits_80_by_24(small: Screen, one: Table, rows: int) -> None:
    switch = TableSwitch(one, by_keys=True)
    wanted = Wanted(2.0, 200, one)

    lines = small.render_lines(Fitted(*draw(a_look(rows), [one], wanted), switch.help), pad=False)
    texts = ["".join(piece.text for piece in line).rstrip() for line in lines]

    assert len(texts) <= 23
    assert max(map(len, texts)) <= 80
    assert f"[{one}]" in texts[-1]
    assert "q quit" in texts[-1]
    assert broken("\n".join(texts[:-1]), f"{NAMES['long']}.0") == []
    assert any("more lines" in line for line in texts) == (rows == 200)


def test_keys_choose_the_table() -> None:
    switch = TableSwitch(Table.QUEUES, by_keys=True)
    chosen = []
    for key in (b"\t", b"3", b" ", b"2", b"1"):
        assert switch.obey(key)
        chosen.append(switch.table)

    assert chosen == ["connections", "principals", "queues", "connections", "queues"]
    assert not any(switch.obey(key) for key in (b"4", b"x", b"0", b"\x1b"))


def test_tables_alternate_without_a_keyboard() -> None:
    switch = TableSwitch(Table.QUEUES, by_keys=False)
    order = []
    for _ in range(10):
        order.append(switch.table)
        switch.note_look()

    assert order == [Table.QUEUES] * 3 + [Table.CONNECTIONS] * 3 + [Table.PRINCIPALS] * 3 + [Table.QUEUES]
    assert switch.help.startswith("[queues]")
