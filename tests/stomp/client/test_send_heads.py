"""SENDs of which a client sends many say the same as those that are encoded one by one."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.errors import ConnectionLost, LocalProtocolError
from nebula.stomp.client import AckMode, Message, StompClient
from nebula.stomp.client.send_heads import SendHeads, Shared
from nebula.stomp.codec import FrameParser, serialize
from nebula.stomp.dialects import V1_0, V1_1, V1_2, Dialect
from nebula.stomp.frames import CLIENT_COMMANDS, Frame
from tests.stomp.peer import Peer, broker

DIALECTS = (V1_0, V1_1, V1_2)

# With everything that has an escape, in headers or in a formatted text.
ODD = st.text(st.sampled_from("ab %s:\\\n\r\0é\N{GRINNING FACE}"), max_size=8)


def sent(data: bytes, dialect: Dialect) -> tuple[dict[str, str], bytes, str | None]:
    """Headers, body and receipt of a frame, as a broker reads it."""
    parser = FrameParser(CLIENT_COMMANDS)
    parser.begin(dialect)
    frames = parser.feed(data)
    assert parser.failure is None
    (frame,) = frames
    # The parser takes the length out where the frame names an exchange.
    headers = {name: value for name, value in frame.all_headers().items() if name != "content-length"}
    return headers, frame.body, frame.receipt


def expected(
    destination: str, body: bytes, headers: Mapping[str, str], dialect: Dialect
) -> tuple[dict[str, str], bytes, str | None]:
    data = serialize(Frame("SEND", {"destination": destination, **headers}, body), dialect)
    return sent(data, dialect)


@given(
    dialect=st.sampled_from(DIALECTS),
    destination=ODD,
    body=st.binary(max_size=8),
    shared=st.dictionaries(ODD.map("s{}".format), ODD, max_size=3),
    varying=st.lists(st.tuples(*[ODD] * 3), min_size=1, max_size=3),
)
def test_each_frame_says_what_one_that_is_encoded_alone_says(
    dialect: Dialect,
    destination: str,
    body: bytes,
    shared: dict[str, str],
    varying: list[tuple[str, str, str]],
) -> None:
    heads = SendHeads(dialect)

    for values in varying:
        own = dict(zip(("receipt", "100%", "neb-reply-id"), values, strict=True))
        data = heads.send(destination, body, tuple(shared.items()), own)

        assert sent(data, dialect) == expected(destination, body, shared | own, dialect)


def test_heads_are_told_apart_by_destination_headers_and_names() -> None:
    heads = SendHeads(V1_2)
    kinds: list[tuple[str, Shared, dict[str, str]]] = [
        ("/queue/a", (("type", "x"),), {"id": "1"}),
        ("/queue/b", (("type", "x"),), {"id": "2"}),
        ("/queue/a", (("type", "y"),), {"id": "3"}),
        ("/queue/a", (("type", "x"),), {"other": "4"}),
    ]

    for destination, shared, varying in kinds * 2:
        frame = heads.send(destination, b"", shared, varying)

        assert sent(frame, V1_2) == expected(destination, b"", dict(shared) | varying, V1_2)


def test_number_of_heads_that_are_kept_is_bounded() -> None:
    heads = SendHeads(V1_2)

    for number in range(1000):
        heads.send(f"/queue/{number}", b"", (), {})

    assert len(heads._templates) <= 256


@pytest.mark.anyio
async def test_frame_and_the_ack_behind_it_come_in_this_order() -> None:
    heard: list[str] = []

    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.confirm()
        await peer.say("MESSAGE\nsubscription:1\nmessage-id:1\nack:m1\ndestination:/queue/a\n\n^@")
        heard.extend([await peer.hear(), await peer.hear()])
        await peer.part()

    messages: list[Message] = []
    came = anyio.Event()

    def on_message(message: Message) -> None:
        messages.append(message)
        came.set()

    async with broker(script) as url, StompClient(url) as client:
        await client.listen("/queue/a", on_message, ack=AckMode.CLIENT_INDIVIDUAL)
        await came.wait()
        client.connection.post_shared("/queue/b", b"done", (("type", "x"),), {"id": "1"}, messages[0])

    assert heard == [
        "SEND\ndestination:/queue/b\ntype:x\ncontent-length:4\nid:1\n\ndone",
        "ACK\nid:m1\n\n",
    ]


@pytest.mark.anyio
async def test_nothing_is_sent_outside_of_a_session() -> None:
    async def script(peer: Peer) -> None:
        await peer.accept()
        await peer.part()

    async with broker(script) as url:
        async with StompClient(url) as client:
            connection = client.connection
            connection._is_wanted = False
            with pytest.raises(LocalProtocolError, match="outside of a session"):
                connection.post_shared("/queue/b", b"", (), {})
        with pytest.raises(ConnectionLost):
            connection.post_shared("/queue/b", b"", (), {})
