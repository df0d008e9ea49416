"""The log's format: JSON lines for machines, text for people, third parties included."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog

from nebula import logs
from tests.own_logs import own_logs

NAME = "nebula.tests"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class FullDisk(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device", text)


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("nebula")
    handlers, level, own_level = list(root.handlers), root.level, ours.level
    before = structlog.get_config()
    structlog.reset_defaults()
    yield
    structlog.configure(**before)
    ours.setLevel(own_level)
    root.handlers[:] = handlers
    root.setLevel(level)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.mark.parametrize("name", ["debug", "info", "warning", "error", "critical", "exception"])
def test_log_on_a_full_disk_disturbs_nobody(name: str) -> None:
    logs.configure(logs.Level.DEBUG, stream=FullDisk())

    getattr(logs.get_logger(NAME), name)("no room")
    getattr(logging.getLogger("library"), name)("no room")


def test_off_a_terminal_each_event_is_a_json_line_with_its_facts() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    logs.get_logger(NAME).info("connection opened", peer="127.0.0.1:1")

    (line,) = lines(stream)
    time = datetime.fromisoformat(line.pop("timestamp"))
    assert line == {
        "event": "connection opened",
        "level": "info",
        "logger": NAME,
        "peer": "127.0.0.1:1",
    }
    assert time.tzinfo == UTC
    assert datetime.now(UTC) - time < timedelta(minutes=1)


def test_on_a_terminal_events_are_readable_text() -> None:
    stream = Terminal()
    logs.configure(stream=stream)

    logs.get_logger(NAME).info("connection opened", peer="127.0.0.1:1")

    assert "connection opened" in stream.getvalue()
    assert NAME not in stream.getvalue()
    assert not stream.getvalue().startswith("{")


def test_events_below_the_level_are_left_out() -> None:
    stream = io.StringIO()
    logs.configure(logs.Level.WARNING, stream=stream)

    logs.get_logger(NAME).info("frame received")
    logs.get_logger(NAME).warning("peer slowed")

    assert [line["event"] for line in lines(stream)] == ["peer slowed"]


def test_traceback_stays_on_the_line_of_its_event() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    try:
        raise RuntimeError("broken")
    except RuntimeError:
        logs.get_logger(NAME).exception("handler failed")

    (line,) = lines(stream)
    assert "RuntimeError: broken" in line["exception"]


def test_bound_context_is_on_each_event() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    with structlog.contextvars.bound_contextvars(job="reports/1"):
        logs.get_logger(NAME).info("job started")

    assert lines(stream)[0]["job"] == "reports/1"


def test_standard_librarys_warnings_have_the_same_format() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    logging.getLogger("asyncio").warning("Task %s was slow", "t1")
    logging.getLogger("asyncio").info("not of interest")

    (line,) = lines(stream)
    assert (line["event"], line["level"], line["logger"]) == ("Task t1 was slow", "warning", "asyncio")


def test_handlers_that_use_structlog_have_the_same_format() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    log = structlog.stdlib.get_logger()
    log.info("order taken", number=7)
    log.debug("not of interest")

    (line,) = lines(stream)
    assert (line["event"], line["level"], line["number"]) == ("order taken", "info", 7)


def test_log_that_somebody_has_configured_is_left_as_it_is() -> None:
    root = logging.getLogger()
    theirs = logging.StreamHandler(io.StringIO())
    root.handlers[:] = [theirs]

    logs.configure_if_nobody_has()

    assert root.handlers == [theirs]


def test_log_that_nobody_has_configured_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logging.getLogger().handlers[:] = []

    logs.configure_if_nobody_has()
    logs.get_logger(NAME).info("engine started")

    assert json.loads(capsys.readouterr().err)["event"] == "engine started"


def test_second_call_replaces_the_first() -> None:
    first, second = io.StringIO(), io.StringIO()
    log = logs.get_logger(NAME)
    logs.configure(stream=first)
    log.info("one")

    logs.configure(stream=second)
    log.info("two")
    logging.getLogger("x").error("three")

    assert [line["event"] for line in lines(first)] == ["one"]
    assert [line["event"] for line in lines(second)] == ["two", "three"]


def test_what_strangers_cause_is_told_at_a_pace_and_the_rest_is_counted() -> None:
    now = 0.0
    log = logs.PacedLog(NAME, clock=lambda: now)

    with own_logs() as logged:
        for _ in range(1000):
            log.info("guessed")
        log.warning("something else")
        now = 1.0
        log.info("guessed")

    assert [entry["event"] for entry in logged] == [
        *["guessed"] * 5,
        "something else",
        "further events",
        "guessed",
    ]
    assert logged[6]["what"] == "guessed"
    assert logged[6]["count"] == 995


EVIL = "\x1b]0;owned\x07\x9b2J\u202e\u2066\u200f\u061c\u2028\x7f\r\n[red]\ud800"


def evil_lines(stream: io.StringIO) -> str:
    """What a terminal is told, without our own colours."""
    shown = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue())
    assert all(each.isprintable() or each == "\n" for each in shown), shown
    return shown


def test_facts_that_strangers_chose_are_only_text_on_a_terminal() -> None:
    stream = Terminal()
    logs.configure(stream=stream)

    logs.get_logger(NAME).warning(
        f"event {EVIL}",
        principal=EVIL,
        **{EVIL: 1},
        several=[EVIL],
        known={EVIL: EVIL},
        error=ValueError(EVIL),
    )

    shown = evil_lines(stream)
    assert shown.count("\n") == 1
    assert shown.count("\\x1b]0;owned\\x07\\x9b2J\\u202e\\u2066\\u200f\\u061c\\u2028\\x7f\\r\\n[red]") >= 3


def test_traceback_that_quotes_strangers_is_only_text_on_a_terminal() -> None:
    stream = Terminal()
    logs.configure(stream=stream)

    try:
        error = RuntimeError(EVIL)
        error.add_note(EVIL)
        raise ExceptionGroup(EVIL, [error])
    except ExceptionGroup:
        logs.get_logger(NAME).exception("handler failed")

    assert evil_lines(stream).count("\\x1b]0;owned") == 3


def test_others_loggers_are_only_text_on_a_terminal() -> None:
    stream = Terminal()
    logs.configure(stream=stream)

    try:
        raise RuntimeError(EVIL)
    except RuntimeError:
        logging.getLogger(EVIL).exception("Task %s", EVIL, stack_info=True)

    assert evil_lines(stream).count("\\x1b]0;owned") >= 3


def test_facts_in_json_are_what_they_were() -> None:
    stream = io.StringIO()
    logs.configure(stream=stream)

    logs.get_logger(NAME).warning("event", principal=EVIL)

    (line,) = lines(stream)
    assert line["principal"] == EVIL
