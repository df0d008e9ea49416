"""The page of the layers: its pictures show the contracts, its table what the code imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/layers.md").read_text()
PICTURES = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
ROWS = re.findall(r"^\| (`.*`) \| (.*) \|$", PAGE, re.MULTILINE)
# Python has `annotationlib` and `compression` from 3.14 on.
PYTHONS_OWN = sys.stdlib_module_names | {"annotationlib", "compression"}
# Their rooms have rows of their own in the table of libraries.
WITH_ROOMS = ["nebula", "nebula.broker", "nebula.rpc", "nebula.rpc.jobs", "nebula.stomp"]


def contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(settings["tool"]["importlinter"]["contracts"])


CONTAINERS = [
    "nebula",
    "nebula.broker",
    "nebula.broker.core",
    "nebula.broker.core.destinations",
    "nebula.broker.server",
    "nebula.stomp",
    "nebula.stomp.client",
    "nebula.rpc",
    "nebula.rpc.jobs",
]


def layers_of(container: str) -> list[str]:
    (contract,) = [one for one in contracts() if one.get("containers") == [container]]
    return list(contract["layers"])


def test_every_contract_of_layers_has_a_picture() -> None:
    assert sorted(CONTAINERS) == sorted(
        container for one in contracts() if one["type"] == "layers" for container in one["containers"]
    )


@pytest.mark.parametrize(("container", "picture"), list(zip(CONTAINERS, PICTURES, strict=True)))
def test_picture_shows_the_layers_as_they_are_checked(container: str, picture: str) -> None:
    shown = [re.split(r"\s{2,}", line)[0] for line in picture.splitlines()]

    (contract,) = [one for one in contracts() if one.get("containers") == [container]]
    assert shown == contract["layers"]
    assert contract["exhaustive"] is True


def rooms_from_top_to_bottom(container: str = "nebula") -> Iterator[str]:
    """All layers, without `nebula.`; those that consist of rooms are replaced by them."""
    for line in layers_of(container):
        for layer in line.split(" | "):
            if f"{container}.{layer}" in WITH_ROOMS:
                yield from rooms_from_top_to_bottom(f"{container}.{layer}")
            else:
                yield f"{container}.{layer}".removeprefix("nebula.")


def libraries_of_rooms() -> dict[str, set[str]]:
    """The table of the page: rooms, and what each of them may import."""
    return {
        room: set(re.findall(r"`([\w.]+)`", libraries))
        for rooms, libraries in ROWS
        for room in re.findall(r"`([\w.]+)`", rooms)
    }


def room_of(module: str, rooms: dict[str, set[str]]) -> str | None:
    """The most exact row that holds for a module."""
    holding = [room for room in rooms if f"nebula.{module}.".startswith(f"nebula.{room}.")]
    return max(holding, key=len, default=None)


def imports_of_libraries() -> Iterator[tuple[str, str, str]]:
    """Each import of a library: its module without `nebula.`, its place, and the library."""
    for path in sorted((ROOT / "nebula").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "nebula").with_suffix("").parts).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                # Relative imports, which have no module, are banned.
                names = [node.module or "nebula"]
            else:
                continue
            for library in {name.partition(".")[0] for name in names} - PYTHONS_OWN - {"nebula"}:
                yield module, f"{path.relative_to(ROOT)}:{node.lineno}", library


def advice(room: str | None, library: str, rooms: dict[str, set[str]]) -> str:
    """Where a line that imports a library belongs: the nearest room that may have it, above before below."""
    order = list(rooms_from_top_to_bottom())
    rank = {
        one: next(at for at, layer in enumerate(order) if f"{one}.".startswith(f"{layer}.")) for one in rooms
    }
    here = rank[room] if room in rank else len(order)
    may = sorted(
        (one for one in rooms if library in rooms[one]),
        key=lambda one: (rank[one] > here, abs(rank[one] - here)),
    )
    if not may:
        return f"no layer has {library} yet: give it to one in the table of docs/explanation/layers.md"
    way = "down" if rank[may[0]] > here else "up"
    return f"move the line {way} to nebula.{may[0]}, the nearest that may, or hand in what it makes"


def test_the_table_of_libraries_has_each_room_once_and_each_room_exists() -> None:
    named = [room for rooms, _ in ROWS for room in re.findall(r"`([\w.]+)`", rooms)]

    assert len(named) == len(set(named))
    assert set(rooms_from_top_to_bottom()) - set(named) == set(), (
        "these layers have no row in the table of libraries"
    )
    for room in named:
        place = ROOT / "nebula" / room.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), f"{room} is no room of nebula"


def test_a_layer_imports_only_the_libraries_that_the_table_allows() -> None:
    rooms = libraries_of_rooms()
    found = []
    for module, place, library in imports_of_libraries():
        room = room_of(module, rooms)
        if room is None or library not in rooms[room]:
            found.append(f"{place} imports {library}: {advice(room, library, rooms)}")

    assert not found, "\n".join(found)


def test_the_table_allows_no_library_that_its_layer_does_not_import() -> None:
    rooms = libraries_of_rooms()
    used = {(room_of(module, rooms), library) for module, _, library in imports_of_libraries()}
    left = [
        f"nothing in nebula.{room} imports {library}: take it out of that row of docs/explanation/layers.md"
        for room, libraries in rooms.items()
        for library in sorted(libraries)
        if (room, library) not in used
    ]

    assert not left, "\n".join(left)


def test_the_advice_names_the_nearest_layer_above_that_may_import_a_library() -> None:
    rooms = libraries_of_rooms()

    assert "up to nebula.broker.server," in advice("broker.core", "pydantic", rooms)
    assert "up to nebula.spark.host," in advice("rpc.client", "pyspark", rooms)
    assert "down to nebula.cli," in advice("__main__", "rich", rooms)
    assert advice("avro", "numpy", rooms).startswith("no layer has numpy yet")
