"""`nebula principals`: what each principal uses of the bounds that all share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from typer import Option

from nebula.cli.operators import Limit, list_all, show_list
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Timeout, Url
from nebula.cli.render import Output
from nebula.cli.tables import Column, number, octets, percent


class Order(StrEnum):
    """What principals are listed by."""

    NAME = "name"
    USED = "used"
    MEMORY = "memory"
    DISK = "disk"
    CONNECTIONS = "connections"
    DESTINATIONS = "destinations"
    REFUSALS = "refusals"


def _mark(is_operator: Any) -> str:
    return "*" if is_operator is True else ""


# They fit on 80 columns with names of 13 characters; longer names are folded.
COLUMNS: Final = (
    Column("principal", "principal"),
    Column("", "is_operator", _mark),
    Column("used", "used_fraction", percent),
    Column("memory", "memory_bytes", octets),
    Column("disk", "disk_bytes", octets),
    Column("connections", "connections", number),
    Column("destinations", "destinations", number),
    Column("refusals", "refusals", number),
)


def principals(
    *,
    pattern: Annotated[
        str, Option(metavar="GLOB", help="Only principals that match; sensor-1 is that one alone.")
    ] = "**",
    order: Annotated[
        Order, Option(help="By name, or the first by what they use, or by how often they were refused.")
    ] = Order.NAME,
    limit: Limit = 100,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List the principals of a broker with what each of them uses.

    Nobody may use all of a broker: each principal has a share of its memory, its disk and of everything
    that is counted, such as connections. `used` is how much of its share a principal uses, for the resource
    that is nearest to its end. At 100 % the broker refuses it more of that, and counts the refusals.

    Operators are marked with *. They may use what is reserved for them, and all that is free. An anonymous
    peer is listed with its address, such as anonymous@10.0.0.7. As JSON there are all counts, also those of
    subscriptions, durable sessions and delayed messages.

    \b
    Examples:
      nebula principals --order used --limit 10
      nebula principals --pattern 'sensor-*' --order refusals
    """
    wanted = {"pattern": pattern, "order": order.value}
    listed = list_all(broker, "principals.list", wanted, limit, timeout)
    output = Output(as_json=as_json)
    show_list(output, COLUMNS, listed, "principals")
    if output.is_for_people and any(_mark(row.get("is_operator")) for row in listed.rows):
        output.show("* operator")
