"""`nebula delayed list|purge`: delayed messages."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer
from typer import BadParameter, Option

from nebula.cli.operators import Limit, Yes, list_all, make_sure, show_list, tell
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Timeout, Url, named_queue
from nebula.cli.render import Output

Pattern: TypeAlias = Annotated[
    str | None,
    Option(
        metavar="GLOB", help="Only messages for matching queues, such as 'orders*'.", callback=named_queue
    ),
]
Principal: TypeAlias = Annotated[str | None, Option(help="Only messages that this principal sent.")]
AllDelayed: TypeAlias = Annotated[
    bool,
    Option(
        "--all",
        help="All delayed messages. Required if neither --pattern nor --principal is given; not allowed with"
        " them.",
    ),
]


delayed = typer.Typer(
    name="delayed",
    help="List delayed messages, or drop them.",
    no_args_is_help=True,
)


@delayed.command(name="list")
def list_(
    *,
    pattern: Pattern = None,
    principal: Principal = None,
    limit: Limit = 100,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List delayed messages, in the order in which they were sent.

    A message with the header `delay` or `deliver-at` is put into its queue later. Until then `nebula queues`
    and `nebula peek` do not show it.

    \b
    Examples:
      nebula delayed list --pattern '/queue/orders*'
      nebula delayed list --principal sensor-1
    """
    from nebula.cli.columns import DELAYED

    wanted = {"pattern": pattern, "principal": principal}
    listed = list_all(broker, "delayed.list", wanted, limit, timeout)
    show_list(Output(as_json=as_json), DELAYED, listed, "delayed messages")


@delayed.command()
def purge(
    *,
    pattern: Pattern = None,
    principal: Principal = None,
    everything: AllDelayed = False,
    yes: Yes = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Drop delayed messages for good, before they are delivered.

    \b
    Examples:
      nebula delayed purge --principal sensor-1
      nebula delayed purge --pattern '/queue/reminders*' --yes
    """
    # A forgotten filter must not drop all messages, and --all contradicts a filter.
    if (pattern is not None or principal is not None) == everything:
        raise BadParameter("say which: --pattern or --principal; or --all alone")
    question = f"Drop {_which(pattern, principal)} for good?"
    make_sure(question, is_sure=yes)
    count = tell(broker, "delayed.purge", {"pattern": pattern, "principal": principal}, timeout, int)
    Output(as_json=as_json).event(f"delayed messages dropped: {count:,}", purged=count)


def _which(pattern: str | None, principal: str | None) -> str:
    sent_by = "" if principal is None else f" that {principal} sent"
    sent_to = "" if pattern is None else f" for {pattern}"
    return f"all delayed messages{sent_to}{sent_by}"
