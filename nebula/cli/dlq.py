"""`nebula dlq list|show|replay|purge`: dead letters."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import typer
from typer import Argument, BadParameter, Option

from nebula.cli.operators import Exact, Yes, find_source, make_sure, tell
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Timeout, Url, completion_of, named_queue
from nebula.cli.queues import show_messages
from nebula.cli.render import Output
from nebula.cli.replies import DeadLetters, Message, Purged, Replayed
from nebula.cli.tables import table

Numbers: TypeAlias = Annotated[
    list[int] | None, Argument(metavar="NUMBER", help="Only these, by the numbers in the list.")
]
From: TypeAlias = Annotated[
    str | None,
    Option(
        "--from",
        metavar="DEST",
        help="Only messages sent to this destination; `orders` is /queue/orders.",
        autocompletion=completion_of("complete_queues"),
    ),
]
Reason: TypeAlias = Annotated[
    str | None, Option(help="Only messages with this reason: exhausted, expired, full or rejected.")
]
AllLetters: TypeAlias = Annotated[
    bool,
    Option(
        "--all",
        help="All dead letters. Required if no NUMBER, --from or --reason is given; not allowed with one.",
    ),
]
Newest: TypeAlias = Annotated[
    bool, Option("--newest", help="The newest first; --after then goes on with older ones.")
]
Most: TypeAlias = Annotated[int, Option("--limit", "-n", min=1, max=100_000, help="How many at most.")]


dlq = typer.Typer(
    name="dlq",
    help="Show dead letters (messages that could not be delivered), put them back, or drop them.",
    no_args_is_help=True,
)


@dlq.command(name="list")
def list_(
    *,
    source: From = None,
    exact: Exact = False,
    reason: Reason = None,
    after: Annotated[int, Option(min=0, help="Begin after this number.")] = 0,
    limit: Annotated[int, Option("--limit", "-n", min=1, max=1_000, help="How many.")] = 100,
    newest: Newest = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List dead letters, the oldest first, with source, reason, time and number of deliveries.

    The code is the error that the last consumer reported; `show` also has its text and the handler's name.

    Of very many dead letters, the broker keeps the oldest in memory and the others only on disk. Those on
    disk are not listed, only counted below the list (in JSON: `on_disk`). --newest lists them too.

    \b
    Examples:
      nebula dlq list --from orders
      nebula dlq list --newest --limit 20
    """
    from nebula.cli.columns import DEAD_LETTERS

    # Looks for letters with that source, because the queue itself may be deleted.
    source = find_source(broker, source, timeout, is_exact=exact)
    wanted = {"source": source, "reason": reason, "after": after, "limit": limit, "reverse": newest or None}
    letters = tell(broker, "dlq.list", wanted, timeout, DeadLetters)
    output = Output(as_json=as_json)
    # A single page: --after shows others.
    rows = letters["rows"]
    if not output.is_for_people:
        output.json_line(letters)
        return
    output.show(table(DEAD_LETTERS, rows) if rows else "no dead letters")
    if letters["on_disk"]:
        output.show(f"on disk, not in this list: {letters['on_disk']:,}")


@dlq.command()
def show(
    letter: Annotated[int, Argument(metavar="NUMBER", help="As the list shows it.")],
    *,
    max_bytes: Annotated[int, Option(min=0, max=1_000_000, help="How much of the body.")] = 100_000,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show a dead letter with its headers and body.

    Example: nebula dlq show 1207
    """
    message = tell(broker, "dlq.show", {"number": letter, "max_bytes": max_bytes}, timeout, Message)
    output = Output(as_json=as_json)
    if output.is_for_people:
        show_messages(output, [message])
    else:
        output.json_line(message)


@dlq.command()
def replay(
    numbers: Numbers = None,
    *,
    source: From = None,
    exact: Exact = False,
    reason: Reason = None,
    everything: AllLetters = False,
    to: Annotated[
        str | None,
        Option(metavar="QUEUE", help="Put them into this queue instead.", callback=named_queue),
    ] = None,
    limit: Most = 1_000,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Put dead letters back where they came from, as new messages there.

    None is lost or doubled, whatever happens meanwhile. A message stays a dead letter if its queue has no
    room, if its sender may no longer send there, or if it came from a topic and --to is not given.

    \b
    Examples:
      nebula dlq replay 1207 1208
      nebula dlq replay --from orders --reason exhausted
      nebula dlq replay --from /topic/news --to missed
    """
    wanted = _wanted(numbers, source, reason, limit, everything=everything)
    # After the check of the words, so that a forgotten --all costs no request.
    wanted |= {"source": find_source(broker, source, timeout, is_exact=exact), "to": to}
    outcome = tell(broker, "dlq.replay", wanted, timeout, Replayed)
    Output(as_json=as_json).event(_outcome(outcome, limit), **outcome)


@dlq.command()
def purge(
    numbers: Numbers = None,
    *,
    source: From = None,
    exact: Exact = False,
    reason: Reason = None,
    everything: AllLetters = False,
    limit: Most = 100_000,
    yes: Yes = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Drop dead letters for good.

    Example: nebula dlq purge --reason expired --yes
    """
    wanted = _wanted(numbers, source, reason, limit, everything=everything)
    # Before any request, so that a script without --yes fails even if no broker runs.
    make_sure("Drop these dead letters for good?", is_sure=yes)
    wanted["source"] = find_source(broker, source, timeout, is_exact=exact)
    outcome = tell(broker, "dlq.purge", wanted, timeout, Purged)
    parts = [f"dead letters dropped: {outcome['purged']:,}", *_left_on_disk(outcome)]
    Output(as_json=as_json).event("; ".join(parts), **outcome)


def _wanted(
    numbers: list[int] | None, source: str | None, reason: str | None, limit: int, *, everything: bool
) -> dict[str, Any]:
    """The filter. A forgotten word must not drop all of them."""
    is_chosen = bool(numbers) or source is not None or reason is not None
    if is_chosen == everything:
        raise BadParameter("say which: numbers, --from or --reason; or --all alone")
    return {"numbers": numbers or None, "source": source, "reason": reason, "limit": limit}


def _outcome(outcome: dict[str, int], limit: int) -> str:
    left = {
        "found no room": outcome["full"],
        "without a queue to go back to (--to names one)": outcome["without_queue"],
        "of senders who may not send there": outcome["not_permitted"],
    }
    parts = [f"{why}: {count:,}" for why, count in left.items() if count]
    # The limit includes letters that could not be put back, because a second run finds them again.
    if outcome["replayed"] + sum(left.values()) >= limit:
        parts.append("there may be more; --limit goes on")
    return "; ".join([f"dead letters put back: {outcome['replayed']:,}", *parts, *_left_on_disk(outcome)])


def _left_on_disk(outcome: dict[str, int]) -> list[str]:
    # Dead letters that do not fit into memory are only on disk until those before them are gone.
    count = outcome["on_disk"]
    return [f"on disk, not looked at: {count:,}"] if count else []
