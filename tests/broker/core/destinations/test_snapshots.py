"""Eager snapshots and where they end, while keys come and go (G.snapshot; D.34, D.43; E 48)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.broker.core.access import Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.broker.core.profiles import MAXAM
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.script import Received

EAGER = ("ack:client-individual", "eager:true", "snapshot:true")
KEYS = [f"X/{number}" for number in range(4)]


def narrow() -> BrokerHarness:
    """A broker that has one value in flight for each connection."""
    return BrokerHarness(Limits(max_unacked_values=1))


def step(peer: Peer) -> tuple[str, str, bool] | None:
    """Destination, body and whether the snapshot ends, of the next MESSAGE, which is ACKed; or None."""
    frames = peer.received()
    if not frames:
        return None
    ((command, headers, *body),) = frames
    assert command == "MESSAGE"
    peer.ack(frames[0])
    return headers["destination"], "".join(body), headers.get("snapshot") == "end"


def told(peer: Peer) -> list[tuple[str, str, bool]]:
    """All steps until nothing comes any more."""
    return list(iter(lambda: step(peer), None))


def fill(broker: BrokerHarness, keys: list[str]) -> Peer:
    publisher = broker.connect()
    for key in keys:
        publisher.publish(key, "old")
    return publisher


def test_eager_subscriber_gets_each_live_value_once_and_its_end() -> None:
    broker = narrow()
    fill(broker, ["X/a", "X/b", "X/c"]).publish("X/c", "")
    alice = broker.connect()
    alice.subscribe("X/*", *EAGER)

    assert told(alice) == [("X/a", "old", False), ("X/b", "old", True)]


def test_without_eager_nothing_is_told_and_no_end() -> None:
    broker = narrow()
    fill(broker, ["X/a"])
    alice = broker.connect()
    alice.subscribe("X/*", "ack:client", "snapshot:true")

    assert told(alice) == []


@pytest.mark.parametrize("asked", [(), ("snapshot:false",), ("snapshot:",)])
def test_end_is_told_only_to_who_asks_for_it(asked: tuple[str, ...]) -> None:
    broker = narrow()
    fill(broker, ["X/a"])
    alice = broker.connect()
    alice.subscribe("X/*", "ack:client", "eager:true", *asked)

    assert told(alice) == [("X/a", "old", False)]


def test_snapshot_of_another_value_is_refused(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe("X/*", "eager:true", "snapshot:yes", "receipt:r")

    assert [frame[0] for frame in alice.received()] == ["ERROR"]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_empty_snapshot_ends_with_an_empty_message(broker: BrokerHarness, ack: str) -> None:
    alice = broker.connect()
    alice.subscribe("X/*", f"ack:{ack}", "eager:true", "snapshot:true")
    ((command, headers, *body),) = alice.received()

    assert (command, body) == ("MESSAGE", [])
    assert headers.pop("message-id")
    assert headers.pop("ack", None) if ack != "auto" else "ack" not in headers
    assert headers == {"subscription": "s", "destination": "X/*", "snapshot": "end"}


def test_end_marker_counts_in_the_window_and_is_acked_like_any() -> None:
    broker = narrow()
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", *EAGER)
    bob.publish("X/a", "1")
    (marker,) = alice.received()
    assert alice.received() == []
    alice.ack(marker, "receipt:r")

    assert [frame[0] for frame in alice.received()] == ["MESSAGE", "RECEIPT"]


def test_end_marker_stands_outside_the_rule_of_one_in_flight(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/a", *EAGER)
    bob.publish("X/a", "1")
    marker, value = alice.received()

    assert (marker[1]["destination"], marker[2:]) == ("X/a", ())
    assert (value[1]["destination"], value[2:]) == ("X/a", ("1",))


def test_unsubscribing_with_the_marker_in_flight_gives_its_place_back() -> None:
    broker = narrow()
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", *EAGER)
    alice.subscribe("X/*", "ack:client", id="t")
    bob.publish("X/a", "1")
    assert len(alice.received()) == 1
    alice.say("UNSUBSCRIBE id:s")

    assert step(alice) == ("X/a", "1", False)


def test_value_that_changes_before_its_turn_is_sent_once_as_it_is_then() -> None:
    broker = narrow()
    bob = fill(broker, ["X/a", "X/b"])
    alice = broker.connect()
    alice.subscribe("X/*", *EAGER)
    bob.publish("X/b", "new")

    assert told(alice) == [("X/a", "old", False), ("X/b", "new", True)]


def test_later_key_is_no_part_of_the_snapshot() -> None:
    broker = narrow()
    bob = fill(broker, ["X/a", "X/b"])
    alice = broker.connect()
    alice.subscribe("X/*", *EAGER)
    bob.publish("X/c", "new")

    assert told(alice) == [("X/a", "old", False), ("X/b", "old", True), ("X/c", "new", False)]


def test_key_that_was_deleted_and_came_again_is_a_later_one() -> None:
    broker = narrow()
    bob = fill(broker, ["X/a", "X/b", "X/c"])
    alice = broker.connect()
    alice.subscribe("X/*", *EAGER)
    bob.publish("X/b", "", "again")

    assert told(alice) == [("X/a", "old", False), ("X/b", "again", False), ("X/c", "old", True)]


def test_last_keys_that_are_struck_off_silently_leave_a_marker_behind() -> None:
    broker = narrow()
    bob = fill(broker, ["X/a", "X/b"])
    alice = broker.connect()
    alice.subscribe("X/*", *EAGER)
    bob.publish("X/b", "")

    assert told(alice) == [("X/a", "old", False), ("X/b", "", False), ("X/*", "", True)]


def grants(*keys: str) -> Grants:
    return Grants(
        {"all": Capability(publish=("X/**",)), "some": Capability(subscribe=keys)},
        {"anonymous": ("all",), "alice": ("some",)},
    )


def test_snapshot_holds_what_is_permitted_only() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1), grants=grants("X/b"))
    fill(broker, ["X/a", "X/b", "X/c"])
    alice = broker.connect(principal="alice")
    alice.subscribe("X/*", *EAGER)

    assert told(alice) == [("X/b", "old", True)]


def test_key_that_is_permitted_no_more_is_struck_off_at_once() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1), grants=grants("X/*"))
    fill(broker, ["X/a", "X/b"])
    alice = broker.connect(principal="alice")
    alice.subscribe("X/*", *EAGER)
    broker.broker.review(grants("X/a"), broker.now)
    broker.broker.review(grants("X/*"), broker.now)
    broker.settle()

    assert told(alice) == [("X/a", "old", False), ("X/b", "old", False), ("X/*", "", True)]


def test_key_that_is_deleted_while_it_may_not_be_seen_does_not_keep_the_end_away() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1), grants=grants("X/*"))
    bob = fill(broker, ["X/a", "X/b"])
    alice = broker.connect(principal="alice")
    alice.subscribe("X/*", *EAGER)
    broker.broker.review(grants("X/a"), broker.now)
    broker.settle()
    bob.publish("X/b", "")

    assert told(alice) == [("X/a", "old", False), ("X/*", "", True)]


def test_maxam_tells_the_end_to_who_asks() -> None:
    broker = narrow()
    fill(broker, ["X/a"])
    alice = broker.connect(profile=MAXAM)
    alice.subscribe("X/*", *EAGER)

    assert told(alice) == [("X/a", "old", True)]


def test_subscription_by_name_has_a_snapshot_of_one() -> None:
    broker = narrow()
    fill(broker, ["X/a", "X/b"])
    alice = broker.connect()
    alice.subscribe("X/a", *EAGER)

    assert told(alice) == [("X/a", "old", True)]


def test_durable_dirty_keys_are_told_once_and_count_only_if_they_live() -> None:
    broker = narrow()
    bob = fill(broker, ["X/a", "X/b", "X/c"])
    alice = broker.connect(client_id="alice")
    alice.subscribe("X/*", "ack:client-individual", "durable:true")
    alice.lose()
    bob.publish("X/b", "new")
    bob.publish("X/c", "")
    alice = broker.connect(client_id="alice")
    alice.subscribe("X/*", *EAGER, "durable:true")

    assert told(alice) == [("X/b", "new", False), ("X/c", "", False), ("X/a", "old", True)]


@pytest.mark.parametrize("durable", ["durable:true", "durable:false"])
def test_receipt_comes_before_the_snapshot_also_where_it_waits_for_the_store(durable: str) -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    fill(broker, ["X/a"])
    alice = broker.connect(client_id="alice")
    alice.say("SEND destination:X/z; receipt:1 | v")
    alice.subscribe("X/*", *EAGER, durable, "receipt:2")
    assert alice.received() == []
    broker.commit()

    assert [frame[1].get("receipt-id", frame[1].get("destination")) for frame in alice.received()] == [
        "1",
        "2",
        "X/a",
        "X/z",
    ]


def test_nothing_comes_before_the_receipt_that_waits_for_the_store() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice, bob = broker.connect(client_id="alice"), broker.connect()
    alice.subscribe("X/*", "durable:true", "receipt:r")
    bob.publish("X/a", "1")
    assert alice.received() == []
    broker.commit()

    assert [frame[0] for frame in alice.received()] == ["RECEIPT", "MESSAGE"]


def test_subscription_that_was_paused_before_its_receipt_can_be_resumed() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice, bob = broker.connect(client_id="alice"), broker.connect()
    alice.subscribe("X/*", "durable:true", "receipt:r")
    alice.say("UNSUBSCRIBE id:s")
    broker.commit()
    assert [frame[0] for frame in alice.received()] == ["RECEIPT"]
    alice.subscribe("X/*", "durable:true")
    bob.publish("X/a", "1")

    assert told(alice) == [("X/a", "1", False)]


def test_subscription_that_ends_before_its_receipt_is_told_nothing() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    fill(broker, ["X/a"])
    alice = broker.connect(client_id="alice")
    alice.subscribe("X/*", *EAGER, "durable:true", "receipt:1")
    alice.say("UNSUBSCRIBE id:s; receipt:2")
    alice.subscribe("X/*", *EAGER, "durable:true", "receipt:3")
    broker.commit()

    assert [frame[1].get("receipt-id") or "value" for frame in alice.received()] == ["1", "2", "3", "value"]


@given(
    st.lists(st.one_of(st.none(), st.tuples(st.sampled_from([*KEYS, "X/new"]), st.booleans())), max_size=20)
)
def test_end_comes_exactly_once_whatever_comes_and_goes_meanwhile(
    steps: list[tuple[str, bool] | None],
) -> None:
    """Before each ACK some keys are deleted and some are added."""
    broker = narrow()
    bob = fill(broker, KEYS)
    alice = broker.connect()
    alice.subscribe("X/*", *EAGER)
    left, ends, in_flight = set(KEYS), list[bool](), list[Received]()
    for each in [None, *steps, *[None] * (2 * len(KEYS) + 3)]:
        if each is None:
            for frame in in_flight:
                alice.ack(frame)
        else:
            key, is_deleted = each
            left -= {key} if is_deleted else set()
            bob.publish(key, "" if is_deleted else "new")
        frames = alice.received()
        for _, headers, *body in frames:
            destination, is_end = headers["destination"], headers.get("snapshot") == "end"
            was_in = destination in left
            left.discard(destination)
            assert is_end == (destination == "X/*" or (bool(body) and was_in and not left))
            assert not (is_end and left)
            ends.append(is_end)
        in_flight = frames if each is None else in_flight + frames

    assert ends.count(True) == 1
