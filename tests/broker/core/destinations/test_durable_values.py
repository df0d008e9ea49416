"""Durable subscriptions to last values: what is kept while a session is away (D.3, D.12, D.32; E 50, 51)."""

from __future__ import annotations

import pytest

from nebula.broker.core.access import Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.broker.core.profiles import MAXAM, STANDARD, Profile
from tests.broker.harness import BrokerHarness, Peer

DURABLE = ("ack:client-individual", "durable:true")


def come(broker: BrokerHarness, *headers: str, pattern: str = "X/*") -> Peer:
    """The reader, with its durable subscription."""
    reader = broker.connect(client_id="reader", principal="reader")
    reader.subscribe(pattern, *DURABLE, *headers)
    return reader


def told(peer: Peer) -> list[tuple[str, str]]:
    """Destination and body of all that comes, each ACKed."""
    pairs = []
    while frames := [frame for frame in peer.received() if frame[0] == "MESSAGE"]:
        for frame in frames:
            peer.ack(frame)
            pairs.append((frame[1]["destination"], "".join(frame[2:])))
    return pairs


def told_at_once(peer: Peer) -> list[tuple[str, str]]:
    """The same in the mode auto."""
    return [(headers["destination"], "".join(body)) for _, headers, *body in peer.received()]


def test_resumed_session_is_told_the_last_of_each_key_that_changed(broker: BrokerHarness) -> None:
    bob = broker.connect()
    for key in "abc":
        bob.publish(f"X/{key}", "old")
    come(broker).lose()
    bob.publish("X/a", "1", "2", "3")
    bob.publish("X/b", "")

    assert told(come(broker)) == [("X/a", "3"), ("X/b", "")]


def test_session_that_the_broker_named_can_be_resumed(broker: BrokerHarness) -> None:
    reader, bob = broker.accept("r"), broker.connect()
    reader.send("CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    session = reader.received()[0][1]["session"]
    reader.subscribe("X/*", *DURABLE)
    reader.lose()
    bob.publish("X/a", "1")
    reader = broker.connect(client_id=session)
    reader.subscribe("X/*", *DURABLE)

    assert told(reader) == [("X/a", "1")]


def test_other_id_is_another_subscription(broker: BrokerHarness) -> None:
    bob = broker.connect()
    come(broker).lose()
    bob.publish("X/a", "1")
    reader = broker.connect(client_id="reader", principal="reader")
    reader.subscribe("X/*", *DURABLE, id="other")

    assert told(reader) == []


def test_what_was_in_flight_is_told_again_and_first(broker: BrokerHarness) -> None:
    bob, reader = broker.connect(), come(broker)
    bob.publish("X/a", "1")
    assert len(reader.received()) == 1
    reader.lose()
    bob.publish("X/b", "1")

    assert told(come(broker)) == [("X/a", "1"), ("X/b", "1")]


def test_what_was_acked_is_not_told_again(broker: BrokerHarness) -> None:
    bob, reader = broker.connect(), come(broker)
    bob.publish("X/a", "1")
    assert told(reader) == [("X/a", "1")]
    reader.lose()

    assert told(come(broker)) == []


def test_transient_subscription_forgets(broker: BrokerHarness) -> None:
    bob, reader = broker.connect(), broker.connect(client_id="reader")
    reader.subscribe("X/*", "ack:client")
    bob.publish("X/a", "1")
    reader.lose()
    reader = broker.connect(client_id="reader")
    reader.subscribe("X/*", "ack:client")

    assert reader.received() == []
    assert not broker.broker.durable_sessions.by_id


@pytest.mark.parametrize(
    ("profile", "header", "result"),
    [
        (STANDARD, "", "paused"),
        (STANDARD, "; durable:false", "paused"),
        (STANDARD, "; durable:", "paused"),
        (STANDARD, "; durable:true", "removed"),
        (MAXAM, "", "paused"),
        (MAXAM, "; durable:true", "removed"),
    ],
)
def test_unsubscribing_pauses_unless_it_says_durable(
    broker: BrokerHarness, profile: Profile, header: str, result: str
) -> None:
    bob = broker.connect()
    reader = broker.connect(client_id="r", profile=profile)
    reader.subscribe("X/*", *DURABLE)
    reader.say(f"UNSUBSCRIBE id:s; receipt:u{header}")
    assert reader.received() == [("RECEIPT", {"receipt-id": "u", "result": result})]
    bob.publish("X/a", "1")
    assert reader.received() == []
    reader.subscribe("X/*", *DURABLE)

    assert told(reader) == ([("X/a", "1")] if result == "paused" else [])


def test_paused_subscription_can_be_removed_later(broker: BrokerHarness) -> None:
    reader = come(broker)
    reader.say("UNSUBSCRIBE id:s", "UNSUBSCRIBE id:s; receipt:1", "UNSUBSCRIBE id:s; durable:true; receipt:2")
    results = [frame[1]["result"] for frame in reader.received()]

    assert results == ["ignored", "removed"]
    assert not broker.broker.durable_sessions.by_id


def test_ack_after_the_pause_is_ignored_and_the_message_told_again(broker: BrokerHarness) -> None:
    bob, reader = broker.connect(), come(broker)
    bob.publish("X/a", "1")
    (frame,) = reader.received()
    reader.say("UNSUBSCRIBE id:s")
    reader.ack(frame, "receipt:r")
    assert reader.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]
    reader.subscribe("X/*", *DURABLE)

    assert told(reader) == [("X/a", "1")]


