"""`nebula top`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from nebula.cli.live import Table
from nebula.cli.operators import Internal
from nebula.cli.options import AsJson, FullIds, Url
from nebula.cli.render import Output


def top(
    *,
    interval: Annotated[float, Option("--interval", "-i", min=0.2, help="Seconds between refreshes.")] = 2.0,
    limit: Annotated[int, Option("--limit", "-n", min=1, max=200, help="Rows of each table.")] = 15,
    once: Annotated[bool, Option("--once", help="Show one view, after one interval, and exit.")] = False,
    show: Annotated[
        Table | None, Option(help="The first table. The default is queues; with --once, two tables.")
    ] = None,
    internal: Internal = False,
    full: FullIds = False,
    broker: Url = None,
    as_json: AsJson = False,
) -> None:
    """Watch a broker: its rates, deepest queues, busiest connections, and principals.

    Keys: 1, 2 and 3 select a table, Tab the next one, q quits. Rows that do not fit the screen are left out.
    Without a keyboard the tables alternate.

    The line `shares` names the resource that is closest to its limit, and the principal that uses most of its
    share; `nebula principals` has the details.

    Off a terminal there is one line of JSON for each interval.

    \b
    Examples:
      nebula top
      nebula top --show connections
      nebula top --once | jq .rates
    """
    from nebula.cli.asking import ask
    from nebula.cli.watching import Wanted, watch

    output = Output(as_json=as_json)
    # Without --timeout: it repeats its requests until Ctrl-C.
    wanted = Wanted(interval, limit, show, has_internal=internal, has_full_ids=full)
    ask(broker, lambda client: watch(client, output, wanted, once=once))
