"""The official JSON schema of AsyncAPI, and the violations of a document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft7Validator  # type: ignore[import-untyped]  # it has no types

OFFICIAL = json.loads((Path(__file__).parent / "asyncapi" / "schema-3.0.0.json").read_text())


def faults(schema: Any, instance: Any) -> list[str]:
    return [
        f"{'/'.join(map(str, one.path))}: {one.message[:200]}"
        for one in Draft7Validator(schema).iter_errors(instance)
    ]
