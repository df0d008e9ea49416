"""The `nebula` command: each subcommand reads words, calls one public function and shows the outcome.

No logic lives here that a program could want: what a command can do, `nebula.sync` can do in as many
lines. `main` is the only place where an error becomes a sentence and an exit status.
"""

from __future__ import annotations

from nebula.cli import hangups as hangups  # isort: split

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from nebula.cli.bench import bench
from nebula.cli.broker import BrokerCommand, broker
from nebula.cli.calls import call, describe
from nebula.cli.cert import cert, passcode
from nebula.cli.console import console
from nebula.cli.contracts import schema, stubs
from nebula.cli.delayed import delayed
from nebula.cli.dlq import dlq
from nebula.cli.doctor.command import doctor
from nebula.cli.engines import engine, engines
from nebula.cli.exits import BrokenModule, Exit, exit_of, sentence_of, unwrapped
from nebula.cli.grouped import Grouped
from nebula.cli.job import job
from nebula.cli.jobs import cancel, jobs, watch
from nebula.cli.named import contexts
from nebula.cli.peers import connections, disconnect, sessions, topics
from nebula.cli.queues import peek, purge, queues
from nebula.cli.record import record
from nebula.cli.sending import pub, send
from nebula.cli.service import run
from nebula.cli.services import ping, services, stats
from nebula.cli.session import session
from nebula.cli.settings import settings
from nebula.cli.shares import principals
from nebula.cli.store import store
from nebula.cli.streams import stream
from nebula.cli.sub import sub
from nebula.cli.terminal import (
    UsageProblem,
    complain,
    complain_of_usage,
    show_traceback,
    silence_stdout,
    tracebacks_made_visible,
    write_redirectable,
)
from nebula.cli.top import top
from nebula.compiled import build_name
from nebula.errors import MissingExtra, NebulaError
from nebula.optional import explain
from nebula.version import __version__

__all__ = ["main"]

app = typer.Typer(
    name="nebula",
    cls=Grouped,
    no_args_is_help=True,
    # Typer's tracebacks quote peers unescaped and may show local variables, such as passcodes.
    # `tracebacks_made_visible` writes plain ones.
    pretty_exceptions_enable=False,
    # Click's plain help fits into 80 columns, shows `[...]` unchanged, and calls `Grouped.format_commands`.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)

# By what they are for, in the order of the help.
_HEADINGS: Final[Mapping[str, Sequence[Callable[..., Any] | typer.Typer]]] = {
    "Run": (broker, run),
    "Call": (call, stream, send, services, describe, ping, stats),
    "Publish": (pub, sub, record),
    "Jobs": (job, engine),
    "Operate": (
        doctor, top, console, queues, topics, connections, sessions, principals, peek, purge, disconnect,
        dlq, delayed, session, store,
    ),
    "Secure": (cert, passcode),
    "Tools": (contexts, settings, stubs, schema, bench),
}  # fmt: skip

# What is typed most has a short form: `nebula jobs` is `nebula job list`.
# Hidden, so that the help lists each command once.
_SHORT: Final = (jobs, watch, cancel, engines)

for heading, commands in _HEADINGS.items():
    for command in commands:
        if isinstance(command, typer.Typer):
            app.add_typer(command, cls=Grouped, rich_help_panel=heading)
        else:
            kind = BrokerCommand if command is broker else None
            app.command(rich_help_panel=heading, cls=kind)(command)
for command in _SHORT:
    app.command(hidden=True)(command)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        write_redirectable(f"nebula {__version__} ({build_name()})\n")
        # Otherwise typer would go on and require a command.
        raise typer.Exit


# Typer needs a callback for options of the program itself. Its docstring is the program's help.
@app.callback()
def nebula(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Microservice verbs and Spark jobs over STOMP.

    \b
    A first look, in three shells:
      nebula broker                               a broker on this machine
      nebula run prices:app                       Responder `app` of prices.py
      nebula call prices quote symbol=ABC qty:=2  name=text or name:=json

    \b
    Then:
      nebula describe prices quote                what it takes, how to call it
      nebula pub orders '{"item": "cup"}'         a message to /queue/orders
      nebula queues                               what waits where
      nebula job list reports                     also: nebula jobs reports

    `nebula COMMAND --help` has more. Tables and colours on a terminal, JSON off
    it. Exit status: 0 fine; 1 the reply is an error, or a job did not end as
    done; 2 wrong flags or settings; 3 no broker, no listener or no reply in
    time; 130 Ctrl-C.
    """


# An optional library is imported when a command runs, not when the program starts: without the extra
# `broker`, `nebula call` works, and `nebula broker` ends with one sentence. See docs/decisions/0057.
def _foreseen(error: Exception) -> Exception:
    """Report a failure, or the extra that the command needs if a library is missing."""
    if isinstance(error, ModuleNotFoundError) and not isinstance(error, MissingExtra):
        try:
            explain(error, "this command")
        except MissingExtra as missing:
            return missing
    return error


def main() -> None:
    """Run the command line and exit with its status."""
    # Before anything can fail: the message of an exception may quote a peer.
    tracebacks_made_visible()
    try:
        # Not standalone: typer would print errors about arguments itself, with the arguments unescaped.
        # The result is a number only after `typer.Exit` or Ctrl-C (typer makes it 130); otherwise it is the
        # command's None.
        status = app(prog_name="nebula", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else Exit.OK)
    except UsageProblem as problem:
        sys.exit(complain_of_usage(problem))
    # Click raises Abort for Ctrl-C or Ctrl-D at a question. Nothing was done.
    except typer.Abort:
        complain("aborted")
        sys.exit(Exit.FAILED)
    # A task group wraps even a single error. Other exceptions are bugs of Nebula: they keep their traceback,
    # with Python's status 1.
    except (NebulaError, ModuleNotFoundError, ExceptionGroup) as failure:
        error = _foreseen(unwrapped(failure))
        if isinstance(error, BrokenPipeError):
            # As typer does where it comes alone: a reader that has gone is no fault worth a word.
            silence_stdout()
            sys.exit(Exit.FAILED)
        if not isinstance(error, NebulaError):
            raise
        if isinstance(error, BrokenModule):
            # Above the sentence, because people read the last line first.
            show_traceback(error.traceback)
        complain(sentence_of(error))
        sys.exit(exit_of(error))
