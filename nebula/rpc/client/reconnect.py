"""Reconnecting: one connection after another, over a list of addresses, until the client is left."""

# The states, as `on_state` reports them:
#
#     CONNECTING -> CONNECTED -> LOST -> CONNECTING -> ...        until `leave`, then CLOSED
#         |                        ^
#         +-- attempt failed ------+
#
# One attempt runs in `_try`: it makes a client for the next address, enters it (TCP, TLS, CONNECT), and
# then enters `live`, which opens the inbox. CONNECTED is reported only after `restore` has made the
# subscriptions again: code that hears it may publish and expect the subscribers of this client to get the
# message.
#
# Two bounds keep a thousand clients from attacking a broker that restarts:
#
# - The delay after each round of addresses grows, and is drawn at random, so that clients that lost the
#   broker in the same moment do not return in the same moment.
# - The delay is reset by a connection that lasted as long as the longest delay, not by any connection. A
#   broker that accepts a session and ends it at once would otherwise be called without pause.
#
# The first connection differs: without `wait` the client tries each address once and raises, because a
# wrong address is the usual reason. After one success the addresses are known to be right, and it tries for
# ever.
#
# `leave` has to be graceful (DISCONNECT with a receipt) while there is a session, and immediate while there
# is none. So an attempt is ended by its cancel scope, and a session by an event.

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from time import monotonic
from typing import Final

import anyio

from nebula.errors import ConnectFailed, NebulaError, OtherContract, OutsideBroker, SettingsError
from nebula.logs import get_logger
from nebula.rpc.client.retry import Sleep
from nebula.rpc.contract.retry import Retry
from nebula.stomp.client import StompClient
from nebula.stomp.client.ambient import broker_address

__all__ = ["BACKOFF", "Addresses", "ConnectionState", "Connections", "OnState", "urls_of"]

_log = get_logger(__name__)

# Between two rounds of the addresses. A broker that comes back finds its peers within seconds, and a
# thousand of them do not all come in the same one.
BACKOFF: Final = Retry(first=0.05, longest=3.3)


class ConnectionState(StrEnum):
    """How a connection is now."""

    CONNECTING = "connecting"
    """An address is being tried."""

    CONNECTED = "connected"
    """There is a session; subscriptions have been made again."""

    LOST = "lost"
    """The connection ended, or an address could not be had; it goes on with `connecting`."""

    CLOSED = "closed"
    """It is over: the client was left, or does not reconnect."""


OnState = Callable[[ConnectionState], None]


class Addresses:
    """Which broker is tried next, and after how long.

    In rounds: all addresses at once one after the other, beginning with the one that worked last, then a
    delay that grows with each round. A connection that held brings the delay back to the shortest; one that
    did not is as good as none, so that a broker that ends each session is not called without pause.

    Args:
        urls: one or more.
        backoff: the delays; its attempts do not count.
    """

    def __init__(self, urls: Sequence[str | None], backoff: Retry = BACKOFF) -> None:
        self._urls = urls
        self._backoff = backoff
        self._next = 0
        self._left = len(urls)  # of this round
        self._rounds = 0

    def take(self) -> tuple[str | None, float]:
        """The next address, and the seconds to wait before it is tried."""
        delay = 0.0
        if self._left == 0:
            self._left = len(self._urls)
            self._rounds += 1
            delay = self._backoff.delay(self._rounds, random.uniform)
        url = self._urls[self._next]
        self._next = (self._next + 1) % len(self._urls)
        self._left -= 1
        return url, delay

    @property
    def is_round_over(self) -> bool:
        """Each address has been tried since the last delay."""
        return self._left == 0

    def lose(self, seconds: float) -> None:
        """The connection to the address that was taken last has ended, after some seconds."""
        self._next = (self._next - 1) % len(self._urls)
        # After a delay even so: all of a broker's peers lose it in the same moment.
        self._left = 0
        if seconds >= self._backoff.longest_delay:
            self._rounds = 0


