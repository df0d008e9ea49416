"""Operators' actions on the core: looking at its parts, ending sessions, deleting and purging destinations.

A walk over all destinations is a generator, `Steps`: it yields after each thousand, so that a broker with a
hundred thousand destinations serves its peers in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from heapq import nlargest, nsmallest
from itertools import chain, islice
from math import inf
from typing import Final, Generic, TypeAlias, TypeVar

from nebula.broker.core.account import Account
from nebula.broker.core.broker import Broker
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.destinations.topic import Topic
from nebula.broker.core.durable import DurableSession
from nebula.broker.core.messages import LAST_VALUE_KIND, QUEUE_KIND, TOPIC_KIND, DestinationKind, Message
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.value_feed import LastValueTopic
from nebula.broker.operations.flows import Flows
from nebula.broker.operations.rows import (
    Arrivals,
    at_hand,
    connection_details,
    connection_row,
    delayed_row,
    principal_row,
    queue_details,
    queue_row,
    session_details,
    session_row,
    topic_details,
    topic_row,
    unacked_of,
    used_fraction,
    value_row,
)
from nebula.broker.operations.views import (
    ConnectionDetails,
    ConnectionRow,
    DelayedRow,
    FlowRow,
    KindTotals,
    PrincipalRow,
    QueueDetails,
    QueueRow,
    SessionDetails,
    SessionRow,
    TopicDetails,
    TopicRow,
)
from nebula.errors import Refused
from nebula.globs import compile_glob, is_glob
from nebula.headers import RESERVED_PREFIXES

T = TypeVar("T")
R = TypeVar("R")

# Walks are generators, because a walk over a hundred thousand destinations in one step would delay all
# messages for as long. `Runtime.walk` lets the loop do other work between steps. So things come and go during
# a walk: rows are made only of what is still there, and totals describe no single moment.
Steps: TypeAlias = Generator[None, None, T]
"""Bounded work: `next` does a piece of it, until it returns its result. Anything may happen in between."""

# A millisecond or two where a glob is tried on each.
_AT_ONCE: Final = 1_000

# Of rows, and of characters in their names, which peers choose: a page stays far below `max_body_bytes`.
# A larger reply would end the connection of the broker's own responder, and with it the broker.
MOST_ROWS: Final = 1_000
_MOST_NAME_CHARACTERS: Final = 256 * 1024
# All that are skipped are kept and sorted during the walk: some milliseconds for each thousand names.
MOST_SKIPPED: Final = 10_000

_MOST_RECEIVERS: Final = 20

_EVERYTHING: Final = "**"

# What the principals of services in the broker's process begin with, and no others.
# `authenticator` refuses logins and tokens with such names.
_HOSTED: Final = "app:"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which of many, and which page of those.

    Attributes:
        pattern: a glob that names have to match.
        rank: what to order by, the greatest first; None: by name.
        after: where the order is by name: begin behind this one.
        limit: rows of the page.
        has_internal: include Nebula's own destinations, such as inboxes.
        skip: the number of first entries to leave out.
        is_reversed: the last name, or the least, comes first.
    """

    pattern: str = _EVERYTHING
    rank: str | None = None
    after: str = ""
    limit: int = 100
    has_internal: bool = True
    skip: int = 0
    is_reversed: bool = False


