"""`nebula session end|purge`: removing durable subscriptions or their backlog."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer
from typer import Argument

from nebula.cli.operators import Yes, find_session, make_sure, tell
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, Timeout, Url
from nebula.cli.render import Output

Session: TypeAlias = Annotated[str, Argument(metavar="SESSION", help="As `nebula sessions` shows it.")]

session = typer.Typer(
    name="session",
    help="End a session with durable subscriptions, or drop its backlog.",
    no_args_is_help=True,
)


@session.command()
def end(
    name: Session,
    *,
    yes: Yes = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """End a session: its durable subscriptions, everything that waits for them, and its connection.

    Use it for a reader that does not come back, whose subscriptions keep collecting messages. If it does come
    back, it starts with nothing, and does not get what was sent in between.

    Example: nebula session end reader-7
    """
    name = find_session(broker, name, timeout, "sessions.list")
    # Looked up first, so that the question has the whole name.
    make_sure(f"End the session {name}, and drop everything that waits for it, for good?", is_sure=yes)
    tell(broker, "session.end", {"session": name}, timeout)
    Output(as_json=as_json).event(f"the session {name} has ended", ended=name)


@session.command()
def purge(
    name: Session,
    *,
    yes: Yes = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Drop everything that waits for a session's durable subscriptions.

    The subscriptions stay and collect new messages. Messages that the reader has not yet ACKed stay as well.

    Example: nebula session purge reader-7 --yes
    """
    name = find_session(broker, name, timeout, "sessions.list")
    # The session stays: this is for a reader that comes back and need not receive what it missed.
    make_sure(f"Drop everything that waits for the session {name}, for good?", is_sure=yes)
    count = tell(broker, "session.purge", {"session": name}, timeout, int)
    Output(as_json=as_json).event(f"{name}: messages dropped: {count:,}", session=name, purged=count)
