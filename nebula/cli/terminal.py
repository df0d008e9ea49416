"""The only module of the command line that writes to a terminal.

Text of others passes through `nebula.visible` on its way: `text` makes it visible before it is laid out, so
that widths are right, and `Screen` looks at each piece that is about to be written, so that nothing passes
that somebody forgot. Markup, emoji codes and highlighting are off: a name in brackets is a name.

Off a terminal the bytes are the user's and stay as they are. `tests/cli/test_terminal_lint.py` finds what
writes elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, Any, Final

import typer
from pydantic_core import to_json
from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import JSONHighlighter
from rich.live import Live
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from nebula.visible import encodable_json, visible, visible_json

__all__ = [
    "Screen",
    "UsageProblem",
    "ask_passcode",
    "ask_yes",
    "cell_of",
    "complain",
    "complain_of_usage",
    "flush_all",
    "hand_on",
    "is_attended",
    "json_of",
    "progress_of",
    "silence_stdout",
    "stderr_screen",
    "text",
    "tracebacks_made_visible",
    "write_json_octets",
    "write_redirectable",
]

LINES: Final = "\n\t"
"""What stays as it is in a text that may have several lines."""

# typer has a copy of click's errors of its own, or click's, by its version; it names this one alone.
UsageProblem: Final[type[Exception]] = typer.BadParameter.__mro__[2]
"""What typer raises of wrong words on the command line."""


class Screen(Console):
    """A stream as commands write to it: stdout, stderr or a file of a test. Args: as for `Console`.

    What the terminal itself is to do, such as colours and the cursor, comes from styles and control segments
    of rich alone, never from a text.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As `Console`, with each text made visible."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(visible(segment.text, keep="\n"), segment.style)

    def show(self, *parts: RenderableType) -> None:
        """Tables and texts, one below the other; a bare string may have several lines."""
        self.print(*(text(part) if isinstance(part, str) else part for part in parts), sep="\n")

    def json_line(self, value: Any) -> None:
        """One JSON value on one line, written at once: the reader may be a program that waits for it."""
        written = json_of(value)
        # rich may take a terminal for none (TTY_COMPATIBLE=0), which obeys what it is sent all the same.
        is_terminal = self.is_terminal or self.file.isatty()
        self.file.write((visible_json(written) if is_terminal else written) + "\n")
        self.file.flush()

    def pretty_json(self, value: Any) -> None:
        """A JSON value for people."""
        written = json.dumps(json.loads(json_of(value)), ensure_ascii=False, indent=2)
        self.print(JSONHighlighter()(Text(visible_json(written))), soft_wrap=True)

    def live(self) -> Live:
        """What is drawn over; its `update` takes what `show` takes."""
        return Live(console=self, auto_refresh=False)

    def spinner(self, words: str) -> Status:
        """A line that says what is going on; update it with a `text`."""
        return self.status(text(words, keep=""))


def stderr_screen() -> Screen:
    """For progress, beside a command's output on stdout."""
    return Screen(stderr=True)


def progress_of(screen: Screen, columns: Sequence[ProgressColumn], **options: Any) -> Progress:
    """A progress bar on a screen. Options: as for `Progress`."""
    return Progress(*columns, console=screen, **options)


def text(words: str, style: str = "", *, keep: str = LINES) -> Text:
    """A text of anybody, as it may be shown."""
    return Text(visible(words, keep=keep), style=style)


def json_of(value: Any) -> str:
    """A value that a peer may have sent as JSON on one line, which any encoding can write."""
    try:
        written = json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        # It may hold an infinity, for which JSON has no word and its readers no use.
        written = to_json(value, inf_nan_mode="null", fallback=str).decode()
    return encodable_json(written)


def cell_of(value: Any) -> str:
    """A value that a peer may have sent as a person reads it in a table."""
    if isinstance(value, float):
        return json.dumps(value)
    return value if isinstance(value, str) else json_of(value)


def write_redirectable(written: str) -> None:
    """Text that is there to be redirected: as it is into a file or a pipe, visible on a terminal."""
    _write(sys.stdout, written)


def write_json_octets(line: bytes) -> None:
    """A line of JSON that is there to be redirected; visible on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(visible_json(line.decode(errors="surrogateescape")))
    else:
        sys.stdout.buffer.write(line)


def hand_on(octets: bytes) -> None:
    """Write what a user's own program has written, as it would be if that had written it itself."""
    sys.stdout.buffer.write(octets)
    sys.stdout.flush()


def flush_all() -> None:
    """Have all that was written reach its readers, before a process ends without cleaning up."""
    sys.stdout.flush()
    sys.stderr.flush()


def silence_stdout() -> None:
    """Let what is still to be written go nowhere: whoever read it, such as `| head -1`, has had enough."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def is_attended() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask_yes(question: str) -> bool:
    """Ask a person a question; no answer is no."""
    return typer.confirm(visible(question))


def ask_passcode(prompt: str) -> str:
    """Ask twice for what is not shown. On stderr: what goes to stdout may go into a file."""
    return str(typer.prompt(visible(prompt), hide_input=True, confirmation_prompt=True, err=True))


def complain(sentence: str) -> None:
    """Say on stderr what went wrong, each line as ours. Visible in a file as well: people read that, too."""
    sys.stderr.writelines(f"nebula: {line}\n" for line in visible(sentence, keep="\n").split("\n"))


def complain_of_usage(problem: Exception) -> int:
    """Say what is wrong with the words on the command line, as typer does.

    Returns:
        The status to exit with.
    """
    written = _Written()
    problem.show(written)  # type: ignore[attr-defined]  # each UsageProblem has it
    sys.stderr.write(visible(written.text, keep=LINES))
    return int(problem.exit_code)  # type: ignore[attr-defined]


class _Written:
    """A file that keeps what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, written: str) -> int:
        self.text += written
        return len(written)

    def flush(self) -> None: ...


def tracebacks_made_visible() -> None:
    """Show tracebacks that nobody handles without anything that a terminal obeys: errors quote peers."""

    def show(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        _write(sys.stderr, "".join(traceback.format_exception(error)))

    def show_of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and args.exc_type is not SystemExit:
            show(args.exc_type, args.exc_value, args.exc_traceback)

    sys.excepthook = show
    threading.excepthook = show_of_thread


def _write(stream: IO[str], written: str) -> None:
    stream.write(visible(written, keep=LINES) if stream.isatty() else written)
    stream.flush()
