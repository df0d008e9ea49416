"""Output for people on a terminal, and for programs off it."""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from nebula.cli.queues import show_messages
from nebula.cli.render import JobView, Output
from nebula.cli.results import show_result
from nebula.cli.tables import Column, table
from nebula.cli.terminal import Screen
from nebula.rpc.contract.job_runner import JobOutput


def terminal() -> Output:
    # dumb terminals get no control codes, so that the text can be compared.
    return Output(console=Screen(file=io.StringIO(), force_terminal=True, color_system=None, width=100))


def pipe() -> Output:
    return Output(console=Screen(file=io.StringIO(), force_terminal=False))


def text_of(output: Output) -> str:
    file = output.console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def lines_of(output: Output) -> list[str]:
    return [line.rstrip() for line in text_of(output).splitlines()]


@pytest.mark.parametrize("value", [None, 1.5, "text", [1, 2], {"a": [{"b": "ü"}]}, [{"a": 1}]])
def test_off_a_terminal_a_value_is_one_line_of_json(value: Any) -> None:
    output = pipe()

    output.value(value)

    assert text_of(output).count("\n") == 1
    assert json.loads(text_of(output)) == value


@pytest.mark.parametrize("value", [math.inf, {"a": [math.nan]}, {"at": -math.inf, "of": Decimal(1)}])
def test_what_json_has_no_word_for_is_null(value: Any) -> None:
    output = pipe()

    output.value(value)

    json.loads(text_of(output), parse_constant=pytest.fail)
    assert "null" in text_of(output)


def test_moment_that_is_none_stays_a_number() -> None:
    output = terminal()

    output.value({"created_at": 1_700_000_000_000.0, "ended_at": math.inf})

    assert [line.split() for line in lines_of(output)] == [
        ["created_at", "1700000000000.0"],
        ["ended_at", "Infinity"],
    ]


def test_json_can_be_had_on_a_terminal_too() -> None:
    console = Screen(file=io.StringIO(), force_terminal=True)
    output = Output(as_json=True, console=console)

    output.value([{"a": 1}])

    assert text_of(output) == '[{"a": 1}]\n'


def test_list_of_objects_is_a_table_with_numbers_to_the_right() -> None:
    output = terminal()

    output.value([{"carrier": "UA", "flights": 58665}, {"carrier": "[b]OO", "flights": 32}])

    assert lines_of(output) == ["carrier  flights", "UA         58665", "[b]OO         32"]


def test_object_is_a_pair_a_line() -> None:
    output = terminal()

    output.value({"job": "reports/1", "position": None, "tags": ["a"]})

    assert lines_of(output) == ["job       reports/1", "position", 'tags      ["a"]']


def test_text_is_shown_as_it_is() -> None:
    output = terminal()

    output.value("[red]not markup[/red]")

    assert lines_of(output) == ["[red]not markup[/red]"]


def test_no_rows_is_a_sentence_for_people_and_an_empty_list_for_programs() -> None:
    for_people, for_programs = terminal(), pipe()

    for output in (for_people, for_programs):
        output.rows(("job",), [], none="no jobs")

    assert lines_of(for_people) == ["no jobs"]
    assert text_of(for_programs) == "[]\n"


def test_rows_show_people_the_chosen_columns_and_programs_everything() -> None:
    for_people, for_programs = terminal(), pipe()
    row = {"job": "reports/1", "state": "running", "seq": 3}

    for output in (for_people, for_programs):
        output.rows(("job", "state"), [row], none="no jobs")

    assert lines_of(for_people) == ["job        state", "reports/1  running"]
    assert json.loads(text_of(for_programs)) == [row]


def test_job_is_a_json_line_for_each_status_off_a_terminal() -> None:
    output = pipe()
    statuses: list[dict[str, Any]] = [
        {"state": "queued"},
        {"state": "running", "progress": 0.5},
        {"state": "done"},
    ]

    with JobView(output) as view:
        for status in statuses:
            view.show(status)

    assert [json.loads(line) for line in lines_of(output)] == statuses


def test_job_is_a_bar_with_its_note_on_a_terminal() -> None:
    output = terminal()

    with JobView(output) as view:
        view.show({"state": "running", "progress": 0.5, "note": "reading"})

    assert "running" in text_of(output)
    assert " 50 % reading" in text_of(output)


def test_result_in_a_file_is_where_and_how_much_of_what_and_its_first_rows() -> None:
    result = JobOutput(path="/p", rows=2, bytes=70, schema={"a": "int"}, preview=[{"a": 7}])

    show_result(off := pipe(), result)
    show_result(on := terminal(), result)

    assert json.loads(text_of(off)) == {
        "path": "/p", "rows": 2, "bytes": 70, "schema": {"a": "int"}, "preview": [{"a": 7}],
    }  # fmt: skip
    assert lines_of(on) == [
        "path    /p", "rows    2", "bytes   70", 'schema  {"a": "int"}', "", "preview", "a", "7",
    ]  # fmt: skip


def test_waiting_job_shows_its_place_and_what_it_waits_for() -> None:
    output = terminal()

    with JobView(output) as view:
        view.show({"state": "queued", "position": 3, "note": "waits for reports/1"})

    assert "place 3 in the queue; waits for reports/1" in text_of(output)


def test_long_note_leaves_its_room_to_the_state_of_a_job() -> None:
    output = Output(console=Screen(file=io.StringIO(), force_terminal=True, color_system=None, width=80))

    with JobView(output) as view:
        view.show({"state": "queued", "note": "waits for " + "reports " * 12})

    assert "queued" in text_of(output)
    assert text_of(output).split("queued")[1].count("reports") == 12


def test_ended_job_shows_why_it_failed() -> None:
    output = terminal()

    with JobView(output) as view:
        view.show(
            {"state": "failed", "progress": 0.2, "error": {"code": "data", "message": "divided by zero"}}
        )

    assert "failed" in text_of(output)
    assert "data: divided by zero" in text_of(output)


@pytest.fixture
def _two_hours_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "EAST-2")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_two_hours_east")
def test_times_and_progress_are_shown_as_people_read_them() -> None:
    output = terminal()

    output.rows(("progress", "accepted_at"), [{"progress": 0.5, "accepted_at": 1.5}], none="")

    assert lines_of(output)[1].split() == ["50%", "01", "Jan", "02:00:01"]


def test_what_strangers_chose_cannot_command_a_terminal() -> None:
    output = terminal()
    evil = "\x1b[2J\x9b31m\r\x07"
    message = {
        "number": 1,
        "sender": evil,
        "headers": {evil: evil},
        "body": f"{evil}\nnext line",
        "body_bytes": 12,
        "is_cut": False,
    }

    show_messages(output, [message])
    output.console.print(table([Column("queue", "queue")], [{"queue": evil}]))
    output.value(evil)
    output.value({evil: evil, "more": [evil]})
    output.value([{evil: evil}])

    assert all(each.isprintable() or each == "\n" for each in text_of(output))
    assert text_of(output).count(r"\x1b[2J\x9b31m\r\x07") >= 9
    assert "next line" in lines_of(output)


def test_note_of_a_job_cannot_command_a_terminal() -> None:
    output = terminal()

    with JobView(output) as view:
        view.show({"state": "running", "note": "\x1b[2Jreading"})

    assert "\x1b[2J" not in text_of(output)
    assert r"\x1b[2Jreading" in text_of(output)
