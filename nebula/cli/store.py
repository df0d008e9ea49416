"""`nebula store check|compact|export|import|backup`: the broker's messages on disk, as files."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Final

import typer
from typer import Argument

from nebula.cli.broker import Config, Data
from nebula.cli.exits import Exit
from nebula.cli.options import AsJson
from nebula.cli.progress import work_bar
from nebula.cli.render import Output
from nebula.cli.terminal import flush_all, stderr_screen, write_json_bytes
from nebula.errors import SettingsError

_STANDARD: Final = Path("-")

# Finer than any terminal shows.
_STEPS: Final = 1000

store = typer.Typer(
    name="store",
    help="Check, compact, copy and carry over what a broker keeps on disk.",
    no_args_is_help=True,
)


@store.command()
def check(*, data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """Check every page and row of a store that no broker is using. Exit status 1 if something is wrong.

    Example: nebula store check --data /var/lib/nebula
    """
    from nebula.broker.store.tools import open_store

    findings = []
    with open_store(_folder(data, config)) as opened:
        rows = sum(opened.counts().values())
        with _bar("checking", rows) as advance:
            for finding in opened.check():
                advance(1)
                if finding is not None:
                    findings.append(finding)
    text = "\n".join(findings) or f"{_shown(opened.file)}: nothing is wrong with its {rows} rows"
    Output(as_json=as_json).event(text, file=str(opened.file), rows=rows, findings=findings)
    # For scripts; the output has the findings.
    if findings:
        raise typer.Exit(Exit.FAILED)


@store.command()
def compact(*, data: Data = None, config: Config = None, as_json: AsJson = False) -> None:
    """Return free space to the file system; no broker may run. This needs as much space again meanwhile.

    Example: nebula store compact
    """
    from nebula.broker.store.tools import open_store

    with open_store(_folder(data, config)) as opened, _bar("compacting", None):
        before, after = opened.compact()
    text = f"{_shown(opened.file)}: {_size(before)} before, {_size(after)} now"
    Output(as_json=as_json).event(text, file=str(opened.file), before_bytes=before, after_bytes=after)


@store.command(name="export")
def export_(
    file: Annotated[
        Path, Argument(metavar="FILE", help="Readable by this user only; - is stdout.")
    ] = _STANDARD,
    *,
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write a store that no broker is using as lines of JSON, one for each row.

    Example: nebula store export messages.jsonl
    """
    from nebula.broker.store.tools import open_store

    with open_store(_folder(data, config)) as opened:
        rows = sum(opened.counts().values())
        with _output(file) as write, _bar("exporting", rows) as advance:
            for line in opened.lines():
                write(line.encode())
                advance(1)
    # With the export on stdout nothing else may be written there.
    if file != _STANDARD:
        Output(as_json=as_json).event(f"{file}: {rows} rows", file=str(file), rows=rows)


@store.command(name="import")
def import_(
    file: Annotated[Path, Argument(metavar="FILE", help="An export; - is stdin.")] = _STANDARD,
    *,
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Create a store from an export, in a folder that has none: all of it or nothing.

    Example: nebula store import messages.jsonl --data /var/lib/nebula
    """
    from nebula.broker.store.tools import import_lines

    folder = _folder(data, config)
    with _input(file) as (lines, size), _bar("importing", size) as advance:
        # In one transaction, so that a broken line leaves the folder without a store.
        rows = import_lines(folder, _decoded(lines, advance))
    Output(as_json=as_json).event(f"{_shown(folder)}: {rows} rows imported", folder=str(folder), rows=rows)


@store.command()
def backup(
    target: Annotated[
        Path, Argument(metavar="TARGET", help="A file, or a folder in which a broker can start.")
    ],
    *,
    data: Data = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Copy a store as it is at this moment, while a broker may be running on it.

    The copy gets its name when it is complete, checked and on the disk. An earlier copy of that name is
    replaced, anything else is not.

    \b
    Example:
      nebula store backup --data /var/lib/nebula /backups/nebula.db.monday
    """
    from nebula.broker.store.tools import back_up_store

    with _bar("copying", 1.0) as advance:
        done = 0.0

        def on_fraction(fraction: float) -> None:
            nonlocal done
            advance(fraction - done)
            done = fraction

        # `target` may be a folder: the result is the file in it.
        file = back_up_store(_folder(data, config), target, on_fraction)
    size = file.stat().st_size
    Output(as_json=as_json).event(f"{_shown(file)}: {_size(size)}", file=str(file), bytes=size)


def _folder(data: Path | None, config: Path | None) -> Path:
    """Where the broker of these settings has its store."""
    from nebula.broker.assembly import store_folder
    from nebula.broker.settings import load_broker_settings

    # By the broker's own rules, so that the tools find the store that `nebula broker` would open.
    return store_folder(load_broker_settings(config, data=data).value)


@contextmanager
def _bar(what: str, total: float | None) -> Iterator[Callable[[float], None]]:
    """A progress bar on a terminal's stderr, to be advanced; a spinner where the total is not known."""
    progress = work_bar(stderr_screen())
    with progress:
        task = progress.add_task(what, total=total)
        waiting = 0.0

        def advance(amount: float) -> None:
            # A bar that heeds each of a million rows takes more time than they do.
            nonlocal waiting
            waiting += amount
            if waiting >= (total or 0.0) / _STEPS:
                progress.advance(task, waiting)
                waiting = 0.0

        yield advance


@contextmanager
def _output(file: Path) -> Iterator[Callable[[bytes], object]]:
    """A new file, which is gone again if it cannot be completed; or stdout."""
    if file == _STANDARD:
        yield write_json_bytes
        # Flushed here, so that a full disk is an error of this command.
        flush_all()
        return
    try:
        # O_EXCL: never overwrites a file. 0600: messages are not for other users.
        opened = os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
    except OSError as error:
        raise SettingsError(f"{file}: cannot be written: {error.strerror}") from None
    try:
        with opened:
            yield opened.write
    except BaseException as error:
        # Half an export could be taken for a complete one. BaseException includes Ctrl-C.
        file.unlink()
        if isinstance(error, OSError):
            raise SettingsError(f"{file}: cannot be written: {error.strerror}") from None
        raise


@contextmanager
def _input(file: Path) -> Iterator[tuple[IO[bytes], int | None]]:
    """A file and its size, or stdin."""
    if file == _STANDARD:
        # None: a pipe has no size, so the bar becomes a spinner.
        yield sys.stdin.buffer, None
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise SettingsError(f"{file}: cannot be read: {error.strerror}") from None
    with opened:
        yield opened, file.stat().st_size


def _decoded(lines: IO[bytes], advance: Callable[[float], None]) -> Iterator[str]:
    for line in lines:
        advance(len(line))
        # Text that is not UTF-8 is refused later, with the number of its line.
        yield line.decode(errors="surrogateescape")


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _shown(path: Path) -> str:
    """As a person would say it from here."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
