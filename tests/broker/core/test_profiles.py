"""The two profiles, difference by difference: each field of the table but the one that is TLS's.

Rules: B.1, B.4.
"""

from __future__ import annotations

import dataclasses

import pytest

from nebula.broker.core.profiles import MAXAM, PROFILES, STANDARD, Profile
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received

BOTH = pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES.keys())


def connect(broker: BrokerHarness, profile: Profile, version: str = "1.2") -> Peer:
    return broker.connect(version, profile=profile, heart_beat="10000,10000")


def answer(broker: BrokerHarness, profile: Profile, line: str) -> Received:
    """What a CONNECT is answered with."""
    peer = broker.accept(profile=profile)
    peer.say(line)
    (frame,) = peer.received()
    return frame


def test_names_are_those_of_the_settings() -> None:
    assert PROFILES == {"standard": STANDARD, "maxam": MAXAM}


def test_profiles_differ_in_every_field_of_the_table_but_the_switch_of_d3() -> None:
    same = {
        field.name
        for field in dataclasses.fields(Profile)
        if getattr(STANDARD, field.name) == getattr(MAXAM, field.name)
    }

    assert same == {"false_removes"}


@pytest.mark.parametrize(
    ("profile", "offered", "spoken"),
    [
        (STANDARD, None, "1.0"),
        (STANDARD, "1.0", "1.0"),
        (STANDARD, "1.0,1.1,1.2", "1.2"),
        (MAXAM, None, None),
        (MAXAM, "1.0", None),
        (MAXAM, "1.0,1.1", "1.1"),
        (MAXAM, "1.2", "1.2"),
    ],
)
def test_versions(broker: BrokerHarness, profile: Profile, offered: str | None, spoken: str | None) -> None:
    accept = "" if offered is None else f"; accept-version:{offered}"
    command, headers, *body = answer(broker, profile, f"CONNECT host:MAXVAPI; heart-beat:10000,10000{accept}")

    if spoken is None:
        assert (command, headers["version"]) == ("ERROR", "1.1,1.2")
        assert body == ["Supported protocol versions are 1.1 1.2"]
    else:
        assert (command, headers.get("version", "1.0")) == ("CONNECTED", spoken)


@pytest.mark.parametrize(
    ("profile", "sent", "got"),
    [
        (STANDARD, None, "1000,1000"),
        (STANDARD, "99999,99999", "1000,1000"),
        (MAXAM, None, None),
        (MAXAM, "10001,0", None),
        (MAXAM, "0,10001", None),
        (MAXAM, "10000,10000", "10000,10000"),
        (MAXAM, "0,0", "10000,10000"),
    ],
)
def test_heart_beats(broker: BrokerHarness, profile: Profile, sent: str | None, got: str | None) -> None:
    header = "" if sent is None else f"; heart-beat:{sent}"
    command, headers, *_ = answer(broker, profile, f"CONNECT accept-version:1.2; host:MAXVAPI{header}")

    assert command == ("ERROR" if got is None else "CONNECTED")
    assert headers.get("heart-beat") == got


@pytest.mark.parametrize("host", ["", "; host:", "; host:other", "; host:maxvapi", "; host:MAXVAPI"])
@BOTH
def test_host(broker: BrokerHarness, profile: Profile, host: str) -> None:
    command, *_ = answer(broker, profile, f"CONNECT accept-version:1.2; heart-beat:0,0{host}")

    is_welcome = profile is STANDARD or host == "; host:MAXVAPI"
    assert command == ("CONNECTED" if is_welcome else "ERROR")


@BOTH
def test_connected_says_what_we_are_in_standard_only(broker: BrokerHarness, profile: Profile) -> None:
    _, headers, *_ = answer(broker, profile, "CONNECT accept-version:1.2; host:MAXVAPI; heart-beat:0,0")

    assert headers.get("server") == ("nebula/test" if profile is STANDARD else None)
    assert headers["session"]


@BOTH
def test_transactions_are_of_standard_only(broker: BrokerHarness, profile: Profile) -> None:
    peer = connect(broker, profile)
    peer.say("BEGIN transaction:t; receipt:r")

    ((command, headers, *_),) = peer.received()
    assert command == ("RECEIPT" if profile is STANDARD else "ERROR")
    assert headers["receipt-id"] == "r"


@pytest.mark.parametrize(
    ("profile", "ack", "released"),
    [
        (STANDARD, "client", ["1", "2"]),
        (STANDARD, "client-individual", ["2"]),
        (MAXAM, "client", ["2"]),
        (MAXAM, "client-individual", ["2"]),
    ],
)
def test_ack_of_a_last_value(broker: BrokerHarness, profile: Profile, ack: str, released: list[str]) -> None:
    alice, bob = broker.connect(), connect(broker, profile)
    bob.subscribe("X/*", f"ack:{ack}")
    for key in "123":
        alice.publish(f"X/{key}", "old")
    _, two, _ = bob.received()
    bob.ack(two)
    for key in "123":
        alice.publish(f"X/{key}", "new")

    assert [frame[1]["destination"] for frame in bob.received()] == [f"X/{key}" for key in released]


@pytest.mark.parametrize("destination", ["/queue/a", "/topic/t"])
@BOTH
def test_ack_is_cumulative_on_what_is_no_last_value(
    broker: BrokerHarness, profile: Profile, destination: str
) -> None:
    bob = connect(broker, profile)
    bob.subscribe(destination, "ack:client", "prefetch-count:2")
    broker.connect().publish(destination, "1", "2", "3", "4")
    _, two = bob.received()
    bob.ack(two)

    assert bob.bodies() == ["3", "4"]