class Connections:
    """Connects, and when that connection ends connects again, until it is left.

    Args:
        make: a client for an address, not entered.
        urls: the addresses.
        live: entered with each connection, and left when that ends. What it raises as it is entered counts
            as if the address could not be had.
        restore: makes again what each connection but the first needs, before it is `connected`.
        on_lost: called, synchronously, with the end of each connection that we did not end.
        on_state: called with each change, synchronously. What it raises is logged.
        reconnects: after the first connection has ended; else that is the end.
        waits: for the first connection, as for later ones; else it is an error if no address can be had.
        backoff: the delays between the rounds of addresses.
        sleep: waits.
        now: seconds of any clock that does not jump.

    Attributes:
        state: how it is now.
        last_failure: what ended the last connection or attempt, None as long as none has ended.
    """

    def __init__(
        self,
        make: Callable[[str | None], StompClient],
        urls: Sequence[str | None],
        live: Callable[[StompClient], AbstractAsyncContextManager[None]],
        *,
        restore: Callable[[StompClient], Awaitable[None]] | None = None,
        on_lost: Callable[[NebulaError], None] | None = None,
        on_state: OnState | None = None,
        reconnects: bool = True,
        waits: bool = False,
        backoff: Retry = BACKOFF,
        sleep: Sleep = anyio.sleep,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._make, self._live, self._restore = make, live, restore
        self._addresses = Addresses(urls, backoff)
        self._on_lost, self._on_state = on_lost, on_state
        self._reconnects, self._waits = reconnects, waits
        self._sleep, self._now = sleep, now
        self._failures: list[NebulaError] = []  # of this round
        self._is_leaving = False
        self._was_connected = self._has_failed = False
        # What `leave` ends: an attempt by its scope, a connection gracefully by its event.
        self._attempt: anyio.CancelScope | None = None
        self._over: anyio.Event | None = None
        self._loss: NebulaError | None = None
        self.state = ConnectionState.CLOSED
        self.last_failure: NebulaError | None = None

    async def run(self) -> None:
        """Connect again and again until `leave`. Called once.

        Raises:
            ConnectFailed, Refused, …: the first connection could not be had, from any address.
            ConnectionLost, ServerError: the connection ended, and there will be no other.
            OutsideBroker: an address that is not allowed here: trying again would not help.
            OtherContract: what runs over the connection must not run next to others.
        """
        try:
            while not self._is_leaving:
                if self._addresses.is_round_over:
                    self._failures.clear()
                await self._try(*self._addresses.take())
                self._check()
        finally:
            self._tell(ConnectionState.CLOSED)

    def leave(self) -> None:
        """End the connection gracefully, or the attempt at once; `run` returns."""
        self._is_leaving = True
        if self._attempt is not None:
            self._attempt.cancel()
        if self._over is not None:
            self._over.set()

    def hold(self) -> None:
        """For `live`, as it is entered: what it has begun by now is ended gracefully by `leave`, too."""
        self._attempt = None

    async def _try(self, url: str | None, delay: float) -> None:
        """One attempt, and the connection that came of it."""
        with anyio.CancelScope() as attempt:
            self._attempt = attempt
            if delay:
                await self._sleep(delay)
            self._tell(ConnectionState.CONNECTING)
            self._over, self._loss = anyio.Event(), None
            began = None
            try:
                async with self._make(url) as stomp:
                    # Before anything is waited for: no task is told twice.
                    stomp.on_lost = self._lose
                    async with self._live(stomp):
                        # From now on `leave` is graceful.
                        self._attempt = None
                        began = self._now()
                        await self._until_over(stomp, self._over)
            except (OutsideBroker, OtherContract):
                raise
            except NebulaError as error:
                self._fail(error)
            if began is not None and not self._is_leaving:
                self._was_connected = True
                self._addresses.lose(self._now() - began)
        self._attempt = None

    async def _until_over(self, stomp: StompClient, over: anyio.Event) -> None:
        if self._restore is None or not self._was_connected:
            self._begin(over)
            await over.wait()
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._begin_again, self._restore, stomp, over, name="restoring")
            await over.wait()
            tasks.cancel_scope.cancel()

    async def _begin_again(
        self, restore: Callable[[StompClient], Awaitable[None]], stomp: StompClient, over: anyio.Event
    ) -> None:
        await restore(stomp)
        self._begin(over)

    def _begin(self, over: anyio.Event) -> None:
        if over.is_set():  # lost as soon as it was there
            return
        if self._was_connected:
            _log.info("connected again")
        self._was_connected, self._has_failed = True, False
        self._tell(ConnectionState.CONNECTED)

    def _lose(self, error: NebulaError) -> None:
        self._loss = self.last_failure = error
        assert self._over is not None
        self._over.set()
        if self._was_connected:
            _log.warning("connection lost", reason=str(error))
        if self._on_lost is not None:
            self._on_lost(error)
        self._tell(ConnectionState.LOST)

    def _fail(self, error: NebulaError) -> None:
        # What the broker said at the end says more than that it has ended.
        error = self.last_failure = self._loss or error
        self._failures.append(error)
        if self._was_connected or self._waits:
            # The first one asks for attention, the others say that nothing has changed.
            (_log.info if self._has_failed else _log.warning)("connect failed", reason=str(error))
            self._has_failed = True
        self._tell(ConnectionState.LOST)

    def _check(self) -> None:
        """Raise what ends it."""
        if self._is_leaving or (self._reconnects if self._was_connected else self._waits):
            return
        if self._was_connected and self._loss is not None:
            raise self._loss
        if self._addresses.is_round_over:
            raise _one_of(self._failures)

    def _tell(self, state: ConnectionState) -> None:
        if state is self.state:
            return
        self.state = state
        if self._on_state is None:
            return
        try:
            self._on_state(state)
        except Exception:
            # It is told from within the link's callbacks, which have to go on.
            _log.exception("state hook failed", state=str(state))


def _one_of(failures: Sequence[NebulaError]) -> NebulaError:
    if len(failures) == 1:
        return failures[0]
    return ConnectFailed("no broker could be had: " + "; ".join(map(str, failures)))


def urls_of(url: str | Sequence[str] | None) -> Sequence[str | None]:
    """The addresses, of one or several; None is the usual one, see `StompClient`.

    Raises:
        SettingsError: there is no address, or one of them cannot be used.
    """
    urls = (url,) if url is None or isinstance(url, str) else tuple(url)
    if not urls:
        raise SettingsError("broker: the list of addresses is empty; None takes the usual one")
    for one in urls:
        broker_address(one)
    return urls
