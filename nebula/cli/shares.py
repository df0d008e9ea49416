"""`nebula principals`: what each principal uses of the broker's resources."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from nebula.broker.operations.orders import PrincipalOrder
from nebula.cli.operators import Limit, list_all, show_list
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Timeout, Url
from nebula.cli.render import Output


def principals(
    *,
    pattern: Annotated[
        str, Option(metavar="GLOB", help="Only matching principals, such as sensor-1 or 'sensor-*'.")
    ] = "**",
    order: Annotated[
        PrincipalOrder,
        Option(help="By name; or by what they use or how often they were refused, largest first."),
    ] = PrincipalOrder.NAME,
    limit: Limit = 100,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List the principals of a broker and what each of them uses.

    A principal is the identity of a peer, such as its login or its certificate's fingerprint. No principal
    may use up a broker: each has a share of its memory, its disk and everything that is counted, such as
    connections. `used` is the part of its share that a principal uses, for the resource that is closest to
    the limit. At 100 % the broker refuses it more of that resource, and counts the refusals.

    Operators are marked with *. They may use everything that is free, and the reserve, a part of each
    resource except the disk that is kept for operators. An anonymous peer is listed with its address, such as
    anonymous@10.0.0.7. The JSON output has all counts, including subscriptions, durable sessions and delayed
    messages.

    \b
    Examples:
      nebula principals --order used --limit 10
      nebula principals --pattern 'sensor-*' --order refusals
    """
    from nebula.cli.columns import PRINCIPALS, operator_mark

    # The broker sorts all principals; sorting here would only rank a page.
    wanted = {"pattern": pattern, "order": order.value}
    listed = list_all(broker, "principals.list", wanted, limit, timeout)
    output = Output(as_json=as_json)
    show_list(output, PRINCIPALS, listed, "principals")
    if output.is_for_people and any(operator_mark(row.get("is_operator")) for row in listed.rows):
        output.show("* operator")
