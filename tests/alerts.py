"""The alert rules and dashboards of `deploy/`, as their tests read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parent.parent
RULES: Final = sorted((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
DASHBOARDS: Final = sorted((ROOT / "deploy" / "grafana").glob("*.json"))


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule that raises an alert.

    Attributes:
        name: `NebulaBrokerDown`.
        expression: in PromQL.
        labels, annotations: as in the file.
    """

    name: str
    expression: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


def alerts() -> list[Alert]:
    """Those of all files, in order."""
    return [alert for path in RULES for alert in _alerts(path)]


def _alerts(path: Path) -> Iterator[Alert]:
    for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            yield Alert(rule["alert"], rule["expr"], rule["labels"], rule["annotations"])


def dashboard(path: Path) -> dict[str, Any]:
    """A dashboard as Grafana exports it."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
