"""The client's side of a connection, by bytes alone."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from nebula.errors import LocalProtocolError
from nebula.stomp.client_protocol import VERSIONS, ClientProtocol
from nebula.stomp.client_states import State
from nebula.stomp.codec import FrameLimits
from nebula.stomp.frames import Frame
from nebula.stomp.heartbeat import heart_beat_of

MESSAGE = b"MESSAGE\nsubscription:1\nmessage-id:m1\ndestination:/queue/a\n\nhello\0"


def connected(version: str = "1.2", **options: object) -> ClientProtocol:
    protocol = ClientProtocol(**options)  # type: ignore[arg-type]  # options of a test
    protocol.connect(host="/")
    line = "" if version == "1.0" else f"version:{version}\n"
    protocol.receive(f"CONNECTED\n{line}\n\0".encode(), now=0.0)
    assert protocol.state is State.CONNECTED
    return protocol


def received(protocol: ClientProtocol, octets: bytes) -> list[str]:
    return [frame.command for frame in protocol.receive(octets, now=1.0)]


# --- CONNECT ---


def test_connect_offers_every_version_and_our_heart_beats() -> None:
    protocol = ClientProtocol(heart_beat=heart_beat_of(10.0, 5.0))

    octets = protocol.connect(host="/", login="me", passcode="secret:colon")

    assert octets == (
        b"CONNECT\nhost:/\naccept-version:1.0,1.1,1.2\nheart-beat:10000,5000\n"
        b"login:me\npasscode:secret:colon\n\n\0"
    )


def test_connect_of_a_1_0_client_has_nothing_that_1_0_does_not_know() -> None:
    protocol = ClientProtocol(versions=["1.0"], heart_beat=heart_beat_of(10.0, 5.0))

    assert protocol.connect(host="/") == b"CONNECT\nhost:/\n\n\0"


@pytest.mark.parametrize("passcode", ["a\nadmin:true", "a\rb", "a\0b"])
def test_connect_refuses_a_passcode_that_would_become_other_headers(passcode: str) -> None:
    protocol = ClientProtocol()

    with pytest.raises(LocalProtocolError, match="passcode"):
        protocol.connect(host="/", passcode=passcode)

    assert protocol.state is State.NEW


@pytest.mark.parametrize("versions", [[], ["1.3"], ["1.2", "2"]])
def test_client_offers_only_versions_that_exist(versions: list[str]) -> None:
    with pytest.raises(LocalProtocolError, match="versions"):
        ClientProtocol(versions=versions)


# --- CONNECTED ---


@pytest.mark.parametrize("version", VERSIONS)
def test_server_chooses_the_version(version: str) -> None:
    assert connected(version).dialect.version == version


def test_connected_tells_session_and_server_as_they_came() -> None:
    protocol = ClientProtocol()
    protocol.connect(host="/")

    # ActiveMQ escapes the session, though CONNECTED has no escapes.
    protocol.receive(b"CONNECTED\r\nversion:1.2\r\nsession:ID:host\\c7\r\nserver:ActiveMQ/6\r\n\r\n\0", 0.0)

    assert protocol.session == "ID:host\\c7"
    assert protocol.server == "ActiveMQ/6"


def test_both_timers_start_at_connected() -> None:
    protocol = ClientProtocol(heart_beat=heart_beat_of(10.0, 4.0))
    protocol.connect(host="/")

    protocol.receive(b"CONNECTED\nversion:1.1\nheart-beat:6000,1000\n\n\0", now=50.0)

    assert (protocol.heartbeat.send_interval, protocol.heartbeat.receive_interval) == (10.0, 6.0)
    assert protocol.heartbeat.next_deadline(50.0) == 55.0


def test_server_without_a_heart_beat_header_gets_and_owes_none() -> None:
    protocol = connected("1.2", heart_beat=heart_beat_of(10.0, 10.0))

    assert (protocol.heartbeat.send_interval, protocol.heartbeat.receive_interval) == (0.0, 0.0)


@pytest.mark.parametrize("chunk_size", [1, 2, 7, 1000])
def test_frames_behind_connected_are_read_by_the_new_version(chunk_size: int) -> None:
    protocol = ClientProtocol()
    protocol.connect(host="/")
    octets = b"CONNECTED\nversion:1.2\n\n\0\nRECEIPT\r\nreceipt-id:a\\cb\r\n\r\n\0" + MESSAGE

    frames: list[Frame] = []
    for start in range(0, len(octets), chunk_size):
        frames += protocol.receive(octets[start : start + chunk_size], now=0.0)

    assert [frame.command for frame in frames] == ["CONNECTED", "RECEIPT", "MESSAGE"]
    assert frames[1].headers["receipt-id"] == "a:b"


def test_frame_behind_a_split_connected_does_not_wait_for_more_bytes() -> None:
    protocol = ClientProtocol()
    protocol.connect(host="/")

    assert received(protocol, b"CONNECTED\nversion:1.2\nsession") == []
    assert received(protocol, b":s\n\n\0" + MESSAGE) == ["CONNECTED", "MESSAGE"]


@pytest.mark.parametrize(
    ("offered", "answer", "reason"),
    [
        (["1.2"], b"CONNECTED\nversion:1.1\n\n\0", "1.1"),
        (["1.1", "1.2"], b"CONNECTED\n\n\0", "1.0"),
        (["1.2"], b"CONNECTED\nversion:3\n\n\0", "3"),
        (["1.2"], b"CONNECTED\nversion:1.2\nheart-beat:soon\n\n\0", "heart-beat"),
        (["1.2"], MESSAGE, "MESSAGE is not legal while connecting"),
        (["1.2"], b"HTTP/1.1 400 Bad Request\r\n\r\n", "command"),
        (["1.2"], b"SSH-2.0-OpenSSH_9.2\r\n", "command"),
        (["1.2"], b"CONNECTED\nno colon\n\n\0", "colon"),
    ],
)
def test_answer_to_connect_that_breaks_the_protocol_ends_the_connection(
    offered: list[str], answer: bytes, reason: str
) -> None:
    protocol = ClientProtocol(versions=offered)
    protocol.connect(host="/")

    assert protocol.receive(answer, now=0.0) == []
    assert protocol.state is State.ENDED
    assert reason in str(protocol.failure)


def test_error_instead_of_connected_is_handed_on_and_ends_the_connection() -> None:
    protocol = ClientProtocol()
    protocol.connect(host="/")

    frames = protocol.receive(b"ERROR\nversion:1.1\nmessage:no such version\n\nsorry\0", now=0.0)

    assert [(frame.command, frame.body) for frame in frames] == [("ERROR", b"sorry")]
    assert protocol.state is State.ENDED
    assert protocol.failure is None


# --- what may come in a session ---


@pytest.mark.parametrize(
    ("version", "octets", "reason"),
    [
        ("1.2", b"CONNECTED\nversion:1.2\n\n\0", "CONNECTED is not legal while connected"),
        ("1.2", b"MESSAGE\nsubscription:1\nmessage-id:m\n\n\0", "destination"),
        ("1.2", b"MESSAGE\nsubscription:1\ndestination:a\n\n\0", "message-id"),
        ("1.1", b"MESSAGE\nmessage-id:m\ndestination:a\n\n\0", "subscription"),
        ("1.2", b"RECEIPT\n\n\0", "receipt-id"),
        ("1.2", b"SEND\ndestination:a\n\n\0", "SEND"),
        ("1.2", b"MESSAGE\nmessage-id:m\\t\n\n\0", "escape"),
    ],
)
def test_frame_that_breaks_the_protocol_ends_the_connection(version: str, octets: bytes, reason: str) -> None:
    protocol = connected(version)

    assert received(protocol, MESSAGE + octets) == ["MESSAGE"]
    assert reason in str(protocol.failure)
    assert protocol.state is State.ENDED
    assert received(protocol, MESSAGE) == []


def test_message_of_a_1_0_server_may_lack_its_subscription() -> None:
    protocol = connected("1.0")

    assert received(protocol, b"MESSAGE\nmessage-id:m\ndestination:a\n\nhello\0") == ["MESSAGE"]


def test_nothing_behind_an_error_is_read() -> None:
    protocol = connected()

    assert received(protocol, b"ERROR\nmessage:no\n\n\0") == ["ERROR"]
    assert received(protocol, MESSAGE) == []


def test_body_beyond_the_limit_ends_the_connection() -> None:
    protocol = connected(limits=FrameLimits(max_body_bytes=4))

    assert received(protocol, MESSAGE) == []
    assert "body" in str(protocol.failure)


def test_message_may_have_more_and_longer_headers_than_its_sender_may_write() -> None:
    limits = FrameLimits()
    headers = b"".join(b"h%d:x\n" % number for number in range(limits.max_headers))
    # Every byte of a line that a 1.0 sender wrote may have to be escaped.
    long = b"h:" + b"\\\\" * (limits.max_header_line_bytes - 2) + b"\n"

    assert received(connected(), MESSAGE.replace(b"MESSAGE\n", b"MESSAGE\n" + headers + long)) == ["MESSAGE"]


def test_message_may_have_a_larger_head_than_its_sender_may_write() -> None:
    limits = FrameLimits()
    # As many bytes as a 1.0 sender may write, each of which has to be escaped.
    line = b"\\\\" * 8000
    count = limits.max_head_bytes // 8000
    headers = b"".join(b"h%d:%b\n" % (number, line) for number in range(count))

    assert received(connected(), MESSAGE.replace(b"MESSAGE\n", b"MESSAGE\n" + headers)) == ["MESSAGE"]


def test_bytes_prove_life_also_when_no_frame_is_complete() -> None:
    protocol = connected()

    protocol.receive(b"\n", now=3.0)
    assert protocol.heartbeat.last_received == 3.0

    protocol.receive(b"MESS", now=4.0)
    assert protocol.heartbeat.last_received == 4.0


# --- what may go out ---


def test_send_writes_ours_first_and_escapes_by_the_version() -> None:
    headers = {"a:b": "c\nd", "back": "\\", "e": ""}

    assert connected("1.2").send("/queue/a", b"\0x", headers, receipt="r", transaction="t") == (
        b"SEND\ndestination:/queue/a\ncontent-length:2\nreceipt:r\ntransaction:t\n"
        b"a\\cb:c\\nd\nback:\\\\\ne:\n\n\0x\0"
    )
    assert connected("1.0").send("/queue/a", b"", headers) == (
        b"SEND\ndestination:/queue/a\ncontent-length:0\na b:c d\nback:\\\ne:\n\n\0"
    )


@pytest.mark.parametrize("value", [":", "\n", "\r", "\0", "\\", "a:b\nc\\d\re\0"])
@pytest.mark.parametrize("place", ["destination", "name", "value", "receipt"])
def test_no_value_of_a_send_becomes_another_header(value: str, place: str) -> None:
    protocol = connected("1.2")
    names = {"destination": "d", "name": "n", "value": "v", "receipt": "r", place: f"x{value}"}

    octets = protocol.send(
        names["destination"], b"", {names["name"]: names["value"]}, receipt=names["receipt"]
    )

    lines = octets.split(b"\n")
    assert len(lines) == 7
    assert all(line.count(b":") == 1 for line in lines[1:5])
    assert b"\r" not in octets
    assert octets.index(b"\0") == len(octets) - 1


def test_send_with_the_headers_of_another_frame_keeps_ours() -> None:
    octets = connected().send("/queue/a", b"abc", {"destination": "/queue/b", "content-length": "9"})

    # STOMP 1.2, "Repeated Header Entries": the first one counts.
    assert octets.index(b"/queue/a") < octets.index(b"/queue/b")
    assert octets.index(b"content-length:3") < octets.index(b"content-length:9")


def test_receipt_header_of_a_send_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="receipt"):
        connected().send("/queue/a", b"", {"receipt": "1"})


def test_subscribe_and_unsubscribe_name_the_id() -> None:
    protocol = connected()

    subscribe = protocol.subscribe("1", "/queue/a", "client", {"prefetch-count": "5"}, receipt="r")
    unsubscribe = protocol.unsubscribe("1")

    assert subscribe == (
        b"SUBSCRIBE\nprefetch-count:5\nid:1\ndestination:/queue/a\nack:client\nreceipt:r\n\n\0"
    )
    assert unsubscribe == b"UNSUBSCRIBE\nid:1\n\n\0"


DELIVERED = {"subscription": "s:1", "message-id": "m1", "ack": "s:1 m1", "destination": "/queue/a"}


@pytest.mark.parametrize(
    ("version", "octets"),
    [
        ("1.0", b"ACK\nmessage-id:m1\n\n\0"),
        ("1.1", b"ACK\nmessage-id:m1\nsubscription:s\\c1\n\n\0"),
        ("1.2", b"ACK\nid:s\\c1 m1\n\n\0"),
    ],
)
def test_ack_has_the_form_of_its_version(version: str, octets: bytes) -> None:
    assert connected(version).ack(DELIVERED) == octets


@pytest.mark.parametrize(
    ("version", "octets"),
    [
        ("1.0", b"ACK\nmessage-id:m1\ntransaction:t\n\n\0"),
        ("1.1", b"ACK\nmessage-id:m1\nsubscription:s\\c1\ntransaction:t\n\n\0"),
        ("1.2", b"ACK\nid:s\\c1 m1\ntransaction:t\n\n\0"),
    ],
)
def test_ack_in_a_transaction_names_it(version: str, octets: bytes) -> None:
    assert connected(version).ack(DELIVERED, transaction="t") == octets


@pytest.mark.parametrize(
    ("version", "octets"),
    [
        ("1.1", b"NACK\nrequeue:false\nmessage-id:m1\nsubscription:s\\c1\n\n\0"),
        ("1.2", b"NACK\nrequeue:false\nid:s\\c1 m1\n\n\0"),
    ],
)
def test_nack_has_the_form_of_its_version(version: str, octets: bytes) -> None:
    assert connected(version).nack(DELIVERED, {"requeue": "false"}) == octets


def test_nack_does_not_exist_in_1_0() -> None:
    with pytest.raises(LocalProtocolError, match=r"1\.0"):
        connected("1.0").nack(DELIVERED, {})


def test_message_without_an_ack_header_cannot_be_acked_in_1_2() -> None:
    message: Mapping[str, str] = {"subscription": "1", "message-id": "m1"}

    with pytest.raises(LocalProtocolError, match="no acknowledgement"):
        connected("1.2").ack(message)


def test_transaction_frames_name_the_transaction() -> None:
    protocol = connected()

    assert protocol.begin("t") == b"BEGIN\ntransaction:t\n\n\0"
    assert protocol.commit("t", receipt="r") == b"COMMIT\ntransaction:t\nreceipt:r\n\n\0"
    assert protocol.abort("t") == b"ABORT\ntransaction:t\n\n\0"


def test_nothing_may_be_sent_before_connected() -> None:
    protocol = ClientProtocol()

    with pytest.raises(LocalProtocolError, match="SEND is not legal while new"):
        protocol.send("/queue/a", b"", {})
    protocol.connect(host="/")
    with pytest.raises(LocalProtocolError, match="SEND is not legal while connecting"):
        protocol.send("/queue/a", b"", {})


def test_server_may_refuse_before_connect() -> None:
    protocol = ClientProtocol()

    assert received(protocol, b"ERROR\nmessage:full\n\n\0") == ["ERROR"]
    assert protocol.failure is None
    assert protocol.state is State.ENDED


def test_connect_may_be_sent_once() -> None:
    with pytest.raises(LocalProtocolError, match="CONNECT is not legal while connected"):
        connected().connect(host="/")


def test_nothing_may_follow_disconnect_but_answers_still_come() -> None:
    protocol = connected()

    assert protocol.disconnect("bye") == b"DISCONNECT\nreceipt:bye\n\n\0"

    with pytest.raises(LocalProtocolError, match="ACK is not legal while disconnecting"):
        protocol.ack(DELIVERED)
    assert received(protocol, MESSAGE + b"RECEIPT\nreceipt-id:bye\n\n\0") == ["MESSAGE", "RECEIPT"]


def test_nothing_is_legal_after_the_end() -> None:
    protocol = connected()

    protocol.end()

    with pytest.raises(LocalProtocolError, match="SEND is not legal while ended"):
        protocol.send("/queue/a", b"", {})
    assert received(protocol, MESSAGE) == []
