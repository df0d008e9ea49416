"""Files, functions, arrows and states on the architecture page exist, and its walks are short."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from nebula.rpc.jobs.model.states import END_STATES, TABLE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/architecture.md").read_text()

PLACES = sorted(set(re.findall(r"`(nebula/[\w/]+\.py)`: `([\w.]+)`", PAGE)))


def walk(name: str) -> list[tuple[str, str]]:
    """File and function of each step of a numbered list."""
    steps = re.search(rf"<!-- walk: {name} -->\n(.*?)(?=\n\n)", PAGE, re.DOTALL)
    assert steps is not None
    return re.findall(r"^\d+\. `(nebula/[\w/]+\.py)`: `([\w.]+)`", steps[1], re.MULTILINE)


@pytest.mark.parametrize(("path", "function"), PLACES)
def test_function_that_is_named_exists(path: str, function: str) -> None:
    found: list[ast.stmt] = ast.parse((ROOT / path).read_text()).body

    for part in function.split("."):
        named = [
            one
            for one in found
            if isinstance(one, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and one.name == part
        ]
        assert named, f"{path} has no {function}"
        found = named[-1].body


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`(nebula/[\w/]+(?:\.py|/)?)`", PAGE))))
def test_place_that_is_named_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("name", "most_calls", "most_files"), [("send", 7, 6), ("call", 20, 12), ("reply", 20, 12)]
)
def test_walk_is_short(name: str, most_calls: int, most_files: int) -> None:
    steps = walk(name)

    # The last call of the walk to a handler is that of the handler itself.
    assert 3 < len(steps) <= most_calls + 1
    assert len({path for path, _ in steps}) <= most_files


ROOMS = {"broker": ROOT / "nebula/broker", "rpc": ROOT / "nebula/rpc"}
PICTURES = dict(
    zip(ROOMS, re.findall(r"^flowchart TD\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL), strict=True)
)


def imported(package: str, room: str) -> set[str]:
    """The rooms of a package that one of them imports."""
    place = ROOMS[package] / room
    files = place.rglob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    texts = "\n".join(file.read_text() for file in files)
    return set(re.findall(rf"\b(?:from|import) nebula\.{package}\.(\w+)", texts)) - {room}


def reached(room: str, arrows: dict[str, set[str]]) -> set[str]:
    following = arrows.get(room, set())
    return following.union(*(reached(one, arrows) for one in following))


@pytest.mark.parametrize("package", ROOMS)
def test_arrows_are_imports_and_all_imports_have_a_way(package: str) -> None:
    picture = PICTURES[package]
    rooms = set(re.findall(r"^ +(\w+)\[", picture, re.MULTILINE))
    arrows: dict[str, set[str]] = {}
    for upper, lower in re.findall(r"^ +(\w+) --> (\w+)$", picture, re.MULTILINE):
        arrows.setdefault(upper, set()).add(lower)

    for room in rooms:
        real = imported(package, room) & rooms
        assert arrows.get(room, set()) <= real, room
        assert real <= reached(room, arrows), room


def test_picture_of_a_job_has_all_its_transitions() -> None:
    picture = re.search(r"^stateDiagram-v2\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert picture is not None

    shown = {line.strip() for line in picture[1].splitlines()}
    assert shown == {
        "[*] --> QUEUED",
        *(f"{old.name} --> {new.name}" for (old, _), new in TABLE.items()),
        *(f"{state.name} --> [*]" for state in END_STATES),
    }
