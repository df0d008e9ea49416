"""Options of commands that start a job, each declared once."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from typer import Option

from nebula.cli.options import named_destination

if TYPE_CHECKING:
    from nebula.rpc.contract.start_options import StartOptions

# Without an offset it is the local time.
_TIMES: Final = ["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%d"]

Priority: TypeAlias = Annotated[
    int | None, Option(min=0, max=9, help="For a job: a job with a higher priority starts first.")
]
NotBefore: TypeAlias = Annotated[
    datetime | None,
    Option(
        formats=_TIMES,
        metavar="TIME",
        help="For a job: when to start it, such as 2030-01-31T06:00: local time, or with an offset such as"
        " +02:00.",
    ),
]
Notify: TypeAlias = Annotated[
    str | None,
    Option(
        metavar="DESTINATION",
        help="For a job: send its statuses there too. Delivery of the last status is guaranteed only to a"
        " /queue/….",
        callback=named_destination,
    ),
]


def start_options(priority: int | None, not_before: datetime | None, notify: str | None) -> StartOptions:
    """Those that are given."""
    options: StartOptions = {}
    # Omitted instead of null, so that the service's defaults apply.
    if priority is not None:
        options["priority"] = priority
    if not_before is not None:
        options["not_before"] = not_before
    if notify is not None:
        options["notify"] = notify
    return options
