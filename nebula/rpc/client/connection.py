"""The connection of a client, and its inbox. They are replaced after a loss.

A client and all its views share one `Connection`. Connections come and go below it, see `reconnect`; each has
an inbox of its own, as a broker deletes an inbox with its connection. While there is no connection, calls
and messages wait for the next one within their own time.

Invariant: `inbox` is None exactly while there is no connection and another one may come. Once there will be
no other, it is the lost inbox, which fails each request at once.
"""

# Layers of a client's connection, from what lasts to what does not:
#
#     Client and its views     options; share one `Connection`
#     Connection               lasts as long as the client: waits for the next inbox, keeps subscriptions
#     Connections              one task: attempt, session, attempt, ...                       `reconnect`
#     StompClient              one session: CONNECT to DISCONNECT                             `stomp.client`
#     Inbox                    replies of one session, since a broker deletes it with the session
#
# A call takes `connection.inbox` and asks it, without a lock and without a check whether it still works: if
# the session ends in between, the lost inbox raises the loss itself (`Inbox.lose`).

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import monotonic

import anyio
from anyio.abc import TaskGroup

from nebula.errors import CallTimeout, ConnectionLost, LocalProtocolError, NebulaError, fresh
from nebula.rpc.client.client_options import ClientOptions
from nebula.rpc.client.inbox import Inbox
from nebula.rpc.client.reconnect import Connections, ConnectionState
from nebula.rpc.client.resubscribe import Subscriptions
from nebula.rpc.client.retry import ClientClosed
from nebula.rpc.wire.brokers import Brand
from nebula.stomp.client import StompClient
from nebula.waiter import Waiter, new_waiter

__all__ = ["Connection"]

# What a cancelled client may take to send its last cancels.
_LAST_WORD_SECONDS = 0.2


