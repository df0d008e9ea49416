"""`nebula top`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from nebula.cli.options import AsJson, Url
from nebula.cli.render import Output


def top(
    *,
    interval: Annotated[float, Option("--interval", "-i", min=0.2, help="Seconds between two looks.")] = 2.0,
    limit: Annotated[int, Option("--limit", "-n", min=1, max=200, help="Rows of each table.")] = 15,
    once: Annotated[bool, Option("--once", help="One look, after one interval.")] = False,
    broker: Url = None,
    as_json: AsJson = False,
) -> None:
    """Watch a broker: its rates, deepest queues and busiest connections, until q or Ctrl-C.

    The line `shares` names the resource that is closest to its limit, and the principal that uses most of its
    share; `nebula principals` has the details.

    Off a terminal there is one line of JSON for each interval.

    \b
    Examples:
      nebula top
      nebula top --once | jq .rates
    """
    from nebula.cli.asking import ask
    from nebula.cli.watching import watch

    output = Output(as_json=as_json)
    ask(broker, lambda client: watch(client, output, interval, limit, once=once))
