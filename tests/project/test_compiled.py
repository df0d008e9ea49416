"""`NEBULA_COMPILED`: which modules are found, and what the import says if they are not there."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from nebula.compiled import build_name

ROOT = Path(__file__).parents[2]
TOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
HOOK = TOOLS["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]

ASK = "from nebula.compiled import build_name; print(build_name())"


def ask(compiled: str, folder: Path | None = None, code: str = ASK) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NEBULA_COMPILED": compiled}
    if folder is not None:
        env["PYTHONPATH"] = str(folder)
    return subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture
def looks_compiled(tmp_path: Path) -> Path:
    """A folder with the package, and a file where Python looks for the extension module of the codec."""
    package = Path(__file__).parents[2] / "nebula"
    (tmp_path / "nebula" / "stomp").mkdir(parents=True)
    for name in ("__init__.py", "version.py", "compiled.py", "environment.py", "stomp"):
        for source in [package / name] if name.endswith(".py") else (package / name).glob("*.py"):
            (tmp_path / "nebula" / source.relative_to(package)).write_bytes(source.read_bytes())
    (tmp_path / "nebula" / "stomp" / f"codec{EXTENSION_SUFFIXES[0]}").write_bytes(b"")
    return tmp_path


def test_unset_variable_takes_what_is_installed() -> None:
    assert ask("").stdout == f"{build_name()}\n"


def test_extension_module_is_found_before_its_source(looks_compiled: Path) -> None:
    assert ask("", looks_compiled).stdout == "compiled\n"
    assert ask("require", looks_compiled).stdout == "compiled\n"


def test_no_finds_the_source_next_to_an_extension_module(looks_compiled: Path) -> None:
    code = "from importlib.util import find_spec; print(find_spec('nebula.stomp.codec').origin)"

    assert ask("no", looks_compiled).stdout == "interpreted\n"
    assert ask("no", looks_compiled, code).stdout == f"{looks_compiled}/nebula/stomp/codec.py\n"


def test_require_fails_where_nothing_is_compiled(looks_compiled: Path) -> None:
    (looks_compiled / "nebula" / "stomp" / f"codec{EXTENSION_SUFFIXES[0]}").unlink()
    said = ask("require", looks_compiled)

    assert said.returncode == 1
    assert "ImportError: NEBULA_COMPILED=require, but the modules of this installation are not" in said.stderr


def test_other_values_are_refused() -> None:
    said = ask("yes")

    assert said.returncode == 1
    assert 'ImportError: NEBULA_COMPILED is "yes": it is "no", "require" or unset' in said.stderr


def compiled_sources() -> list[Path]:
    """The modules that `make wheel` compiles."""
    left_out = {path for pattern in HOOK["exclude"] for path in ROOT.glob(pattern.removeprefix("/"))}
    found = [path for pattern in HOOK["include"] for path in ROOT.glob(pattern.removeprefix("/"))]
    return sorted(path for path in found if path not in left_out and path.name not in HOOK["exclude"])


def unsafe_waits(tree: ast.AST) -> Iterator[int]:
    """Lines where a coroutine waits while an exception may be handled."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncWith | ast.AsyncFor):
            yield node.lineno
        handlers: list[ast.AST] = [node] if isinstance(node, ast.ExceptHandler) else []
        if isinstance(node, ast.Try):
            handlers += node.finalbody
        for handler in handlers:
            yield from (one.lineno for one in ast.walk(handler) if isinstance(one, ast.Await))


@pytest.mark.parametrize("pattern", HOOK["include"])
def test_what_is_to_be_compiled_exists(pattern: str) -> None:
    assert any(ROOT.glob(pattern.removeprefix("/")))


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("async def f():\n try:\n  await a()\n except E:\n  pass\n await b()", []),
        ("async def f():\n try:\n  pass\n except E:\n  await a()", [5]),
        ("async def f():\n try:\n  pass\n finally:\n  await a()", [5]),
        ("async def f():\n async with a():\n  pass", [2]),
        ("async def f():\n async for _ in a():\n  pass", [2]),
    ],
)
def test_waits_in_handlers_are_found(code: str, lines: list[int]) -> None:
    assert list(unsafe_waits(ast.parse(code))) == lines


@pytest.mark.parametrize(
    "path", [pytest.param(path, id=str(path.relative_to(ROOT))) for path in compiled_sources()]
)
def test_compiled_coroutine_does_not_wait_while_an_exception_is_handled(path: Path) -> None:
    # Such a coroutine ends the process with a segmentation fault: docs/decisions/0060.
    assert list(unsafe_waits(ast.parse(path.read_text()))) == []
