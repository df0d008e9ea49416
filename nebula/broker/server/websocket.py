"""A WebSocket as an asyncio transport: a `Connection` cannot tell it from TCP.

`websockets` reads and writes the frames and does no I/O. STOMP treats the messages as one stream of bytes: a
STOMP frame may span several messages, and a message may hold several frames.

Theory (RFC 6455). A WebSocket begins as an HTTP request, whose reply says 101 and confirms a digest of the
client's random key; so a cached or forged reply is noticed. Then both sides send frames: a header of 2 to 14
bytes with the kind (text, binary, continuation, or the control frames ping, pong and Close), the length, and
in frames from the client a *mask* of four random bytes. The client XORs its payload with the mask, byte by
byte. This is no encryption, as the mask is in the frame. It keeps a page in a browser from choosing the bytes
on the wire: otherwise it could make a proxy between the two, which knows no WebSockets, believe that it sees
an HTTP response, and cache it for others. So a server must close the connection at a frame without a mask,
and must not mask its own; `websockets` does both.

Three dangers follow, which a TCP stream does not have:

- One read may hold tens of thousands of tiny frames, each with its cost. So `WEBSOCKET_FRAMES_AT_ONCE` are
  handled in a turn, and the rest waits for further turns (`fairness`).
- A message is seen once it is complete. A peer that has not connected yet must not have a large one collected
  for it: `_count_opening` counts the bytes on the wire.
- A ping asks for a pong of the same size. A peer that sends pings and reads nothing would fill our memory, so
  only the last pong is kept.
"""

from __future__ import annotations

import asyncio
import codecs
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

from websockets.exceptions import NegotiationError
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import SEND_EOF, State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from nebula.broker.core.fixed_limits import (
    WEBSOCKET_FRAMES_AT_ONCE,
    WEBSOCKET_OPENING_BYTES,
    WEBSOCKET_PORTION_BYTES,
)
from nebula.broker.core.limits import Limits
from nebula.broker.server.connection import Connection
from nebula.broker.server.linger import close_lingering
from nebula.stomp.dialects import DIALECTS

# The best first. They only say that it is STOMP: which version counts is settled by CONNECT.
_SUBPROTOCOLS = [Subprotocol(f"v{version.replace('.', '')}.stomp") for version in reversed(DIALECTS)]

# Many clients take 1 MiB a message unless they are told otherwise. STOMP is a stream, and may be cut
# anywhere.
_MESSAGE_BYTES = 1024 * 1024


# For what h11 takes for a request and `websockets` does not.
_UNREADABLE = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


def shake_hands(request: bytes, limits: Limits) -> tuple[ServerProtocol | None, bytes]:
    """Judge a request for a WebSocket.

    Args:
        request: the request's bytes up to the blank line, and nothing after it.
        limits: what peers may use.

    Returns:
        The open WebSocket, or None if the request is refused; and the bytes of the response.
    """
    # A message is no larger than a frame of STOMP, which has to be kept anyway. No compression: a small
    # message that expands to a large one would need a limit of its own.
    websocket = ServerProtocol(
        subprotocols=_SUBPROTOCOLS,
        select_subprotocol=_select_subprotocol,
        max_size=limits.max_body_bytes + limits.max_head_bytes,
    )
    websocket.receive_data(request)
    requests = websocket.events_received()
    if not requests:
        return None, b"".join(websocket.data_to_send()) or _UNREADABLE
    websocket.send_response(websocket.accept(cast("Request", requests[0])))
    response = b"".join(websocket.data_to_send())
    return (websocket if websocket.state is State.OPEN else None), response


