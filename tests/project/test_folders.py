"""The folders of tests: each says what belongs there, and helpers live in named modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = Path(__file__).parents[1]
_FOLDERS = sorted({path.parent for path in _TESTS.rglob("test_*.py")})
# They run tests of other modules again, against other brokers.
_RERUN = sorted((_TESTS / "foreign").glob("test_*_on_brokers.py"))


@pytest.mark.parametrize("folder", _FOLDERS, ids=lambda path: str(path.relative_to(_TESTS.parent)))
def test_each_folder_says_in_one_line_what_belongs_there(folder: Path) -> None:
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text()))

    assert docstring is not None
    assert docstring.splitlines()[0].endswith(".")


def test_no_test_module_is_imported_for_its_helpers() -> None:
    importers = [
        f"{path.relative_to(_TESTS)} imports {module}"
        for path in sorted(_TESTS.rglob("*.py"))
        if path not in _RERUN
        for module in _imported(path)
        if module.startswith("tests.") and module.rpartition(".")[2].startswith("test_")
    ]

    assert importers == []


def test_modules_that_workers_begin_with_exist() -> None:
    listed = (_TESTS / "long_modules.txt").read_text().splitlines()

    assert [name for name in listed if not (_TESTS.parent / name).is_file()] == []
    assert len(set(listed)) == len(listed)


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
