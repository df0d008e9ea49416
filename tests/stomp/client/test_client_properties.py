"""Whatever octets a server sends, in whatever pieces: frames or an error of ours, and everyone is told."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, cast

from anyio.abc import TaskGroup
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from websockets.frames import Opcode
from websockets.utils import accept_key

from nebula.errors import ConnectionLost, NebulaError, ServerError
from nebula.stomp.client.addresses import Address
from nebula.stomp.client.connection import ClientConnection
from nebula.stomp.client.messages import AckMode, Message, PushSubscription, Receipt
from nebula.stomp.client.websocket_link import WebSocketLink
from nebula.stomp.client_protocol import ClientProtocol
from nebula.stomp.client_states import State
from nebula.stomp.frames import FrameLimits
from tests.own_logs import own_logs
from tests.stomp import cut
from tests.stomp.client.deaf import DeafLink, Sink

LIMITS = FrameLimits(max_headers=8, max_header_line_bytes=60, max_body_bytes=100, max_opening_frame_bytes=200)

# A loaded machine makes drawing slow, which says nothing of what is tested.
unhurried = settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)

CONNECTED = b"CONNECTED\nversion:1.2\nheart-beat:0,0\n\n\0"

# Whole frames, parts of frames and faults. In a row they make streams that look like a server's.
fragments = st.sampled_from(
    [
        CONNECTED,
        b"CONNECTED\nversion:1.1\n\n\0",
        b"CONNECTED\n\n\0",
        b"CONNECTED\nversion:",
        b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\nack:1\n\nhello\0",
        b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\n\nhello\0",
        b"MESSAGE\nsubscription:2\nmessage-id:1\ndestination:/queue/b\nack:1\n\nhello\0",
        b"MESSAGE\nmessage-id:1\ndestination:/queue/a\n\n\0",
        b"MESSAGE\nsubscription:1\n",
        b"MESSAGE\n",
        b"RECEIPT\nreceipt-id:2\n\n\0",
        b"RECEIPT\nreceipt-id:3\ndisposition:rejected-full\n\n\0",
        b"RECEIPT\nreceipt-id:9\n\n\0",
        b"RECEIPT\nreceipt-id:\xd9\xa1\n\n\0",
        b"RECEIPT\nreceipt-id:\n\n\0",
        b"RECEIPT\n",
        b"receipt-id:2\n",
        b"receipt-id:3\n",
        b"ERROR\nmessage:no\n\nwhy\0",
        b"ERROR\n\n\xff\xff\0",
        b"content-length:3\n",
        b"content-length:-3\n",
        b"content-length:99999999999999999999\n",
        b"heart-beat:1,x\n",
        b"destination:/queue/a\n",
        b"subscription:1\n",
        b"message-id:\\c\n",
        b"message-id:\\q\n",
        b"nocolon\n",
        b":noname\n",
        b"x:\xff\n",
        b"\n",
        b"\r\n",
        b"\r",
        b"\0",
        b"\n\0",
        b"body",
        b"x" * 70,
    ]
)
anything = st.lists(fragments | st.binary(max_size=4), max_size=14).map(b"".join)
sessions = st.sampled_from([b"", CONNECTED, CONNECTED, b"CONNECTED\nversion:1.1\n\n\0", b"CONNECTED\n\n\0"])
streams = st.tuples(sessions, anything).map(b"".join)
places = st.lists(st.integers(0, 300), max_size=12)


def pieces_of(data: bytes, places: list[int]) -> list[bytes]:
    return cut(data, [place for place in places if place < len(data)])


def at_once(coroutine: Coroutine[Any, Any, PushSubscription]) -> PushSubscription:
    """What a coroutine returns that never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return cast("PushSubscription", done.value)
    raise AssertionError


def has_session(data: bytes) -> bool:
    protocol = ClientProtocol(limits=LIMITS)
    protocol.connect(host="/")
    return any(frame.command == "CONNECTED" for frame in protocol.receive(data, 0.0))


class Session:
    """A connection on a deaf link, with a subscription and two receipts that are waited for."""

    def __init__(self) -> None:
        self.link = DeafLink()
        self.lost: list[NebulaError] = []
        self.messages: list[Message] = []
        self.receipts: list[str] = []
        self.connection = ClientConnection(
            ClientProtocol(limits=LIMITS), self.link, max_buffered_bytes=1000, on_lost=self.lost.append
        )
        self.connection.write(self.connection.protocol.connect(host="/"))

    def receive(self, pieces: list[bytes]) -> None:
        """Hand octets over, and ask for things as soon as that is possible."""
        is_asked = False
        for piece in pieces:
            if not self.link.is_closed and piece:
                self.connection.data_received(piece)
            if not is_asked and self.connection.protocol.state is State.CONNECTED:
                is_asked = True
                self._ask()

    def _ask(self) -> None:
        options = {"ack": AckMode.CLIENT, "receipt": False}
        at_once(self.connection.listen("/queue/a", self.messages.append, options))  # type: ignore[arg-type]
        for _ in range(2):
            self.connection.post_with_receipt("/queue/a", b"", {}, self._count)

    def _count(self, receipt: Receipt) -> None:
        self.receipts.append(receipt.headers["receipt-id"])


