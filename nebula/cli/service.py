"""`nebula run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from typer import Argument, BadParameter, Option
from typer import Exit as Leave

from nebula.cli.options import AsJson, LogLevel, Url
from nebula.cli.render import Output
from nebula.logs import Level

if TYPE_CHECKING:
    from nebula.cli.supervising import Supervisor, Worker

_LAST_PORT: Final = 65_535


def _checked(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > _LAST_PORT or (colon and not host):
        raise BadParameter("write PORT or HOST:PORT, for example 9000 or 0.0.0.0:9000")
    return text


Http: TypeAlias = Annotated[
    str | None,
    Option(
        metavar="[HOST:]PORT",
        help="Answer /healthz, /readyz and /metrics there; HOST is 127.0.0.1 unless given.",
        # Checked before a module is imported.
        callback=lambda text: None if text is None else _checked(text),
        show_default=False,
    ),
]


App: TypeAlias = Annotated[
    str,
    Argument(
        metavar="MODULE:APP",
        help="The Responder APP in MODULE, here or installed. `prices.py`: the only one in it.",
    ),
]
Workers: TypeAlias = Annotated[
    int,
    Option(
        min=1,
        # Each is a process with an interpreter of its own.
        max=256,
        help="Number of processes; each is restarted when it ends. Each has an --http port of its own: "
        "PORT, PORT+1, ...",
    ),
]
Reload: TypeAlias = Annotated[
    bool, Option("--reload", help="Restart when a Python file under this folder changes.")
]
Exclusive: TypeAlias = Annotated[
    bool, Option("--exclusive", help="Do not start if an instance of the service has another contract.")
]


def run(
    app: App,
    *,
    workers: Workers = 1,
    reload: Reload = False,
    http: Http = None,
    exclusive: Exclusive = False,
    broker: Url = None,
    log_level: LogLevel = Level.INFO,
    supervised: Annotated[bool, Option("--supervised", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Run a service until SIGTERM or Ctrl-C; requests under way are answered first.

    The first line says that it serves; off a terminal it is JSON:
    {"event": "serving", "service": "prices", "queues": ["/queue/prices"]}. The log goes to stderr.
    With --workers or --reload it comes when all processes serve, and "http" is a list of their addresses.
    It reconnects whenever the connection is lost. If there is no broker at the start, the exit status is 3.

    Two programs with the same service name share its requests. If their contracts differ (verbs, parameters
    or results), the log warns, and with --exclusive the second one ends with status 1 before its first
    request.

    \b
    Examples:
      nebula run prices:app
      nebula run prices:app --reload
      nebula run prices:app --workers 4 --http 9000
    """
    output = Output(as_json=as_json)
    _check_ports(http, workers)
    # Workers run this command with --supervised, or each would start workers of its own.
    if (workers > 1 or reload) and not supervised:
        words = ("--exclusive",) if exclusive else ()
        _supervise(app, output, workers, http, broker, log_level, words, is_reloading=reload)
        return
    _serve(app, output, http, broker, log_level, is_supervised=supervised, is_exclusive=exclusive)


def _check_ports(http: str | None, workers: int) -> None:
    if http is not None and (last := host_and_port(http)[1] + workers - 1) > _LAST_PORT:
        raise BadParameter(
            f"the last of {workers} workers would have port {last}, and {_LAST_PORT} is the highest"
        )


def _serve(
    target: str,
    output: Output,
    http: str | None,
    broker: str | None,
    level: Level,
    *,
    is_supervised: bool,
    is_exclusive: bool,
) -> None:
    from nebula.cli.arguments import find_app
    from nebula.cli.programs import run_service

    app = find_app(target)

    def announce(pages: str | None) -> None:
        facts = {"event": "serving", "service": app.name, "queues": list(app.destinations)}
        _announce(output, facts if pages is None else {**facts, "http": pages})

    address = None if http is None else host_and_port(http)
    run_service(
        app, broker, level, announce, http=address, is_supervised=is_supervised, is_exclusive=is_exclusive
    )


def _announce(output: Output, facts: Mapping[str, Any]) -> None:
    text = f"serving {facts['service']} on {', '.join(facts['queues'])}"
    if "workers" in facts:
        text += f", by {facts['workers']} workers"
    if http := facts.get("http"):
        text += f"; {http if isinstance(http, str) else ', '.join(http)}"
    output.event(text, **facts)


def _supervise(
    app: str,
    output: Output,
    workers: int,
    http: str | None,
    broker: str | None,
    level: Level,
    more: Sequence[str],
    *,
    is_reloading: bool,
) -> None:
    from nebula.cli.programs import run_supervisor
    from nebula.cli.supervising import Supervisor, check_can_watch

    if is_reloading:
        # Checked before the first process starts.
        check_can_watch()

    def announce(told: Sequence[Mapping[str, Any]]) -> None:
        # Workers differ only in their addresses.
        facts = {**told[0], "workers": workers}
        if http is not None:
            facts["http"] = [each["http"] for each in told]
        _announce(output, facts)

    def make() -> Supervisor:
        # Called on the loop, where a supervisor creates its events.
        each = [worker_of(app, http, number, broker, level, more) for number in range(workers)]
        return Supervisor(each, announce, watched=Path.cwd() if is_reloading else None)

    if status := run_supervisor(make, level):
        # The status of the worker that could not start, as without --workers.
        raise Leave(status)


def worker_of(
    app: str, http: str | None, number: int, broker: str | None, level: Level, more: Sequence[str] = ()
) -> Worker:
    """How the worker of a number is started.

    Args:
        app: the service, as MODULE:APP.
        http: `[HOST:]PORT` of the first one; the next has the next port.
        number: from 0.
        broker: its address; None: as the environment says.
        level: of the log.
        more: flags that are passed on.
    """
    from nebula.cli.supervising import Worker

    # With the same interpreter, because the script need not be on the path. --json: the supervisor reads the
    # first line.
    command = [sys.executable, "-m", "nebula.cli", "run", app, "--supervised", "--json", "--log-level", level]
    command += more
    if http is not None:
        host, port = host_and_port(http)
        # 0 stays 0: each worker gets a free port.
        command += ["--http", f"{host}:{port + number if port else 0}"]
    # Not among the words: other users can see those, and an address may have a passcode.
    environment = dict(os.environ) if broker is None else {**os.environ, "NEBULA_BROKER": broker}
    return Worker(command, environment)


def host_and_port(text: str) -> tuple[str, int]:
    """The two of `[HOST:]PORT`; the host is this machine's own unless it is given."""
    host, _, port = text.rpartition(":")
    # `[::1]:9000`: brackets separate an IPv6 address from a port, and are no part of it.
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)
