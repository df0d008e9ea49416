"""Prometheus's own program on our alert rules: each fires when it should, and not just below its limit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.alerts import DASHBOARDS, RULES, alerts, dashboard
from tests.foreign.install import install_program

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Case:
    """Series, as promtool writes them: a sample each minute.

    Attributes:
        fires: with these the alert fires at `minute`.
        quiet: with these it does not, though they are near.
    """

    fires: Mapping[str, str]
    quiet: Mapping[str, str]
    minute: int = 61


def _one(series: str, fires: str, quiet: str) -> Case:
    return Case({series: fires}, {series: quiet})


def _ratio(part: str, whole: str, fires: float, quiet: float) -> Case:
    full = {whole: "100+0x70"}
    return Case({part: f"{fires}+0x70", **full}, {part: f"{quiet}+0x70", **full})


def _histogram(name: str, labels: str, limit: str, above: str) -> Case:
    """All observations lie between two bounds above the alert's limit; or else below it."""

    def series(bound: str, step: int) -> tuple[str, str]:
        return f'{name}_bucket{{{labels}le="{bound}"}}', f"0+{step}x70"

    late = dict([series(limit, 0), series(above, 60), series("+Inf", 60)])
    early = dict([series(limit, 60), series(above, 60), series("+Inf", 60)])
    return Case(late, early)


_QUICKLY: Final = "0+10x70"
_NOT: Final = "7+0x70"
_VERB: Final = 'service="prices",verb="quote"'
_STATE: Final = 'nebula_service_jobs_open{service="reports",verb="delays",state="%s"}'
_ENDED: Final = 'nebula_service_jobs_ended_total{service="reports",verb="delays",state="%s"}'
_ENGINE: Final = 'nebula_service_engine_ready{service="reports",engine="default"}'
_DROPPED: Final = 'nebula_messages_dropped_total{reason="%s"}'

CASES: Final[dict[str, Case]] = {
    "NebulaBrokerDown": _one('up{job="nebula"}', "0+0x70", "1+0x70"),
    "NebulaBrokerNotReady": _one("nebula_ready", "0+0x70", "1+0x70"),
    "NebulaBrokerRestarts": _one(
        "nebula_uptime_seconds", "0+60x20 0+60x15 0+60x15 0+60x20", "0+60x20 0+60x15 0+60x40"
    ),
    "NebulaMemoryNearlyFull": _ratio("nebula_memory_bytes", "nebula_memory_max_bytes", 86, 85),
    "NebulaConnectionsNearlyFull": _ratio("nebula_connections", "nebula_connections_max", 86, 85),
    "NebulaConnectionsRefused": _one('nebula_events_total{event="connection refused"}', _QUICKLY, _NOT),
    "NebulaResourceNearlyFull": Case(
        {
            'nebula_resource_used{resource="disk"}': "86+0x70",
            'nebula_resource_limit{resource="disk"}': "100+0x70",
        },
        # Memory has an alert of its own.
        {
            'nebula_resource_used{resource="memory"}': "99+0x70",
            'nebula_resource_limit{resource="memory"}': "100+0x70",
            'nebula_resource_used{resource="disk"}': "85+0x70",
            'nebula_resource_limit{resource="disk"}': "100+0x70",
        },
    ),
    "NebulaSharesRefused": _one('nebula_share_refusals_total{resource="disk"}', _QUICKLY, _NOT),
    # Once for a moment is no alert.
    "NebulaPublishersPaused": _one("nebula_publishers_paused", "2+0x70", "0+0x59 2 2 0x9"),
    "NebulaDeadLetters": _one("nebula_dead_letters", "0+1x70", "70-1x70"),
    "NebulaMessagesDropped": _one(_DROPPED % "full", _QUICKLY, _NOT),
    "NebulaSendsUnauthorised": _one(_DROPPED % "rejected-unauthorised", "0+1x70", "0x55 5x20"),
    "NebulaLoginsRefused": Case(
        {
            'nebula_events_total{event="login refused"}': "0+1x70",
            'nebula_connections_ended_total{reason="not admitted"}': "0+1x70",
        },
        {
            'nebula_events_total{event="login refused"}': "0+1x70",
            'nebula_connections_ended_total{reason="not admitted"}': "0x70",
        },
    ),
    "NebulaCertificatesExpire": _one(
        'nebula_connections_ended_total{reason="your certificate has expired"}', _QUICKLY, _NOT
    ),
    "NebulaReadersTooSlow": _one('nebula_connections_ended_total{reason="too slow"}', _QUICKLY, _NOT),
    "NebulaBrokerBug": _one('nebula_events_total{event="connection failed"}', _QUICKLY, _NOT),
    "NebulaStoreSlow": _histogram("nebula_store_commit_seconds", "", "0.5", "1.0"),
    "NebulaStoreBehind": _one("nebula_store_backlog_rows", "10001+0x70", "10001+0x55 0 10001x20"),
    "NebulaQueuesGrow": _one('nebula_messages{kind="queue"}', "20000+10x70", "20000+0x70"),
    "NebulaOpenFilesNearlyFull": _ratio("process_open_fds", "process_max_fds", 81, 80),
    "NebulaServiceDown": _one('up{job="nebula-services"}', "0+0x70", "1+0x70"),
    "NebulaServiceNotReady": _one('nebula_service_ready{service="prices"}', "0+0x70", "1+0x57 0x13"),
    "NebulaServiceErrors": Case(
        {
            f"nebula_service_errors_total{{{_VERB}}}": "0+6x70",
            f"nebula_service_requests_total{{{_VERB}}}": "0+100x70",
        },
        {
            f"nebula_service_errors_total{{{_VERB}}}": "0+5x70",
            f"nebula_service_requests_total{{{_VERB}}}": "0+100x70",
        },
    ),
    "NebulaServiceBadResults": _one(f"nebula_service_bad_results_total{{{_VERB}}}", _QUICKLY, _NOT),
    "NebulaServiceSlow": _histogram("nebula_service_request_seconds", f"{_VERB},", "1.0", "2.5"),
    "NebulaServiceBusy": _one('nebula_service_waiting{service="prices"}', "1+0x70", "1+0x55 0 1x20"),
    "NebulaServiceUnanswered": _one(
        'nebula_service_unanswered_total{service="prices",reason="overloaded"}', _QUICKLY, _NOT
    ),
    # It reported the time at which each sample was taken, or none since the first minute.
    "NebulaRecorderStopped": _one("nebula_recorder_told_seconds", "60+0x70", "0+60x70"),
    "NebulaRecorderPaused": _one("nebula_recorder_up", "0+0x70", "1+0x57 0x13"),
    "NebulaJobsWait": _one(_STATE % "queued", "101+0x70", "100+0x70"),
    "NebulaJobsStuck": Case(
        {_STATE % "queued": "1+0x70", _STATE % "running": "0+0x70"},
        {_STATE % "queued": "1+0x70", _STATE % "running": "1+0x70"},
    ),
    "NebulaJobsFail": Case(
        {_ENDED % "failed": "0+2x70", _ENDED % "done": "0+10x70"},
        {_ENDED % "failed": "0+1x70", _ENDED % "done": "0+10x70", _ENDED % "cancelled": "0+90x70"},
    ),
    "NebulaJobsLost": _one(_ENDED % "lost", _QUICKLY, _NOT),
    "NebulaJobsExpire": _one(_ENDED % "expired", _QUICKLY, _NOT),
    "NebulaJobsStartLate": _histogram("nebula_service_job_wait_seconds", f"{_VERB},", "900.0", "3600.0"),
    "NebulaEngineNotReady": Case(
        {_ENGINE: "0+0x70", _STATE % "queued": "1+0x70"},
        {_ENGINE: "0+0x70", _STATE % "queued": "0+0x70"},
    ),
    "NebulaEngineRestarts": _one(
        'nebula_service_engine_restarts_total{service="reports",engine="default"}', "0+1x70", "0x58 3x20"
    ),
}


