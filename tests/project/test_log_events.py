"""Each log event is declared where it belongs, with its level and fields, and shown in the reference."""

from __future__ import annotations

import ast
import itertools
import re
from importlib import import_module
from pathlib import Path

import pytest

from nebula.broker.core import notes
from nebula.log_events import Event
from tests.project.log_calls import LogCall, calls_in, log_calls

PAGE = Path(__file__).parents[2] / "docs/reference/log-events.md"

# The folders of the package that log, each with the module that declares its events, and a title on the page.
# The broker's events are on a page of their own; see tests/faults/test_event_log.py.
TABLES = {
    "rpc": ("nebula.rpc.events", "Services, callers and jobs"),
    "stomp": ("nebula.stomp.client.events", "The STOMP client"),
    "spark": ("nebula.spark.events", "Spark"),
    "record": ("nebula.record.events", "The recorder"),
    "host": ("nebula.host.events", "Inside the broker's process"),
    "console": ("nebula.console.events", "`nebula console`"),
    "cli": ("nebula.cli.events", "`nebula broker` and `nebula run`"),
    "testing": ("nebula.testing.events", "Brokers for tests"),
}
BROKER = "nebula.broker.operations.events"

# Loggers that are given an event's name: their callers are read instead.
FORWARDING = {"logs.py", "broker/operations/event_log.py", "host/operator_verbs.py"}

NOTED = {
    value
    for name, value in vars(notes).items()
    if name.isupper() and isinstance(value, str) and value != notes.SHARE
}
"""Events that the core only notes; `EventLog` logs all of them by one call."""


def events_of(module: str) -> dict[str, Event]:
    """The declared events of a module that have lines of their own, by name."""
    events: tuple[Event, ...] = import_module(module).EVENTS
    assert len({event.name for event in events}) == len(events)
    return {event.name: event for event in events if event.levels}


def calls_by_module() -> dict[str, dict[str, list[LogCall]]]:
    """All calls of loggers, by the module that has to declare their events and by name."""
    found: dict[str, dict[str, list[LogCall]]] = {}
    for call in log_calls():
        room = call.file.partition("/")[0]
        module = TABLES[room][0] if room in TABLES else BROKER
        if call.name is not None:
            found.setdefault(module, {}).setdefault(call.name, []).append(call)
    return found


CALLS = calls_by_module()
MODULES = [BROKER, *(module for module, _ in TABLES.values())]


def test_name_of_each_event_is_a_literal() -> None:
    unnamed = [
        call.place
        for call in log_calls()
        if call.name is None and not (call.is_forwarded and call.file in FORWARDING)
    ]

    assert unnamed == []


@pytest.mark.parametrize("module", MODULES)
def test_events_of_the_code_are_declared_and_the_other_way_around(module: str) -> None:
    noted = NOTED if module == BROKER else set()

    assert CALLS[module].keys() | noted == events_of(module).keys()


def test_folders_that_log_are_known() -> None:
    assert CALLS.keys() == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_declared_fields_are_those_of_the_code(module: str) -> None:
    for name, event in events_of(module).items():
        if name in CALLS[module]:
            given = frozenset[str]().union(*(call.fields for call in CALLS[module][name]))
            assert set(event.fields.split(", ") if event.fields else ()) == given, name


@pytest.mark.parametrize("module", MODULES)
def test_declared_levels_are_those_of_the_code(module: str) -> None:
    for name, calls in CALLS[module].items():
        declared = {str(level) for level in events_of(module)[name].levels}
        # `log.log(level, …)` and `tell(…)` choose the level when they run.
        is_chosen = not all(call.levels for call in calls)
        given = frozenset[str]().union(*(call.levels for call in calls))

        assert given <= declared if is_chosen else given == declared, name


def test_metric_of_a_logged_fact_has_its_name() -> None:
    pages = "".join((PAGE.parent / f"{name}-metrics.md").read_text() for name in ("service", "recorder"))
    counted = [
        (event.name, metric)
        for module, _ in TABLES.values()
        for event in events_of(module).values()
        for metric in re.findall(r"`(nebula_\w+)`", event.when)
    ]

    assert len(counted) > 1
    for name, metric in counted:
        assert f"| `{metric}` |" in pages
        assert {word for word in name.split() if word in metric or f"{word}s" in metric} >= set(
            name.split()[:2]
        )


def test_calls_of_loggers_are_read() -> None:
    source = """
def pace(self, error):
    facts = {"job": 1}
    facts["seconds"] = 2
    log = _log.bind(service=3)
    (log.info if error else log.warning)("job begun", code=4, **facts)
    _log.exception(f"{error} failed")
    self._events().error("worker started" if error else "worker killed", exc_info=error)
    logging.getLogger(__name__).warning("host seen attempt=%s why=%r", 1, 2)
    self.registry.log("no event")
"""
    calls = list(calls_in("x.py", ast.parse(source)))

    assert [(call.name, sorted(call.levels), sorted(call.fields)) for call in calls] == [
        ("job begun", ["info", "warning"], ["code", "job", "seconds", "service"]),
        (None, ["error"], ["exception"]),
        ("worker started", ["error"], ["exception"]),
        ("worker killed", ["error"], ["exception"]),
        ("host seen", ["warning"], ["attempt", "why"]),
    ]


def table(events: dict[str, Event]) -> str:
    """Events as a table in Markdown."""
    rows = "".join(
        f"| `{event.name}` | {', '.join(event.levels)} | {event.fields} | {event.when} |\n"
        for event in events.values()
    )
    return f"| event | level | fields | when |\n| --- | --- | --- | --- |\n{rows}"


def with_tables(page: str) -> str:
    """The page with its tables as they are declared; what stands above them stays."""
    head = list(itertools.takewhile(lambda line: not line.startswith("## "), page.splitlines(keepends=True)))
    tables = [f"## {title}\n\n{table(events_of(module))}" for module, title in TABLES.values()]
    return "".join(head) + "\n".join(tables)


def test_page_lists_all_events() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == with_tables(page), "run: python -m tests.project.test_log_events"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
