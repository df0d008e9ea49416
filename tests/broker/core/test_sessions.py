"""Sessions: what a client-id names, who may have it, take-over and expiry (D.18, D.19, D.35; E 35, 36)."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.profiles import MAXAM
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received

DURABLE = ("ack:client", "durable:true")


def entered(broker: BrokerHarness, client_id: str, principal: str = "alice") -> tuple[Peer, list[Received]]:
    """A peer that sent its CONNECT, and what it was told."""
    peer = broker.accept(principal=principal)
    peer.send(f"CONNECT\naccept-version:1.2\nhost:h\nclient-id:{client_id}\n\n\0")
    return peer, peer.received()


def subscribed(broker: BrokerHarness, client_id: str = "c", principal: str = "alice") -> Peer:
    """A peer with a durable subscription to last values."""
    peer = broker.connect(client_id=client_id, principal=principal)
    peer.subscribe("X/*", *DURABLE)
    return peer


def test_client_id_is_the_session(broker: BrokerHarness) -> None:
    _, (connected,) = entered(broker, "my id")

    assert connected[1]["session"] == "my id"


@pytest.mark.parametrize("header", ["", "client-id:\n"])
def test_without_one_each_session_is_its_own(broker: BrokerHarness, header: str) -> None:
    sessions = set()
    for _ in range(2):
        peer = broker.accept()
        peer.send(f"CONNECT\naccept-version:1.2\nhost:h\n{header}\n\0")
        sessions.add(peer.received()[0][1]["session"])

    assert len(sessions) == 2


def test_newcomer_of_the_same_principal_takes_over(broker: BrokerHarness) -> None:
    old, bob = subscribed(broker), broker.connect()
    bob.publish("X/a", "1")
    assert len(old.received()) == 1
    new, told = entered(broker, "c")

    ((command, headers, *_),) = old.received()
    assert (command, headers["message"]) == ("ERROR", "session taken over")
    assert old.is_closed
    assert [frame[0] for frame in told] == ["CONNECTED"]
    new.subscribe("X/*", *DURABLE)
    assert new.bodies() == ["1"]


def test_what_was_taken_over_leaves_the_newcomer_alone(broker: BrokerHarness) -> None:
    old = subscribed(broker)
    old.block()
    new, _ = entered(broker, "c")
    new.subscribe("X/*", *DURABLE)
    old.lose()
    broker.connect().publish("X/a", "1")

    assert new.bodies() == ["1"]
    assert broker.broker.durable_sessions.by_id["c"].away_since is None


def test_session_without_durable_subscriptions_is_taken_over_too(broker: BrokerHarness) -> None:
    old = broker.connect(client_id="c")
    old.subscribe("/queue/q", "ack:client")
    broker.connect().publish("/queue/q", "1")
    assert old.bodies() == ["1"]
    new = broker.connect(client_id="c")
    new.subscribe("/queue/q")

    assert new.bodies() == ["1"]


@pytest.mark.parametrize("is_connected", [True, False])
def test_stranger_is_refused_and_the_owner_untouched(broker: BrokerHarness, *, is_connected: bool) -> None:
    owner, bob = subscribed(broker), broker.connect()
    if not is_connected:
        owner.lose()
    stranger, told = entered(broker, "c", principal="mallory")
    bob.publish("X/a", "1")

    assert [frame[0] for frame in told] == ["ERROR"]
    assert stranger.is_closed
    assert not any("alice" in str(frame) for frame in told)
    if is_connected:
        assert owner.bodies() == ["1"]
    else:
        assert subscribed(broker).bodies() == ["1"]


def test_name_without_anything_behind_it_is_free_for_anybody(broker: BrokerHarness) -> None:
    broker.connect(client_id="c", principal="alice").disconnect()
    _, told = entered(broker, "c", principal="bob")

    assert [frame[0] for frame in told] == ["CONNECTED"]


def test_name_is_free_again_once_all_was_removed(broker: BrokerHarness) -> None:
    owner = subscribed(broker)
    owner.say("UNSUBSCRIBE id:s; durable:true")
    owner.disconnect()
    _, told = entered(broker, "c", principal="bob")

    assert [frame[0] for frame in told] == ["CONNECTED"]


def test_faulty_connect_takes_nothing_over(broker: BrokerHarness) -> None:
    owner = subscribed(broker)
    peer = broker.accept(principal="alice")
    peer.send("CONNECT\naccept-version:1.2\nhost:h\nheart-beat:x\nclient-id:c\n\n\0")

    assert peer.received()[0][0] == "ERROR"
    assert not owner.is_closed


def test_client_id_has_a_longest_length(broker: BrokerHarness) -> None:
    _, told = entered(broker, "c" * 257)
    assert told[0][0] == "ERROR"
    _, told = entered(broker, "c" * 256)

    assert told[0][0] == "CONNECTED"


def test_abandoned_session_expires() -> None:
    broker = BrokerHarness(Limits(session_expiry_seconds=10))
    bob = broker.connect()
    bob.publish("X/a", "1")
    subscribed(broker).lose()
    bob.publish("X/a", "")
    broker.advance(9)
    assert "c" in broker.broker.durable_sessions.by_id
    broker.advance(2)

    assert not broker.broker.durable_sessions.by_id
    assert broker.broker.values.topics == {}
    _, told = entered(broker, "c", principal="bob")
    assert [frame[0] for frame in told] == ["CONNECTED"]


def test_coming_back_begins_the_time_anew() -> None:
    broker = BrokerHarness(Limits(session_expiry_seconds=10))
    first, second = subscribed(broker, "1"), subscribed(broker, "2")
    first.lose()
    broker.advance(6)
    second.lose()
    entered(broker, "1")[0].lose()
    broker.advance(6)
    assert set(broker.broker.durable_sessions.by_id) == {"1", "2"}
    broker.advance(5)

    assert not broker.broker.durable_sessions.by_id


def test_connected_session_never_expires() -> None:
    broker = BrokerHarness(Limits(session_expiry_seconds=10))
    reader = subscribed(broker)
    reader.say("UNSUBSCRIBE id:s")
    broker.advance(30)

    assert "c" in broker.broker.durable_sessions.by_id


def test_one_session_more_than_there_may_be_is_an_error() -> None:
    broker = BrokerHarness(Limits(max_durable_sessions=1))
    first = subscribed(broker, "1")
    first.subscribe("X/b", *DURABLE, id="t")
    second = broker.connect(client_id="2")
    second.subscribe("X/*", "eager:true")
    assert second.received() == []
    second.subscribe("X/*", *DURABLE, "receipt:r", id="t")
    ((command, headers, *_),) = second.received()

    assert (command, headers["receipt-id"]) == ("ERROR", "r")
    assert first.received() == []
    assert set(broker.broker.durable_sessions.by_id) == {"1"}


def test_paused_subscriptions_count_as_subscriptions() -> None:
    broker = BrokerHarness(Limits(max_subscriptions=2))
    reader = broker.connect(client_id="c")
    for id_ in "ab":
        reader.subscribe(f"X/{id_}", *DURABLE, id=id_)
        reader.say(f"UNSUBSCRIBE id:{id_}")
    reader.subscribe("X/a", *DURABLE, id="a")
    assert reader.received() == []
    reader.subscribe("X/c", *DURABLE, id="c")

    assert [frame[0] for frame in reader.received()] == ["ERROR"]


def test_session_goes_from_one_profile_and_version_to_another(broker: BrokerHarness) -> None:
    bob = broker.connect()
    subscribed(broker).lose()
    bob.publish("X/a", "1")
    reader = broker.connect("1.1", client_id="c", principal="alice", profile=MAXAM)
    reader.subscribe("X/*", *DURABLE)

    assert reader.bodies() == ["1"]


def test_subscriptions_of_a_session_to_topics_and_values_come_back_together(broker: BrokerHarness) -> None:
    bob = broker.connect()
    reader = subscribed(broker)
    reader.subscribe("/topic/t", *DURABLE, id="t")
    reader.lose()
    bob.publish("/topic/t", "1", "2")
    bob.publish("X/a", "1", "2")
    reader = subscribed(broker)
    reader.subscribe("/topic/t", *DURABLE, id="t")

    assert reader.bodies() == ["2", "1", "2"]
