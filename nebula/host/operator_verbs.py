"""Operators' verbs of the broker: lists, details, purges, replays.

Each needs the right to call it; those that show messages also need the right to read their queue. Verbs run
in the responder's threads and do their work on the broker's loop, in pieces, so an operator's question delays
no message by more than one piece. The log records which principal changed what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import Field

from nebula.broker.core.messages import LAST_VALUE_KIND, TOPIC_KIND
from nebula.broker.operations.administration import (
    CONNECTION_RANKS,
    MOST_ROWS,
    MOST_SKIPPED,
    PRINCIPAL_RANKS,
    QUEUE_RANKS,
    TOPIC_RANKS,
    Administration,
    DelayedFilter,
    Listing,
    Selection,
    Steps,
)
from nebula.broker.operations.dead_letters import (
    DeadLetters,
    Filter,
    Letters,
    Purged,
    Replayed,
)
from nebula.broker.operations.orders import ConnectionOrder, PrincipalOrder, QueueOrder, TopicOrder
from nebula.broker.operations.views import (
    BrokerStatus,
    ConnectionDetails,
    ConnectionRow,
    DelayedRow,
    MessageView,
    PrincipalRow,
    QueueDetails,
    QueueRow,
    SessionDetails,
    SessionRow,
    TopicDetails,
    TopicRow,
)
from nebula.errors import Refused
from nebula.host.deep import newest_letters, peek_deep, show_letter
from nebula.logs import get_logger
from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder

if TYPE_CHECKING:
    from nebula.broker.server.server import Server

T = TypeVar("T")

_log = get_logger("nebula.host")

MayCall: TypeAlias = Callable[[Request, str], None]

# A walk over everything takes a second at most: if it takes longer, the broker is busy.
_SECONDS = 30.0

Limit: TypeAlias = Annotated[int, Field(ge=1, le=MOST_ROWS)]
Skip: TypeAlias = Annotated[int, Field(ge=0, le=MOST_SKIPPED)]
Pattern: TypeAlias = Annotated[str, Field(min_length=1)]
# The number of messages that one request handles; the next request goes on where it ended.
Count: TypeAlias = Annotated[int, Field(ge=1, le=100_000)]
Few: TypeAlias = Annotated[int, Field(ge=1, le=100)]
Bytes: TypeAlias = Annotated[int, Field(ge=0, le=1_000_000)]
Number: TypeAlias = Annotated[int, Field(ge=0)]
Numbers: TypeAlias = Annotated[list[int], Field(max_length=MOST_ROWS)]


class Desk:
    """Runs work on the broker's loop, for a verb that waits for it on its own thread.

    Args:
        server: the broker's; started when the first verb is called.
    """

    def __init__(self, server: Server) -> None:
        self.server = server

    @property
    def now(self) -> float:
        """The time of the broker."""
        return self.server.runtime.time()

    @property
    def administration(self) -> Administration:
        """Operators' actions on the core."""
        return self.server.runtime.administration

    @property
    def dead_letters(self) -> DeadLetters:
        """The dead-letter queue."""
        return DeadLetters(self.server.broker, self.administration.arrivals)

    def check_may_look(self, request: Request, queue: str | None = None) -> None:
        """Refuse to show the messages of a queue, unless the request's principal may read them; None: of the
        dead-letter queue.

        Raises:
            VerbError: they are dead letters, and the request's principal has no grant to read them.
        """
        # Read for each request, because verbs are declared before the broker starts.
        broker = self.server.broker
        queue = queue or broker.queues.dead_letter
        if not broker.access.rights_of(request.principal or "").may_look_into(queue):
            raise VerbError(
                "not-allowed", f"{request.principal} may not read {queue}: a grant has to name it"
            )

    def ask(self, question: Callable[[], T]) -> T:
        """What `question` returns; its consequences for connections are worked off too."""

        async def reply() -> T:
            # One step on the broker's loop, so it needs no lock.
            try:
                return question()
            finally:
                # Even after an error: part of the work may be done, and concern connections.
                self.server.runtime.pump.work(self.now)

        return self.wait(reply)

    def walk(self, begin: Callable[[], Steps[T]]) -> T:
        """What a walk finds."""

        async def walk() -> T:
            return await self.server.runtime.walk(begin())

        return self.wait(walk)

    def wait(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine on the loop.

        Raises:
            VerbError: the core refused it, or it took too long.
        """
        future = asyncio.run_coroutine_threadsafe(work(), self.server.runtime.loop)
        try:
            return future.result(_SECONDS)
        except Refused as error:
            raise VerbError(error.code, error.detail) from error
        except TimeoutError as error:
            # Finished pieces stay done: each is whole.
            future.cancel()
            raise VerbError("busy", f"the broker was not done within {_SECONDS:g} s") from error


@contextmanager
def acting(request: Request, act: str, **facts: Any) -> Iterator[dict[str, Any]]:
    """Log which principal did what, also if it was cut off and done in part.

    Yields:
        Further facts for the log, known at the end.
    """
    outcome: dict[str, Any] = {}
    try:
        yield outcome
    except VerbError as error:
        # If the core refused, nothing has changed.
        if error.code == "busy":
            _log.warning(
                "operator action cut off",
                action=act,
                principal=request.principal,
                reason=str(error),
                **facts,
            )
        raise
    _log.info(act, principal=request.principal, **facts, **outcome)


def add_operator_verbs(responder: Responder, server: Server, may_call: MayCall) -> None:
    """Declare all operators' verbs.

    Args:
        server: the broker; started when the first request comes.
        may_call: raises where a request's principal may not call a verb.
    """
    desk = Desk(server)
    _add_looks(responder, desk, may_call)
    _add_session_acts(responder, desk, may_call)
    _add_shares(responder, desk, may_call)
    _add_delayed(responder, desk, may_call)
    _add_connections(responder, desk, may_call)
    _add_queue_verbs(responder, desk, may_call)
    _add_dead_letter_looks(responder, desk, may_call)
    _add_dead_letter_acts(responder, desk, may_call)


def _add_looks(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="broker.status")
    def status(request: Request) -> BrokerStatus:
        """The state of the broker in numbers. The reply does not grow with what the broker holds."""
        may_call(request, "broker.status")
        return desk.walk(desk.server.status)

    @responder.verb(name="topics.list")
    def topics(
        request: Request,
        pattern: Pattern = "**",
        kind: Literal["topic", "last-value"] | None = None,
        after: str = "",
        limit: Limit = 100,
        internal: bool = True,
        order: TopicOrder = TopicOrder.NAME,
        skip: Skip = 0,
        reverse: bool = False,
    ) -> Listing[TopicRow]:
        """Topics that are subscribed to, and last values, by name or by `order` (see queues.list)."""
        may_call(request, "topics.list")
        only = {None: None, "topic": TOPIC_KIND, "last-value": LAST_VALUE_KIND}[kind]
        rank = order if order in TOPIC_RANKS else None
        selection = Selection(pattern, rank, after, limit, internal, skip, reverse)
        return desk.walk(lambda: desk.administration.topics(selection, only, desk.now))

    @responder.verb(name="topic.show")
    def topic(request: Request, topic: str) -> TopicDetails:
        """A topic with its connected subscribers, or a last value."""
        may_call(request, "topic.show")
        return desk.ask(lambda: desk.administration.topic(topic, desk.now))

    @responder.verb(name="sessions.list")
    def sessions(
        request: Request, pattern: Pattern = "**", after: str = "", limit: Limit = 100
    ) -> Listing[SessionRow]:
        """Sessions with durable subscriptions, by client-id (`after`: see queues.list)."""
        may_call(request, "sessions.list")
        selection = Selection(pattern, None, after, limit)
        return desk.walk(lambda: desk.administration.sessions(selection, desk.now))

    @responder.verb(name="session.show")
    def session(request: Request, session: str) -> SessionDetails:
        """A session with its durable subscriptions."""
        may_call(request, "session.show")
        return desk.ask(lambda: desk.administration.session(session, desk.now))


def _add_session_acts(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="session.end")
    def end(request: Request, session: str) -> None:
        """End a session: its durable subscriptions with everything kept for them, and its connection."""
        may_call(request, "session.end")
        with acting(request, "operator ended session", session=session):
            desk.ask(lambda: desk.administration.end_durable_session(session, desk.now))

    @responder.verb(name="session.purge")
    def purge(request: Request, session: str) -> int:
        """Drop everything that waits for a session's durable subscriptions, which stay; returns the count."""
        may_call(request, "session.purge")
        with acting(request, "operator purged session", session=session) as known:
            known["count"] = count = desk.ask(lambda: desk.administration.drop_backlog(session))
        return count


def _add_shares(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="principals.list")
    def principals(
        request: Request,
        pattern: Pattern = "**",
        order: PrincipalOrder = PrincipalOrder.NAME,
        after: str = "",
        limit: Limit = 100,
    ) -> Listing[PrincipalRow]:
        """What principals use of the broker's resources, by name (`after`: see queues.list) or by `order`."""
        may_call(request, "principals.list")
        selection = Selection(pattern, order if order in PRINCIPAL_RANKS else None, after, limit)
        return desk.walk(lambda: desk.administration.principals(selection))


def _add_delayed(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="delayed.list")
    def delayed(
        request: Request,
        pattern: Pattern = "**",
        principal: Pattern | None = None,
        after: Number = 0,
        limit: Limit = 100,
    ) -> Listing[DelayedRow]:
        """Delayed messages in order of arrival, beginning after the number `after`."""
        may_call(request, "delayed.list")
        wanted = DelayedFilter(pattern, principal, after)
        return desk.ask(lambda: desk.administration.delayed(wanted, limit, desk.now))

    @responder.verb(name="delayed.purge")
    def purge(request: Request, pattern: Pattern = "**", principal: Pattern | None = None) -> int:
        """Drop delayed messages; returns how many."""
        may_call(request, "delayed.purge")
        wanted = DelayedFilter(pattern, principal)
        with acting(request, "operator purged delayed messages", pattern=pattern, of=principal) as known:
            known["count"] = count = desk.ask(lambda: desk.administration.purge_delayed(wanted))
        return count


def _add_connections(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="connections.list")
    def connections(
        request: Request,
        pattern: Pattern = "**",
        principal: Pattern | None = None,
        order: ConnectionOrder = ConnectionOrder.NAME,
        after: str = "",
        limit: Limit = 100,
    ) -> Listing[ConnectionRow]:
        """Connections, or one principal's, by session (`after`: see queues.list) or the first by `order`."""
        may_call(request, "connections.list")
        selection = Selection(pattern, order if order in CONNECTION_RANKS else None, after, limit)
        return desk.walk(lambda: desk.administration.connections(selection, principal, desk.now))

    @responder.verb(name="connection.show")
    def connection(request: Request, session: str) -> ConnectionDetails:
        """A connection with its subscriptions."""
        may_call(request, "connection.show")
        return desk.ask(lambda: desk.administration.connection(session, desk.now))

    @responder.verb(name="connection.end")
    def end(request: Request, session: str) -> None:
        """End a connection with an ERROR. Its durable subscriptions stay, and it may connect again."""
        may_call(request, "connection.end")
        desk.ask(lambda: desk.administration.end_session(session))
        _log.info("operator ended connection", principal=request.principal, session=session)


def _add_queue_verbs(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="queues.list")
    def queues(
        request: Request,
        pattern: Pattern = "**",
        order: QueueOrder = QueueOrder.NAME,
        after: str = "",
        limit: Limit = 100,
        internal: bool = True,
        skip: Skip = 0,
        reverse: bool = False,
    ) -> Listing[QueueRow]:
        """Queues by name (`after`: the last name of the page before), or the greatest by `order`."""
        may_call(request, "queues.list")
        rank = order if order in QUEUE_RANKS else None
        selection = Selection(pattern, rank, after, limit, internal, skip, reverse)
        return desk.walk(lambda: desk.administration.queues(selection, desk.now))

    @responder.verb(name="queue.show")
    def queue(request: Request, queue: str) -> QueueDetails:
        """A queue with its limits and consumers."""
        may_call(request, "queue.show")
        return desk.ask(lambda: desk.administration.queue(queue, desk.now))

    @responder.verb(name="queue.peek")
    def look(
        request: Request, queue: str, after: Number = 0, limit: Few = 10, max_bytes: Bytes = 1_000
    ) -> list[MessageView]:
        """Waiting messages in order of arrival, after the number `after`; nothing is consumed."""
        may_call(request, "queue.peek")
        desk.check_may_look(request, queue)

        async def question() -> list[MessageView]:
            found = desk.administration.find_queue(queue)
            return await peek_deep(desk.server, found, after=after, limit=limit, max_bytes=max_bytes)

        return desk.wait(question)

    @responder.verb(name="queue.purge")
    def purge(request: Request, queue: str) -> int:
        """Drop all messages that wait in a queue; returns the count. Un-ACKed messages stay."""
        may_call(request, "queue.purge")
        with acting(request, "operator purged queue", queue=queue) as known:
            known["count"] = count = desk.walk(lambda: desk.administration.purge(queue, desk.now))
        return count


def _add_dead_letter_looks(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="dlq.list")
    def letters(
        request: Request,
        source: str | None = None,
        reason: str | None = None,
        after: Number = 0,
        limit: Limit = 100,
        reverse: bool = False,
    ) -> Letters:
        """Dead letters in order of arrival, after the number `after`; `reverse`: the newest first."""
        may_call(request, "dlq.list")
        wanted = Filter(None, source, reason, after)
        if reverse:
            return desk.wait(lambda: newest_letters(desk.server, wanted, limit))
        return desk.walk(lambda: desk.dead_letters.rows(wanted, limit))

    @responder.verb(name="dlq.show")
    def letter(request: Request, number: int, max_bytes: Bytes = 100_000) -> MessageView:
        """A dead letter with all its headers."""
        may_call(request, "dlq.show")
        desk.check_may_look(request)
        return desk.wait(lambda: show_letter(desk.server, number, max_bytes))


def _add_dead_letter_acts(responder: Responder, desk: Desk, may_call: MayCall) -> None:
    @responder.verb(name="dlq.replay")
    def replay(
        request: Request,
        numbers: Numbers | None = None,
        source: str | None = None,
        reason: str | None = None,
        to: str | None = None,
        limit: Count = 1_000,
    ) -> Replayed:
        """Put dead letters back where they came from, or into the queue `to`; each in one batch."""
        may_call(request, "dlq.replay")
        # A caller could read letters by replaying them into a queue of its own choice.
        if to is not None:
            desk.check_may_look(request)
        wanted = Filter(_chosen(numbers), source, reason)
        with acting(request, "operator replayed dead letters", to=to) as known:
            outcome = desk.walk(lambda: desk.dead_letters.replay(wanted, limit, desk.now, to=to))
            known["count"] = outcome.replayed
        return outcome

    @responder.verb(name="dlq.purge")
    def purge(
        request: Request,
        numbers: Numbers | None = None,
        source: str | None = None,
        reason: str | None = None,
        limit: Count = 100_000,
    ) -> Purged:
        """Drop dead letters."""
        may_call(request, "dlq.purge")
        wanted = Filter(_chosen(numbers), source, reason)
        with acting(request, "operator purged dead letters") as known:
            outcome = desk.walk(lambda: desk.dead_letters.drop(wanted, limit, desk.now))
            known["count"] = outcome.purged
        return outcome


def _chosen(numbers: list[int] | None) -> frozenset[int] | None:
    return None if numbers is None else frozenset(numbers)