@dataclass(frozen=True, slots=True)
class DelayedFilter:
    """Which delayed messages.

    Attributes:
        pattern: a glob that their destinations match.
        principal: of their sender; None: any.
        after: for a list, only messages that came later than the one with this number.
    """

    pattern: str = _EVERYTHING
    principal: str | None = None
    after: int = 0


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A page of rows.

    Attributes:
        rows: in the order that was asked for.
        matched: how many there are, on all pages.
        after: of the next page, where the order is by name and there is one.
        hidden: the number of internal ones left out.
    """

    rows: list[T]
    matched: int
    after: str | None = None
    hidden: int = 0


# What queues can be ordered by, in addition to their names.
# `orders` has the same words.
QUEUE_RANKS: Final[Mapping[str, Callable[[Queue], float]]] = {
    "depth": lambda queue: queue.store.depth,
    "bytes": lambda queue: queue.store.stored_bytes,
    "taken": lambda queue: queue.taken_count,
    "unacked": lambda queue: queue.store.unacked_count,
    "consumers": lambda queue: len(queue.consumers.subscriptions),
    # The lowest number is the oldest message.
    "oldest": lambda queue: -first.number if (first := next(at_hand(queue), None)) else -inf,
}

# What topics and last values can be ordered by, in addition to their names.
TOPIC_RANKS: Final[Mapping[str, Callable[[TopicRow], float]]] = {
    "subscribers": lambda row: row.subscribers or 0,
    "waiting": lambda row: row.waiting,
    "bytes": lambda row: row.stored_bytes,
    # The latest change first, and topics, which hold no value, last.
    "changed": lambda row: -inf if row.changed_seconds is None else -row.changed_seconds,
}

# What connections can be ordered by, besides their sessions' names.
CONNECTION_RANKS: Final[Mapping[str, Callable[[Session], float]]] = {
    "outbox": lambda session: session.outbox_bytes,
    "unacked": unacked_of,
    # `connection` is Any for the core, which does not look into it; operators' code may.
    "traffic": lambda session: (
        session.connection.traffic.read_bytes + session.connection.traffic.written_bytes
    ),
}


# What principals can be ordered by, besides their names.
# Not in metrics, because peers choose the names of principals, and each would be a series.
PRINCIPAL_RANKS: Final[Mapping[str, Callable[[Usage, Account], float]]] = {
    "used": used_fraction,
    "memory": lambda usage, _: usage.memory_bytes,
    "disk": lambda usage, _: usage.disk_bytes,
    "refusals": lambda usage, _: usage.refusals,
    "connections": lambda usage, _: usage.used(Resource.CONNECTIONS),
    "destinations": lambda usage, _: usage.used(Resource.DESTINATIONS),
}


class Administration:
    """What operators see of a broker's core, and do to it.

    Args:
        broker: the core.
        now: the time of the start. Messages that exist by then count as arrived at that time.

    Attributes:
        arrivals: knows how old messages are.
    """

    def __init__(self, broker: Broker, now: float) -> None:
        self._broker = broker
        self._own_count = 0
        # Messages with lower numbers come from earlier runs, and their time of arrival is unknown.
        self._first_number = broker.values.next_number()
        self.arrivals = Arrivals(self._first_number, now)

    @property
    def received_count(self) -> int:
        """Messages that were numbered since the start: sent to the broker, or made by it."""
        return self._next_number() - self._first_number - self._own_count

    def advance(self, now: float) -> None:
        """Let time pass. The more often this is called, the more exact the ages of messages are."""
        self.arrivals.note(self._next_number(), now)

    def _next_number(self) -> int:
        # The only way to see the next number is to take it. There are enough, and these are not counted as
        # messages.
        self._own_count += 1
        return self._broker.values.next_number()

    # --- looking ---

    def queues(self, selection: Selection, now: float) -> Steps[Listing[QueueRow]]:
        """Queues; they can be ordered by one of `QUEUE_RANKS`.

        Raises:
            Refused: a malformed glob.
        """
        rank = None if selection.rank is None else QUEUE_RANKS[selection.rank]
        return choose(
            self._broker.queues.by_name,
            selection,
            rank,
            lambda _, queue: queue_row(queue, self.arrivals, now),
        )

    def topics(
        self, selection: Selection, kind: DestinationKind | None, now: float
    ) -> Steps[Listing[TopicRow]]:
        """Topics that are subscribed to, and last-value destinations; or those of one kind.

        They can be ordered by one of `TOPIC_RANKS`.

        Raises:
            Refused: a malformed glob.
        """
        # One mapping for both: a name is either a topic or a last value (D.10).
        rows: dict[str, Callable[[], TopicRow]] = {}
        if kind is None or kind.fans_out:
            for name, topic in self._broker.topics.topics.items():
                rows[name] = partial(topic_row, name, topic)
        if kind is None or kind.holds_value:
            for name, value in self._broker.values.topics.items():
                rows[name] = partial(value_row, name, value, self.arrivals, now)
        order = None if selection.rank is None else TOPIC_RANKS[selection.rank]
        rank = None if order is None else lambda row: order(row())
        return choose(rows, selection, rank, lambda _, row: row())

    def sessions(self, selection: Selection, now: float) -> Steps[Listing[SessionRow]]:
        """Sessions with durable subscriptions, connected or not.

        Raises:
            Refused: a malformed glob.
        """
        return choose(
            self._broker.durable_sessions.by_id, selection, None, lambda _, session: session_row(session, now)
        )

    def connections(
        self, selection: Selection, principal: str | None, now: float
    ) -> Steps[Listing[ConnectionRow]]:
        """Connected sessions, or those of one principal; they can be ordered by one of `CONNECTION_RANKS`.

        Raises:
            Refused: a malformed glob.
        """
        sessions = {
            name: session
            for name, session in self._broker.sessions.items()
            if principal is None or session.principal == principal
        }
        rank = None if selection.rank is None else CONNECTION_RANKS[selection.rank]
        return choose(sessions, selection, rank, lambda _, session: connection_row(session, now))

    def connection(self, name: str, now: float) -> ConnectionDetails:
        """The connection of one session.

        Raises:
            Refused: no connected session has this name.
        """
        session = self._find_session(name)
        return connection_details(session, len(self._broker.transactions.of(session)), now)

    def queue(self, name: str, now: float) -> QueueDetails:
        """One queue.

        Raises:
            Refused: no queue has this name.
        """
        return queue_details(self.find_queue(name), self.arrivals, now)

    def topic(self, name: str, now: float) -> TopicDetails:
        """One topic or last value.

        Raises:
            Refused: no topic or last value has this name.
        """
        topic = self._broker.topics.topics.get(name)
        if topic is not None:
            return topic_details(name, topic)
        value = self._broker.values.topics.get(name)
        if value is None:
            raise Refused("not-found", f"no topic or last value {name[:200]!r} is subscribed to or kept")
        return TopicDetails(value_row(name, value, self.arrivals, now), [])

    def session(self, name: str, now: float) -> SessionDetails:
        """One session with durable subscriptions.

        Raises:
            Refused: no session has this name.
        """
        return session_details(self._find_durable_session(name), now)

    def _find_durable_session(self, name: str) -> DurableSession:
        found = self._broker.durable_sessions.by_id.get(name)
        if found is None:
            raise Refused("not-found", f"no session {name[:200]!r} has durable subscriptions")
        return found

    def principals(self, selection: Selection) -> Steps[Listing[PrincipalRow]]:
        """Principals that use anything, by name or in the order of one of `PRINCIPAL_RANKS`.

        Raises:
            Refused: a malformed glob.
        """
        # The account has weak references to usages, so these are the principals that hold something.
        account = self._broker.account
        usages = {usage.name: usage for usage in account.usages.all}
        order = None if selection.rank is None else PRINCIPAL_RANKS[selection.rank]
        rank = None if order is None else lambda usage: order(usage, account)
        return choose(usages, selection, rank, lambda _, usage: principal_row(usage, account))

    def delayed(self, wanted: DelayedFilter, limit: int, now: float) -> Listing[DelayedRow]:
        """Delayed messages, in order of arrival.

        Raises:
            Refused: a malformed glob.
        """
        # In one step, because `max_delayed_messages` limits all of them together.
        found = self._delayed(wanted)
        later = [each for each in found if each[1].number > wanted.after]
        rows = [delayed_row(due, message, now) for due, message in later[: min(limit, MOST_ROWS)]]
        return Listing(rows, len(found), str(rows[-1].number) if len(rows) < len(later) else None)

    def purge_delayed(self, wanted: DelayedFilter) -> int:
        """Drop delayed messages and count them as purged. Returns how many there were.

        Raises:
            Refused: a malformed glob.
        """
        # By number, so that `remove` needs one pass over the heap.
        numbers = {message.number for _, message in self._delayed(wanted)}
        count = self._broker.routing.delayed.remove(numbers)
        self._broker.account.dropped["purged"] += count
        return count

    def _delayed(self, wanted: DelayedFilter) -> list[tuple[float, Message]]:
        matches = _matcher(wanted.pattern)
        return [
            (due, message)
            for due, message in self._broker.routing.delayed.waiting()
            if (wanted.principal is None or message.head.sender == wanted.principal)
            and (matches is None or matches(message.head.destination))
        ]

    def find_queue(self, name: str) -> Queue:
        """The queue of this name.

        Raises:
            Refused: the queue does not exist: it has no message and no subscriber.
        """
        queue = self._broker.queues.get(name)
        if queue is None:
            raise Refused("not-found", f"no queue {name[:200]!r}: it has no message and no subscriber")
        return queue

    def totals(self) -> Steps[dict[DestinationKind, KindTotals]]:
        """Totals for each kind of destination."""
        queues = yield from _add_up(self._broker.queues.by_name, _queue_counts)
        topics = yield from _add_up(self._broker.topics.topics, _topic_counts)
        values = yield from _add_up(self._broker.values.topics, _value_counts)
        return {QUEUE_KIND: queues, TOPIC_KIND: topics, LAST_VALUE_KIND: values}

    def flows(self, counted: Flows, limit: int) -> Steps[list[FlowRow]]:
        """The senders and destinations with most messages, and who is subscribed there."""
        largest = nlargest(limit, counted.counts.items(), key=lambda each: each[1])
        receivers = yield from self._receivers({destination for (_, destination), _ in largest})
        return [
            FlowRow(sender, destination, count, sorted(receivers[destination])[:_MOST_RECEIVERS])
            for (sender, destination), count in largest
        ]

    def _receivers(self, destinations: set[str]) -> Steps[dict[str, set[str]]]:
        """The principals that are subscribed to each of these destinations, by name or glob."""
        found: dict[str, set[str]] = {each: set() for each in destinations}
        globs: dict[str, set[str]] = {}
        for place, session in enumerate(list(self._broker.sessions.values()), 1):
            for subscription in session.subscriptions.values():
                pattern = subscription.pattern
                if pattern in found:
                    found[pattern].add(session.principal)
                elif is_glob(pattern):
                    globs.setdefault(pattern, set()).add(session.principal)
            if place % _AT_ONCE == 0:
                yield
        for pattern, principals in globs.items():
            matches = compile_glob(pattern)
            for destination in filter(matches, destinations):
                found[destination] |= {
                    each
                    for each in principals
                    if self._broker.access.rights_of(each).may_receive(destination)
                }
            yield
        return found

    # --- changing ---

    def purge(self, name: str, now: float) -> Steps[int]:
        """Drop all messages that wait in a queue now, and count them as purged; un-ACKed ones stay.

        Returns:
            The number of messages.

        Raises:
            Refused: there is no such queue.
        """
        queue = self.find_queue(name)
        # All are taken out of the queue at once, so that none is paged out or delivered before it is dropped.
        purged = queue.store.begin_purge("purged")
        try:
            while queue.store.purge_some("purged", _AT_ONCE):
                yield
        finally:
            # Also if the walk is abandoned, because its request was cancelled or the broker stops: messages
            # that were taken out must still be dropped and counted.
            queue.store.purge_some("purged", len(queue.store.purged))
            # Without messages and subscribers the queue is deleted.
            self._broker.queues.forget_if_idle(queue, now)
        return purged

    def end_durable_session(self, name: str, now: float) -> None:
        """Remove a session's durable subscriptions and everything kept for them, and end its connection.

        Raises:
            Refused: no session has this name, or it is a service in the broker's own process.
        """
        durable = self._find_durable_session(name)
        self._check_not_hosted(durable.rights.principal)
        self._broker.end_durable_session(durable, now)

    def drop_backlog(self, name: str) -> int:
        """Drop everything that waits for a session. Its subscriptions and un-ACKed messages stay.

        Returns:
            The number of dropped messages and pending values.

        Raises:
            Refused: no session has this name.
        """
        return self._broker.subscriptions.drop_backlog(self._find_durable_session(name))

    def end_session(self, name: str) -> None:
        """End the connection of a session with an ERROR.

        Its durable subscriptions stay. Call `Pump.work` afterwards.

        Raises:
            Refused: no connected session has this name, or it is a service in the broker's own process.
        """
        session = self._find_session(name)
        self._check_not_hosted(session.principal)
        session.end("an operator has ended the connection")

    def _check_not_hosted(self, principal: str) -> None:
        # A hosted app ends when it loses its connection, and the broker with it.
        if principal.startswith(_HOSTED):
            raise Refused("hosted", "the broker would end with a service that it hosts itself")

    def _find_session(self, name: str) -> Session:
        session = self._broker.sessions.get(name)
        if session is None:
            raise Refused("not-found", f"no session {name[:200]!r} is connected")
        return session


def choose(
    things: Mapping[str, T],
    selection: Selection,
    rank: Callable[[T], float] | None,
    row: Callable[[str, T], R],
) -> Steps[Listing[R]]:
    """A page of what has a name: the first by name, or the first by rank.

    Raises:
        Refused: a malformed glob.
    """
    # Compiled outside the generator, so that the call itself refuses a malformed glob.
    return _choose(things, selection, _matcher(selection.pattern), rank, row)


def _matcher(pattern: str) -> Callable[[str], object] | None:
    try:
        # A compiled `**` would cost a match for each name, and most requests want everything.
        return None if pattern == _EVERYTHING else compile_glob(pattern)
    except ValueError as error:
        raise Refused("bad-pattern", f"{pattern[:200]!r} {error}") from error


def _choose(
    things: Mapping[str, T],
    selection: Selection,
    matches: Callable[[str], object] | None,
    rank: Callable[[T], float] | None,
    row: Callable[[str, T], R],
) -> Steps[Listing[R]]:
    # The verb checks the limit too; this is for callers within the process.
    limit, matched, hidden = min(selection.limit, MOST_ROWS), 0, 0
    skip, is_reversed, after = min(selection.skip, MOST_SKIPPED), selection.is_reversed, selection.after
    first = nlargest if rank is None and is_reversed else nsmallest
    sign = 1 if is_reversed else -1
    best: list[tuple[float, str]] = []
    # A copy, because destinations come and go between steps.
    names = iter(list(things))
    while batch := list(islice(names, _AT_ONCE)):
        # Names that are gone by now are not counted.
        found = [name for name in batch if name in things and (matches is None or matches(name))]
        if not selection.has_internal:
            before, found = len(found), [name for name in found if not name.startswith(RESERVED_PREFIXES)]
            hidden += before - len(found)
        matched += len(found)
        if rank is None:
            is_behind = after.__gt__ if is_reversed and after else after.__lt__
            candidates = [(0.0, name) for name in found if is_behind(name)]
        else:
            candidates = [(sign * rank(things[name]), name) for name in found]
        # One more than is shown, which tells whether there is a next page. Only the best so far are kept, so
        # a long walk needs no sorted list of everything.
        best = first(skip + limit + 1, chain(best, candidates))
        yield
    chosen = list(_within([name for _, name in best[skip : skip + limit]]))
    # Rows cost more than the choice, so they are made for the chosen ones only.
    rows = [row(name, things[name]) for name in chosen if name in things]
    # By rank there is no name to go on behind, because ranks change between two requests: `skip` counts.
    is_last = rank is not None or skip + len(chosen) >= len(best)
    return Listing(rows, matched, None if is_last else chosen[-1], hidden)


def _within(names: Iterable[str]) -> Iterable[str]:
    """As many of the names as fit into a page, but one at least."""
    characters = 0
    for name in names:
        # Checked before a name is added: a page may exceed the limit by one name, and is never empty.
        if characters > _MOST_NAME_CHARACTERS:
            return
        yield name
        characters += len(name)


# The fields of `KindTotals` but the first.
_Counts: TypeAlias = tuple[int, int, int, int, int]


def _add_up(things: Mapping[str, T], counts_of: Callable[[T], _Counts]) -> Steps[KindTotals]:
    sums = [0] * len(fields(KindTotals)[1:])
    rest = iter(list(things.values()))
    while batch := list(islice(rest, _AT_ONCE)):
        # By columns, so that `zip` and `sum` do the work in C.
        columns = zip(*map(counts_of, batch), strict=True)
        sums = [total + sum(column) for total, column in zip(sums, columns, strict=True)]
        yield
    return KindTotals(len(things), *sums)


def _queue_counts(queue: Queue) -> _Counts:
    return (
        queue.store.depth,
        queue.store.unacked_count,
        queue.store.paging.paged_count,
        queue.store.stored_bytes,
        len(queue.consumers.subscriptions),
    )


def _topic_counts(topic: Topic) -> _Counts:
    # The queues of its durable subscriptions hold a topic's messages.
    bound = [_queue_counts(queue) for queue in topic.queues]
    messages, unacked, paged_out, stored_bytes = (sum(each[place] for each in bound) for place in range(4))
    return messages, unacked, paged_out, stored_bytes, topic.subscriber_count


def _value_counts(topic: LastValueTopic) -> _Counts:
    return int(topic.is_live), 0, 0, topic.value.size_bytes, 0
