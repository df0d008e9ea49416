"""A client for any STOMP broker, on asyncio and trio."""

# One object for one connection: it connects once and is not used again. Reconnecting would have to invent
# what happened to messages in between; that needs knowledge of calls and subscriptions, which
# `nebula.rpc.client` has.
#
#     entering   link opens -> CONNECT -> CONNECTED            within `connect_timeout`
#     inside     one task sends beats and watches the peer's; everything else runs in the link's callbacks
#     leaving    DISCONNECT -> RECEIPT -> link closed          STOMP 1.2, "Connection Lingering"
#
# A cancelled scope has no time for the graceful end, so `__aexit__` looks at the deadline of the scope
# first. The task group is left by hand: `async with` would wrap an exception of the user's block in a
# group.
#
# Three ways to send, by what the caller learns: `send` waits (for room in the link, or for the RECEIPT),
# `post` returns at once, `post_with_receipt` returns at once and calls back.

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Self, Unpack

import anyio
from anyio.abc import TaskGroup

from nebula.errors import (
    ConnectFailed,
    ConnectionLost,
    LocalProtocolError,
    NebulaError,
    Rejected,
    ServerError,
    SettingsError,
)
from nebula.headers import ACCEPTED, RECEIPT_ON_REJECTION
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.ambient import ambient_broker, broker_address
from nebula.stomp.client.connection import ClientConnection
from nebula.stomp.client.link import Link
from nebula.stomp.client.messages import AckMode, Message, PushSubscription, Receipt, SubscribeOptions
from nebula.stomp.client.network_links import connect_link
from nebula.stomp.client.subscription import Subscription
from nebula.stomp.client.tls import ClientTls, TlsOptions, explain
from nebula.stomp.client.transaction import Transaction, encode_text
from nebula.stomp.client_protocol import VERSIONS, ClientProtocol
from nebula.stomp.codec import FrameLimits
from nebula.stomp.heartbeat import heart_beat_of
from nebula.waiter import Waiter, new_waiter

__all__ = ["AckMode", "Message", "PushSubscription", "Receipt", "StompClient", "Subscription", "Transaction"]

# How long a link may take to close; Nebula's own links take a second at most.
_CLOSE_SECONDS = 2.0

_SERVER_OF_OURS: Final = "nebula/"


