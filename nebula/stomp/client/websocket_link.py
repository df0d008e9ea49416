"""A link over a WebSocket, on top of another link.

`websockets` writes and reads the frames and does no I/O, so asyncio, trio and TLS are left to the other link.
It masks what a client sends, as RFC 6455 demands; `nebula.broker.server.websocket` says why.
"""

from __future__ import annotations

from anyio.abc import TaskGroup
from websockets.client import ClientProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from nebula.stomp.client.addresses import Address
from nebula.stomp.client.link import Link, Receiver
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import FrameLimits

# The best first. They only say that it is STOMP: which version counts is settled by CONNECT.
_SUBPROTOCOLS = [Subprotocol(f"v{version.replace('.', '')}.stomp") for version in reversed(DIALECTS)]

_DATA_OPCODES = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})

# How a pong begins: whole, as control frames are.
_PONG = bytes([0x80 | Opcode.PONG])

# A peer that closed with one of these had no complaint.
_GOOD_CODES = frozenset({CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD})


class WebSocketLink:
    """A `Link` over a WebSocket. Bytes that are written before the upgrade are sent after it.

    Every write is one binary message. A refused upgrade, a broken WebSocket and a Close with an error are an
    `OSError` in the receiver's `connection_lost`.

    Args:
        link: open, not started; it leads to the address, with TLS if the address asks for it.
        address: of a WebSocket; the request names its host and path.
        limits: maximum sizes of the broker's frames; no message may be larger.
    """

    def __init__(self, link: Link, address: Address, limits: FrameLimits | None = None) -> None:
        assert address.path is not None
        limits = limits or FrameLimits()
        # The same name that TCP was asked for.
        host = address.host if address.host.isascii() else address.host.encode("idna").decode()
        self._link = link
        self._websocket = ClientProtocol(
            WebSocketURI(address.is_tls, host, address.port, address.path, "", None, None),
            subprotocols=_SUBPROTOCOLS,
            max_size=limits.max_body_bytes + limits.max_head_bytes,
        )
        self._receiver: Receiver
        self._early: list[bytes] = []
        self._error: OSError | None = None
        self._is_closing = False

    # --- the link ---

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:
        """Ask for the upgrade, and begin to deliver."""
        self._receiver = receiver
        self._websocket.send_request(self._websocket.connect())
        self._flush()
        self._link.start(self, tasks)

    def write(self, data: bytes) -> None:
        """Send bytes as one message, once the WebSocket is open. Lost after `close`."""
        state = self._websocket.state
        if state is State.OPEN:
            self._websocket.send_binary(data)
            self._flush()
        elif state is State.CONNECTING:
            self._early.append(data)

    async def drain(self) -> None:
        """Wait while more is unsent than a link should hold."""
        await self._link.drain()

    def pause_reading(self) -> None:
        """Deliver nothing more than what has been read, until `resume_reading`."""
        self._link.pause_reading()

    def resume_reading(self) -> None:
        """Deliver again."""
        self._link.resume_reading()

    def close(self) -> None:
        """Send a Close and end the stream, without waiting for the peer's. Idempotent."""
        self._is_closing = True
        if self._websocket.state is State.OPEN:
            self._websocket.send_close(CloseCode.NORMAL_CLOSURE)
            self._flush()
        self._link.close()

    # --- the other link's receiver ---

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived: first the reply to the request, then messages."""
        websocket = self._websocket
        websocket.receive_data(data)
        # Text is not checked to be UTF-8: the codec does that where STOMP asks for it.
        payload = b"".join(
            event.data
            for event in websocket.events_received()
            if isinstance(event, Frame) and event.opcode in _DATA_OPCODES
        )
        if self._early and websocket.state is State.OPEN:
            early, self._early = self._early, []
            for written in early:
                self.write(written)
        self._flush()
        if payload:
            self._receiver.data_received(payload)
        if websocket.close_expected():
            self._error = self._error or self._complaint()
            self._link.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The other link has ended."""
        self._websocket.receive_eof()
        complaint = None if self._is_closing else self._complaint()
        self._receiver.connection_lost(self._error or error or complaint)

    # --- in between ---

    def _flush(self) -> None:
        for data in _with_last_pong(self._websocket.data_to_send()):
            # An empty piece stands for the end of the stream, which `close` takes care of.
            if data:
                self._link.write(data)

    def _complaint(self) -> OSError | None:
        """The error, as text for people; None: there was no error."""
        websocket = self._websocket
        if websocket.handshake_exc is not None:
            return ConnectionRefusedError(f"no WebSocket: {websocket.handshake_exc}")
        received = websocket.close_rcvd
        if received is not None:
            return None if received.code in _GOOD_CODES else ConnectionAbortedError(f"closed with {received}")
        if isinstance(websocket.parser_exc, EOFError) or websocket.parser_exc is None:
            return None  # An end without a Close is an end as on TCP.
        return ConnectionAbortedError(f"the broker broke the WebSocket: {websocket.parser_exc}")


def _with_last_pong(writes: list[bytes]) -> list[bytes]:
    if len(writes) < 2:
        return writes
    # RFC 6455, 5.5.3: of several pings only the last one needs a pong. Pongs to all of them would fill the
    # memory if a peer sends pings without end and does not read.
    last = max((place for place, data in enumerate(writes) if data[:1] == _PONG), default=None)
    return [data for place, data in enumerate(writes) if place == last or data[:1] != _PONG]