@pytest.fixture(scope="module", autouse=True)
def _promtool() -> None:
    install_program("promtool", "prometheus")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=120)


def _asked(alert: str, series: Mapping[str, str], minute: int, *, fires: bool) -> dict[str, Any]:
    state = f'ALERTS{{alertname="{alert}",alertstate="firing"}}'
    return {
        "interval": "1m",
        "name": f"{alert} {'fires' if fires else 'is quiet'}",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f"count({state})",
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
            }
        ],
    }


def test_rules_are_valid() -> None:
    done = promtool("check", "rules", *RULES)

    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_has_a_case() -> None:
    assert CASES.keys() == {alert.name for alert in alerts()}


@pytest.mark.parametrize("name", CASES)
def test_alert_fires_when_it_should_and_not_otherwise(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    file = tmp_path / "test.yml"
    tests = [
        _asked(name, case.fires, case.minute, fires=True),
        _asked(name, case.quiet, case.minute, fires=False),
    ]
    file.write_text(
        yaml.safe_dump({"rule_files": list(map(str, RULES)), "evaluation_interval": "1m", "tests": tests})
    )

    done = promtool("test", "rules", file)

    assert done.returncode == 0, done.stdout + done.stderr


def test_test_of_a_rule_can_fail(tmp_path: Path) -> None:
    file = tmp_path / "test.yml"
    quiet = [_asked("NebulaBrokerNotReady", {"nebula_ready": "1+0x70"}, 61, fires=True)]
    file.write_text(yaml.safe_dump({"rule_files": list(map(str, RULES)), "tests": quiet}))

    assert promtool("test", "rules", file).returncode == 1


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_queries_of_a_dashboard_are_promql(path: Path, tmp_path: Path) -> None:
    queries = [
        target["expr"].replace("$__rate_interval", "5m")
        for panel in dashboard(path)["panels"]
        for target in panel.get("targets", ())
    ]
    # promtool refuses two rules of one name.
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))

    done = promtool("check", "rules", file)

    assert done.returncode == 0, done.stdout + done.stderr