class StompClient:
    """One connection to a STOMP broker.

    An async context manager that connects once: entering it connects, leaving it disconnects gracefully
    (DISCONNECT, RECEIPT, close) unless the scope is cancelled or the connection lost, and always closes the
    link. It belongs to the loop's thread.

    Frames leave in the order of the calls. Messages that were sent without a receipt may be lost with the
    connection, silently. When the connection ends, or the broker breaks the protocol, all waiting calls raise
    `ServerError` (the broker sent an ERROR frame) or `ConnectionLost`; later calls raise `ConnectionLost`.
    Frames with a RECEIPT by then have taken effect; for all others this is unknown, and an ERROR does not say
    which frame it is about. There is no reconnecting here: to go on with durable subscriptions make a new
    client with the same `client_id`, and subscribe under the same names.

    Args:
        url: `stomp://[LOGIN:PASSCODE@]HOST[:PORT][/VIRTUAL-HOST]`, or `stomps://…` for TLS, or
            `ws[s]://…[/PATH]` for a WebSocket, or `memory://NAME` for a broker of this process (see
            `nebula.testing`); None is the broker of the surrounding block (`TestClient`, `nebula_serve`,
            `nebula.embedded`), otherwise the environment's `NEBULA_BROKER`, otherwise
            `stomp://127.0.0.1:61613`.
        login: instead of the address's.
        passcode: instead of the address's.
        client_id: names the session, which outlives the connection if it has durable subscriptions. The
            broker ends an older connection with this name and identity. None: the broker chooses a name, see
            `session`.
        versions: of STOMP, to offer; the broker takes the highest that it speaks.
        heart_beat: seconds within which we send something, and within which we want to receive something; 0
            is never. The broker's numbers may lengthen both. Not used in memory.
        connect_timeout: seconds for everything up to CONNECTED.
        disconnect_timeout: seconds to wait for the RECEIPT of DISCONNECT.
        limits: maximum sizes of the broker's frames.
        max_buffered_bytes: bytes that may wait in subscriptions before reading stops; four times as much
            while a receipt or a reply is awaited.
        tls: trusted CAs and our own certificate, for `stomps://` and `wss://`; None takes the environment's,
            see `TlsOptions.from_environment`.
        link: opens a link, instead of a connection to the address.

    Raises:
        SettingsError: the address or the TLS options cannot be used.

    Attributes:
        on_lost: called once, synchronously, when the connection ends after CONNECTED and not by us, with
            `ServerError` or `ConnectionLost`. It must not raise.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        login: str | None = None,
        passcode: str | None = None,
        client_id: str | None = None,
        versions: Sequence[str] = VERSIONS,
        heart_beat: tuple[float, float] = (10.0, 10.0),
        connect_timeout: float = 10.0,
        disconnect_timeout: float = 5.0,
        limits: FrameLimits | None = None,
        max_buffered_bytes: int = 16 * 1024 * 1024,
        tls: TlsOptions | None = None,
        link: Callable[[], Awaitable[Link]] | None = None,
    ) -> None:
        self.on_lost: Callable[[NebulaError], None] | None = None
        self._address = broker_address(url)
        self._has_address = link is None and not self._address.is_memory
        self._login = self._address.login if login is None else login
        self._passcode = self._address.passcode if passcode is None else passcode
        self._client_id = client_id
        if self._address.is_memory:
            heart_beat = (0, 0)  # nothing is lost in memory, and tests move their clocks
        self._protocol = ClientProtocol(
            versions=versions,
            heart_beat=heart_beat_of(*heart_beat),
            limits=limits,
        )
        self._connect_timeout = connect_timeout
        self._disconnect_timeout = disconnect_timeout
        self._max_buffered_bytes = max_buffered_bytes
        self._tls = _client_tls(self._address, _usual_tls() if url is None and tls is None else tls)
        self._limits = limits
        self._open_link = link or self._open_address
        self._tasks: TaskGroup | None = None
        self._connection: ClientConnection | None = None

    # --- the broker; known from entering on ---

    @property
    def broker_address(self) -> tuple[str, int] | None:
        """Host and port of the broker; None in memory, and where another link was handed in."""
        return (self._address.host, self._address.port) if self._has_address else None

    @property
    def version(self) -> str:
        """The negotiated version of STOMP."""
        return self._protocol.dialect.version

    @property
    def session(self) -> str | None:
        """The broker's name for this session. Use it as the `client_id` to go on with the session (D.18)."""
        return self._protocol.session

    @property
    def server(self) -> str | None:
        """Name and version of the broker, `name/version`."""
        return self._protocol.server

    @property
    def is_nebula(self) -> bool:
        """Whether the broker is Nebula's and knows its extensions."""
        return (self.server or "").startswith(_SERVER_OF_OURS)

    # --- sending ---

    async def send(
        self,
        destination: str,
        body: bytes | str = b"",
        headers: Mapping[str, str] | None = None,
        *,
        receipt: bool = False,
        timeout: float | None = None,
    ) -> Receipt | None:
        """SEND one message, and wait for its RECEIPT if `receipt`.

        Without a receipt it only waits while the link is full, and the message may be lost. After a receipt
        the broker has the message (Nebula's broker: on disk, if `persistent`).

        Args:
            destination: of the message.
            body: a `str` is sent as UTF-8 with `content-type:text/plain` unless `headers` has one.
            headers: of the message.
            receipt: ask for a RECEIPT and return it.
            timeout: seconds to wait for it, or for room in the link; None waits for ever.

        Raises:
            LocalProtocolError: `headers` has one that the client sets itself, or that makes a receipt
            uncertain. Rejected: the receipt says that the message had no effect. TimeoutError: no RECEIPT in
            time; the message may still take effect. ServerError: the broker sent ERROR and ended the
            connection. ConnectionLost: the connection has ended; with a receipt pending, the effect is
            unknown.
        """
        connection = self.connection
        connection.check_alive()
        data, headers = encode_text(body, headers)
        if not receipt:
            connection.write(connection.protocol.send(destination, data, headers))
            with anyio.fail_after(timeout):
                await connection.drain()
            return None
        if RECEIPT_ON_REJECTION in headers:
            raise LocalProtocolError("a receipt that comes on rejection only cannot be waited for")
        name = connection.next_id()
        frame = connection.protocol.send(destination, data, headers, receipt=name)
        reply = await connection.ask(name, frame, timeout)
        if reply.verdict != ACCEPTED:
            raise Rejected(reply.verdict, destination)
        return reply

    def post(self, destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        """SEND at once: encoded and handed to the link before this returns; never blocks.

        The link buffers without limit: callers that post much should await `drain` now and then.

        Raises:
            ConnectionLost: the connection has ended.
        """
        self.connection.post(destination, body, headers)

    def post_with_receipt(
        self,
        destination: str,
        body: bytes,
        headers: Mapping[str, str],
        on_receipt: Callable[[Receipt], None],
    ) -> str:
        """As `post`; `on_receipt` is called with the RECEIPT, whatever its verdict.

        It is called at most once, synchronously, in the order of the broker's receipts, and never if the
        connection ends first (`on_lost` is called then). It must not raise. With `receipt-on-rejection` among
        the headers Nebula's broker sends no RECEIPT for accepted messages: `forget` it once it does not
        matter any more.

        Returns:
            The receipt's id.
        """
        return self.connection.post_with_receipt(destination, body, headers, on_receipt)

    def keep_reading(self) -> str:
        """Allow four times `max_buffered_bytes` to wait in subscriptions, until `forget` is called with the
        result.

        For callers that wait for a reply that a function receives, perhaps after messages that the same
        caller would take next.
        """
        return self.connection.keep_reading()

    def forget(self, receipt: str) -> None:
        """End `keep_reading`, or the wait for a RECEIPT on rejection. Idempotent."""
        self.connection.forget(receipt)

    async def drain(self) -> None:
        """Wait while more is unsent than the link should hold.

        Raises:
            ConnectionLost: the connection has ended.
        """
        await self.connection.drain()

    @asynccontextmanager
    async def transaction(self, *, timeout: float | None = None) -> AsyncGenerator[Transaction]:
        """BEGIN; COMMIT with a receipt when the block ends well, ABORT when it raises.

        Args:
            timeout: seconds to wait for the receipt of COMMIT; None waits for ever.

        Raises:
            Rejected: the broker refused the COMMIT; nothing took effect.
            TimeoutError: no RECEIPT of COMMIT in time; the effect is unknown.
            ServerError: the broker has no transactions, or found a fault, and ended the connection.
            ConnectionLost: the connection has ended; after COMMIT, the effect is unknown.
        """
        connection = self.connection
        transaction = Transaction(connection, connection.next_id())
        try:
            yield transaction
        except BaseException:
            transaction.abort()
            raise
        await transaction.commit(timeout)

    # --- receiving ---

    @asynccontextmanager
    async def subscribe(
        self, destination: str, **options: Unpack[SubscribeOptions]
    ) -> AsyncGenerator[Subscription]:
        """SUBSCRIBE for the block: `async for message in subscription`.

        Messages wait in memory until they are taken; see `max_buffered_bytes`. In the client modes the
        broker's prefetch bounds them too (Nebula's: `prefetch-count` among `headers`). Leaving the block ends
        the subscription, or pauses a `durable` one.

        Args:
            destination: what to subscribe to; a glob if the broker supports them.
            **options: by name only, see `SubscribeOptions`.

        Raises:
            Refused: the broker ignored it (`ignored`) or sent no RECEIPT in time (`unanswered`). Brokers that
                follow MaXaM send none for what is not permitted (D.5), so give a `timeout` there.
            LocalProtocolError: the durable name is a number, or in use on this connection.
            ServerError: the broker sent ERROR and ended the connection.
            ConnectionLost: the connection has ended.
        """
        subscription = Subscription(self.connection)
        await subscription.open(destination, options)
        try:
            yield subscription
        finally:
            subscription.close()

    async def listen(
        self,
        destination: str,
        on_message: Callable[[Message], None],
        *,
        on_snapshot: Callable[[], None] | None = None,
        **options: Unpack[SubscribeOptions],
    ) -> PushSubscription:
        """SUBSCRIBE in push form: `on_message` is called for each message, see `PushSubscription`.

        Calls may come before this returns. Other arguments and errors as for `subscribe`.

        Args:
            destination: what to subscribe to.
            on_message: called for each message.
            on_snapshot: called once, without arguments, at the end of an eager subscription's snapshot.
            **options: by name only, see `SubscribeOptions`.
        """
        return await self.connection.listen(destination, on_message, options, on_snapshot=on_snapshot)

    # --- the life of the connection ---

    async def disconnect(self) -> None:
        """Disconnect gracefully: DISCONNECT, its RECEIPT, close. Idempotent; never raises.

        It cannot be cancelled half-way. All waiting calls raise `ConnectionLost`.
        """
        with anyio.CancelScope(shield=True):
            await self.connection.disconnect(self._disconnect_timeout)

    async def wait_lost(self) -> NebulaError:
        """Wait for the end of the connection and return the error that waiting calls raise."""
        connection = self.connection
        never: Waiter[NebulaError] = new_waiter()
        try:
            return await connection.wait(never)
        except (ServerError, ConnectionLost) as error:
            return error

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise LocalProtocolError("a client connects once: make a new one")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        try:
            await self._connect()
        except BaseException as error:
            await self._close(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # In a cancelled scope there is no time for a graceful end.
            if anyio.current_effective_deadline() > -math.inf:
                await self.disconnect()
        finally:
            await self._close(error)

    async def _connect(self) -> None:
        assert self._tasks is not None
        try:
            with anyio.fail_after(self._connect_timeout):
                link = await self._open_link()
                self._connection = ClientConnection(
                    self._protocol,
                    link,
                    max_buffered_bytes=self._max_buffered_bytes,
                    on_lost=self._tell_lost,
                )
                link.start(self._connection, self._tasks)
                await self._connection.open(
                    host=self._address.virtual_host,
                    login=self._login,
                    passcode=self._passcode,
                    client_id=self._client_id,
                )
        except (OSError, ServerError, ConnectionLost) as error:
            # A TimeoutError of `fail_after` has no text, one of the network has.
            reason = explain(error) or f"no session within {self._connect_timeout:g} s"
            raise ConnectFailed(f"{self._address.place}: {reason}") from error
        self._tasks.start_soon(self._connection.keep_alive, name="stomp heart-beats")

    async def _open_address(self) -> Link:
        link = await connect_link(self._address, self._tls)
        if self._address.path is None:
            return link
        # Few clients need it, and its library takes a while to import.
        from nebula.stomp.client.websocket_link import WebSocketLink

        return WebSocketLink(link, self._address, self._limits)

    async def _close(self, error: BaseException | None) -> None:
        """Close the link and wait for the tasks."""
        assert self._tasks is not None
        if self._connection is not None:
            self._connection.end("the client has disconnected")
        # A task group would wrap the block's own exception in a group. Only a cancellation is handed to it,
        # which ends the tasks at once.
        if isinstance(error, anyio.get_cancelled_exc_class()):
            await self._tasks.__aexit__(type(error), error, error.__traceback__)
            return
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            if self._connection is not None:
                await self._connection.link_ended.wait()
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    def _tell_lost(self, error: NebulaError) -> None:
        if self.on_lost is not None:
            self.on_lost(error)

    @property
    def connection(self) -> ClientConnection:
        """The open connection. Raises LocalProtocolError before the client is entered."""
        if self._connection is None:
            raise LocalProtocolError("the client is not connected: enter it with `async with`")
        return self._connection


def _usual_tls() -> TlsOptions | None:
    broker = ambient_broker()
    return None if broker is None else broker.tls


def _client_tls(address: Address, options: TlsOptions | None) -> ClientTls | None:
    if address.is_tls:
        return ClientTls(TlsOptions.from_environment() if options is None else options)
    if options is not None:
        # With TLS options a user expects encryption.
        scheme = "stomps" if address.path is None else "wss"
        raise SettingsError(f"broker {address.host}: TLS options have no effect there; write {scheme}://")
    return None