def test_same_id_with_another_destination_replaces(broker: BrokerHarness) -> None:
    bob = broker.connect()
    come(broker).lose()
    bob.publish("X/a", "1")
    reader = come(broker, pattern="X/b")
    bob.publish("X/a", "2")
    bob.publish("X/b", "2")

    assert told(reader) == [("X/b", "2")]
    reader.lose()
    bob.publish("X/a", "3")
    assert told(come(broker)) == []


def test_same_id_and_destination_go_on_also_if_durable_is_not_said(broker: BrokerHarness) -> None:
    bob = broker.connect()
    come(broker).lose()
    bob.publish("X/a", "1")
    reader = broker.connect(client_id="reader", principal="reader")
    reader.subscribe("X/*")
    assert told_at_once(reader) == [("X/a", "1")]
    reader.lose()
    bob.publish("X/a", "2")

    assert told(come(broker)) == [("X/a", "2")]


def test_same_id_while_it_is_active_is_an_error(broker: BrokerHarness) -> None:
    reader = come(broker)
    reader.subscribe("X/*", *DURABLE)

    assert [frame[0] for frame in reader.received()] == ["ERROR"]
    assert told(come(broker)) == []


def test_eager_resume_tells_each_key_once(broker: BrokerHarness) -> None:
    bob = broker.connect()
    bob.publish("X/a", "1")
    bob.publish("X/b", "1")
    come(broker).lose()
    bob.publish("X/b", "2")

    assert told(come(broker, "eager:true")) == [("X/b", "2"), ("X/a", "1")]


def test_deletion_is_kept_until_it_was_told(broker: BrokerHarness) -> None:
    bob = broker.connect()
    bob.publish("X/a", "1")
    come(broker).lose()
    bob.publish("X/a", "")
    assert not broker.broker.values.topics["X/a"].is_live
    reader = come(broker)
    assert told(reader) == [("X/a", "")]

    assert broker.broker.values.topics == {}


def test_away_session_costs_keys_and_not_values(broker: BrokerHarness) -> None:
    bob = broker.connect()
    come(broker).lose()
    bob.publish("X/a", "1")
    before = broker.broker.account.stored_bytes
    bob.publish("X/a", *"123456789")

    assert broker.broker.account.stored_bytes <= before
    assert len(broker.broker.values.topics) == 1


def test_removed_subscription_lets_go_of_deletions(broker: BrokerHarness) -> None:
    bob = broker.connect()
    bob.publish("X/a", "1")
    come(broker).lose()
    bob.publish("X/a", "")
    reader = broker.connect(client_id="reader", principal="reader")
    reader.say("UNSUBSCRIBE id:s; durable:true; receipt:r")

    assert reader.received()[0][1]["result"] == "removed"
    assert broker.broker.values.topics == {}
    assert broker.broker.account.stored_bytes == 0


def test_window_holds_when_a_session_resumes() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=2))
    bob = broker.connect()
    come(broker).lose()
    for key in "abc":
        bob.publish(f"X/{key}", "1")
    reader = come(broker)

    assert len(reader.received()) == 2


def granting(*patterns: str) -> Grants:
    capabilities = {"publish": Capability(publish=("X/**",))}
    capabilities |= {"read": Capability(subscribe=patterns)} if patterns else {}
    return Grants(capabilities, {"anonymous": ("publish",), "reader": ("read",) if patterns else ()})


def test_right_that_was_withdrawn_meanwhile_shows_nothing_on_resume() -> None:
    broker = BrokerHarness(grants=granting("X/*"))
    bob = broker.connect()
    come(broker).lose()
    bob.publish("X/a", "1")
    bob.publish("X/b", "1")
    broker.broker.review(granting("X/b"), broker.now)

    assert told(come(broker)) == [("X/b", "1")]


def test_what_was_published_while_it_was_not_permitted_is_never_told() -> None:
    broker = BrokerHarness(grants=granting("X/b"))
    bob = broker.connect()
    come(broker).lose()
    bob.publish("X/a", "1")
    broker.broker.review(granting("X/*"), broker.now)
    reader = come(broker)

    assert told(reader) == []
    bob.publish("X/a", "2")
    assert told(reader) == [("X/a", "2")]


def test_name_that_may_not_be_subscribed_any_more_is_ignored_on_resume() -> None:
    broker = BrokerHarness(grants=granting("X/*"))
    bob = broker.connect()
    come(broker, pattern="X/a").lose()
    bob.publish("X/a", "1")
    broker.broker.review(granting("X/b"), broker.now)
    reader = come(broker, "receipt:r", pattern="X/a")

    assert reader.received() == [("RECEIPT", {"receipt-id": "r", "result": "ignored"})]