@unhurried
@given(streams, places)
def test_protocol_gives_frames_or_one_failure_for_any_octets(data: bytes, places: list[int]) -> None:
    protocol = ClientProtocol(limits=LIMITS)
    protocol.connect(host="/")
    seen = []
    for piece in pieces_of(data, places):
        had_ended = protocol.state is State.ENDED
        frames = protocol.receive(piece, 0.0)
        assert not (had_ended and frames)
        seen += frames

    if protocol.failure is not None:
        assert protocol.state is State.ENDED
        assert str(protocol.failure)
    assert all(frame.command in ("CONNECTED", "MESSAGE", "RECEIPT", "ERROR") for frame in seen)
    assert [frame.command for frame in seen].count("CONNECTED") <= 1


@unhurried
@given(streams, places, st.sampled_from([None, OSError("reset")]))
def test_connection_goes_on_or_tells_its_end_once_for_any_octets(
    data: bytes, places: list[int], end: Exception | None
) -> None:
    session = Session()
    with own_logs() as logged:
        session.receive(pieces_of(data, places))
        is_over = session.link.is_closed
        assert (
            is_over == session.connection.ended.is_set() == (session.connection.protocol.state is State.ENDED)
        )
        session.connection.connection_lost(end)

    assert logged == []
    assert len(session.lost) == has_session(data)
    assert all(isinstance(error, ServerError | ConnectionLost) and str(error) for error in session.lost)
    assert len(set(session.receipts)) == len(session.receipts) <= 2
    assert session.connection.ended.is_set()
    assert session.link.is_closed


@unhurried
@example(
    CONNECTED
    + b"RECEIPT\nreceipt-id:\n\n\0"
    + b"MESSAGE\nsubscription:1\nmessage-id:1\ndestination:/queue/a\nack:1\n\nhello\0",
    [22],
)
@given(streams.filter(lambda data: data.startswith(CONNECTED)), places)
def test_verdict_does_not_hang_on_how_the_octets_come(data: bytes, places: list[int]) -> None:
    # The session's own frames come after CONNECTED, as with a server that waits for them.
    whole, split = Session(), Session()
    whole.receive([CONNECTED, data[len(CONNECTED) :]])
    split.receive([CONNECTED, *pieces_of(data[len(CONNECTED) :], places)])

    assert [message.body for message in split.messages] == [message.body for message in whole.messages]
    assert split.receipts == whole.receipts
    assert [type(error) for error in split.lost] == [type(error) for error in whole.lost]


def _websocket_frame(opcode: Opcode, data: bytes, flags: int) -> bytes:
    # By hand: the library writes nothing that is wrong.
    return bytes([flags << 4 | opcode, len(data)]) + data


websocket_frames = st.builds(
    _websocket_frame,
    st.sampled_from([Opcode.BINARY, Opcode.BINARY, Opcode.TEXT, Opcode.CONT, Opcode.PING, Opcode.CLOSE]),
    st.binary(max_size=6),
    st.sampled_from([8, 8, 8, 0, 12]),  # a message's last frame, mostly
)
answers = st.sampled_from(
    [
        b"HTTP/1.1 101 OK\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: KEY\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nOops",
        b"HTTP/1.1 500 Oops\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n",
        b"HTTP/1.1 99999 \xff\r\n\r\n",
        b"",
    ]
)
websocket_streams = st.tuples(
    answers, st.lists(websocket_frames | st.binary(max_size=8), max_size=8).map(b"".join)
)


@unhurried
@given(websocket_streams, places, st.sampled_from([None, OSError("reset")]))
def test_websocket_gives_octets_or_an_error_for_any_octets(
    stream: tuple[bytes, bytes], places: list[int], end: Exception | None
) -> None:
    beneath, sink = DeafLink(), Sink()
    link = WebSocketLink(beneath, Address("broker", 80, path="/stomp"), LIMITS)
    link.start(sink, cast("TaskGroup", None))
    answer, frames = stream
    key = beneath.written.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
    data = answer.replace(b"KEY", accept_key(key).encode()) + frames
    link.write(b"early")
    for piece in pieces_of(data, places):
        if piece:
            link.data_received(piece)
    link.connection_lost(end)
    link.write(b"late")
    link.close()

    assert len(sink.losses) == 1
    assert sink.losses[0] is None or isinstance(sink.losses[0], OSError)
    assert sink.losses[0] is None or str(sink.losses[0])
    assert b"late" not in beneath.written
    assert b"KEY" in answer or sink.data == b""
