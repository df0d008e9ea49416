"""Where a service takes its requests from: its queues, subscribed to anew with each connection."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from nebula import headers as names
from nebula.errors import ConnectionLost, Refused
from nebula.logs import get_logger
from nebula.rpc.service.answering import Answerer
from nebula.rpc.service.workers import GiveBack, Lane, give_back
from nebula.rpc.wire.cancel import cancel_topics
from nebula.rpc.wire.envelope import BOO
from nebula.stomp.client import AckMode, Listener, Message, StompClient

__all__ = ["Intake"]

_log = get_logger(__name__)

# Workers of an instance's own queue, where there are jobs. Enough for all that may wait in `job.wait` there,
# so that the other verbs of jobs never wait for a worker (DESIGN 5).
_INSTANCE_CONCURRENCY: Final = 64

# Brokers of MaXaM's profile do not answer the SUBSCRIBE that they do not permit: the service ends, and
# whoever started it hears why.
_LISTEN_SECONDS: Final = 30.0

# The same for what a service can do without.
_OPTIONAL_LISTEN_SECONDS: Final = 5.0


class Intake:
    """The queues of a service, each with workers of its own.

    Args:
        service: its name.
        destinations: its queues.
        own: where this instance alone is asked.
        answerer: deals with the requests.
        concurrency: workers per queue.
        max_waiting: requests that may wait for one, per queue.
        has_jobs: the instance's own queue stays when it ends, for the next process that takes its name.

    Attributes:
        lanes: by queue.
        is_reachable: this instance can be asked alone.
    """

    def __init__(
        self,
        service: str,
        destinations: Sequence[str],
        own: str,
        answerer: Answerer,
        *,
        concurrency: int,
        max_waiting: int | None,
        has_jobs: bool,
    ) -> None:
        self._service, self._destinations, self._own = service, destinations, own
        self._answerer = answerer
        self._max_waiting = max_waiting or 0
        self._has_jobs = has_jobs
        self._listeners: list[Listener] = []
        self.is_reachable = True
        self.lanes = {
            one: Lane(answerer.serve, concurrency, max_waiting=max_waiting, refuse=answerer.refuse)
            for one in destinations
        }
        # The broker's own service is one alone.
        self._is_alone = names.BROKER_QUEUE in self.lanes
        if not self._is_alone:
            workers = max(concurrency, _INSTANCE_CONCURRENCY) if has_jobs else concurrency
            self.lanes[own] = Lane(answerer.serve, workers)
        answerer.running.watch(self.lanes.values())

    def load(self) -> tuple[int, int]:
        """Requests that are being handled, and those that came and are not begun."""
        lanes = self.lanes.values()
        waiting = sum(lane.waiting for lane in lanes) + self._answerer.set_aside
        return sum(lane.busy for lane in lanes), waiting

    async def listen(self, client: StompClient, prefetch_count: str) -> None:
        """SUBSCRIBE to all of them, and to where callers withdraw what they asked for.

        Args:
            client: connected.
            prefetch_count: what its broker calls that header.

        Raises:
            Refused: the broker does not let us, or does not answer.
            ConnectionLost, ServerError: the connection ended.
        """
        for destination, lane in self.lanes.items():
            # Enough for each worker to find its next request waiting when it has answered one; and more
            # than may wait, so that the broker's queue does not hide an overload.
            count = 2 * lane.concurrency + self._max_waiting + self._answerer.most_aside
            headers = {prefetch_count: str(count)}
            if destination == self._own and not self._has_jobs:
                await self._listen_to_own(client, headers)
            else:
                await self._listen_to(client, destination, headers, _LISTEN_SECONDS)
        if not self._is_alone:
            await self._listen_for_cancels(client)

    async def _listen_to(
        self, client: StompClient, destination: str, headers: dict[str, str], seconds: float
    ) -> None:
        is_own = destination == self._own
        listener = await client.listen(
            destination,
            self._take_own if is_own else self.lanes[destination].put,
            ack=AckMode.CLIENT_INDIVIDUAL,
            headers=headers,
            timeout=seconds,
        )
        self._listeners.append(listener)

    def _take_own(self, message: Message) -> None:
        # Credit never waits for a worker: there may be none left but those that wait for it. Nor does what
        # is sent to see whether anybody listens: it must not keep credit from coming, see `_turn_away`.
        if message.body == BOO or self._answerer.streams.take_credit(message):
            message.ack()
        else:
            self.lanes[self._own].put(message)

    async def _listen_to_own(self, client: StompClient, headers: dict[str, str]) -> None:
        """Listen to the queue of this instance, which nobody else will ever read: it goes with us."""
        headers = {**headers, names.AUTO_DELETE: "true"}
        try:
            await self._listen_to(client, self._own, headers, _OPTIONAL_LISTEN_SECONDS)
            self.is_reachable = True
        except Refused:
            # Requests come by the other queues all the same.
            self.is_reachable = False
            _log.warning("instance not reachable by itself", service=self._service, queue=self._own)

    async def _listen_for_cancels(self, client: StompClient) -> None:
        for topic in cancel_topics(self._service, self._destinations):
            try:
                await client.listen(
                    topic, self._answerer.withdraw, ack=AckMode.AUTO, timeout=_OPTIONAL_LISTEN_SECONDS
                )
            except Refused:
                # What nobody waits for any more is handled all the same, until its time is over.
                _log.warning("callers cannot cancel here", service=self._service, topic=topic)

    def stop(self, *, may_drain: bool) -> None:
        """Take no more requests and give back what was not begun. What was is answered over the connection.

        Args:
            may_drain: the broker is ours: other instances get at once what is not begun. With others nothing
                can be had back while something is being handled, so who asked is told to ask again.
        """
        if may_drain:
            for listener in self._listeners:
                # Cancels and credit for what is being handled come by our own.
                if listener.destination != self._own:
                    listener.drain()
        for destination, lane in self.lanes.items():
            lane.close(self._give_back(may_drain=may_drain, is_own=destination == self._own))
        self._answerer.empty_gates()

    def _give_back(self, *, may_drain: bool, is_own: bool) -> GiveBack | None:
        if is_own and self._has_jobs:
            # The next process of this name answers it.
            return None
        if is_own:
            return self._turn_away
        # What wants no answer stays unacked: others get it when the connection ends.
        return give_back if may_drain else self._answerer.turn_away

    def _turn_away(self, message: Message, arrived: float) -> None:
        """Settle a message of our own queue: nobody else will ever get it."""
        if not self._answerer.turn_away(message, arrived):
            # Unacked ones would use up what the broker sends ahead, and no credit would come any more.
            _log.info("request dropped, the service is stopping", queue=self._own)
            with suppress(ConnectionLost):
                message.ack()

    def close(self) -> None:
        """The connection is over: begin nothing more."""
        for lane in self.lanes.values():
            lane.close()

    def lose(self) -> None:
        """Forget what came by the connection: the next one has no right to answer it, and it comes again."""
        for listener in self._listeners:
            listener.is_closed = True
        self._listeners.clear()
        for lane in self.lanes.values():
            lane.lose()
        self._answerer.lose()
