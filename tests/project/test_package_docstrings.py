"""What the docstring of a package claims about its modules, checked against the package."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from nebula.sync import Client

_ROOT = Path(__file__).parents[2]
_PACKAGES = [
    ".".join(path.parent.relative_to(_ROOT).parts) for path in sorted((_ROOT / "nebula").rglob("__init__.py"))
]
# What is longer is a page of the documentation.
_MOST_LINES = 20
_WAITS = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
_RULE = re.compile(r"[A-G]\.[a-z]+")


def _folder(package: str) -> Path:
    return _ROOT.joinpath(*package.split("."))


def _docstring(package: str) -> str:
    return ast.get_docstring(ast.parse((_folder(package) / "__init__.py").read_text())) or ""


def _contract(name: str) -> dict[str, Any]:
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (one for one in contracts if one["name"] == name)
    return dict(found)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@pytest.mark.parametrize("package", _PACKAGES)
def test_docstring_is_short_and_begins_with_a_line_of_its_own(package: str) -> None:
    first, *rest = _docstring(package).splitlines()

    assert first.endswith(".")
    assert rest[:1] in ([], [""])
    assert 1 + len(rest) <= _MOST_LINES


def _names(package: str) -> list[str]:
    """Names in backquotes that can be those of modules: no paths, options, destinations or rules."""
    quoted: list[str] = re.findall(r"(?<!`)`([A-Za-z_][\w.]*)`(?!`)", _docstring(package))
    return [name for name in quoted if not name.endswith(".js") and not _RULE.fullmatch(name)]


# Words that are no names of the package: of Python, of Spark's formats, and of what a class does not have.
_OTHER_WORDS = {"await", "ctx.read", "link", "nebula", "on", "stomp"}


@pytest.mark.parametrize("package", _PACKAGES)
def test_each_name_in_it_exists(package: str) -> None:
    missing = [
        name
        for name in _names(package)
        if name not in _OTHER_WORDS and not _is_module(package, name) and not _is_defined(name)
    ]

    assert missing == []


def _is_module(package: str, name: str) -> bool:
    spots = [_ROOT.joinpath(*name.split(".")), _folder(package).joinpath(*name.split("."))]
    return any(spot.is_dir() or spot.with_suffix(".py").is_file() for spot in spots)


def _is_defined(name: str) -> bool:
    """Whether this is the full path of a name, or there is a class or function of that name in `nebula`."""
    if "." in name:
        try:
            resolve_name(name)
        except (ImportError, AttributeError):
            return False
        return True
    definition = re.compile(rf"^(class|def|async def) {name}\b", re.MULTILINE)
    return any(definition.search(path.read_text()) for path in (_ROOT / "nebula").rglob("*.py"))


@pytest.mark.parametrize("package", _PACKAGES)
def test_a_package_is_called_pure_if_a_contract_proves_it(package: str) -> None:
    proven = [
        *_contract("Pure rooms: no I/O, clock, chance or log")["source_modules"],
        *_contract("Pure rooms of RPC: no I/O and no loop")["source_modules"],
        *_contract("Pure rooms of jobs: no I/O, clock, chance or log")["source_modules"],
    ]
    is_pure = any(package == room or package.startswith(f"{room}.") for room in proven)

    # A room inside a pure one need not repeat it.
    assert bool(re.search(r"\bPure\b", _docstring(package))) == is_pure or package not in proven
    assert is_pure or not re.search(r"\bPure\b", _docstring(package))


def test_what_blocks_is_apart_from_what_awaits() -> None:
    claim = re.search(r"All modules but `(\w+)` block", _docstring("nebula.broker.store"))
    assert claim is not None
    awaiting = [
        path.stem
        for path in sorted(_folder("nebula.broker.store").glob("*.py"))
        if any(isinstance(node, _WAITS) for node in ast.walk(ast.parse(path.read_text())))
    ]

    assert awaiting == [claim[1]]


def test_wire_needs_the_standard_library_only() -> None:
    needed = {
        name.partition(".")[0] for path in _folder("nebula.stomp").glob("*.py") for name in _imported(path)
    }

    assert "standard library only" in " ".join(_docstring("nebula.stomp").split())
    assert needed <= {*sys.stdlib_module_names, "nebula", "typing_extensions"}


def test_packages_that_hold_the_broker_and_rpc_are_those_that_say_so() -> None:
    holders = [
        package
        for package in _PACKAGES
        if package.count(".") == 1 and package not in ("nebula.broker", "nebula.rpc")
        if {"nebula.broker", "nebula.rpc"} <= _neighbours(package)
    ]

    assert holders == ["nebula.cli", "nebula.host", "nebula.testing"]
    for other in ("nebula.cli", "nebula.testing"):
        assert f"`{other}`" in _docstring("nebula.host")


def _neighbours(package: str) -> set[str]:
    names = (name for path in _folder(package).rglob("*.py") for name in _imported(path))
    return {".".join(name.split(".")[:2]) for name in names}


def test_packages_of_spark_that_import_it_are_those_that_the_docstring_names() -> None:
    named = re.search(r"Nothing in this package but (.*?) imports pyspark", _docstring("nebula.spark"))
    assert named is not None
    ignored = _contract("Only the engine host imports Spark's modules")["ignore_imports"]
    importers = {line.split(".")[2] for line in ignored if re.match(r"nebula\.spark\..* pyspark", line)}

    assert {name.split()[0] for name in importers} == set(re.findall(r"`(\w+)`", named[1]))


def test_middleware_lists_each_of_its_modules() -> None:
    listed = re.findall(r"^- `(\w+)`:", _docstring("nebula.rpc.middleware"), re.MULTILINE)

    modules = {path.stem for path in _folder("nebula.rpc.middleware").glob("*.py")} - {"__init__"}
    assert sorted(listed) == sorted(modules)


def test_sync_client_has_neither_the_connection_nor_its_link() -> None:
    assert not hasattr(Client, "stomp")
    assert not hasattr(Client, "link")
