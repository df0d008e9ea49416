"""One rule for names of times: durations are seconds as a float, and their names say that they are durations.

A name that ends in a word for a duration has no unit (`connect_timeout`, `ttl`, `progress_every`). Any other
name of a duration ends in `_seconds` (`drain_seconds`). Moments end in `_at` or in a word for a moment
(`deadline`, `since`). Milliseconds stand on the wire only. A field of type `float` that fits neither is no
time at all, and is named in `NO_TIMES`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

DURATIONS = {
    "after", "age", "delay", "every", "for", "grace", "idle", "in", "interval", "lease", "live", "responder",
    "seconds", "stop", "timeout", "ttl", "window",
}  # fmt: skip
MOMENTS = {"at", "before", "began", "deadline", "due", "since", "told", "until"}
NO_TIMES = {
    # Fractions, factors and rates.
    "factor", "fraction", "jitter", "operator_reserve", "owner_share", "principal_share", "progress", "rate",
    "used_fraction", "value", "verifications_per_second", "wall_offset",
    # Options whose sentence in the documentation says seconds, as an application writes them.
    "cache", "expires", "first", "longest",
    # Clocks, read at one moment.
    "steady", "wall",
}  # fmt: skip


def float_fields() -> Iterator[tuple[str, str]]:
    """The fields of classes that hold a float, each with its place."""
    for path in sorted((ROOT / "nebula").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        kinds = {each.strip() for each in ast.unparse(field.annotation).split("|")}
                        if "float" in kinds and not field.target.id.startswith("_"):
                            yield f"{path.relative_to(ROOT)}:{field.lineno}", field.target.id


def test_every_float_is_a_duration_a_moment_or_no_time() -> None:
    known = DURATIONS | MOMENTS
    strange = [
        f"{place}: {name}"
        for place, name in float_fields()
        if name not in NO_TIMES and name.rpartition("_")[2] not in known
    ]

    assert strange == []


def test_no_name_says_milliseconds() -> None:
    found = [f"{place}: {name}" for place, name in float_fields() if name.endswith(("_ms", "_millis"))]

    assert found == []
