"""Last values: the present one of each key, once, to who is ready for it (B.5, B.6; E 45 to 49)."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Content
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.core.profiles import MAXAM
from nebula.broker.core.value_feed import ENTRY_COST_BYTES
from tests.broker.harness import BrokerHarness, Peer


def messages(peer: Peer) -> list[tuple[str, str]]:
    """Destination and body of each MESSAGE since the last call."""
    return [(headers["destination"], "".join(body)) for _, headers, *body in peer.received()]


def letter_left_out(destination: str) -> str:
    """`X/EGM.<P>.<GMID>.<Type>` without its second part, as a venue configures it (D.30)."""
    entity, _, rest = destination.partition(".")
    return f"{entity}.{rest.partition('.')[2]}"


def test_reader_that_acknowledges_late_gets_the_last_value_only(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/k", "ack:client")
    bob.publish("X/k", "v1", "v2", "v3")
    (first,) = alice.received()
    alice.ack(first)
    (last,) = alice.received()
    alice.ack(last)

    assert [first[2:], last[2:]] == [("v1",), ("v3",)]
    assert alice.received() == []


def test_key_that_waits_for_its_ack_holds_up_no_other(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", "ack:client")
    bob.publish("X/a", "a1", "a2")
    bob.publish("X/b", "b1")

    assert messages(alice) == [("X/a", "a1"), ("X/b", "b1")]


def test_keys_never_sent_go_before_one_that_an_ack_releases() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1))
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", "ack:client-individual")
    bob.publish("X/1", "old")
    for key in "23":
        bob.publish(f"X/{key}", "new")
    bob.publish("X/1", "new")
    order = []
    while frames := alice.received():
        order += [headers["destination"] for _, headers, *_ in frames]
        alice.ack(frames[0])

    assert order == ["X/1", "X/2", "X/3", "X/1"]


def test_key_that_an_ack_releases_is_not_overtaken_by_later_changes() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1))
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", "ack:client-individual")
    bob.publish("X/1", "old")
    bob.publish("X/2", "x")
    bob.publish("X/1", "new")
    order = []
    for later in range(3, 9):
        (frame,) = alice.received()
        order.append(frame[1]["destination"])
        alice.ack(frame)
        # Never sent before: as a class of their own they would keep X/1 waiting for ever.
        bob.publish(f"X/{later}", "x")

    assert order[:4] == ["X/1", "X/2", "X/1", "X/3"]


def test_notification_keeps_its_place_when_the_key_changes_again() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1))
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", "ack:client-individual")
    bob.publish("X/0", "x")
    bob.publish("X/1", "old")
    bob.publish("X/2", "x")
    bob.publish("X/1", "new")
    alice.ack(alice.received()[0])

    assert messages(alice) == [("X/1", "new")]


def test_window_is_of_the_whole_connection_and_stops_auto_too() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=2))
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/a.*", "ack:client", id="a")
    alice.subscribe("X/b.*", "ack:auto", id="b")
    for key in ("X/a.1", "X/a.2", "X/b.1"):
        bob.publish(key, "v")
    frames = alice.received()
    alice.ack(frames[0])

    assert [headers["destination"] for _, headers, *_ in frames] == ["X/a.1", "X/a.2"]
    assert messages(alice) == [("X/b.1", "v")]


def test_window_of_one_connection_is_not_anothers() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1))
    alice, bob = broker.connect(), broker.connect()
    for reader in (alice, bob):
        reader.subscribe("X/*", "ack:client")
    alice.publish("X/a", "1")
    assert len(alice.received()) == len(bob.received()) == 1
    carol = broker.connect()
    carol.subscribe("X/*", "ack:client")
    alice.publish("X/b", "2")

    assert messages(carol) == [("X/b", "2")]


def test_subscriptions_of_one_connection_are_told_in_turn() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1))
    alice, bob = broker.connect(), broker.connect()
    for id_ in ("s", "t"):
        alice.subscribe(f"X/{id_}.*", "ack:client-individual", id=id_)
    for key in ("X/s.0", "X/s.1", "X/s.2", "X/t.1"):
        bob.publish(key, "v")
    order = []
    while frames := alice.received():
        order += [headers["destination"] for _, headers, *_ in frames]
        alice.ack(frames[0])

    assert order == ["X/s.0", "X/s.1", "X/t.1", "X/s.2"]


def test_blocked_reader_is_told_the_present_value_when_it_reads_again() -> None:
    broker = BrokerHarness()
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*")
    alice.block()
    bob.publish("X/a", "1", "2", "3")
    alice.unblock()

    assert alice.bodies() == ["3"]


def test_slow_reader_costs_keys_and_not_values() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1))
    alice, bob = broker.connect(), broker.connect()
    for name in ("X/a", "X/b"):
        bob.publish(name, "v" * 1000)
    before_bytes = broker.broker.account.stored_bytes
    alice.subscribe("X/*", "ack:client")
    subscribed_bytes = broker.broker.account.stored_bytes - before_bytes
    for name in ("X/a", *["X/b"] * 20):
        bob.publish(name, "w" * 1000)

    assert broker.broker.account.stored_bytes <= before_bytes + subscribed_bytes + 2 * ENTRY_COST_BYTES


def test_octets_that_many_readers_share_are_kept_for_the_present_value_only(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    for id_ in ("s", "t"):
        alice.subscribe("X/*", "ack:client", id=id_)
    bob.publish("X/a", "1", "2", "3")
    values = broker.broker.values
    assert len(values._shared) == 1
    assert values.topics["X/a"].value.shared is not None
    broker.advance(1)

    assert not values._shared
    assert values.topics["X/a"].value.shared is None


def test_empty_body_deletes_the_value(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", "ack:client-individual")
    bob.publish("X/a", "v")
    alice.ack(alice.received()[0])
    bob.send("SEND\ndestination:X/a\ncontent-length:0\nkind:gone\n\n\0")
    (deletion,) = alice.received()
    alice.ack(deletion)

    assert deletion[2:] == ()
    assert deletion[1]["kind"] == "gone"
    assert b"content-length:0\n" in alice.last_write
    assert broker.destinations == {}


def test_deletion_that_a_new_value_overtakes_is_not_told(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", "ack:client-individual")
    bob.publish("X/a", "1", "", "2")
    alice.ack(alice.received()[0])

    assert messages(alice) == [("X/a", "2")]


def test_deletion_of_nothing_is_told_and_forgotten(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*")
    bob.say("SEND destination:X/a; receipt:r")

    assert messages(alice) == [("X/a", "")]
    assert bob.received()[0][1]["disposition"] == "accepted"
    assert broker.broker.values.topics == {}


def test_deletions_of_nothing_are_bounded_while_somebody_slow_has_to_be_told() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1, max_destinations=3))
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*", "ack:client")
    for key in range(5):
        bob.say(f"SEND destination:X/{key}; receipt:{key}")
    verdicts = [frame[1]["disposition"] for frame in bob.received()]

    assert verdicts == ["accepted"] * 3 + ["rejected-full"] * 2
    assert len(broker.broker.values.topics) == 3


def test_value_can_be_deleted_where_there_is_no_room_for_another() -> None:
    broker = BrokerHarness(Limits(max_destinations=1))
    alice = broker.connect()
    alice.publish("X/a", "v")
    alice.say("SEND destination:X/b; receipt:1 | v", "SEND destination:X/a; receipt:2")
    alice.say("SEND destination:X/b; receipt:3 | v")

    verdicts = [frame[1]["disposition"] for frame in alice.received()]
    assert verdicts == ["rejected-full", "accepted", "accepted"]


def test_value_that_there_is_no_room_for_leaves_the_former_one() -> None:
    broker = BrokerHarness(Limits(max_memory_bytes=10_000, max_queue_bytes=10_000, max_body_bytes=10_000))
    alice = broker.connect()
    alice.publish("X/a", "v")
    alice.say(f"SEND destination:X/a; receipt:r | {'w' * 9999}")
    assert alice.received()[0][1]["disposition"] == "rejected-full"
    alice.subscribe("X/a", "eager:true")

    assert alice.bodies() == ["v"]


def test_headers_that_are_passed_on_count_for_the_room_of_a_value() -> None:
    broker = BrokerHarness(Limits(max_memory_bytes=10_000, max_queue_bytes=10_000, max_body_bytes=10_000))
    alice = broker.connect()
    alice.say(f"SEND destination:X/a; receipt:r; note:{'w' * 9_500} | v")

    assert alice.received()[0][1]["disposition"] == "rejected-full"


@pytest.mark.parametrize(
    ("lengths", "verdict"), [("content-length:0", "accepted"), ("a:b", "rejected-invalid")]
)
def test_maxam_deletes_only_where_the_length_is_said(lengths: str, verdict: str) -> None:
    broker = BrokerHarness()
    alice = broker.connect(profile=MAXAM)
    alice.publish("X/a", "v")
    alice.say(f"SEND destination:X/a; receipt:r; {lengths}")

    assert alice.received()[0][1]["disposition"] == verdict
    assert ("X/a" in broker.broker.values.topics) == (verdict != "accepted")


def test_tombstone_by_schema_deletes_and_is_delivered_as_sent() -> None:
    def check(body: bytes) -> Content:
        return Content.TOMBSTONE if body == b"tomb" else Content.VALID

    broker = BrokerHarness(policies=[DestinationPolicy(pattern="X/s.*", check=check)])
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/*")
    bob.publish("X/s.1", "v", "tomb")
    bob.publish("X/t", "tomb")
    assert messages(alice) == [("X/s.1", "v"), ("X/s.1", "tomb"), ("X/t", "tomb")]
    bob.subscribe("X/*", "eager:true")

    assert messages(bob) == [("X/t", "tomb")]


@pytest.mark.parametrize("profile_is_maxam", [False, True])
def test_ack_is_cumulative_in_the_mode_client_of_standard_only(*, profile_is_maxam: bool) -> None:
    broker = BrokerHarness()
    bob = broker.connect()
    alice = broker.connect(profile=MAXAM, heart_beat="0,0") if profile_is_maxam else broker.connect()
    alice.subscribe("X/*", "ack:client")
    for key in ("X/1", "X/2"):
        bob.publish(key, "old")
    frames = alice.received()
    for key in ("X/1", "X/2"):
        bob.publish(key, "new")
    alice.ack(frames[1])

    expected = [("X/2", "new")] if profile_is_maxam else [("X/1", "new"), ("X/2", "new")]
    assert messages(alice) == expected


def test_nack_is_ignored_and_leaves_the_message_in_flight(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/a", "ack:client")
    bob.publish("X/a", "1")
    (frame,) = alice.received()
    alice.nack(frame, "receipt:n")
    bob.publish("X/a", "2")
    assert alice.received() == [("RECEIPT", {"receipt-id": "n", "result": "ignored"})]
    alice.ack(frame)

    assert alice.bodies() == ["2"]


@pytest.mark.parametrize("ack", ["auto", "client", "client-individual"])
def test_second_ack_is_ignored(broker: BrokerHarness, ack: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/a", f"ack:{ack}")
    bob.publish("X/a", "1")
    (frame,) = alice.received()
    frame[1].setdefault("ack", f"s {frame[1]['message-id']}")
    alice.ack(frame)
    alice.ack(frame, "receipt:n")

    assert alice.received() == [("RECEIPT", {"receipt-id": "n", "result": "ignored"})]


def test_unsubscribing_makes_room_in_the_window_for_the_others() -> None:
    broker = BrokerHarness(Limits(max_unacked_values=1))
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/a", "ack:client", id="a")
    alice.subscribe("X/b", "ack:client", id="b")
    bob.publish("X/a", "1")
    bob.publish("X/b", "1")
    assert messages(alice) == [("X/a", "1")]
    alice.say("UNSUBSCRIBE id:a")

    assert messages(alice) == [("X/b", "1")]


def test_overlapping_subscriptions_get_a_message_each(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    for id_, pattern in (("s", "X/a"), ("t", "X/*"), ("u", "X/**")):
        alice.subscribe(pattern, id=id_)
    bob.publish("X/a", "1")

    assert sorted(frame[1]["subscription"] for frame in alice.received()) == ["s", "t", "u"]


def test_headers_of_the_sender_stay_with_the_value(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect(principal="bob")
    bob.publish("X/a", "v", headers=["kind:k", "transaction-like:t", "sender:somebody"])
    alice.subscribe("X/a", "eager:true")
    headers, body = alice.message()

    assert body == "v"
    assert headers == {
        "subscription": "s",
        "message-id": headers["message-id"],
        "destination": "X/a",
        "sender": "bob",
        "kind": "k",
        "transaction-like": "t",
    }


def test_maxam_is_told_no_sender(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(profile=MAXAM), broker.connect()
    alice.subscribe("X/a")
    bob.publish("X/a", "v")

    assert "sender" not in alice.message()[0]


def test_value_of_another_letter_deletes_the_former_destination() -> None:
    broker = BrokerHarness(key_of=letter_left_out)
    alice, bob = broker.connect(), broker.connect()
    alice.subscribe("X/EGM.*")
    bob.publish("X/EGM.X.G1.Status", "x")
    bob.publish("X/EGM.Q.G1.Status", "q")
    bob.publish("X/EGM.X.G2.Status", "other")
    assert sorted(messages(alice)) == [
        ("X/EGM.Q.G1.Status", "q"),
        ("X/EGM.X.G1.Status", ""),
        ("X/EGM.X.G1.Status", "x"),
        ("X/EGM.X.G2.Status", "other"),
    ]
    bob.subscribe("X/EGM.*", "eager:true")

    assert messages(bob) == [("X/EGM.Q.G1.Status", "q"), ("X/EGM.X.G2.Status", "other")]


def test_letter_may_change_back(broker: BrokerHarness) -> None:
    broker = BrokerHarness(key_of=letter_left_out)
    alice = broker.connect()
    for letter in "XQX":
        alice.publish(f"X/EGM.{letter}.G1.Status", letter)
    alice.subscribe("X/EGM.*", "eager:true")

    assert messages(alice) == [("X/EGM.X.G1.Status", "X")]


def test_deletion_under_another_letter_deletes_the_value() -> None:
    broker = BrokerHarness(key_of=letter_left_out)
    alice = broker.connect()
    alice.publish("X/EGM.X.G1.Status", "v")
    alice.publish("X/EGM.Q.G1.Status", "")

    assert broker.broker.values.topics == {}
    assert broker.broker.values._values.keys == {}


def test_send_to_a_glob_is_invalid(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:X/a*; receipt:r | v")

    assert alice.received()[0][1]["disposition"] == "rejected-invalid"


def test_glob_that_means_nothing_is_an_error(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SUBSCRIBE id:s; destination:X/[a; receipt:r")
    (error,) = alice.received()

    assert error[0] == "ERROR"
    assert error[1]["receipt-id"] == "r"
    assert broker.broker.values.feeds.table.things == {}
