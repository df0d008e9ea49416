"""`nebula connections`, `nebula disconnect`, `nebula sessions` and `nebula topics`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, TypeAlias

from typer import Argument, Option

from nebula.broker.operations.orders import ConnectionOrder, TopicOrder
from nebula.cli.operators import (
    Internal,
    Limit,
    Yes,
    find_session,
    is_internal_wanted,
    list_all,
    make_sure,
    show_details,
    show_list,
    tell,
)
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, FullIds, Timeout, Url, completion_of, named_topic
from nebula.cli.render import Output
from nebula.cli.replies import Details


class TopicKind(StrEnum):
    """Kinds of destinations that have no queue."""

    TOPIC = "topic"
    LAST_VALUE = "last-value"


Connection: TypeAlias = Annotated[
    str,
    Argument(
        metavar="SESSION",
        help="As `nebula connections` shows it.",
        autocompletion=completion_of("complete_sessions"),
    ),
]
Connections: TypeAlias = Annotated[
    str,
    Argument(
        metavar="SESSION | GLOB",
        help="One with its subscriptions, or those that match.",
        autocompletion=completion_of("complete_sessions"),
    ),
]
Principal: TypeAlias = Annotated[str | None, Option(help="Only those of this principal.")]
Ordered: TypeAlias = Annotated[
    ConnectionOrder, Option(help="By session; or by traffic, outbox or un-ACKed messages, largest first.")
]
Sessions: TypeAlias = Annotated[
    str, Argument(metavar="SESSION | GLOB", help="One with its durable subscriptions, or those that match.")
]
Topics: TypeAlias = Annotated[
    str,
    Argument(
        metavar="TOPIC | GLOB",
        help="One with its subscribers, or those that match.",
        callback=named_topic,
    ),
]
TopicsOrdered: TypeAlias = Annotated[
    TopicOrder,
    Option(
        help="By name; by subscribers, waiting messages or bytes, largest first; or by the latest change of a"
        " last value."
    ),
]
OnlyKind: TypeAlias = Annotated[TopicKind | None, Option(help="Only topics, or only last values.")]


def connections(
    name: Connections = "**",
    *,
    principal: Principal = None,
    order: Ordered = ConnectionOrder.NAME,
    limit: Limit = 100,
    full: FullIds = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List who is connected to a broker, or show one connection with its subscriptions.

    \b
    Examples:
      nebula connections --order outbox
      nebula connections --principal anonymous
      nebula connections 85132c7a
    """
    # Imported by the commands that show tables: others need not load the broker's views.
    from nebula.cli.columns import CONNECTION_FACTS, CONNECTIONS, SUBSCRIPTIONS
    from nebula.globs import is_glob

    output = Output(as_json=as_json)
    if not is_glob(name):
        session = find_session(broker, name, timeout)
        details = tell(broker, "connection.show", {"session": session}, timeout, Details)
        show_details(output, details, CONNECTION_FACTS, SUBSCRIPTIONS)
        return
    wanted = {"pattern": name, "principal": principal, "order": order.value}
    listed = list_all(broker, "connections.list", wanted, limit, timeout)
    show_list(output, CONNECTIONS, listed, "connections", has_full_ids=full)


def disconnect(
    session: Connection,
    *,
    yes: Yes = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """End a connection. The client gets an ERROR that says why, and may connect again.

    Example: nebula disconnect 85132c7a
    """
    session = find_session(broker, session, timeout)
    make_sure(f"End the connection of {session}?", is_sure=yes)
    tell(broker, "connection.end", {"session": session}, timeout)
    Output(as_json=as_json).event(f"the connection of {session} has ended", ended=session)


def sessions(
    name: Sessions = "**",
    *,
    limit: Limit = 100,
    full: FullIds = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List sessions with durable subscriptions, connected or not, or show one.

    Example: nebula sessions 'reader-*'
    """
    from nebula.cli.columns import DURABLES, SESSION_FACTS, SESSIONS
    from nebula.globs import is_glob

    output = Output(as_json=as_json)
    if not is_glob(name):
        session = find_session(broker, name, timeout, "sessions.list")
        details = tell(broker, "session.show", {"session": session}, timeout, Details)
        show_details(output, details, SESSION_FACTS, DURABLES)
        return
    listed = list_all(broker, "sessions.list", {"pattern": name}, limit, timeout)
    show_list(output, SESSIONS, listed, "sessions with durable subscriptions", has_full_ids=full)


def topics(
    name: Topics = "**",
    *,
    kind: OnlyKind = None,
    order: TopicsOrdered = TopicOrder.NAME,
    limit: Limit = 100,
    internal: Internal = False,
    full: FullIds = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List topics that are subscribed to, and last values; or show one.

    Nebula's own are counted but not shown, unless you use --all or the glob begins with nebula.

    \b
    Examples:
      nebula topics 'X/EGM.*'
      nebula topics --order subscribers --limit 10
      nebula topics /topic/news
    """
    from nebula.cli.columns import SUBSCRIBERS, TOPIC_FACTS, TOPICS
    from nebula.globs import is_glob

    output = Output(as_json=as_json)
    if not is_glob(name):
        details = tell(broker, "topic.show", {"topic": name}, timeout, Details)
        show_details(output, details, TOPIC_FACTS, SUBSCRIBERS, has_full_ids=full)
        return
    internal = is_internal_wanted(name, is_asked=internal)
    wanted = {"pattern": name, "kind": kind and kind.value, "order": order.value, "internal": internal}
    listed = list_all(broker, "topics.list", wanted, limit, timeout)
    show_list(output, TOPICS, listed, "topics and last values")
