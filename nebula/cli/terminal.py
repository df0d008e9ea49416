"""The only module of the command line that writes to a terminal.

Foreign text passes through `nebula.visible` on its way: `text` escapes it before layout, so that widths are
right, and `Screen` checks each piece before it is written, in case `text` was forgotten. Markup, emoji codes
and highlighting are off: a name in brackets is a name.

Output that does not go to a terminal is not changed. `tests/cli/test_terminal_lint.py` finds code that writes
elsewhere.
"""

from __future__ import annotations

import json
import os
import select
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import IO, Any, Final

import anyio
import typer
from pydantic_core import to_json
from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import JSONHighlighter
from rich.live import Live
from rich.progress import Progress, ProgressColumn
from rich.segment import Segment
from rich.status import Status
from rich.text import Text

from nebula.cli.layout import Words
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
    "is_in_foreground",
    "json_of",
    "json_text",
    "progress_of",
    "show_traceback",
    "silence_stdout",
    "stderr_screen",
    "text",
    "tracebacks_made_visible",
    "write_json_bytes",
    "write_redirectable",
]

LINES: Final = "\n\t"
"""Characters that are kept in text of several lines."""

# Depending on its version, typer uses click's errors or a copy of its own; it exports only this one.
UsageProblem: Final[type[Exception]] = typer.BadParameter.__mro__[2]
"""What typer raises for wrong arguments."""


class Screen(Console):
    """A stream as commands write to it: stdout, stderr or a file of a test. Args: as for `Console`.

    Colours and cursor movements come only from rich's styles and control segments, never from text.
    """

    def __init__(self, **options: Any) -> None:
        # `[red]` in a name is part of the name, and `:cup:` is no emoji.
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Like `Console`, with each text escaped."""
        for segment in super().render(renderable, options):
            # A fast path: `visible` checks each character.
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                yield Segment(visible(segment.text, keep="\n"), segment.style)

    def show(self, *parts: RenderableType) -> None:
        """Tables and texts, one below the other; a bare string may have several lines.

        Nothing is cut off: a word that is longer than a line exceeds it.
        """
        drawn = (Words(text(part)) if isinstance(part, str) else part for part in parts)
        # `crop=False`, because a name that is cut cannot be copied.
        self.print(*drawn, sep="\n", crop=False)

    def json_line(self, value: Any) -> None:
        """Write one JSON value on one line and flush it: a program may be waiting for it."""
        written = json_of(value)
        # rich may take a terminal for none (TTY_COMPATIBLE=0), which obeys what it is sent all the same.
        is_terminal = self.is_terminal or self.file.isatty()
        # Not `print`: rich would wrap the line and colour it.
        self.file.write((visible_json(written) if is_terminal else written) + "\n")
        self.file.flush()

    async def json_lines(self, values: Iterable[Any]) -> None:
        """Write JSON values, each on a line, without blocking the event loop if the reader is slow."""
        written = "".join(f"{json_of(value)}\n" for value in values)
        is_terminal = self.is_terminal or self.file.isatty()
        await self._pour(visible_json(written) if is_terminal else written)

    async def texts(self, texts: Iterable[str]) -> None:
        """Write foreign texts for people, each on a line, as `json_lines` does."""
        await self._pour("".join(f"{visible(text)}\n" for text in texts))

    async def _pour(self, written: str) -> None:
        # A character that the encoding lacks is written as its code instead of raising.
        await _pour(self.file, written.encode(self.encoding, "backslashreplace"))

    def pretty_json(self, value: Any) -> None:
        """A JSON value for people."""
        # The terminal wraps, so that a copied line is in one piece.
        self.print(json_text(value), soft_wrap=True)

    def live(self) -> Live:
        """Output that is redrawn; its `update` takes what `show` takes."""
        # Without rich's thread, which would redraw while a command writes.
        return Live(console=self, auto_refresh=False)

    def spinner(self, words: str) -> Status:
        """A status line; update it with a `text`."""
        return self.status(text(words, keep=""))


def stderr_screen() -> Screen:
    """A screen for progress, next to a command's output on stdout."""
    # For stderr itself: `nebula store export > file` shows a bar.
    return Screen(stderr=True)


def progress_of(screen: Screen, columns: Sequence[ProgressColumn], **options: Any) -> Progress:
    """A progress bar on a screen. Options: as for `Progress`."""
    return Progress(*columns, console=screen, **options)


def text(words: str, style: str = "", *, keep: str = LINES) -> Text:
    """Foreign text, escaped for display."""
    return Text(visible(words, keep=keep), style=style)


def json_text(value: Any) -> Text:
    """A foreign value as indented JSON, for people."""
    # `json_of` first replaces values that JSON does not have.
    written = json.dumps(json.loads(json_of(value)), ensure_ascii=False, indent=2)
    return JSONHighlighter()(Text(visible_json(written)))


def json_of(value: Any) -> str:
    """A foreign value as JSON on one line, in a form that any encoding can write."""
    try:
        # Without `\u` escapes, because people read this too.
        written = json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:
        # It may contain an infinity, which JSON does not have.
        written = to_json(value, inf_nan_mode="null", fallback=str).decode()
    return encodable_json(written)


