"""Only `destinations/` knows what a destination is; others ask the interface, or what it declares."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import nebula.broker.core.destinations
from nebula.broker.core.destinations.base import Destination
from nebula.broker.core.destinations.last_value import LastValues
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.destinations.topic import Topics

INSIDE = Path(nebula.broker.core.destinations.__file__).parent
NEBULA = INSIDE.parents[2]

# `isinstance(x, Queue)`, `type(x) is Topic`, `match` on a class, and a closed list of kinds.
ASKED = re.compile(
    r"""
    (isinstance|issubclass)\([^)]*\b(Queue|Topics?|LastValue\w*|ValueFeed)\b
    | \btype\([^)]*\)\s+is\s+(not\s+)?(Queue|Topics?|LastValue\w*|ValueFeed)\b
    | \bcase\s+(Queue|Topics?|LastValue\w*|ValueFeed)\(
    | \bkind\s+(is|==|is\s+not|!=)\s+\w*_KIND\b
    | \bKind\.
    """,
    re.VERBOSE,
)
OUTSIDE = [
    path
    for room in ("broker", "host", "testing")
    for path in sorted((NEBULA / room).rglob("*.py"))
    if not path.is_relative_to(INSIDE)
]


@pytest.mark.parametrize("path", OUTSIDE, ids=lambda path: str(path.relative_to(NEBULA)))
def test_nobody_outside_asks_which_kind_a_destination_is(path: Path) -> None:
    asked = [match[0] for match in ASKED.finditer(path.read_text())]

    assert asked == [], "ask the destination: a method, or what its kind declares"


@pytest.mark.parametrize("kind", [Queue, Topics, LastValues])
def test_each_kind_implements_the_whole_interface(kind: type) -> None:
    left = {name for name in dir(kind) if getattr(getattr(kind, name), "__isabstractmethod__", False)}

    assert issubclass(kind, Destination)
    assert left == set()


@pytest.mark.parametrize("path", sorted(INSIDE.glob("*.py")), ids=lambda path: path.name)
def test_no_method_of_a_destination_refuses_to_be_called(path: Path) -> None:
    assert not re.search(r"raise (AssertionError|NotImplementedError)", path.read_text())
