"""CONNECT, versions, heart-beats, and how a connection ends (A.6 to A.9, E 22 to 34, D.25)."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from tests.broker.harness import BrokerHarness, Peer


def connect(broker: BrokerHarness, *headers: str, command: str = "CONNECT") -> Peer:
    peer = broker.accept()
    peer.send("\n".join((command, *headers)) + "\n\n\0")
    return peer


def connected(peer: Peer) -> dict[str, str]:
    """The headers of the CONNECTED that came, and nothing else."""
    (frame,) = peer.received()
    assert frame[0] == "CONNECTED", frame
    return frame[1]


def error(peer: Peer) -> str:
    """The message of the ERROR that came last."""
    frame = peer.received()[-1]
    assert frame[0] == "ERROR", frame
    assert peer.is_closed
    return frame[1]["message"]


@pytest.mark.parametrize(
    ("offered", "version"),
    [
        ("1.0", "1.0"),
        ("1.1", "1.1"),
        ("1.2", "1.2"),
        ("1.0,1.1,2.0", "1.1"),
        (" 1.1 , 1.2", "1.2"),
        ("1.2,1.0", "1.2"),
    ],
)
def test_e23_highest_version_in_common_is_taken(broker: BrokerHarness, offered: str, version: str) -> None:
    headers = connected(connect(broker, f"accept-version:{offered}", "host:h"))

    assert headers.get("version", "1.0") == version


def test_e24_client_without_a_version_speaks_1_0(broker: BrokerHarness) -> None:
    headers = connected(connect(broker, "login:guest", "passcode:guest"))

    assert set(headers) == {"session"}


def test_connected_says_version_session_server_and_beats(broker: BrokerHarness) -> None:
    headers = connected(connect(broker, "accept-version:1.2", "host:h"))

    assert headers == {
        "version": "1.2",
        "session": "session-peer1",
        "server": "nebula/test",
        "heart-beat": "1000,1000",
    }


def test_e25_version_that_nobody_speaks_is_refused_with_ours(broker: BrokerHarness) -> None:
    peer = connect(broker, "accept-version:2.0")

    assert peer.octets == (
        b"ERROR\nversion:1.0,1.1,1.2\ncontent-type:text/plain\nmessage:no protocol version in common\n"
        b"content-length:43\n\nSupported protocol versions are 1.0 1.1 1.2\0\n"
    )
    assert peer.is_closed


def test_e26_stomp_is_another_word_for_connect(broker: BrokerHarness) -> None:
    headers = connected(connect(broker, "accept-version:1.2", "host:h", command="STOMP"))

    assert headers["version"] == "1.2"


@pytest.mark.parametrize("host", ["", "host:", "host:MAXVAPI", r"host:a:b\cc"])
def test_e27_e29_any_host_will_do(broker: BrokerHarness, host: str) -> None:
    assert connected(connect(broker, "accept-version:1.2", *filter(None, [host])))["version"] == "1.2"


def test_1_0_connect_is_trimmed(broker: BrokerHarness) -> None:
    assert connected(connect(broker, "login: guest", "passcode: guest")).keys() == {"session"}


def test_receipt_on_connect_is_not_answered(broker: BrokerHarness) -> None:
    connected(connect(broker, "accept-version:1.2", "host:h", "receipt:r"))


@pytest.mark.parametrize("command", ["SEND", "SUBSCRIBE", "ACK", "BEGIN", "DISCONNECT"])
def test_e28_first_frame_is_a_connect_or_an_error(broker: BrokerHarness, command: str) -> None:
    peer = broker.accept()
    peer.say(f"{command} destination:/queue/a; id:1; receipt:r")

    (frame,) = peer.received()
    assert frame[1] == {
        "receipt-id": "r",
        "message": f"{command} came before CONNECT",
        "content-type": "text/plain",
    }
    assert broker.destinations == {}


@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
def test_e28_second_connect_is_an_error(broker: BrokerHarness, command: str) -> None:
    peer = broker.connect()
    peer.say(f"{command} accept-version:1.2; host:h")

    assert error(peer) == f"{command} is not legal in an open session"


@pytest.mark.parametrize("split", [1, 7, 1000])
def test_frames_behind_the_connect_are_read_in_the_version_that_it_named(
    broker: BrokerHarness, split: int
) -> None:
    peer = broker.accept()
    data = (
        b"CONNECT\r\naccept-version:1.2\r\nhost:h\r\n\r\n\0\r\n"
        b"SUBSCRIBE\r\nid:s\r\ndestination:/queue/a\r\n\r\n\0"
        b"SEND\r\ndestination:/queue/a\r\nk\\c1:a\\rb\r\n\r\nx\0"
    )
    for begin in range(0, len(data), split):
        peer.feed(data[begin : begin + split])

    _, message = peer.received()
    assert (message[1]["k:1"], message[2:]) == ("a\rb", ("x",))


# Heart-beats


@pytest.mark.parametrize("text", ["5000", "a,b", "-1,0", "1,2,3", "", ",", "1.5,1", "9" * 30 + ",1"])
def test_e30_heart_beat_that_is_not_two_numbers_is_an_error(broker: BrokerHarness, text: str) -> None:
    assert "heart-beat" in error(connect(broker, "accept-version:1.2", "host:h", f"heart-beat:{text}"))


def test_1_0_has_no_heart_beats(broker: BrokerHarness) -> None:
    peer = connect(broker, "heart-beat:nonsense")
    connected(peer)
    written = len(peer.octets)
    broker.advance(100)

    assert len(peer.octets) == written
    assert not peer.is_closed


@pytest.mark.parametrize("heart_beat", [[], ["heart-beat:0,0"]])
def test_e32_client_that_names_no_beats_gets_none_and_owes_none(
    broker: BrokerHarness, heart_beat: list[str]
) -> None:
    peer = connect(broker, "accept-version:1.2", "host:h", *heart_beat)
    written = len(peer.octets)
    broker.advance(60)

    assert len(peer.octets) == written
    assert not peer.is_closed


def test_e31_beats_come_within_the_interval_that_was_agreed(broker: BrokerHarness) -> None:
    peer = broker.connect(heart_beat="0,4000")
    written = len(peer.octets)
    broker.advance(20)

    assert peer.octets[written:] == b"\n" * 10
    assert not peer.is_closed


def test_our_number_counts_where_it_is_the_larger_one(broker: BrokerHarness) -> None:
    peer = broker.connect(heart_beat="0,10")
    written = len(peer.octets)
    broker.advance(10)

    assert peer.octets[written:] == b"\n" * 20


def test_no_beat_is_sent_while_there_is_something_to_say(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(heart_beat="0,1000"), broker.connect()
    alice.subscribe("/queue/a")
    written = len(alice.octets)
    for _ in range(20):
        broker.advance(0.25)
        bob.publish("/queue/a", "x")

    assert not alice.octets[written:].replace(b"\n\n", b"").startswith(b"\n")
    assert len(alice.bodies()) == 20
    # A frame ends in one line end; a second would be a beat.
    assert alice.octets[written:].count(b"\0\n\n") == 0


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_e33_silent_peer_is_dead_after_twice_the_interval(broker: BrokerHarness, version: str) -> None:
    peer = broker.connect(version, heart_beat="5000,0")
    broker.advance(9.75)
    assert peer.octets.count(b"ERROR") == 0

    broker.advance(0.25)

    assert error(peer) == "no heart-beat came in time"


def test_dead_peer_gives_back_what_it_had(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(heart_beat="1000,0"), broker.connect(), broker.connect()
    alice.subscribe("/queue/a", "ack:client")
    bob.publish("/queue/a", "x")
    broker.advance(2)
    carol.subscribe("/queue/a")

    headers, body = carol.message()
    assert (body, headers["delivery-count"]) == ("x", "1")


def test_beating_peer_is_not_dead(broker: BrokerHarness) -> None:
    peer = broker.connect(heart_beat="1000,0")
    for _ in range(20):
        broker.advance(1)
        peer.feed(b"\n")

    assert not peer.is_closed


def test_e34_part_of_a_frame_is_as_good_as_a_beat(broker: BrokerHarness) -> None:
    peer = broker.connect(heart_beat="1000,0")
    for octet in b"SEND\ndestination:/queue/a\n\nslow\0":
        broker.advance(0.5)
        peer.feed(bytes([octet]))

    assert not peer.is_closed
    assert "/queue/a" in broker.destinations


# The end


def test_peer_that_sends_no_connect_in_time_is_ended() -> None:
    broker = BrokerHarness(Limits(connect_timeout=3))
    peer = broker.accept()
    peer.send("CONNECT\naccept-version:1.2\n")
    broker.advance(2.75)
    assert peer.octets == b""

    broker.advance(0.25)

    assert error(peer) == "no CONNECT came in time"


def test_peer_that_connected_in_time_stays() -> None:
    broker = BrokerHarness(Limits(connect_timeout=3))
    peer = broker.accept()
    broker.advance(2.75)
    peer.send("CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    broker.advance(100)

    assert not peer.is_closed


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_e53_disconnect_is_receipted_last(broker: BrokerHarness, version: str) -> None:
    alice = broker.connect(version)
    alice.say(
        *(f"SEND destination:/queue/a; receipt:{number} | x" for number in range(3)), "DISCONNECT receipt:d"
    )

    assert [frame[1]["receipt-id"] for frame in alice.received()] == ["0", "1", "2", "d"]
    assert alice.is_closed


def test_messages_that_were_on_their_way_come_before_the_receipt_of_disconnect(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe("/queue/a")
    alice.say("SEND destination:/queue/a | x", "DISCONNECT receipt:d")

    assert [frame[0] for frame in alice.received()] == ["MESSAGE", "RECEIPT"]


def test_no_message_comes_after_disconnect(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe("/queue/a", "ack:client", "prefetch-count:1")
    alice.publish("/queue/a", "1", "2")
    alice.received()
    alice.say("DISCONNECT receipt:d", "SEND destination:/queue/b | late")

    assert alice.received() == [("RECEIPT", {"receipt-id": "d"})]
    assert "/queue/b" not in broker.destinations


def test_error_names_the_fault_and_has_a_body_of_that_length(broker: BrokerHarness) -> None:
    peer = broker.connect()
    peer.say("SEND receipt:r1 | x")

    assert peer.octets.endswith(
        b"ERROR\nreceipt-id:r1\nmessage:SEND needs the header destination\n"
        b"content-type:text/plain\ncontent-length:33\n\nSEND needs the header destination\0\n"
    )
    assert peer.is_closed


def test_frames_before_a_fault_count_and_those_behind_it_do_not(broker: BrokerHarness) -> None:
    peer = broker.connect()
    peer.say(
        "SEND destination:/queue/a; receipt:1 | x",
        "SEND receipt:2 | x",
        "SEND destination:/queue/b; receipt:3 | x",
    )

    assert [frame[0] for frame in peer.received()] == ["RECEIPT", "ERROR"]
    assert list(broker.destinations) == ["/queue/a"]
