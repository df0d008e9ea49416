"""What all views of a client share: the connection of now, its inbox, and how long is waited by default."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from time import monotonic
from typing import TypeVar

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from nebula.errors import CallTimeout, ConnectionLost, LocalProtocolError, NebulaError, fresh
from nebula.headers import IDEMPOTENCY_KEY, REQUIRE_CONSUMERS
from nebula.rpc.client.breaker import Circuits
from nebula.rpc.client.constructor import CallerOptions
from nebula.rpc.client.inbox import Inbox
from nebula.rpc.client.reconnect import Connections, ConnectionState
from nebula.rpc.client.resubscribe import Subscriptions
from nebula.rpc.client.retry import CallRules, ClientClosed, persist
from nebula.rpc.middleware.chain import calling_chain
from nebula.rpc.wire.avro_bodies import AvroBody
from nebula.rpc.wire.brokers import Brand, whole_milliseconds
from nebula.rpc.wire.deadlines import AMBIENT
from nebula.rpc.wire.envelope import AVRO_TYPE, JSON_TYPE
from nebula.stomp.client import Message, StompClient
from nebula.waiter import Waiter, new_waiter

T = TypeVar("T")

# What a cancelled client may take to get its last words out.
_LAST_WORD_SECONDS = 0.2

# `start` and the like name their job themselves, so that a second request begins no second one.
_BEARS_TWICE = CallRules(is_idempotent=True)


class Caller:
    """Sends requests and waits for their answers, and messages and waits for their receipts.

    Each connection has an inbox of its own, as an inbox belongs to its connection. What is asked while there
    is none waits for one, as long as it may.

    Args:
        make: a connection to an address, not entered, for a session of this name.
        urls: addresses of brokers.
        options: of the client.

    Attributes:
        subscriptions: those that outlive a connection.
        options: of the client.
        has_breaker: `ask_hard` may refuse to ask.
        chain: the middleware around each call, or None.
    """

    def __init__(
        self,
        make: Callable[[str | None, str | None], StompClient],
        urls: Sequence[str | None],
        options: CallerOptions,
    ) -> None:
        self.options = options
        self._make = make
        for url in urls:
            make(url, options.client_id)  # an address that cannot be used says so now
        self._urls = urls
        self._circuits = None if options.breaker is None else Circuits(options.breaker)
        self.has_breaker = options.breaker is not None
        self.chain = calling_chain(options.middleware) if options.middleware else None
        self._connections: Connections | None = None
        self._tasks: TaskGroup | None = None
        self._life: anyio.CancelScope | None = None
        self._stomp: StompClient | None = None
        self._brand: Brand | None = None
        # None while there is no connection; the lost one's, once there will be no other.
        self._inbox: Inbox | None = None
        self._waiting: set[Waiter[None]] = set()
        self._end: NebulaError | None = None
        self.subscriptions = Subscriptions(self.connected, self._is_alive, options.timeout)

    # --- the connection ---

    @property
    def stomp(self) -> StompClient:
        """The connection of now, or the last one.

        Raises:
            LocalProtocolError: there was none yet.
        """
        if self._stomp is None:
            raise _not_entered()
        return self._stomp

    @property
    def brand(self) -> Brand:
        """How the broker is spoken to. Raises as `stomp`."""
        if self._brand is None:
            raise _not_entered()
        return self._brand

    @property
    def state(self) -> ConnectionState:
        """How the connection is."""
        return ConnectionState.CLOSED if self._connections is None else self._connections.state

    async def connected(self, timeout: float | None = None) -> StompClient:
        """The connection, once there is one.

        Args:
            timeout: seconds to wait; None: as `seconds` says.

        Raises:
            ConnectionLost: there was none in time, or will be none.
            LocalProtocolError: the client was not entered.
        """
        if self._inbox is None:
            await self.connected_inbox(self.seconds(timeout))
        return self.stomp

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
        """Fail the calls in flight and disconnect. `error`: of the block."""
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
        """In a cancelled scope there is no time for manners, but to say that calls were cancelled with it.

        The connection is shielded from the cancellation until here.
        """
        if self._stomp is not None and self._inbox is not None and self._inbox.withdrawn:
            with anyio.CancelScope(shield=True):
                # Once this is answered, what was posted before has come there.
                await self._stomp.connection.disconnect(_LAST_WORD_SECONDS)

    async def _end_tasks(self, error: BaseException | None) -> None:
        assert self._tasks is not None
        # The group has no part in the block's error; it would only wrap it.
        if isinstance(error, anyio.get_cancelled_exc_class()):
            await self._tasks.__aexit__(type(error), error, error.__traceback__)
        else:
            await self._tasks.__aexit__(None, None, None)

    async def _run(self, connections: Connections, life: anyio.CancelScope) -> None:
        with life:
            try:
                await connections.run()
            except NebulaError as error:
                self._finish(error)

    def _next_connection(self, url: str | None) -> StompClient:
        client_id = self.options.client_id
        if client_id is None and self.subscriptions.have_durable:
            # The broker made the name of the session that they belong to.
            client_id = self.stomp.session
        return self._make(url, client_id)

    @asynccontextmanager
    async def _live(self, stomp: StompClient) -> AsyncGenerator[None]:
        """One connection: from its inbox on."""
        inbox = Inbox(stomp, self.options.reply_to)
        await inbox.open(self.options.timeout)
        # It may have ended behind the answer, and nobody will be told again.
        stomp.connection.check_alive()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inbox.run, name="inbox")
            self._stomp, self._inbox, self._brand = stomp, inbox, inbox.brand
            self._wake(None)
            yield
            tasks.cancel_scope.cancel()

    def _lose(self, error: NebulaError) -> None:
        if self._inbox is not None:
            self._inbox.lose(error)
        if self.options.reconnects:
            self._inbox = None
            self.subscriptions.lose()
        else:
            self.subscriptions.fail(error)

    def _finish(self, error: NebulaError) -> None:
        """Nobody will connect any more."""
        if self._end is None:
            self._end = error
            if self._inbox is not None:
                self._inbox.lose(error)
            self.subscriptions.fail(error)
            self._wake(error)

    def _wake(self, error: NebulaError | None) -> None:
        for waiter in self._waiting:
            if error is None:
                waiter.set(None)
            else:
                waiter.fail(fresh(error))
        self._waiting.clear()

    async def connected_inbox(self, seconds: float) -> Inbox:
        """The inbox of the connection, once there is one. Raises as `connected`.

        Args:
            seconds: to wait for it.
        """
        if self._connections is None:
            raise _not_entered()
        with anyio.move_on_after(seconds):
            while self._inbox is None:
                if self._end is not None:
                    raise fresh(self._end)
                waiter: Waiter[None] = new_waiter()
                self._waiting.add(waiter)
                try:
                    await waiter.wait()
                finally:
                    self._waiting.discard(waiter)
        if self._inbox is None:
            raise ConnectionLost(f"no connection in time: {self._connections.last_failure}")
        return self._inbox

    def _is_alive(self, stomp: StompClient) -> bool:
        return self._stomp is stomp and self._inbox is not None

    # --- asking ---

    def seconds(self, timeout: float | None) -> float:
        """How long a call may take: as it says, else the scopes around it, else our default.

        What is called from within a handler takes no longer than the handler's own caller waits.

        Raises:
            CallTimeout: that one has given up.
        """
        ambient = AMBIENT.get()
        if timeout is None:
            # With a timeout, a scope that ends earlier cancels the call by itself; to look for it costs more
            # than to send.
            deadline = anyio.current_effective_deadline()
            if deadline != math.inf:
                timeout = deadline - anyio.current_time()
            elif ambient is None:
                return self.options.timeout
            else:
                timeout = math.inf
        if ambient is None:
            return timeout
        left = ambient - monotonic()
        if left <= 0:
            raise CallTimeout("the time of the request that this call is for is over")
        return min(timeout, left)

    async def ask(
        self,
        destination: str,
        body: bytes,
        timeout: float | None,
        extra: Mapping[str, str] | None = None,
    ) -> Message:
        """Send a request and wait for its answer.

        Args:
            destination: of the service.
            body: of the request.
            timeout: seconds; None: as `seconds` says.
            extra: more headers.

        Raises:
            NebulaError: as `Inbox.ask`, and `ConnectionLost` also where there was no connection in time.
        """
        seconds = self.seconds(timeout)
        if seconds == -math.inf:
            await anyio.lowlevel.checkpoint_if_cancelled()  # in a scope that is over nothing is sent
        inbox = self._inbox
        if inbox is None:
            deadline = monotonic() + seconds
            inbox = await self.connected_inbox(seconds)
            seconds = deadline - monotonic()
        # Not `persistent`: whoever waits for the answer would not be there after a restart.
        headers = inbox.brand.expiry(whole_milliseconds(seconds))
        headers["content-type"] = AVRO_TYPE if type(body) is AvroBody else JSON_TYPE
        # Foreign brokers know no such thing, and their receipts have no verdict.
        if is_nebula := inbox.is_nebula:
            headers[REQUIRE_CONSUMERS] = "true"
        if extra is not None:
            headers.update(extra)
        return await inbox.ask(destination, body, headers, timeout=seconds, wants_verdict=is_nebula)

    async def ask_hard(
        self,
        destination: str,
        body: bytes,
        timeout: float | None,
        rules: CallRules,
        read: Callable[[Message], T],
        headers: Mapping[str, str] | None = None,
    ) -> T:
        """Send a request, again if need be, and read its answer.

        Args:
            destination: of the service.
            body: of the request.
            timeout: seconds for all of it; None: as `seconds` says.
            rules: when it is sent again.
            read: makes a value of the answer, or raises what it is instead.
            headers: more of them.

        Raises:
            CircuitOpen: so many calls there failed that this one was not sent.
            NebulaError: what the last attempt raised.
        """
        key = rules.idempotency_key
        extra = headers if key is None else {**(headers or {}), IDEMPOTENCY_KEY: key}
        began = monotonic()

        def tells(error: NebulaError) -> bool:
            return not rules.is_look(error, monotonic() - began)

        async def attempt(seconds: float) -> T:
            with nullcontext() if self._circuits is None else self._circuits.through(destination, tells):
                return read(await self.ask(destination, body, seconds, extra))

        return await persist(attempt, rules, self.seconds(timeout))

    async def ask_stored(
        self, destination: str, body: bytes, headers: Mapping[str, str], timeout: float | None
    ) -> Message:
        """Send a request that is kept until somebody comes, and that bears being sent twice.

        Raises:
            NebulaError: as `Inbox.ask`.
        """

        async def attempt(seconds: float) -> Message:
            deadline = monotonic() + seconds
            inbox = await self.connected_inbox(seconds)
            left = deadline - monotonic()
            # A copy, as the inbox writes its own headers into it.
            return await inbox.ask(
                destination, body, dict(headers), timeout=left, wants_verdict=inbox.is_nebula
            )

        return await persist(attempt, _BEARS_TWICE, self.seconds(timeout))

    async def deliver(
        self, destination: str, body: bytes, headers: Mapping[str, str], timeout: float | None
    ) -> None:
        """Send a message and wait until the broker has it.

        Raises:
            CallTimeout: the broker did not confirm it in time.
            Rejected, ConnectionLost, ServerError: as `StompClient.send`.
        """
        deadline = monotonic() + self.seconds(timeout)
        stomp = await self.connected(deadline - monotonic())
        try:
            await stomp.send(
                destination, body, headers, receipt=True, timeout=max(deadline - monotonic(), 0.0)
            )
        except TimeoutError as error:
            raise CallTimeout(f"the broker did not confirm a message to {destination} in time") from error


def _not_entered() -> LocalProtocolError:
    return LocalProtocolError("the client is not connected: enter it with `async with`")
