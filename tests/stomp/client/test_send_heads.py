"""SENDs of which a client sends many say the same as those that are encoded one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

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


# 2 is a receipt.
MESSAGES = "".join(
    f"MESSAGE\nsubscription:{subscription}\nmessage-id:m{number}\nack:a{number}\ndestination:/queue/a\n\n^@"
    for number, subscription in enumerate("11113")
)


async def heard_after(
    frames: int,
    work: Callable[[StompClient, list[Message]], object],
    server: str = "server:nebula/1\n",
    *,
    disconnects: bool = True,
) -> list[str]:
    """What a broker hears that has sent `MESSAGES` to two subscriptions: this many frames, without bodies."""
    heard: list[str] = []

    async def script(peer: Peer) -> None:
        await peer.accept(headers=server)
        await peer.confirm()
        await peer.confirm()
        await peer.say(MESSAGES)
        heard.extend([(await peer.hear()).partition("\n\n")[0] for _ in range(frames)])
        if disconnects:
            await peer.part()

    messages: list[Message] = []
    came = anyio.Event()

    def on_message(message: Message) -> None:
        messages.append(message)
        if len(messages) == 5:
            came.set()

    async with broker(script) as url, StompClient(url) as client:
        for _ in range(2):
            await client.listen("/queue/a", on_message, ack=AckMode.CLIENT_INDIVIDUAL)
        await came.wait()
        work(client, messages)
    return heard


def reply_to(client: StompClient, *messages: Message) -> None:
    """A SEND for each message, which acknowledges it."""
    for message in messages:
        client.connection.post_shared("/queue/b", b"", (), {"to": message.id}, message)


def reply(number: int) -> str:
    return f"SEND\ndestination:/queue/b\ncontent-length:0\nto:m{number}"


@pytest.mark.anyio
async def test_one_ack_names_the_messages_that_were_replied_to_in_a_turn() -> None:
    heard = await heard_after(4, lambda client, messages: reply_to(client, *messages[:3]))

    assert heard == [reply(0), reply(1), reply(2), "ACK\nid:a0\nmessage-ids:m1,m2"]


@pytest.mark.anyio
async def test_each_message_has_an_ack_of_its_own_at_another_broker() -> None:
    heard = await heard_after(4, lambda client, messages: reply_to(client, *messages[:2]), "server:Other/1\n")

    assert heard == [reply(0), "ACK\nid:a0", reply(1), "ACK\nid:a1"]


@pytest.mark.anyio
async def test_ack_names_messages_of_one_subscription() -> None:
    heard = await heard_after(5, lambda client, messages: reply_to(client, *messages[2:]))

    assert heard == [reply(2), reply(3), "ACK\nid:a2\nmessage-ids:m3", reply(4), "ACK\nid:a4"]


@pytest.mark.anyio
async def test_other_frames_come_after_the_ack_of_what_was_replied_to_before() -> None:
    def work(client: StompClient, messages: list[Message]) -> None:
        reply_to(client, *messages[:2])
        messages[2].ack()
        reply_to(client, messages[3])
        messages[3].subscription.close()

    assert await heard_after(7, work) == [
        *(reply(0), reply(1), "ACK\nid:a0\nmessage-ids:m1", "ACK\nid:a2"),
        *(reply(3), "ACK\nid:a3", "UNSUBSCRIBE\nid:1"),
    ]


@pytest.mark.anyio
async def test_ack_names_so_many_messages_at_most_as_a_piece_has_frames() -> None:
    heard = await heard_after(19, lambda client, messages: reply_to(client, *messages[:1] * 17))

    assert [frame.count("m0") for frame in heard if frame.startswith("ACK")] == [14, 1]
    assert heard[15].startswith("ACK")


@pytest.mark.anyio
async def test_ack_is_written_before_the_connection_is_ended() -> None:
    def work(client: StompClient, messages: list[Message]) -> None:
        reply_to(client, messages[0])
        client.connection.end("enough")

    assert await heard_after(2, work, disconnects=False) == [reply(0), "ACK\nid:a0"]


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
