"""The examples in docstrings: all are found, mypy accepts them in one module, and they run as they stand.

An example is an indented block. What it uses and does not make is in `examples.py`, by its place.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType
from typing import TypeAlias

import anyio
import pytest

from tests.docs.examples import CHECKED_ONLY, DIAGRAMS, IMPORTS, SURROUNDINGS
from tests.docs_runner import ROOT

_Documented: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_BLOCK = re.compile(r"(?:(?<=\n\n)|\A)(?: {4}.*\n(?:\n(?= {4}))?)+", re.MULTILINE)
_OTHER_FORMS = re.compile(r"^\s*(>>> |```|\.\. code)|::$", re.MULTILINE)


def docstrings() -> Iterator[tuple[str, str]]:
    """Each docstring by its place, `MODULE:NAME`."""
    for package in ("nebula", "pyspark_nebula"):
        for path in sorted((ROOT / package).rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in _documented(ast.parse(path.read_text(encoding="utf-8"))):
                if text := ast.get_docstring(node):
                    yield f"{module}:{getattr(node, 'name', '')}", text


def _documented(tree: ast.Module) -> Iterator[_Documented]:
    """A module, its classes and its functions, the outer ones first."""
    # Each worker collects, and expressions are most of a tree: `ast.walk` takes half as long again.
    level: list[ast.AST] = [tree]
    while level:
        yield from (node for node in level if isinstance(node, _Documented))
        level = [
            inner
            for node in level
            for field in node._fields
            if isinstance(inners := getattr(node, field), list)
            for inner in inners
            if isinstance(inner, ast.stmt | ast.excepthandler | ast.match_case)
        ]


def blocks() -> Iterator[tuple[str, str]]:
    for place, text in DOCSTRINGS:
        for number, block in enumerate(_BLOCK.findall(text + "\n")):
            yield place + (f"#{number + 1}" if number else ""), dedent(block)


DOCSTRINGS = [*docstrings()]
BLOCKS = dict(blocks())
EXAMPLES = {place: text for place, text in BLOCKS.items() if place not in DIAGRAMS}


def function_of(place: str) -> str:
    return "example_" + re.sub(r"\W+", "_", place)


def surrounded(place: str, example: str) -> str:
    """An example with what it uses."""
    around = dedent(SURROUNDINGS.get(place, "EXAMPLE")).strip()
    return re.sub(r"^( *)EXAMPLE$", lambda found: indent(example, found[1]), around, flags=re.MULTILINE)


def written() -> str:
    """A module with a function for each example."""
    functions = [
        f"async def {function_of(place)}(folder: Path) -> None:\n"
        + indent(surrounded(place, example), " " * 4)
        for place, example in EXAMPLES.items()
    ]
    return "\n\n".join((dedent(IMPORTS).strip(), *functions))


def test_examples_have_one_form() -> None:
    assert [place for place, text in DOCSTRINGS if _OTHER_FORMS.search(text)] == []


def test_only_diagrams_are_no_python() -> None:
    def is_python(text: str) -> bool:
        try:
            compile(text, "example", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except SyntaxError:
            return False
        return True

    assert {place for place, text in BLOCKS.items() if not is_python(text)} == DIAGRAMS


def test_each_surrounding_belongs_to_an_example() -> None:
    assert set(SURROUNDINGS) | CHECKED_ONLY <= set(EXAMPLES)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_examples_are_typed_as_they_stand(tmp_path: Path) -> None:
    module = tmp_path / "docstring_examples.py"
    module.write_text(written(), encoding="utf-8")

    options = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    # Some leave out what a function does.
    options += ["--disable-error-code", "empty-body"]
    said = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(module)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("place", sorted(set(EXAMPLES) - CHECKED_ONLY))
def test_example_runs_as_it_stands(place: str, tmp_path: Path) -> None:
    module = ModuleType("docstring_examples")
    exec(compile(written(), "docstring_examples", "exec", dont_inherit=True), vars(module))

    async def run() -> None:
        with anyio.fail_after(20):
            await getattr(module, function_of(place))(tmp_path)

    anyio.run(run)
