"""`nebula services`, `nebula ping` and `nebula stats`: instances of services and their statistics."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option
from typer import Exit as Leave

from nebula.cli.exits import Exit
from nebula.cli.options import AsJson, Service, Url, Watch, completion_of
from nebula.cli.render import Output

# Present instances reply at once; a busy one is shown as missing rather than waited for.
_TIMEOUT = 5.0

Wait = Annotated[
    float, Option("--timeout", "-t", metavar="SECONDS", min=0.001, help="How long to wait for the instances.")
]
Interval = Annotated[
    float, Option("--interval", "-i", metavar="SECONDS", min=0.1, help="With --watch: how often to refresh.")
]


def services(
    service: Annotated[
        str | None,
        Argument(
            metavar="SERVICE",
            help="Only the instances of this service.",
            show_default=False,
            autocompletion=completion_of("complete_services"),
        ),
    ] = None,
    *,
    watch: Watch = False,
    broker: Url = None,
    timeout: Wait = _TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List the running instances of services, with their version and load.

    Two instances with the same `contracts` have the same verbs, with the same parameters and results. If
    instances of one service differ, a star marks them, and `differs` in JSON. Off a terminal the output is a
    JSON list; with --watch a list for each change. The broker's own service, nebula.broker, is not listed;
    describe, ping and stats accept it.

    \b
    Examples:
      nebula services
      nebula services prices --watch
      nebula services | jq -r '.[].name'
    """
    from nebula.cli.asking import ask
    from nebula.cli.instances import show_services

    output = Output(as_json=as_json)
    # Status 0 even without instances: an empty list is a valid result.
    ask(broker, lambda client: show_services(client, output, service, timeout, is_live=watch))


def ping(
    service: Service,
    *,
    watch: Watch = False,
    interval: Interval = 2.0,
    broker: Url = None,
    timeout: Wait = _TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Ask each instance of a service whether it answers, and how fast.

    Exit status 0 if all instances replied, else 3.

    Example: nebula ping prices
    """
    from nebula.cli.asking import ask
    from nebula.cli.instances import show_ping

    output = Output(as_json=as_json)
    every = interval if watch else None
    # Status 3, so that a script can use this as a probe.
    if not ask(broker, lambda client: show_ping(client, output, service, timeout, every)):
        raise Leave(Exit.UNREACHED)


def stats(
    service: Service,
    *,
    by_instance: Annotated[
        bool, Option("--by-instance", help="A row for each verb of each instance. JSON always has both.")
    ] = False,
    watch: Watch = False,
    interval: Interval = 2.0,
    broker: Url = None,
    timeout: Wait = _TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show what the verbs of a service did since it started: requests, errors and times, of all instances.

    p50: half of the requests took no longer than this; p99: 99 in 100 did. Functions of @app.on are shown in
    the same way. Exit status 3 if no instance replied.

    \b
    Examples:
      nebula stats prices
      nebula stats prices --by-instance --watch
      nebula stats prices | jq .verbs.quote.p99_seconds
    """
    from nebula.cli.asking import ask
    from nebula.cli.counts import show_stats

    output = Output(as_json=as_json)
    every = interval if watch else None
    if not ask(
        broker,
        lambda client: show_stats(client, output, service, timeout, every, by_instance=by_instance),
    ):
        raise Leave(Exit.UNREACHED)
