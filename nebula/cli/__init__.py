"""The `nebula` command: each subcommand reads words, calls one public function and shows the outcome.

No logic lives here that a program could want: what a command can do, `nebula.sync` can do in as many
lines. `main` is the only place where an error becomes a sentence and an exit status.
"""

from __future__ import annotations

from nebula.cli import hangups as hangups  # isort: split

import sys
from typing import Annotated

import typer

from nebula import __version__
from nebula.cli.bench import bench
from nebula.cli.broker import broker
from nebula.cli.calls import call, describe
from nebula.cli.cert import cert, passcode
from nebula.cli.contracts import schema, stubs
from nebula.cli.delayed import delayed
from nebula.cli.dlq import dlq
from nebula.cli.engines import engine, engines
from nebula.cli.exits import Exit, exit_of, sentence_of, unwrapped
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
from nebula.cli.shares import principals
from nebula.cli.store import store
from nebula.cli.sub import sub
from nebula.cli.terminal import (
    UsageProblem,
    complain,
    complain_of_usage,
    silence_stdout,
    tracebacks_made_visible,
    write_redirectable,
)
from nebula.cli.top import top
from nebula.errors import NebulaError

__all__ = ["main"]

app = typer.Typer(
    name="nebula",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (broker, run, call, send, services, describe, stubs, schema, ping, stats):
    app.command()(command)
for other in (pub, sub, record, jobs, watch, cancel, engines, contexts, passcode):
    app.command()(other)
for look in (top, queues, topics, connections, sessions, principals, peek, purge, disconnect):
    app.command()(look)
app.add_typer(bench)
app.add_typer(engine)
app.add_typer(dlq)
app.add_typer(delayed)
app.add_typer(session)
app.add_typer(job)
app.add_typer(cert)
app.add_typer(store)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        write_redirectable(f"nebula {__version__}\n")
        raise typer.Exit


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
      nebula run prices:app                       a service: the Responder `app` in prices.py
      nebula call prices quote symbol=ABC qty:=2  ask it; name=text or name:=json

    Tables and colours on a terminal, JSON off it. Exit status: 0 fine; 1 answered with an error, or a
    job ended otherwise than done; 2 wrong flags or settings; 3 no broker, nobody listening or no answer
    in time; 130 Ctrl-C.
    """


def main() -> None:
    """Run the command line and exit with its status."""
    tracebacks_made_visible()
    try:
        # Not standalone: typer would print errors about arguments itself, with the arguments unescaped.
        status = app(prog_name="nebula", standalone_mode=False)
        sys.exit(status if isinstance(status, int) else Exit.OK)
    except UsageProblem as problem:
        sys.exit(complain_of_usage(problem))
    except typer.Abort:
        complain("aborted")
        sys.exit(Exit.FAILED)
    except (NebulaError, ExceptionGroup) as failure:
        error = unwrapped(failure)
        if isinstance(error, BrokenPipeError):
            # As typer does where it comes alone: a reader that has gone is no fault worth a word.
            silence_stdout()
            sys.exit(Exit.FAILED)
        if not isinstance(error, NebulaError):
            raise
        complain(sentence_of(error))
        sys.exit(exit_of(error))
