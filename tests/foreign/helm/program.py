"""A program for the environment of `requirements.txt`: what Helm makes of a chart, as JSON on stdout.

    python program.py lint CHART VALUES
    python program.py template CHART VALUES
    python program.py validate VERSION <MANIFESTS

VALUES is a JSON object, and MANIFESTS a list of objects.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

NAME, NAMESPACE = "demo", "production"


def lint(chart: str, values: str) -> Any:
    """Helm's findings; severity 2 is a warning, 3 an error."""
    return import_module("helm_python").lint(chart, json.loads(values), strict=True)


def template(chart: str, values: str) -> Any:
    """The manifests by file, or the error under `error`."""
    helm = import_module("helm_python")
    try:
        with helm.Chart.load(chart) as loaded:
            loaded.validate_schema(json.loads(values))
            return loaded.render(json.loads(values), name=NAME, namespace=NAMESPACE)
    except helm.HelmError as error:
        return {"error": str(error)}


def validate(version: str) -> Any:
    """What the schemas of a version of Kubernetes find wrong; an unknown kind is named, too."""
    kubernetes = import_module("kubernetes_validate")
    problems = []
    for manifest in json.load(sys.stdin):
        try:
            kubernetes.validate(manifest, version, strict=True)
        except kubernetes.SchemaNotFoundError:
            problems.append(f"{manifest['kind']}: unknown")
        except kubernetes.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            problems.append(f"{manifest['kind']}: {path}: {error.message}")
    return problems


COMMANDS: dict[str, Callable[..., Any]] = {"lint": lint, "template": template, "validate": validate}

if __name__ == "__main__":
    command, *words = sys.argv[1:]
    json.dump(COMMANDS[command](*words), sys.stdout)