@BOTH
def test_nack_on_a_queue_requeues_and_on_a_last_value_is_ignored(
    broker: BrokerHarness, profile: Profile
) -> None:
    alice, bob = broker.connect(), connect(broker, profile)
    bob.subscribe("/queue/a", "ack:client", id="q")
    bob.subscribe("X/a", "ack:client", id="x")
    alice.publish("/queue/a", "message")
    alice.publish("X/a", "value")
    message, value = bob.received()
    bob.nack(message)
    bob.nack(value, "receipt:n")
    alice.publish("X/a", "it is still in flight")

    again, ignored = bob.received()
    assert again[2:] == ("message",)
    assert ignored == ("RECEIPT", {"receipt-id": "n", "result": "ignored"})


@BOTH
def test_subscribe_that_is_not_permitted_is_ignored_silently_in_maxam(
    broker: BrokerHarness, profile: Profile
) -> None:
    peer = connect(broker, profile)
    peer.subscribe("/queue/nebula.secret", "receipt:r")

    ignored: Received = ("RECEIPT", {"receipt-id": "r", "result": "ignored"})
    assert peer.received() == ([ignored] if profile is STANDARD else [])
    assert not peer.is_closed
    assert broker.destinations == {}


@pytest.mark.parametrize(
    ("destination", "verdict"),
    [
        ("/topic/t", "accepted"),
        ("/queue/nebula.secret", "rejected-unauthorised"),
        ("X/*", "rejected-invalid"),
    ],
)
@BOTH
def test_verdict_on_a_send_is_told_in_both_and_twice_in_maxam(
    broker: BrokerHarness, profile: Profile, destination: str, verdict: str
) -> None:
    peer = connect(broker, profile)
    peer.say(f"SEND destination:{destination}; receipt:r | x")

    ((command, headers, *_),) = peer.received()
    assert (command, headers["disposition"]) == ("RECEIPT", verdict)
    assert headers.get("content-disposition") == (verdict if profile is MAXAM else None)


@pytest.mark.parametrize(
    ("destination", "has_sender"), [("/queue/a", True), ("/topic/t", False), ("X/a", False)]
)
@BOTH
def test_what_nobody_asked_for_is_added_in_standard_only(
    broker: BrokerHarness, profile: Profile, destination: str, has_sender: bool
) -> None:
    alice = connect(broker, profile)
    alice.subscribe(destination)
    alice.say(f"SEND destination:{destination}; sender:forged; receipt:r | x")
    frames = {frame[0]: frame[1] for frame in alice.received()}

    is_standard = profile is STANDARD
    assert frames["MESSAGE"].get("sender") == ("anonymous" if is_standard or has_sender else None)
    assert frames["RECEIPT"].get("durable") == ("false" if is_standard else None)
    assert ("consumers" in frames["RECEIPT"]) == (destination == "/queue/a")


def test_message_is_written_for_the_profile_of_its_reader(broker: BrokerHarness) -> None:
    peers = [connect(broker, profile) for profile in (MAXAM, STANDARD, MAXAM, STANDARD)]
    for peer in peers:
        peer.subscribe("/topic/t")
    broker.connect().publish("/topic/t", "x")

    assert ["sender" in peer.message()[0] for peer in peers] == [False, True, False, True]


@pytest.mark.parametrize("name", ["a", "queue/a", "/temp/a", "x/a"])
@BOTH
def test_bare_name_is_a_queue_in_standard_and_invalid_in_maxam(
    broker: BrokerHarness, profile: Profile, name: str
) -> None:
    peer = connect(broker, profile)
    peer.say(f"SEND destination:{name}; receipt:r | x")

    ((_, headers, *_),) = peer.received()
    assert headers["disposition"] == ("accepted" if profile is STANDARD else "rejected-invalid")
    assert list(broker.destinations) == ([name] if profile is STANDARD else [])


@pytest.mark.parametrize("length", ["", "; content-length:0"])
@BOTH
def test_empty_send_without_a_length_deletes_in_standard_only(
    broker: BrokerHarness, profile: Profile, length: str
) -> None:
    peer = connect(broker, profile)
    peer.say("SEND destination:X/a | value", f"SEND destination:X/a; receipt:r{length}")

    deletes = profile is STANDARD or bool(length)
    ((_, headers, *_),) = peer.received()
    assert headers["disposition"] == ("accepted" if deletes else "rejected-invalid")
    assert ("X/a" in broker.broker.values.topics) == (not deletes)


@pytest.mark.parametrize(
    ("header", "by_text", "by_table"),
    [
        ("", "paused", "paused"),
        ("; durable:", "paused", "removed"),
        ("; durable:false", "paused", "removed"),
        ("; durable:true", "removed", "paused"),
    ],
)
@pytest.mark.parametrize("false_removes", [False, True])
@BOTH
def test_what_removes_a_durable_subscription_is_a_switch(
    broker: BrokerHarness, profile: Profile, header: str, by_text: str, by_table: str, false_removes: bool
) -> None:
    peer = connect(broker, dataclasses.replace(profile, false_removes=false_removes))
    peer.subscribe("/topic/t", "durable:true")
    peer.say(f"UNSUBSCRIBE id:s; receipt:u{header}")

    ((_, headers, *_),) = peer.received()
    assert headers["result"] == (by_table if false_removes else by_text)
