"""The alert rules and dashboards name metrics that exist, and each alert has its section on the page.

tests/foreign/test_alert_rules.py evaluates the rules with Prometheus's own program.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from typer.main import get_command

from nebula.broker.core.shares import Resource
from nebula.broker.operations.events import COUNTED, ENDINGS
from nebula.broker.operations.metrics import REASONS
from nebula.cli import app
from nebula.rpc.jobs.model.states import JobState
from tests.alerts import DASHBOARDS, ROOT, Alert, alerts, dashboard

PAGE = ROOT / "docs" / "how-to" / "alerts.md"
# Other tests compare these pages with what the broker, a service and a recorder show.
METRIC_PAGES = ("metrics.md", "service-metrics.md", "recorder-metrics.md")

METRIC = re.compile(r"\b(?:nebula|process)_\w+")
# A label with the values that it is compared with, as text or as a pattern of alternatives.
MATCHER = re.compile(r'\b(\w+)(?:=|=~|!~|!=)"([^"]*)"')


@cache
def known_metrics() -> set[str]:
    """All series that Nebula's programs show, those of histograms included."""
    found: set[str] = set()
    for name in METRIC_PAGES:
        text = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
        for metric, kind in re.findall(r"^\| `(nebula_\w+)` \| (\w+) ", text, re.MULTILINE):
            found |= (
                {f"{metric}_{part}" for part in ("bucket", "sum", "count")}
                if kind == "histogram"
                else {metric}
            )
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return found | {sample.name for family in registry.collect() for sample in family.samples}


KNOWN_VALUES = {
    "reason": {*REASONS, *ENDINGS, "other", "expired", "overloaded"},
    "event": set(COUNTED),
    "resource": {resource.value for resource in Resource},
    "kind": {"queue", "topic", "last-value"},
    "state": {state.value for state in JobState},
    "job": {"nebula", "nebula-services"},
}


def unknown(expression: str) -> list[str]:
    """The metrics, labels and values of an expression that do not exist."""
    lost = [metric for metric in METRIC.findall(expression) if metric not in known_metrics()]
    for label, values in MATCHER.findall(expression):
        if values.startswith("$"):
            continue
        known = KNOWN_VALUES.get(label, set())
        lost += [f"{label}={value}" for value in values.split("|") if value not in known]
    return lost


def expressions(path: Path) -> Iterator[str]:
    """All queries of a dashboard, those of its variables included."""
    for panel in dashboard(path)["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in dashboard(path)["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


def test_there_are_metrics_to_compare_with() -> None:
    assert {"nebula_ready", "nebula_store_commit_seconds_bucket", "process_open_fds"} <= known_metrics()
    assert unknown('nebula_raedy{event="conection"} > 0') == ["nebula_raedy", "event=conection"]


def test_each_alert_has_a_name_of_its_own() -> None:
    names = [alert.name for alert in alerts()]

    assert len(names) > 30
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert.name)
def test_alert_names_what_exists_and_has_its_section(alert: Alert) -> None:
    assert unknown(alert.expression) == []
    assert alert.labels["severity"] in ("critical", "warning")
    assert alert.annotations.keys() == {"summary", "description", "runbook"}
    assert alert.annotations["runbook"] == f"docs/how-to/alerts.md#{alert.name.lower()}"
    assert f"\n### {alert.name}\n" in PAGE.read_text(encoding="utf-8")


def test_page_has_no_section_of_an_alert_that_does_not_exist() -> None:
    sections = re.findall(r"^### (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(sections) == sorted(alert.name for alert in alerts())


def test_commands_of_the_page_exist() -> None:
    commands = re.findall(r"^(nebula .+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    root = get_command(app)

    assert len(commands) > 30
    assert [line for line in commands if not is_a_command(root, shlex.split(line)[1:])] == []
    assert not is_a_command(root, ["queues", "--colour"])
    assert not is_a_command(root, ["job", "rerum"])


def is_a_command(command: Any, words: list[str]) -> bool:
    """Whether its words lead to a command that has all the flags."""
    while hasattr(command, "commands"):
        if not words or words[0] not in command.commands:
            return False
        command = command.commands[words.pop(0)]
    flags = {flag for parameter in command.params for flag in parameter.opts}
    return all(word in flags for word in words if word.startswith("-"))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_is_one_that_grafana_imports(path: Path) -> None:
    found = dashboard(path)
    ids = [panel["id"] for panel in found["panels"]]
    shown = [panel for panel in found["panels"] if panel["type"] != "row"]

    assert found["uid"] == path.stem
    assert found["schemaVersion"] >= 36
    assert len(set(ids)) == len(ids)
    assert found["templating"]["list"][0]["type"] == "datasource"
    for panel in shown:
        references = [target["refId"] for target in panel["targets"]]
        assert references
        assert len(set(references)) == len(references)
        assert panel["fieldConfig"]["defaults"]["unit"]
        for one in (panel, *panel["targets"]):
            assert one["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_of_a_dashboard_do_not_overlap(path: Path) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard(path)["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + across, place["y"] + down)
            for across in range(place["w"])
            for down in range(place["h"])
        }

        assert place["x"] + place["w"] <= 24
        assert not cells & taken
        taken |= cells


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_names_metrics_that_exist(path: Path) -> None:
    queries = list(expressions(path))

    assert len(queries) > 10
    assert [lost for query in queries for lost in unknown(query)] == []


def test_each_metric_of_broker_and_services_is_on_a_dashboard_or_in_an_alert() -> None:
    used = " ".join(
        [*(alert.expression for alert in alerts()), *(q for path in DASHBOARDS for q in expressions(path))]
    )
    named = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in METRIC.findall(used)}
    known = {re.sub(r"_(bucket|sum|count)$", "", metric) for metric in known_metrics()}
    ours = {metric for metric in known if metric.startswith("nebula_") and "recorder" not in metric}

    # How many principals there are says little; `nebula principals` shows what they use.
    assert ours - named == {"nebula_principals"}
