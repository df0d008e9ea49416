"""Only one module of the command line writes to a terminal: no other one can forget to make text visible."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("nebula", "pyspark_nebula")

# What may write, and why.
ALLOWED = {
    "nebula/cli/terminal.py": "it is the one that writes",
    "nebula/__main__.py": "a sentence of ours, where the libraries of the command are missing",
    "nebula/cli/hangups.py": "it asks whether there is a terminal",
    "nebula/cli/layout.py": "it arranges texts that were made visible",
    "nebula/logs.py": "the log, which makes its facts visible",
    "nebula/browser/__main__.py": "a path of this installation",
    "nebula/spark/host/__main__.py": "the engine host's pipes",
    "nebula/spark/host/archive.py": "the engine host's pipes, and errors of its own Java",
    "nebula/spark/host/forks.py": "the engine host's pipes",
    "nebula/spark/host/log_capture.py": "the engine host's pipes",
    "nebula/spark/host/start.py": "the engine host's pipes",
}

STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
BUILT_IN = {"print", "input"}
METHODS = {
    "print", "print_exception", "print_json", "print_exc", "print_stack", "print_tb",
    "pprint", "echo", "echo_via_pager", "secho", "getpass", "progressbar",
    "set_window_title", "basicConfig", "from_ansi", "from_markup",
}  # fmt: skip
# Of rich what lays out may be used anywhere, and what writes, or reads markup, nowhere else.
WRITERS = {
    "rich": {"print", "print_json", "inspect", "get_console"},
    "rich.console": {"Console"},
    "rich.live": {"Live"},
    "rich.logging": {"RichHandler"},
    "rich.markup": {"render"},
    "rich.pretty": {"pprint", "install"},
    "rich.progress": {"track", "open", "wrap_file"},
    "rich.prompt": {"Prompt", "Confirm", "IntPrompt", "FloatPrompt"},
    "rich.status": {"Status"},
    "rich.traceback": {"install"},
    "sys": STREAMS,
    "logging": {"StreamHandler"},
    "structlog": {"PrintLogger", "PrintLoggerFactory", "WriteLogger", "WriteLoggerFactory"},
    "typer": {"echo", "secho", "prompt", "confirm", "progressbar", "echo_via_pager"},
}
DEVICES = ("/dev/tty", "/dev/stdout", "/dev/stderr", "/dev/fd/")
# Types may name these; whoever makes one has to make its text visible.
MADE_BY_US = {"Text", "Progress"}


def writes(source: str) -> Iterator[tuple[int, str]]:
    """The lines that write, or could, and by what."""
    has_rich = "from rich" in source
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if has_rich and name in MADE_BY_US:
                yield node.lineno, name
        if found := _writes(node):
            yield node.lineno, found  # type: ignore[attr-defined]  # of these each has one


def _writes(node: ast.AST) -> str:
    match node:
        case ast.Call(func=ast.Name(id=name)) if name in BUILT_IN:
            return name
        case ast.Call(
            func=ast.Attribute(value=ast.Attribute(attr="console") | ast.Name(id="console"), attr="status")
        ):
            return "console.status"
        case ast.Call(func=ast.Attribute(attr=name)) if name in METHODS:
            return f".{name}"
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="os"), attr="write"), args=[ast.Constant(value=1 | 2), *_]
        ):
            return "os.write"
        case ast.Attribute(value=ast.Name(id="sys"), attr=name) if name in STREAMS:
            return f"sys.{name}"
        case ast.Attribute(value=ast.Name(id=module), attr=name) if name in WRITERS.get(module, ()):
            return f"{module}.{name}"
        case ast.Attribute(value=ast.Attribute(attr="console"), attr="file"):
            return "console.file"
        case ast.ImportFrom(module=str(module), names=names):
            found = {one.name for one in names} & WRITERS.get(module, set())
            return f"from {module} import {', '.join(sorted(found))}" if found else ""
        case ast.Import(names=names):
            whole = {one.name for one in names} & {*WRITERS, "click", "getpass", "pprint", "curses"}
            whole -= {"sys", "logging", "structlog", "typer"}
            return f"import {', '.join(sorted(whole))}" if whole else ""
        case ast.Constant(value=str(words)) if words.startswith(DEVICES):
            return words
    return ""


def modules() -> list[str]:
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


@pytest.mark.parametrize("module", [one for one in modules() if one not in ALLOWED])
def test_module_writes_nothing_to_a_terminal_itself(module: str) -> None:
    found = list(writes((ROOT / module).read_text()))

    assert found == [], "write by a function of nebula/cli/terminal.py"


@pytest.mark.parametrize("module", ALLOWED)
def test_module_that_may_write_does(module: str) -> None:
    assert list(writes((ROOT / module).read_text())) != [], "it needs no place in ALLOWED"


@pytest.mark.parametrize(
    "source",
    [
        "print(name)",
        "input(question)",
        "typer.echo(name)",
        "typer.confirm(question)",
        "output.console.print(name)",
        "output.console.file.write(name)",
        "console.print_json(text)",
        "console.status(text)",
        "sys.stdout.write(name)",
        "sys.stderr.writelines(lines)",
        "out = sys.stdout",
        "sys.stdout.buffer.write(octets)",
        "os.write(1, octets)",
        "from sys import stdout",
        "from rich import print",
        "from rich.console import Console, Group",
        "from rich.live import Live",
        "from rich.text import Text\nText(name)",
        "Text.from_markup(name)",
        "from rich.progress import Progress\nProgress(column)",
        "from typer import Option, echo",
        "import rich.console",
        "import click",
        "open('/dev/tty')",
        "traceback.print_exc()",
        "logging.StreamHandler(out)",
    ],
)
def test_writer_that_makes_nothing_visible_is_found(source: str) -> None:
    assert len(list(writes(source))) >= 1


@pytest.mark.parametrize("source", ["output.show(name)", "from rich.console import Group", "log.info(name)"])
def test_writer_that_makes_all_visible_is_let_through(source: str) -> None:
    assert list(writes(source)) == []
