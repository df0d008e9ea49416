"""One rule for names of times: durations are seconds as a float, and their names say that they are durations.

A name that ends in a word for a duration has no unit (`connect_timeout`, `ttl`, `progress_every`). Any other
name of a duration ends in `_seconds` (`drain_seconds`). Moments end in `_at` or in a word for a moment
(`deadline`, `since`). A field of type `float` that fits neither is no time at all, and is named in
`NO_TIMES`.

Milliseconds stand on the wire only, and have a type of their own, `nebula.milliseconds.Milliseconds`, which
is no number for the type checker. The broker's core does not see it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula.broker.core.fixed_limits import MAX_NUMBER_DIGITS
from nebula.milliseconds import MOST_DIGITS, Milliseconds, seconds_of, to_milliseconds, to_seconds

ROOT = Path(__file__).parents[2]

DURATIONS = {
    "after", "age", "beat", "delay", "every", "for", "grace", "idle", "in", "interval", "lease", "live",
    "responder", "seconds", "stop", "timeout", "ttl", "window",
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


# --- milliseconds ---

# Code that speaks STOMP or calls over it. Avro files and other servers have milliseconds of their own.
ON_THE_WIRE = ("stomp", "broker", "rpc", "host")
SAYS_MILLISECONDS = re.compile(r"(?:^|_)(?:ms|millis|milliseconds)$")


def trees(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    """The modules in these folders of the package, each with its path."""
    for folder in folders:
        for path in sorted((ROOT / "nebula" / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))


def plain_milliseconds(tree: ast.Module) -> Iterator[str]:
    """Annotated names and functions that say milliseconds, and have another type than theirs."""
    for node in ast.walk(tree):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as kind):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), annotation=kind):
                pass
            case ast.FunctionDef(name=name, returns=ast.expr() as kind):
                pass
            case _:
                continue
        if SAYS_MILLISECONDS.search(name) and ast.unparse(kind) not in {
            "Milliseconds",
            "Milliseconds | None",
        }:
            yield name


def converts(tree: ast.Module) -> bool:
    """Whether it multiplies or divides by a thousand, as seconds and milliseconds are converted."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult | ast.Div)
        and any(isinstance(side, ast.Constant) and side.value == 1000 for side in (node.left, node.right))
        for node in ast.walk(tree)
    )


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("def f(milliseconds: int): ...", ["milliseconds"]),
        ("def whole_milliseconds(seconds: float) -> int: ...", ["whole_milliseconds"]),
        ("class A:\n    timeout_ms: float = 1.0", ["timeout_ms"]),
        ("def f(milliseconds: Milliseconds) -> float: ...", []),
    ],
)
def test_plain_milliseconds_are_found(source: str, found: list[str]) -> None:
    assert list(plain_milliseconds(ast.parse(source))) == found


def test_what_says_milliseconds_has_their_type() -> None:
    found = {path: names for path, tree in trees(*ON_THE_WIRE) if (names := list(plain_milliseconds(tree)))}

    assert found == {}


def test_type_checker_takes_milliseconds_for_no_number() -> None:
    # mypy reports an ignore that ignores nothing: it fails here if the type becomes a number.
    deadline: float = Milliseconds(5)  # type: ignore[assignment]
    count: int = Milliseconds(5)  # type: ignore[assignment]

    assert (deadline, count) == (5, 5)
    assert to_seconds(Milliseconds(1500)) == seconds_of("1500") == 1.5
    assert to_milliseconds(1.5) == Milliseconds(1500)
    assert to_milliseconds(0.0001) == Milliseconds(1)
    assert MOST_DIGITS == MAX_NUMBER_DIGITS
    assert seconds_of("9" * MOST_DIGITS) is not None


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.5", "1_0", "٣", "9" * (MOST_DIGITS + 1)])
def test_header_without_a_whole_number_has_no_seconds(text: str) -> None:
    assert seconds_of(text) is None


def test_core_of_the_broker_neither_has_milliseconds_nor_converts_them() -> None:
    assert converts(ast.parse("at = int(text) / 1000"))
    assert converts(ast.parse("text = str(round(1000 * wall))"))

    core = dict(trees("broker/core"))

    assert [path for path, tree in core.items() if converts(tree)] == []
    # It may write them into a header (`to_milliseconds`), and that is all.
    named = {path: ast.unparse(tree) for path, tree in core.items()}
    assert [path for path, code in named.items() if re.search(r"\b(Milliseconds|to_seconds)\b", code)] == []
    assert len(core) > 20