class Connection:
    """Opens connections for a client, and hands out the current one and its inbox.

    Args:
        make: a connection to an address, not entered, for a session of this name.
        urls: addresses of brokers.
        options: of the client.

    Attributes:
        options: of the client.
        subscriptions: those that outlive a connection.
        inbox: of the current connection; None while not connected.

    Raises:
        SettingsError: an address cannot be used.
    """

    def __init__(
        self,
        make: Callable[[str | None, str | None], StompClient],
        urls: Sequence[str | None],
        options: ClientOptions,
    ) -> None:
        self.options = options
        self.inbox: Inbox | None = None
        self.subscriptions = Subscriptions(self.connected, self._is_alive, options.timeout)
        self._make = make
        for url in urls:
            make(url, options.client_id)  # raises at once if an address cannot be used
        self._urls = urls
        self._connections: Connections | None = None
        self._tasks: TaskGroup | None = None
        self._life: anyio.CancelScope | None = None
        self._stomp: StompClient | None = None
        self._brand: Brand | None = None
        self._waiting: set[Waiter[None]] = set()
        self._end: NebulaError | None = None

    @property
    def stomp(self) -> StompClient:
        """The current connection, or the last one.

        Raises:
            LocalProtocolError: there was none yet.
        """
        if self._stomp is None:
            raise _not_entered()
        return self._stomp

    @property
    def brand(self) -> Brand:
        """The headers of the current broker's brand. Raises as `stomp`."""
        if self._brand is None:
            raise _not_entered()
        return self._brand

    @property
    def broker_address(self) -> tuple[str, int] | None:
        """Host and port of the current broker, or of the last one; None before the first, and over a link."""
        return None if self._stomp is None else self._stomp.broker_address

    @property
    def state(self) -> ConnectionState:
        """The state of the connection."""
        return ConnectionState.CLOSED if self._connections is None else self._connections.state

    # --- waiting for a connection ---

    async def connected(self, seconds: float) -> StompClient:
        """The connection, once there is one.

        Args:
            seconds: to wait for it.

        Raises:
            ConnectionLost: there was none in time, or will be none.
            LocalProtocolError: the client was not entered.
        """
        if self.inbox is None:
            await self.next_inbox(seconds)
        return self.stomp

    async def next_inbox(self, seconds: float) -> Inbox:
        """The inbox of the connection, once there is one. Args and Raises as for `connected`."""
        if self._connections is None:
            raise _not_entered()
        with anyio.move_on_after(seconds):
            while self.inbox is None:
                if self._end is not None:
                    raise fresh(self._end)
                waiter: Waiter[None] = new_waiter()
                self._waiting.add(waiter)
                try:
                    await waiter.wait()
                finally:
                    self._waiting.discard(waiter)
        if self.inbox is None:
            raise ConnectionLost(f"no connection in time: {self._connections.last_failure}")
        return self.inbox

    async def deliver(
        self, destination: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> None:
        """Send a message and wait until the broker has it.

        Raises:
            CallTimeout: the broker did not confirm it in time.
            Rejected, ConnectionLost, ServerError: as `StompClient.send`.
        """
        deadline = monotonic() + seconds
        stomp = await self.connected(seconds)
        try:
            await stomp.send(
                destination, body, headers, receipt=True, timeout=max(deadline - monotonic(), 0.0)
            )
        except TimeoutError as error:
            raise CallTimeout(f"the broker did not confirm a message to {destination} in time") from error

    # --- opening and closing ---

    async def open(self) -> None:
        """Connect, and open the inbox; called once. Raises as `StompClient` and `Inbox.open`."""
        if self._connections is not None:
            raise LocalProtocolError("a client is entered once: make a new one")
        options = self.options
        self._connections = Connections(
            self._next_connection,
            self._urls,
            self._live,
            restore=self.subscriptions.begin_again,
            on_lost=self._lose,
            on_state=options.on_state,
            reconnects=options.reconnects,
            waits=options.waits,
        )
        self._life = anyio.CancelScope(shield=True)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        first: Waiter[None] = new_waiter()
        self._waiting.add(first)
        self._tasks.start_soon(self._run, self._connections, self._life, name="connection")
        try:
            await first.wait()
        except BaseException as error:
            self._life.cancel()
            await self._end_tasks(error)
            raise

    async def close(self, error: BaseException | None) -> None:
        """Fail the calls in flight and disconnect.

        Args:
            error: that ended the client's block, or None.
        """
        assert self._connections is not None
        assert self._life is not None
        self._finish(ClientClosed("the client has disconnected"))
        if anyio.current_effective_deadline() > -math.inf:
            self._connections.leave()
        else:
            await self._hurry()
            self._life.cancel()
        await self._end_tasks(error)

    async def _hurry(self) -> None:
        """Disconnect from within a cancelled scope: only the cancels of calls still go out.

        The connection is shielded from the cancellation until here.
        """
        if self._stomp is not None and self.inbox is not None and self.inbox.cancelled:
            with anyio.CancelScope(shield=True):
                # Once the broker replies to this, it has read what was posted before.
                await self._stomp.connection.disconnect(_LAST_WORD_SECONDS)

    async def _end_tasks(self, error: BaseException | None) -> None:
        assert self._tasks is not None
        # The group has no part in the block's error; it would only wrap it.
        if isinstance(error, anyio.get_cancelled_exc_class()):
            await self._tasks.__aexit__(type(error), error, error.__traceback__)
        else:
            await self._tasks.__aexit__(None, None, None)

    # --- one connection after the other ---

    async def _run(self, connections: Connections, life: anyio.CancelScope) -> None:
        with life:
            try:
                await connections.run()
            except NebulaError as error:
                self._finish(error)

    def _next_connection(self, url: str | None) -> StompClient:
        client_id = self.options.client_id
        if client_id is None and self.subscriptions.have_durable:
            # They belong to the session that the broker named.
            client_id = self.stomp.session
        return self._make(url, client_id)

    @asynccontextmanager
    async def _live(self, stomp: StompClient) -> AsyncGenerator[None]:
        """One connection, from its inbox on."""
        inbox = Inbox(stomp, self.options.reply_to)
        await inbox.open(self.options.timeout)
        # It may have ended right after the reply, and no second notice will come.
        stomp.connection.check_alive()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inbox.run, name="inbox")
            self._stomp, self.inbox, self._brand = stomp, inbox, inbox.brand
            self._wake(None)
            yield
            tasks.cancel_scope.cancel()

    def _is_alive(self, stomp: StompClient) -> bool:
        return self._stomp is stomp and self.inbox is not None

    def _lose(self, error: NebulaError) -> None:
        if self.inbox is not None:
            self.inbox.lose(error)
        if self.options.reconnects:
            self.inbox = None
            self.subscriptions.lose()
        else:
            self.subscriptions.fail(error)

    def _finish(self, error: NebulaError) -> None:
        """There will be no further connection."""
        if self._end is None:
            self._end = error
            if self.inbox is not None:
                self.inbox.lose(error)
            self.subscriptions.fail(error)
            self._wake(error)

    def _wake(self, error: NebulaError | None) -> None:
        for waiter in self._waiting:
            if error is None:
                waiter.set(None)
            else:
                waiter.fail(fresh(error))
        self._waiting.clear()


def _not_entered() -> LocalProtocolError:
    return LocalProtocolError("the client is not connected: enter it with `async with`")
