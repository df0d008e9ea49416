"""`nebula queues`, `nebula peek` and `nebula purge`."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from typer import Argument, Option

from nebula.broker.operations.orders import QueueOrder
from nebula.cli.layout import Facts
from nebula.cli.operators import (
    Exact,
    Internal,
    Limit,
    Yes,
    find_queue,
    is_internal_wanted,
    list_all,
    make_sure,
    show_details,
    show_list,
    tell,
)
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, FullIds, Timeout, Url, completion_of, named_queue
from nebula.cli.render import Output
from nebula.cli.replies import Details, Messages
from nebula.cli.tables import byte_size
from nebula.cli.terminal import text

_completion: Final = completion_of("complete_queues")

Queue: TypeAlias = Annotated[
    str, Argument(metavar="QUEUE", help="`orders` is `/queue/orders`.", autocompletion=_completion)
]


Pattern: TypeAlias = Annotated[
    str,
    Argument(
        metavar="QUEUE | GLOB",
        help="One queue with its consumers, or all that match.",
        autocompletion=_completion,
    ),
]
Ordered: TypeAlias = Annotated[
    QueueOrder,
    Option(
        help="By name; by depth, bytes, messages taken in, un-ACKed messages or consumers, largest first; or"
        " by the oldest message."
    ),
]


def queues(
    name: Pattern = "**",
    *,
    order: Ordered = QueueOrder.NAME,
    limit: Limit = 100,
    internal: Internal = False,
    full: FullIds = False,
    exact: Exact = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List the queues of a broker, or show one with its consumers.

    Nebula's own queues, such as inboxes, are hidden unless you use --all or the glob begins with nebula.

    \b
    Examples:
      nebula queues --order depth --limit 10
      nebula queues '/queue/orders*'
      nebula queues orders
    """
    from nebula.cli.columns import CONSUMERS, QUEUE_FACTS, QUEUES
    from nebula.globs import is_glob

    output = Output(as_json=as_json)
    # With --exact a star is part of the name.
    if exact or not is_glob(name):
        found = find_queue(broker, name, timeout, is_exact=exact)
        details = tell(broker, "queue.show", {"queue": found}, timeout, Details)
        show_details(output, details, QUEUE_FACTS, CONSUMERS, has_full_ids=full)
        return
    # `orders*` is `/queue/orders*`, by the rule of names (docs/decisions/0042).
    pattern = str(named_queue(name))
    internal = is_internal_wanted(pattern, is_asked=internal)
    wanted = {"pattern": pattern, "order": order.value, "internal": internal}
    listed = list_all(broker, "queues.list", wanted, limit, timeout)
    show_list(output, QUEUES, listed, "queues")


def peek(
    queue: Queue,
    *,
    limit: Annotated[int, Option("--limit", "-n", min=1, max=100, help="How many messages.")] = 10,
    after: Annotated[int, Option(min=0, help="Begin after the message with this number.")] = 0,
    max_bytes: Annotated[int, Option(min=0, max=1_000_000, help="How much of each body.")] = 1_000,
    exact: Exact = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show messages that wait in a queue, in order of arrival, and leave them there.

    \b
    Examples:
      nebula peek orders --limit 1
      nebula peek orders --after 17 --max-bytes 100000 | jq -r .[].body
    """
    # `orders` may be `/queue/orders`, or a queue that another client made without the prefix.
    found = find_queue(broker, queue, timeout, is_exact=exact)
    wanted = {"queue": found, "after": after, "limit": limit, "max_bytes": max_bytes}
    messages = tell(broker, "queue.peek", wanted, timeout, Messages)
    show_messages(Output(as_json=as_json), messages)


def show_messages(output: Output, messages: list[dict[str, Any]]) -> None:
    """Messages, each with its headers and the begin of its body; or one line of JSON."""
    if not output.is_for_people:
        output.json_line(messages)
        return
    if not messages:
        output.show("no message waits")
    for message in messages:
        headers = Facts(
            (text(name, keep=""), text(value, keep="")) for name, value in message["headers"].items()
        )
        what = f"{message['number']}  from {message['sender']}, {byte_size(message['body_bytes'])}"
        output.show(text(what, "bold", keep=""), headers)
        end = " …" if message["is_cut"] else ""
        output.show(f"{message['body']}{end}\n")


def purge(
    queue: Queue,
    *,
    exact: Exact = False,
    yes: Yes = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Drop all messages that wait in a queue. Messages that consumers have not ACKed stay.

    Example: nebula purge orders --yes
    """
    name = find_queue(broker, queue, timeout, is_exact=exact)
    make_sure(f"Drop all messages that wait in {name}?", is_sure=yes)
    count = tell(broker, "queue.purge", {"queue": name}, timeout, int)
    Output(as_json=as_json).event(f"{name}: messages dropped: {count:,}", queue=name, purged=count)
