"""Runs the pages of README and docs as a reader would: files are written, shells are typed into.

A fenced `python`, `toml` or `text` block whose first line is `# NAME` is a file of that name. Each line of a
`console` block that begins with `$ ` is a command; what follows it is compared with what the command shows
on a terminal, where `...` stands for anything. A command that ends in `&`, or that stands in a block
`console stays` (a shell of its own), stays until the page ends, and may say more than is shown.

Commands of other projects, which are not installed with ours, are in `shell-session` blocks of the same form.
"""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.ports import free_port

ROOT = Path(__file__).parent.parent
# These pages start Spark: tests/spark/test_pages.py runs them, and tests/docs/test_docs.py the others.
SPARK_PAGES = {
    "build-in-an-hour.md",
    "reading.md",
    "spark-job.md",
    "spark-streaming.md",
    "spark-submit-livy.md",
}

_FENCE = re.compile(
    r"^```(?P<language>[\w-]+)(?P<stays> stays)?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FILE_NAME = re.compile(r"# (?P<name>[\w./-]+\.\w+)\n")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
# Of STOMP, of HTTP and of a reader's own web application, as the pages have them.
_USUAL_PORTS = ("61613", "61680", "8000")
# A page may start Spark, on a machine that is busy with other tests.
_DEADLINE = 120.0


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a console block, with what the page says it shows."""

    words: str
    shown: str

    @property
    def stays(self) -> bool:
        return self.words.endswith("&")


@dataclass(slots=True)
class Page:
    """The files and the commands of a page, in order."""

    files: dict[str, str] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)


def read_page(path: Path, language: str = "console") -> Page:
    """The files and commands of a page.

    Args:
        language: of the blocks that have the commands.
    """
    page = Page()
    for fence in _FENCE.finditer(path.read_text(encoding="utf-8")):
        body = fence["body"]
        if fence["language"] == language:
            page.commands += _commands(body, stays=fence["stays"] is not None)
        elif name := _FILE_NAME.match(body):
            page.files[name["name"]] = body
    return page


def _commands(body: str, *, stays: bool) -> Iterator[Command]:
    for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
        words, _, shown = part.partition("\n")
        command = Command(f"{words.strip()} &" if stays else words.strip(), shown.strip())
        # What stays goes on to say things, and a reader may look a moment later.
        yield replace(command, shown=f"{command.shown}...") if command.stays else command


def matches(shown: str, said: str) -> bool:
    """Whether a command said what the page shows; runs of blanks count as one, `...` as anything."""
    wanted = [re.escape(" ".join(piece.split())) for piece in shown.split("...")]
    return re.fullmatch(r".*?".join(wanted), " ".join(said.split()), re.DOTALL) is not None


def run_page(path: Path, folder: Path, language: str = "console") -> None:
    """Do in a folder what a page says in its blocks of a language, and see what it shows."""
    page = read_page(path, language)
    for name, text in page.files.items():
        (folder / name).write_text(text)

    with Shell(folder) as shell:
        for command in page.commands:
            said = shell.type(command)
            assert matches(command.shown, said), (
                f"$ {command.words}\n{said}\n--- but the page shows\n{command.shown}"
            )


class Shell:
    """A reader's terminal in a folder of its own, with a port of its own for the broker.

    Args:
        folder: its own.
        ports: of what runs already, by those that the page calls them.
    """

    def __init__(self, folder: Path, ports: Mapping[str, int] | None = None) -> None:
        self._folder = folder
        self._ports = {usual: str(free_port()) for usual in _USUAL_PORTS}
        self._ports |= {usual: str(port) for usual, port in (ports or {}).items()}
        self._running = ExitStack()
        plain = {name: value for name, value in os.environ.items() if not name.startswith("NEBULA_")}
        commands = Path(sys.executable).parent
        self._environment = plain | {
            "PATH": f"{commands}{os.pathsep}{plain['PATH']}",
            "NEBULA_SERVER_PORT": self._ports["61613"],
            "NEBULA_BROKER": f"stomp://127.0.0.1:{self._ports['61613']}",
            "NEBULA_STATE": str(folder / "state"),
            "NEBULA_CACHE": os.environ.get("NEBULA_CACHE", str(folder / "cache")),
            # Readers need not have it. It warns of what is not set.
            "PYTEST_ADDOPTS": "-p no:asyncio",
            "TERM": "dumb",
            "COLUMNS": "100",
            "LINES": "30",
        }

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_error: object) -> None:
        self._running.close()

    def type(self, command: Command) -> str:
        """Run a command and return what it said; what the page calls the usual ports are ours."""
        words = command.words
        for usual, port in self._ports.items():
            words = re.sub(rf"(?<=[: ]){usual}\b", port, words)
        if command.stays:
            # The program itself is to be ended, not a shell around it.
            terminal = self._running.enter_context(self._terminal(f"exec {words.removesuffix('&')}"))
            said = terminal.read_until_shown(command.shown)
        else:
            with self._terminal(words) as terminal:
                said = terminal.read_to_end()
        return said

    @contextmanager
    def _terminal(self, words: str) -> Iterator[_Terminal]:
        reader, writer = pty.openpty()
        process = subprocess.Popen(
            ["/bin/sh", "-c", words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
        )
        os.close(writer)
        try:
            yield _Terminal(reader, self._ports)
        finally:
            process.terminate()
            try:
                process.wait(_DEADLINE)
            finally:
                process.kill()
                os.close(reader)


class _Terminal:
    def __init__(self, reader: int, ports: Mapping[str, str]) -> None:
        self._reader = reader
        self._ports = ports
        self._ends = time.monotonic() + _DEADLINE
        self._said = ""

    def read_to_end(self) -> str:
        while self._read():
            pass
        return self._text()

    def read_until_shown(self, shown: str) -> str:
        while not matches(shown, self._text()) and self._read():
            pass
        return self._text()

    def _read(self) -> bool:
        readable, _, _ = select.select([self._reader], [], [], max(0.0, self._ends - time.monotonic()))
        try:
            data = os.read(self._reader, 65536) if readable else b""
        except OSError:  # Linux says EIO where the other end of a pty has gone
            data = b""
        self._said += data.decode(errors="replace")
        return bool(data)

    def _text(self) -> str:
        text = _CONTROL.sub("", self._said)
        for usual, port in self._ports.items():
            text = text.replace(f":{port}", f":{usual}")
        return text.strip()