class WebSocketTransport(asyncio.Transport, asyncio.Protocol):
    """A WebSocket: the protocol of its socket's transport, and the transport of a `Connection`.

    The bytes of all messages of one read are handed on in one piece, so that a `Connection` judges long reads
    and pauses as it does on TCP. Only very many frames in one read are spread over further turns.

    Args:
        websocket: open.
        connection: not begun.
        limits: what peers may use.
    """

    def __init__(self, websocket: ServerProtocol, connection: Connection, limits: Limits) -> None:
        super().__init__()
        self._websocket = websocket
        self._connection = connection
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._opening_bytes_left = limits.max_opening_frame_bytes + WEBSOCKET_OPENING_BYTES
        self._has_spoken = False
        self._sends_text: bool | None = None  # until the peer has shown what it likes
        self._receives_text = False
        self._text_decoder = codecs.getincrementaldecoder("utf-8")()
        self._is_blocked = False
        self._is_paused = False
        self._unread: deque[bytes] = deque()  # bytes that the codec has not seen yet
        self._owed_pong = b""
        self._is_over = False

    def begin(self, transport: asyncio.Transport) -> None:
        """Take the socket's transport over."""
        self._transport = transport
        transport.set_protocol(self)
        self._connection.connection_made(self)

    # --- what a Connection asks of its transport ---

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as messages of the kind that the peer sends. Lost once either side has closed."""
        self._has_spoken = True
        websocket = self._websocket
        if websocket.state is not State.OPEN:
            return
        for piece in _pieces(bytes(data)):
            # A body may hold any bytes, but a text message that is not UTF-8 breaks the WebSocket.
            if self._sends_text is not False and _is_utf8(piece):
                websocket.send_text(piece)
            else:
                websocket.send_binary(piece)
        self._transport.write(b"".join(websocket.data_to_send()))

    def can_write_eof(self) -> bool:
        """Yes: after our Close the peer may still send."""
        return True

    def write_eof(self) -> None:
        """Send a Close. The peer's own ends the connection."""
        if self._websocket.state is State.OPEN:
            self._websocket.send_close(CloseCode.NORMAL_CLOSURE)
            self._transport.write(b"".join(self._websocket.data_to_send()))

    def abort(self) -> None:
        """Close the socket at once."""
        self._transport.abort()

    def pause_reading(self) -> None:
        """Read nothing from the socket until `resume_reading`."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again: first what was read already."""
        self._is_paused = False
        if self._unread:
            # Not at once: the caller is in the middle of its own work.
            asyncio.get_running_loop().call_soon(self._receive_rest)
        else:
            self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As the socket's transport: framing adds at most ten bytes to a message."""
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """What the socket has not taken yet."""
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As the socket's transport: addresses, the TLS session."""
        return self._transport.get_extra_info(name, default)

    # --- what the socket's transport calls ---

    def data_received(self, data: bytes) -> None:
        """Handle the messages that are complete now; reply to pings and Close."""
        for begin in range(0, len(data), WEBSOCKET_PORTION_BYTES):
            self._unread.append(data[begin : begin + WEBSOCKET_PORTION_BYTES])
        self._receive()

    def _receive(self) -> None:
        """Handle what is unread, at most one turn's work."""
        if self._is_over or self._is_paused:
            return
        frames, wire_bytes = self._read_frames()
        if frames and self._has_spoken:
            self._connection.note_partial(0)
        if self._handle(frames, wire_bytes):
            self._end()
        elif self._unread and not self._is_paused:
            self._connection.wait_for_turn()
        elif self._has_spoken:
            # STOMP has not seen the payload of an incomplete WebSocket frame.
            self._connection.note_partial(len(self._websocket.reader.buffer))

    def _receive_rest(self) -> None:
        self._receive()
        if not (self._unread or self._is_paused or self._is_over):
            self._transport.resume_reading()

    def _read_frames(self) -> tuple[list[Frame], int]:
        """The next frames, and the bytes that they and the beginning of the next one have on the wire."""
        # The codec has no way to stop in the middle of what it was given, so it is given little at a time.
        frames: list[Frame] = []
        wire_bytes = 0
        while self._unread and len(frames) < WEBSOCKET_FRAMES_AT_ONCE:
            portion = self._unread.popleft()
            wire_bytes += len(portion)
            self._websocket.receive_data(portion)
            frames += cast("list[Frame]", self._websocket.events_received())
        return frames, wire_bytes

    def _handle(self, frames: Sequence[Frame], wire_bytes: int) -> bool:
        """Handle frames, and hand their payload on. True: they were the last."""
        try:
            data = self._unwrap(frames)
        except UnicodeDecodeError:
            # RFC 6455, 8.1: an endpoint that finds text that is not UTF-8 MUST fail the connection.
            data = b""
            self._websocket.fail(CloseCode.INVALID_DATA, "text that is not UTF-8")
        is_over = self._send_replies()
        if data:
            self._connection.data_received(data)
        if not self._has_spoken:
            is_over = self._count_opening(wire_bytes) or is_over
        return is_over

    def eof_received(self) -> bool:
        """The peer has gone without a Close, or after it."""
        # What was received before the end counts, even where its turn had not come yet.
        while self._unread and not self._is_over:
            self._is_paused = False
            self._receive()
        self._websocket.receive_eof()
        if not self._is_over:
            self._is_over = True
            self._connection.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The last call."""
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """The peer does not keep up."""
        self._is_blocked = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """The peer has read."""
        self._is_blocked = False
        if self._owed_pong:
            self._transport.write(self._owed_pong)
            self._owed_pong = b""
        self._connection.resume_writing()

    # --- in between ---

    def _unwrap(self, frames: Sequence[Frame]) -> bytes:
        """The payload of messages and fragments, in order, without control frames."""
        pieces = []
        for frame in frames:
            if frame.opcode is Opcode.TEXT or frame.opcode is Opcode.BINARY:
                self._receives_text = frame.opcode is Opcode.TEXT
                if self._sends_text is None:
                    self._sends_text = self._receives_text
            elif frame.opcode is not Opcode.CONT:
                continue
            # A character may be split between two fragments, so one decoder goes through all of them.
            if self._receives_text:
                self._text_decoder.decode(frame.data, frame.fin)
            pieces.append(frame.data)
        return b"".join(pieces)

    def _send_replies(self) -> bool:
        """Send the pongs or the Close that are due. True after a Close."""
        replies = self._websocket.data_to_send()
        if not replies:
            return False
        is_over = replies[-1] == SEND_EOF
        if self._is_blocked and not is_over:
            # RFC 6455, 5.5.3: of several pings only the last one needs a pong.
            self._owed_pong = replies[-1]
        else:
            self._transport.write(b"".join(replies))
        return is_over

    def _count_opening(self, wire_bytes: int) -> bool:
        # STOMP's codec sees nothing of a message before it is complete. Without this count a peer that has
        # not connected yet could have a message collected that is as large as STOMP's largest frame.
        self._opening_bytes_left -= wire_bytes
        if self._opening_bytes_left >= 0:
            return False
        self._websocket.fail(CloseCode.MESSAGE_TOO_BIG, "more than a CONNECT takes")
        return self._send_replies()

    def _end(self) -> None:
        """Ignore further bytes: the peer has closed, or broken the rules."""
        if self._transport.is_closing():
            return
        self._is_over = True
        self._unread.clear()
        self._connection.eof_received()
        self._transport.resume_reading()
        self._timer = close_lingering(self._transport)


def _select_subprotocol(_: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    if not offered:
        return None  # Many clients that are no browsers offer none.
    for ours in _SUBPROTOCOLS:
        if ours in offered:
            return ours
    raise NegotiationError(f"it speaks {', '.join(_SUBPROTOCOLS)}")


def _pieces(data: bytes) -> Iterable[bytes]:
    if len(data) <= _MESSAGE_BYTES:
        return (data,)
    return (data[start : start + _MESSAGE_BYTES] for start in range(0, len(data), _MESSAGE_BYTES))


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
