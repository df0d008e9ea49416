"""Sender of messages with receipts, many under way at once, over connections that come back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from typing import NamedTuple, Self

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from nebula.errors import ConnectionLost, NebulaError
from nebula.headers import ACCEPTED
from nebula.rpc.client.reconnect import Connections
from nebula.spark.source.options import BrokerOptions
from nebula.stomp.client import StompClient
from nebula.stomp.client.ambient import broker_address
from nebula.stomp.client.messages import Receipt


class Outgoing(NamedTuple):
    """A message to be sent."""

    destination: str
    body: bytes
    headers: Mapping[str, str]


class RowRejected(NebulaError):
    """The broker refused a message.

    Attributes:
        row: its number, from 0.
        verdict: the `disposition` of its receipt.
    """

    def __init__(self, row: int, destination: str, verdict: str) -> None:
        super().__init__(f"row {row} was refused by the broker for {destination}: {verdict}")
        self.row = row
        self.verdict = verdict


# A window of receipts instead of one by one: the broker stores many messages with one sync, and a sender
# that waits for each receipt would wait for each sync.
class Sender:
    """Sends from a thread of its own; a context manager, used from the thread that has the messages.

    Messages leave in the order in which they are handed over. Those whose receipts did not come before the
    connection ended are sent again with the next one: they may arrive twice, unless their headers say by
    which id the broker is to know them.

    Args:
        broker: where to. Its `timeout` is for how long nothing may be receipted.
        window: messages under way at most.
    """

    def __init__(self, broker: BrokerOptions, window: int) -> None:
        self._broker, self._window = broker, window
        # By rising number, so that a resend keeps the order.
        self._unsettled: dict[int, Outgoing] = {}
        self._sent = 0
        self._refused: RowRejected | None = None
        self._client: StompClient | None = None
        self._stack = ExitStack()

    def send(self, messages: Iterable[Outgoing]) -> None:
        """Hand over some messages; waits while too many are under way.

        Raises:
            RowRejected: one was refused, now or earlier.
            ConnectionLost: the broker could not be reached, or receipted nothing, for `timeout` seconds.
        """
        # The portal runs it on the loop's thread, where the client lives.
        self._portal.call(self._send, list(messages))

    def finish(self) -> int:
        """Wait for all receipts; how many messages were sent. Raises as `send`."""
        # Fewer than one: none.
        self._portal.call(self._until_fewer, 1)
        return self._sent

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._portal: BlockingPortal = stack.enter_context(start_blocking_portal())
            self._changed = self._portal.call(anyio.Event)
            self._connections = Connections(StompClient, [self._broker.url], self._live, waits=True)
            running = self._portal.start_task_soon(self._connections.run)
            # Graceful where there is a connection, and at once where one is sought.
            stack.callback(running.result)
            stack.callback(self._portal.call, self._connections.leave)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    async def _send(self, messages: list[Outgoing]) -> None:
        for message in messages:
            # Bounded by number: a message that is under way is kept for a resend.
            if len(self._unsettled) >= self._window:
                # Half of them: to be woken by each receipt costs more than the message.
                await self._until_fewer(self._window // 2 + 1)
            number, self._sent = self._sent, self._sent + 1
            # Kept until its receipt came: a lost connection loses nothing, and says not which of them
            # arrived.
            self._unsettled[number] = message
            self._post(number, message)
        self._check()
        if self._client is not None:
            try:
                await self._client.drain()
            except NebulaError:
                return  # what is unsettled goes with the next connection

    async def _until_fewer(self, most: int) -> None:
        self._check()
        while len(self._unsettled) >= most:
            self._changed = anyio.Event()
            try:
                # The time begins again with each receipt, which shows that the broker lives.
                with anyio.fail_after(self._broker.timeout):
                    await self._changed.wait()
            except TimeoutError:
                raise self._silence() from None
            self._check()

    def _silence(self) -> ConnectionLost:
        place = broker_address(self._broker.url).place
        failure = self._connections.last_failure
        why = "" if failure is None else f" ({failure})"
        return ConnectionLost(
            f"the broker at {place} receipted none of {len(self._unsettled)} messages for"
            f" {self._broker.timeout:g} s{why}"
        )

    @asynccontextmanager
    async def _live(self, client: StompClient) -> AsyncGenerator[None]:
        self._client = client
        try:
            # Before new messages and in order, so that the order survives a lost connection.
            for number, message in list(self._unsettled.items()):
                self._post(number, message)
            await client.drain()
            yield
        finally:
            self._client = None

    def _post(self, number: int, message: Outgoing) -> None:
        if self._client is None:
            return
        told = partial(self._settle, number)
        # Never raises for a refusal: that comes with the receipt.
        try:
            self._client.post_with_receipt(message.destination, message.body, message.headers, told)
        except ConnectionLost:
            self._client = None

    def _settle(self, number: int, receipt: Receipt) -> None:
        message = self._unsettled.pop(number, None)
        if message is not None and receipt.verdict != ACCEPTED and self._refused is None:
            self._refused = RowRejected(number, message.destination, receipt.verdict)
        self._changed.set()

    def _check(self) -> None:
        if self._refused is not None:
            raise self._refused