def cell_of(value: Any) -> str:
    """A foreign value as it is shown in a table."""
    if isinstance(value, float):
        # As JSON has it and not as Python: `NaN`, `Infinity`.
        return json.dumps(value)
    return value if isinstance(value, str) else json_of(value)


def write_redirectable(written: str) -> None:
    """Write text that is meant to be redirected: unchanged to a file or a pipe, escaped on a terminal."""
    _write(sys.stdout, written)


async def write_bytes(data: bytes, *, is_json: bool) -> None:
    """Write bytes unchanged to a file or a pipe; on a terminal as escaped text, JSON as JSON.

    Does not block the event loop: the reader may pause, and heart-beats go on.
    """
    if is_redirected():
        await _pour(sys.stdout, data)
    elif is_json:
        sys.stdout.write(visible_json(data.decode(errors="replace")))
    else:
        write_redirectable(data.decode(errors="replace"))


async def _pour(stream: IO[str], data: bytes) -> None:
    try:
        file = stream.fileno()
    except OSError:  # it is in memory
        stream.write(data.decode(errors="replace"))
        return
    stream.flush()
    left = memoryview(data)
    while left:
        # A writable pipe accepts PIPE_BUF bytes without blocking.
        # `select` first, because asyncio cannot wait for a regular file, which is always writable.
        if not select.select((), (file,), (), 0)[1]:
            await anyio.wait_writable(file)
        # A larger write might block the loop, and the heart-beats with it.
        left = left[os.write(file, left[: select.PIPE_BUF]) :]


def is_redirected() -> bool:
    """Whether standard output is a file or a pipe."""
    return not sys.stdout.isatty()


def write_json_bytes(line: bytes) -> None:
    """Write a line of JSON that is meant to be redirected; escaped on a terminal."""
    if sys.stdout.isatty():
        sys.stdout.write(visible_json(line.decode(errors="surrogateescape")))
    else:
        # Not by the text layer, so that bytes that are not UTF-8 stay as they are.
        sys.stdout.buffer.write(line)


def hand_on(data: bytes) -> None:
    """Write output of a user's own program unchanged."""
    sys.stdout.buffer.write(data)
    sys.stdout.flush()


def flush_all() -> None:
    """Flush all output, before a process ends without cleaning up."""
    sys.stdout.flush()
    sys.stderr.flush()


def silence_stdout() -> None:
    """Discard further output: its reader, such as `| head -1`, has closed the pipe."""
    # Replaces the descriptor instead of `sys.stdout`, whose buffer Python flushes at exit with an error about
    # the closed pipe.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def is_in_foreground() -> bool:
    """Whether the terminal is ours now: a program that was started with `&` shares it with others."""
    try:
        return os.tcgetpgrp(sys.stdout.fileno()) == os.getpgrp()
    except OSError:
        return True  # no job control


def is_attended() -> bool:
    """Whether there is a person who can be asked."""
    # Both: a question in a file is not seen, and a line from a pipe is no reply.
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask_yes(question: str) -> bool:
    """Ask a yes-or-no question; no answer means no."""
    # The question may quote names that peers chose.
    return typer.confirm(visible(question))


def ask_passcode(prompt: str) -> str:
    """Ask twice for a secret, which is not echoed. Uses stderr, because stdout may be redirected."""
    return str(typer.prompt(visible(prompt), hide_input=True, confirmation_prompt=True, err=True))


def complain(sentence: str) -> None:
    """Write an error to stderr, each line prefixed with `nebula: `. It is escaped even in a file, as people
    read those too."""
    sys.stderr.writelines(f"nebula: {line}\n" for line in visible(sentence, keep="\n").split("\n"))


def show_traceback(written: str) -> None:
    """Write the traceback of a user's own code to stderr, escaped like errors."""
    sys.stderr.write(visible(written, keep=LINES))


def complain_of_usage(problem: Exception) -> int:
    """Report wrong arguments, as typer does.

    Returns:
        The status to exit with.
    """
    written = _Written()
    # Typer would write to stderr without escaping the user's words.
    problem.show(written)  # type: ignore[attr-defined]  # each UsageProblem has it
    sys.stderr.write(visible(written.text, keep=LINES))
    return int(problem.exit_code)  # type: ignore[attr-defined]


class _Written:
    """A file that records what is written."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, written: str) -> int:
        self.text += written
        return len(written)

    def flush(self) -> None: ...


def tracebacks_made_visible() -> None:
    """Escape the tracebacks of unhandled exceptions: their messages quote peers."""

    # Locals are never shown: they may hold passcodes.
    def show(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        _write(sys.stderr, "".join(traceback.format_exception(error)))

    def show_of_thread(args: threading.ExceptHookArgs) -> None:
        # As in Python's own hook, SystemExit ends a thread silently.
        if args.exc_value is not None and args.exc_type is not SystemExit:
            show(args.exc_type, args.exc_value, args.exc_traceback)

    sys.excepthook = show
    threading.excepthook = show_of_thread


def _write(stream: IO[str], written: str) -> None:
    stream.write(visible(written, keep=LINES) if stream.isatty() else written)
    stream.flush()
