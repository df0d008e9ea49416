"""What each frame needs, what it is answered with, and what a MESSAGE carries (A.6, A.7, D.43 to D.47)."""

from __future__ import annotations

import pytest

from tests.broker.harness import BrokerHarness

VERSIONS = ["1.0", "1.1", "1.2"]


# Receipts


@pytest.mark.parametrize("version", VERSIONS)
def test_each_frame_is_receipted_in_order(broker: BrokerHarness, version: str) -> None:
    alice = broker.connect(version)
    alice.say(
        "SUBSCRIBE id:s; destination:/queue/a; ack:client; receipt:1",
        "SEND destination:/queue/a; receipt:2 | x",
        "SEND destination:/topic/t; receipt:3 | x",
        "ACK id:s m-1; subscription:s; message-id:m-1; receipt:4",
        "NACK id:s m-1; subscription:s; message-id:m-1; receipt:5",
        "UNSUBSCRIBE id:s; receipt:6",
        "DISCONNECT receipt:7",
    )

    frames = alice.received()
    assert [frame[1]["receipt-id"] for frame in frames if frame[0] == "RECEIPT"] == list("1234567")
    assert {frame[0] for frame in frames} == {"RECEIPT", "MESSAGE"}


def test_frame_without_receipt_is_not_answered(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/topic/t | x", "UNSUBSCRIBE id:x", "ACK id:y", "NACK id:z")

    assert alice.received() == []


def test_d43_receipt_of_subscribe_comes_before_its_first_message(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.publish("/queue/a", "x")
    alice.subscribe("/queue/a", "receipt:r")

    assert [frame[0] for frame in alice.received()] == ["RECEIPT", "MESSAGE"]


def test_receipt_is_escaped_as_it_came(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(r"SEND destination:/topic/t; receipt:a\cb\\c | x", r"UNSUBSCRIBE id:x; receipt:d\ne")

    assert rb"receipt-id:a\cb\\c" in alice.octets
    assert [frame[1]["receipt-id"] for frame in alice.received()] == ["a:b\\c", "d\ne"]


def test_receipt_of_a_send_tells_how_many_consume(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    counts = []
    for peer in (None, bob, carol):
        if peer is not None:
            peer.subscribe("/queue/a")
        alice.say("SEND destination:/queue/a; receipt:r | x")
        counts.append(alice.received()[0][1]["consumers"])

    assert counts == ["0", "1", "2"]


def test_receipt_of_a_message_that_is_not_on_disk_says_so(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; persistent:true; receipt:r | x")

    assert alice.received()[0][1]["durable"] == "false"


@pytest.mark.parametrize("value", ["yes", "1"])
def test_persistent_outside_its_form_is_rejected(broker: BrokerHarness, value: str) -> None:
    alice = broker.connect()
    alice.say(f"SEND destination:/queue/a; persistent:{value}; receipt:r | x")

    assert alice.received()[0][1]["disposition"] == "rejected-invalid"


@pytest.mark.parametrize("destination", ["X/EGM.1", "/topic/t"])
def test_only_a_queue_reports_its_consumers(broker: BrokerHarness, destination: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(destination)
    alice.say(f"SEND destination:{destination}; receipt:r | x")

    assert alice.received() == [
        ("RECEIPT", {"receipt-id": "r", "disposition": "accepted", "durable": "false"})
    ]
    assert bob.bodies() == ["x"]


# What frames need


@pytest.mark.parametrize("version", ["1.1", "1.2"])
@pytest.mark.parametrize(
    "line",
    [
        "SEND x:y | body",
        "SEND destination: | body",
        "SUBSCRIBE destination:/queue/a",
        "SUBSCRIBE id:; destination:/queue/a",
        "SUBSCRIBE id:1",
        "SUBSCRIBE id:1; destination:",
        "SUBSCRIBE id:1; destination:/queue/a; ack:bogus",
        "SUBSCRIBE id:taken; destination:/queue/a",
        "SUBSCRIBE id:1; destination:/queue/a; selector:a > 1",
        "SUBSCRIBE id:1; destination:/queue/a; selector:",
        "UNSUBSCRIBE destination:/queue/taken",
    ],
)
def test_e37_what_lacks_a_header_is_an_error(broker: BrokerHarness, version: str, line: str) -> None:
    alice, bob = broker.connect(version), broker.connect()
    alice.subscribe("/queue/taken", id="taken")
    start, bar, body = line.partition(" | ")
    alice.say(f"{start}; receipt:r{bar}{body}")

    (frame,) = alice.received()
    assert (frame[0], frame[1]["receipt-id"]) == ("ERROR", "r")
    assert frame[1]["message"]
    assert alice.is_closed
    assert not bob.is_closed


def test_1_0_may_leave_the_id_out(broker: BrokerHarness) -> None:
    alice = broker.connect("1.0")
    alice.say(
        "SUBSCRIBE destination:/queue/a", "SEND destination:/queue/a | 1", "UNSUBSCRIBE destination:/queue/a"
    )
    alice.say("SEND destination:/queue/a | 2")

    headers, body = alice.message()
    assert body == "1"
    assert "subscription" not in headers


def test_1_0_subscribing_twice_without_an_id_to_one_destination_is_an_error(broker: BrokerHarness) -> None:
    alice = broker.connect("1.0")
    alice.say("SUBSCRIBE destination:/queue/a", "SUBSCRIBE destination:/queue/a")

    assert alice.received()[0][0] == "ERROR"


def test_unsubscribe_of_what_is_not_subscribed_is_ignored(broker: BrokerHarness) -> None:
    for version in VERSIONS:
        alice = broker.connect(version)
        alice.say("UNSUBSCRIBE id:x; destination:/queue/x; receipt:r")
        assert alice.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]


def test_subscription_id_is_free_again_after_unsubscribe(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe("/queue/a")
    alice.say("UNSUBSCRIBE id:s")
    alice.subscribe("/queue/b", "receipt:r")

    assert alice.received() == [("RECEIPT", {"receipt-id": "r"})]


def test_unsubscribed_consumer_gets_no_more(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    for destination in ("/queue/a", "/topic/t"):
        bob.subscribe(destination, id=destination)
        bob.say(f"UNSUBSCRIBE id:{destination}")
        alice.publish(destination, "x")

    assert bob.received() == []


def test_content_length_and_type_are_borne_on_every_frame(broker: BrokerHarness) -> None:
    alice = broker.connect("1.0")
    extra = "content-length:0; content-type:text/plain;charset=UTF-8"
    alice.say(
        f"SUBSCRIBE destination:/queue/a; ack:client-individual; {extra}",
        "SEND destination:/queue/a; content-length:1 | x",
        f"ACK message-id:m-1; {extra}; receipt:r",
        f"UNSUBSCRIBE destination:/queue/a; {extra}",
        f"DISCONNECT {extra}",
    )

    assert [frame[0] for frame in alice.received()] == ["MESSAGE", "RECEIPT"]


# What a MESSAGE carries


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/t"])
def test_headers_of_the_sender_pass_through(broker: BrokerHarness, destination: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(destination)
    alice.say(
        f"SEND destination:{destination}; content-type:application/json; k:v; traceparent:00-1; empty: | x"
    )

    headers, _ = bob.message()
    assert headers == {
        "subscription": "s",
        "message-id": "m-1",
        "destination": destination,
        "sender": "anonymous",
        "content-type": "application/json",
        "k": "v",
        "traceparent": "00-1",
        "empty": "",
    }


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/t"])
@pytest.mark.parametrize(
    "header",
    [
        "subscription", "message-id", "ack", "sender", "redelivered", "delivery-count", "receipt",
        "require-consumers", "persistent",
    ],
)  # fmt: skip
def test_header_that_is_not_the_senders_to_say_is_dropped(
    broker: BrokerHarness, destination: str, header: str
) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(destination)
    alice.say(f"SEND destination:{destination}; {header}:true | x")

    headers, _ = bob.message()
    assert "true" not in headers.values()
    assert bob.octets.count(b"\nsender:anonymous\n") == 1


def test_sender_is_the_principal_of_the_connection(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(principal="app:prices"), broker.connect()
    bob.subscribe("/queue/a")
    alice.say("SEND destination:/queue/a; sender:root | x")

    assert bob.message()[0]["sender"] == "app:prices"


@pytest.mark.parametrize("version", VERSIONS)
def test_message_carries_the_length_of_its_body(broker: BrokerHarness, version: str) -> None:
    alice = broker.connect(version)
    alice.subscribe("/queue/a")
    alice.send(b"SEND\ndestination:/queue/a\ncontent-length:3\n\na\0b\0")

    assert alice.octets.endswith(b"content-length:3\n\na\0b\0\n")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_each_frame_is_followed_by_a_line_end_which_old_clients_wait_for(
    broker: BrokerHarness, version: str
) -> None:
    alice = broker.connect(version)
    alice.subscribe("/queue/a", "receipt:r1")
    alice.publish("/queue/a", "x", headers=["receipt:r2"])
    alice.say("COMMIT transaction:none")

    *frames, rest = alice.octets.split(b"\0\n")
    commands = [frame.partition(b"\n")[0] for frame in frames]
    assert (sorted(commands), rest) == ([b"CONNECTED", b"ERROR", b"MESSAGE", b"RECEIPT", b"RECEIPT"], b"")


def test_body_of_any_bytes_arrives_as_it_was_sent(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    body = bytes(range(256)) * 3
    bob.subscribe("/queue/a")
    alice.send(b"SEND\ndestination:/queue/a\ncontent-length:%d\n\n%b\0" % (len(body), body))

    assert bob.octets.endswith(b"\n\n" + body + b"\0\n")


def test_empty_body_is_an_ordinary_message_on_a_queue(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish("/queue/a", "")
    bob.subscribe("/queue/a")

    assert bob.bodies() == [""]
    assert b"content-length:0\n" in bob.octets


def test_e21_destination_with_a_colon_is_escaped(broker: BrokerHarness) -> None:
    new, old = broker.connect("1.2"), broker.connect("1.0")
    new.subscribe(r"/topic/Game.7\c2")
    old.subscribe("/topic/Game.7:2")
    old.publish("/topic/Game.7:2", "x")

    assert rb"destination:/topic/Game.7\c2" in new.octets
    assert b"destination:/topic/Game.7:2" in old.octets


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/t"])
def test_cr_of_1_2_becomes_a_space_where_it_cannot_be_said(broker: BrokerHarness, destination: str) -> None:
    alice = broker.connect("1.2")
    values = {}
    for version in VERSIONS:
        bob = broker.connect(version)
        bob.subscribe(destination)
        alice.say(rf"SEND destination:{destination}; x:a\rb | x")
        values[version] = bob.message()[0]["x"]
        bob.disconnect()

    assert values == {"1.0": "a b", "1.1": "a b", "1.2": "a\rb"}


def test_header_cannot_be_smuggled_into_a_frame_of_another_version(broker: BrokerHarness) -> None:
    alice, bob = broker.connect("1.2"), broker.connect("1.0")
    bob.subscribe("/queue/a")
    alice.say(r"SEND destination:/queue/a; x\nsender\croot:y; z:1\nsender:root | x")

    assert bob.message()[0]["sender"] == "anonymous"
    assert b"\nsender:root" not in bob.octets


def test_backslashes_of_1_0_are_its_own(broker: BrokerHarness) -> None:
    old, new = broker.connect("1.0"), broker.connect("1.2")
    new.subscribe("/queue/a")
    old.say(r"SEND destination:/queue/a; x:a\cb | x")

    assert new.message()[0]["x"] == r"a\cb"


# Names of destinations


def test_d47_bare_name_is_a_queue_of_its_own(broker: BrokerHarness) -> None:
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    alice.publish("a", "bare")
    alice.publish("/queue/a", "full")
    bob.subscribe("a")
    carol.subscribe("/queue/a")

    assert (bob.bodies(), carol.bodies()) == (["bare"], ["full"])


@pytest.mark.parametrize("name", ["/queue/*", "/queue/[a]?", "/exchange/a", "/topic", "a b", "/queue/ä€"])
def test_any_other_name_is_a_queue(broker: BrokerHarness, name: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.publish(name, "x")
    bob.subscribe(name)

    headers, body = bob.message()
    assert (headers["destination"], body) == (name, "x")


@pytest.mark.parametrize("header", ["durable:true", "eager:true"])
def test_d10_durable_and_eager_mean_nothing_on_a_queue(broker: BrokerHarness, header: str) -> None:
    alice = broker.connect()
    alice.subscribe("/queue/a", header, "receipt:r")

    assert alice.received() == [("RECEIPT", {"receipt-id": "r"})]
