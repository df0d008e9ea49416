"""What all views of a client share: one connection, its inbox, and how long is waited by default."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import TracebackType

import anyio
from anyio.abc import TaskGroup

from nebula.errors import CallTimeout, ConnectionLost, LocalProtocolError
from nebula.headers import REQUIRE_CONSUMERS
from nebula.rpc.brokers import whole_milliseconds
from nebula.rpc.envelope import JSON_TYPE
from nebula.rpc.inbox import Inbox
from nebula.stomp.client import Message, StompClient


class Caller:
    """Sends requests and waits for their answers, and messages and waits for their receipts.

    Args:
        stomp: not entered yet; entered and left here.
        reply_to: a queue shared with other requesters, instead of an inbox of our own.
        timeout: seconds to wait where neither the call nor a scope around it says how long.

    Attributes:
        stomp: the connection.
    """

    def __init__(self, stomp: StompClient, reply_to: str | None, timeout: float) -> None:
        self.stomp = stomp
        self._reply_to = reply_to
        self._timeout = timeout
        self._inbox: Inbox | None = None
        self._tasks: TaskGroup | None = None

    @property
    def inbox(self) -> Inbox:
        """Where answers come in.

        Raises:
            LocalProtocolError: there is none yet.
        """
        if self._inbox is None:
            raise LocalProtocolError("the client is not connected: enter it with `async with`")
        return self._inbox

    async def open(self) -> None:
        """Connect, and open the inbox; called once. Raises as `StompClient` and `Inbox.open`."""
        await self.stomp.__aenter__()
        try:
            inbox = Inbox(self.stomp, self._reply_to)
            # Before anything is waited for: a loss that nobody was told of would not end calls.
            self.stomp.on_lost = inbox.lose
            await inbox.open(self._timeout)
            self._tasks = anyio.create_task_group()
            await self._tasks.__aenter__()
            self._tasks.start_soon(inbox.run, name="inbox")
        except BaseException as error:
            await self.stomp.__aexit__(type(error), error, error.__traceback__)
            raise
        self._inbox = inbox

    async def close(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Fail the calls in flight and disconnect. Takes what the client's `__aexit__` is given."""
        assert self._tasks is not None
        self.inbox.lose(ConnectionLost("the client has disconnected"))
        self._tasks.cancel_scope.cancel()
        # The group has no part in the block's error; it would only wrap it.
        is_cancelled = isinstance(error, anyio.get_cancelled_exc_class())
        try:
            await self._tasks.__aexit__(*((kind, error, trace) if is_cancelled else (None, None, None)))
        finally:
            await self.stomp.__aexit__(kind, error, trace)

    def seconds(self, timeout: float | None) -> float:
        """How long a call may take: as it says, else the scopes around it, else our default."""
        if timeout is not None:
            # A scope that ends earlier cancels the call by itself; to look for it costs more than to send.
            return timeout
        deadline = anyio.current_effective_deadline()
        return self._timeout if deadline == math.inf else deadline - anyio.current_time()

    async def ask(self, destination: str, body: bytes, timeout: float | None) -> Message:
        """Send a request and wait for its answer. Raises as `Inbox.ask`."""
        inbox = self.inbox
        seconds = self.seconds(timeout)
        # Not `persistent`: whoever waits for the answer would not be there after a restart.
        headers = inbox.brand.expiry(whole_milliseconds(seconds))
        headers["content-type"] = JSON_TYPE
        # Foreign brokers know no such thing, and their receipts have no verdict.
        if is_nebula := self.stomp.is_nebula:
            headers[REQUIRE_CONSUMERS] = "true"
        return await inbox.ask(destination, body, headers, timeout=seconds, wants_verdict=is_nebula)

    async def deliver(
        self, destination: str, body: bytes, headers: Mapping[str, str], timeout: float | None
    ) -> None:
        """Send a message and wait until the broker has it.

        Raises:
            CallTimeout: the broker did not confirm it in time.
            Rejected, ConnectionLost, ServerError: as `StompClient.send`.
        """
        seconds = self.seconds(timeout)
        try:
            await self.stomp.send(destination, body, headers, receipt=True, timeout=seconds)
        except TimeoutError as error:
            raise CallTimeout(f"the broker did not confirm a message to {destination} in time") from error
