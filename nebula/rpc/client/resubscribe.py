"""Subscriptions that outlive their connection: the client makes them again on each new one."""

# What a subscriber sees when the connection is lost and another one takes its place:
#
#     destination          ack mode     messages that wait here       messages sent meanwhile
#     queue, durable       client       dropped, as they come again   the broker keeps them
#     queue, durable       auto         handed out: the broker        the broker keeps them
#                                       forgot them when it sent them
#     topic                any          handed out                    lost
#     last value           any          handed out                    lost; `eager` begins with the newest
#
# The loop of the reader never ends meanwhile: it waits on the subscription, not on the connection. That
# needs a stand-in, a `PushSubscription` that is not closed and that no connection knows
# (`Subscription.detach`). Messages of the old connection find theirs closed, so their ACK does nothing,
# instead of naming a message of the new connection, which has ids of its own.
#
# Races, each with its check:
#
# - The connection is lost between the RECEIPT of the first SUBSCRIBE and the moment when the subscription
#   is in the table: `_begun` looks whether the connection is still the current one, and begins again
#   otherwise.
# - The reader leaves or pauses while SUBSCRIBE is under way on the new connection: `begin_again` compares
#   the stand-in, and closes what it got.

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from nebula.errors import ConnectionLost, NebulaError, ServerError, fresh
from nebula.logs import get_logger
from nebula.rpc.wire.brokers import Brand, brand_of
from nebula.stomp.client import AckMode, StompClient
from nebula.stomp.client.messages import SubscribeOptions
from nebula.stomp.client.subscription import Subscription
from nebula.waiter import Waiter, new_waiter

__all__ = ["LastingSubscription", "Subscriptions", "options_for"]

_log = get_logger(__name__)


class LastingSubscription(Subscription):
    """A subscription that waits while there is no connection, and goes on with the next one.

    What had come by then is handed out first; to `ack` it does nothing any more. Messages that the broker
    gives out again, as they were not acked (of a queue, or of a durable subscription, in a client mode), are
    not: they come again. What was sent meanwhile to a topic is lost, unless the subscription is durable; an
    `eager` one begins again with all that is there, which `snapshot` gives too if it is called again.

    Made by `Client.subscribe`. The loop raises `Refused` if the broker does not allow the subscription any
    more, and `ConnectionLost` when the client is left.
    """

    def __init__(self, stomp: StompClient, destination: str, options: SubscribeOptions) -> None:
        super().__init__(stomp.connection)
        self._destination = destination
        self._options = options
        self._failure: NebulaError | None = None

    @property
    def is_durable(self) -> bool:
        """The broker keeps what comes for it meanwhile."""
        return self._options.get("durable") is not None

    async def begin(self, stomp: StompClient) -> None:
        """SUBSCRIBE for the first time. Raises as `StompClient.subscribe`."""
        await self.open(self._destination, options_for(brand_of(stomp.server), self._options))

    async def begin_again(self, stomp: StompClient, timeout: float) -> None:
        """SUBSCRIBE on a new connection; `lose` was called.

        Raises:
            Refused: the broker does not let us, or did not reply in time.
            ConnectionLost, ServerError: the connection has ended, too.
        """
        self.attach(stomp.connection)
        options = options_for(brand_of(stomp.server), self._options)
        if options.get("timeout") is None:
            # No task waits that could give up.
            options["timeout"] = timeout
        before = self.push
        made = await self._listen(self._destination, options)
        if self.push is before and not before.is_closed:
            self._push = made
        else:
            # Left or paused while the reply was awaited; or lost again behind the reply, and then it is for
            # the next connection to make it.
            made.close()

    def lose(self) -> None:
        """Its connection has ended."""
        if not self.push.is_closed:
            is_kept = self.is_durable or self._destination.startswith("/queue/")
            self.detach(drops=is_kept and self.push.ack_mode is not AckMode.AUTO)

    def fail(self, error: NebulaError) -> None:
        """There will be no more messages: tasks that wait for one get the error."""
        self._failure = error
        for waiter in self._waiters:
            waiter.fail(fresh(error))

    async def _wait(self) -> None:
        # Not for the end of the connection, which is not its own end.
        if self._failure is not None:
            raise fresh(self._failure)
        waiter: Waiter[None] = new_waiter()
        await self._wait_with(waiter, waiter.wait())


def options_for(brand: Brand, options: SubscribeOptions) -> SubscribeOptions:
    """The options of a subscription, a copy, with the headers that a brand of broker needs for them."""
    copy = options.copy()
    if (name := options.get("durable")) is not None:
        copy["headers"] = {**(options.get("headers") or {}), **brand.durable_headers(name)}
    return copy


class Subscriptions:
    """The subscriptions of a client.

    Args:
        connected: waits for a connection, for a number of seconds.
        is_alive: whether a connection is the one that there is.
        timeout: seconds to wait for each reply at a reconnect.
    """

    def __init__(
        self,
        connected: Callable[[float], Awaitable[StompClient]],
        is_alive: Callable[[StompClient], bool],
        timeout: float,
    ) -> None:
        self._connected, self._is_alive, self._timeout = connected, is_alive, timeout
        self._open: set[LastingSubscription] = set()

    @property
    def have_durable(self) -> bool:
        """One of them belongs to a session that has to be gone on with."""
        return any(one.is_durable for one in self._open)

    def subscribe(
        self, destination: str, options: SubscribeOptions, seconds: Callable[[float | None], float]
    ) -> AbstractAsyncContextManager[LastingSubscription]:
        """SUBSCRIBE for the block, see `StompClient.subscribe`.

        Args:
            destination: what to subscribe to.
            options: of the subscription.
            seconds: to wait for a connection, by the timeout among the options; see `Calls.seconds`.
        """
        return self._subscribed(destination, options, seconds)

    @asynccontextmanager
    async def _subscribed(
        self, destination: str, options: SubscribeOptions, seconds: Callable[[float | None], float]
    ) -> AsyncGenerator[LastingSubscription]:
        subscription = await self._begun(destination, options, seconds)
        self._open.add(subscription)
        try:
            yield subscription
        finally:
            self._open.discard(subscription)
            subscription.close()

    async def _begun(
        self, destination: str, options: SubscribeOptions, seconds: Callable[[float | None], float]
    ) -> LastingSubscription:
        while True:
            stomp = await self._connected(seconds(options.get("timeout")))
            subscription = LastingSubscription(stomp, destination, options)
            await subscription.begin(stomp)
            # The connection may have ended between the RECEIPT and now, and the task that makes subscriptions
            # again did not know this one.
            if self._is_alive(stomp):
                return subscription

    async def begin_again(self, stomp: StompClient) -> None:
        """Make all of them again. One that is refused fails alone."""
        async with anyio.create_task_group() as tasks:
            for one in self._open:
                # Paused or removed meanwhile: it is to stay so.
                if not one.push.is_closed:
                    tasks.start_soon(self._begin_again, one, stomp, name="subscribing again")

    async def _begin_again(self, one: LastingSubscription, stomp: StompClient) -> None:
        try:
            await one.begin_again(stomp, self._timeout)
        except (ConnectionLost, ServerError):
            return  # with the next connection
        except NebulaError as error:
            _log.warning("subscription not made again", destination=one.push.destination, reason=str(error))
            one.fail(error)

    def lose(self) -> None:
        """The connection has ended, and another one will come."""
        for one in self._open:
            one.lose()

    def fail(self, error: NebulaError) -> None:
        """There will be no other connection."""
        for one in self._open:
            one.fail(error)
