"""The dead-letter queue: what nobody consumed, and why (G.dead-letter)."""

from __future__ import annotations

import pytest

from nebula.broker.core.access import BROKERS_OWN, Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.core.profiles import MAXAM
from nebula.headers import BROKER_QUEUE, DEAD_LETTER_QUEUE
from tests.broker.dead import dead_bodies, reader, reject
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.script import Received

QUEUE = "/queue/orders"
TOPIC = "/topic/news"
INDIVIDUAL = "ack:client-individual"


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_rejected_message_is_dead_with_all_that_is_known_of_it(broker: BrokerHarness, version: str) -> None:
    alice, bob = broker.connect(principal="alice"), broker.connect(version)
    bob.subscribe(QUEUE, INDIVIDUAL)
    broker.advance(12.25)
    alice.publish(QUEUE, "body", headers=["kind:new", "content-type:text/plain", "neb-reply-to:/queue/r"])
    (frame,) = bob.received()
    bob.nack(frame, "requeue:false")
    carol = reader(broker)

    headers, body = carol.message()
    assert body == "body"
    assert headers == {
        "subscription": "s",
        "message-id": headers["message-id"],
        "destination": DEAD_LETTER_QUEUE,
        "sender": "alice",
        "dead-letter-reason": "rejected",
        "dead-letter-from": QUEUE,
        "dead-letter-at": str(round((WALL_OFFSET + 12.25) * 1000)),
        "dead-letter-deliveries": "1",
        "kind": "new",
        "content-type": "text/plain",
        "neb-reply-to": "/queue/r",
    }
    assert headers["message-id"] != frame[1]["message-id"]


def test_message_that_failed_too_often_is_dead(broker: BrokerHarness) -> None:
    broker = BrokerHarness(Limits(max_deliveries=3))
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "poison")
    for _ in range(2):
        bob.nack(bob.received()[0])
    bob.lose()

    headers, body = reader(broker).message()
    assert (body, headers["dead-letter-reason"], headers["dead-letter-deliveries"]) == (
        "poison",
        "exhausted",
        "3",
    )
    assert "redelivered" not in headers
    assert list(broker.destinations) == [DEAD_LETTER_QUEUE]


def test_deliveries_before_a_rejection_are_told(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "x")
    bob.nack(bob.received()[0])
    bob.nack(bob.received()[0], "requeue:false")

    headers, _ = reader(broker).message()
    assert headers["dead-letter-deliveries"] == "2"


def test_cumulative_rejection_buries_all_in_order(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "ack:client")
    alice.publish(QUEUE, "1", "2", "3")
    _, two, _ = bob.received()
    bob.nack(two, "requeue:false")

    assert dead_bodies(broker) == ["1", "2"]


@pytest.mark.parametrize("value", ["true", ""])
def test_nack_that_wants_a_requeue_buries_nothing(broker: BrokerHarness, value: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    alice.publish(QUEUE, "x")
    bob.nack(bob.received()[0], f"requeue:{value}")

    assert bob.bodies() == ["x"]
    assert DEAD_LETTER_QUEUE not in broker.destinations


def test_both_profiles_reject(broker: BrokerHarness) -> None:
    bob = broker.connect(profile=MAXAM, heart_beat="10000,10000")
    bob.subscribe(QUEUE, INDIVIDUAL)
    broker.connect().publish(QUEUE, "x")
    bob.nack(bob.received()[0], "requeue:false", "receipt:n")

    assert bob.received() == [("RECEIPT", {"receipt-id": "n"})]
    assert dead_bodies(broker) == ["x"]


def test_client_cannot_say_that_its_message_was_dead(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE)
    names = [f"dead-letter-{name}" for name in ("reason", "from", "at", "deliveries")]
    alice.publish(QUEUE, "x", headers=[f"{name}:mine" for name in names])

    headers, _ = bob.message()
    assert not set(names) & set(headers)


def test_id_of_a_request_is_kept_with_its_dead_message(broker: BrokerHarness) -> None:
    reject(broker, "x", headers=["neb-reply-id:the-request"])

    headers, _ = reader(broker).message()
    assert headers["neb-reply-id"] == "the-request"


def test_waiting_consumer_of_the_dead_letter_queue_is_told_at_once(broker: BrokerHarness) -> None:
    carol = reader(broker)
    reject(broker, "x")

    assert carol.bodies() == ["x"]


def test_message_without_room_whose_sender_would_not_hear_of_it_is_dead() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, max_messages=1)])
    alice = broker.connect()
    alice.publish(QUEUE, "fills it", "unheard")
    alice.publish(QUEUE, "heard", headers=["receipt:r"])

    headers, body = reader(broker).message()
    assert body == "unheard"
    assert headers["dead-letter-reason"] == "full"
    assert headers["dead-letter-from"] == QUEUE
    assert headers["dead-letter-deliveries"] == "0"
    assert alice.received()[0][1]["disposition"] == "rejected-full"


def test_answer_without_room_in_an_inbox_is_counted_and_not_buried() -> None:
    inbox = "/queue/nebula.inbox.1"
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=inbox, max_messages=1)])
    alice = broker.connect()
    alice.subscribe(inbox, "exclusive:true", INDIVIDUAL)
    alice.publish(inbox, "fills it", "unheard")

    assert list(broker.destinations) == [inbox]
    assert broker.broker.account.dropped == {"rejected-full": 1}


# What a dead-letter queue does not do


def test_dead_message_is_not_dead_lettered_again(broker: BrokerHarness) -> None:
    reject(broker, "x")
    carol = reader(broker, INDIVIDUAL)
    (frame,) = carol.received()
    carol.nack(frame, "requeue:false")
    carol.disconnect()

    assert dead_bodies(broker) == []
    assert broker.broker.account.dropped == {"rejected": 1}
    assert broker.broker.account.stored_bytes == 0


def test_dead_message_may_fail_as_often_as_it_likes() -> None:
    broker = BrokerHarness(Limits(max_deliveries=2))
    reject(broker, "x")
    carol = reader(broker, INDIVIDUAL)
    for _ in range(5):
        carol.nack(carol.received()[0])

    headers, _ = carol.message()
    assert headers["delivery-count"] == "5"


def test_dead_message_does_not_expire(broker: BrokerHarness) -> None:
    reject(broker, "x", headers=["neb-timeout:2000"])
    broker.advance(5)

    headers, body = reader(broker).message()
    assert body == "x"
    assert "neb-timeout" not in headers


def test_message_that_is_sent_to_the_dead_letter_queue_does_not_expire(broker: BrokerHarness) -> None:
    broker.connect().publish(DEAD_LETTER_QUEUE, "x", headers=["neb-timeout:2000"])
    broker.advance(5)

    assert dead_bodies(broker) == ["x"]


def test_expired_request_is_counted_and_not_buried(broker: BrokerHarness) -> None:
    broker.connect().publish(QUEUE, "x", headers=["neb-timeout:2000"])
    broker.advance(5)

    assert broker.destinations == {}
    assert broker.broker.account.dropped == {"expired": 1}


def test_full_dead_letter_queue_drops_its_oldest_and_counts_them() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=DEAD_LETTER_QUEUE, max_messages=2)])
    reject(broker, "1", "2", "3", "4")

    assert broker.broker.account.dropped == {"full": 2}
    assert dead_bodies(broker) == ["3", "4"]


def test_full_dead_letter_queue_keeps_what_a_consumer_has() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=DEAD_LETTER_QUEUE, max_messages=2)])
    carol = reader(broker, INDIVIDUAL, "prefetch-count:1")
    reject(broker, "1", "2", "3")
    carol.lose()

    assert broker.broker.account.dropped == {"full": 1}
    assert dead_bodies(broker) == ["1", "3"]


def test_dead_letter_queue_whose_consumers_hold_all_of_it_counts_what_it_cannot_take() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=DEAD_LETTER_QUEUE, max_messages=1)])
    carol = reader(broker, INDIVIDUAL)
    reject(broker, "1", "2")
    carol.lose()

    assert broker.broker.account.dropped == {"dead-letter-full": 1}
    assert dead_bodies(broker) == ["1"]


def test_dead_message_that_is_larger_than_its_queue_leaves_nothing_behind() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=DEAD_LETTER_QUEUE, max_bytes=1)])
    reject(broker, "x")

    assert broker.broker.account.dropped == {"dead-letter-full": 1}
    assert broker.destinations == {}
    assert broker.broker.account.stored_bytes == 0


# Whose messages die


def test_inbox_never_dead_letters(broker: BrokerHarness) -> None:
    inbox = "/queue/nebula.inbox.1"
    bob = broker.connect()
    bob.subscribe(inbox, "exclusive:true", INDIVIDUAL)
    bob.publish(inbox, "1", "2")
    one, _ = bob.received()
    bob.nack(one, "requeue:false")
    bob.lose()

    assert broker.destinations == {}
    assert broker.broker.account.dropped == {"rejected": 1, "deleted": 1}


def test_transient_subscription_to_a_topic_does_not_dead_letter() -> None:
    broker = BrokerHarness(Limits(max_deliveries=2))
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(TOPIC, INDIVIDUAL)
    alice.publish(TOPIC, "rejected", "exhausted")
    one, two = bob.received()
    bob.nack(one, "requeue:false")
    bob.nack(two)
    bob.nack(bob.received()[0])

    assert list(broker.destinations) == [TOPIC]
    assert broker.broker.account.dropped == {"rejected": 1, "exhausted": 1}


def durable(broker: BrokerHarness, *headers: str) -> Peer:
    peer = broker.connect(client_id="c")
    peer.subscribe("/topic/*", "durable:true", INDIVIDUAL, *headers)
    return peer


def buried_of_a_topic(broker: BrokerHarness) -> list[tuple[str, str, str]]:
    return [
        (frame[2] if len(frame) == 3 else "", frame[1]["dead-letter-reason"], frame[1]["dead-letter-from"])
        for frame in reader(broker).received()
    ]


def test_durable_subscription_to_topics_dead_letters_with_the_destination_of_the_send() -> None:
    broker = BrokerHarness(Limits(max_deliveries=2))
    alice, bob = broker.connect(), durable(broker)
    alice.publish(TOPIC, "rejected", "exhausted")
    one, two = bob.received()
    bob.nack(one, "requeue:false")
    bob.nack(two)
    bob.nack(bob.received()[0])

    assert buried_of_a_topic(broker) == [("rejected", "rejected", TOPIC), ("exhausted", "exhausted", TOPIC)]


def test_what_a_durable_subscription_has_no_room_for_is_buried() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=2))
    durable(broker).lose()
    alice = broker.connect()
    alice.publish(TOPIC, "1", "2", "3", headers=["receipt:r"])

    assert {frame[1]["disposition"] for frame in alice.received()} == {"accepted"}
    assert buried_of_a_topic(broker) == [("3", "full", TOPIC)]


def test_message_that_several_subscriptions_reject_is_buried_for_each(broker: BrokerHarness) -> None:
    alice = broker.connect()
    peers = [broker.connect(client_id=name) for name in "ab"]
    for peer in peers:
        peer.subscribe(TOPIC, "durable:true", INDIVIDUAL)
    alice.publish(TOPIC, "x")
    for peer in peers:
        peer.nack(peer.received()[0], "requeue:false")

    assert dead_bodies(broker) == ["x", "x"]


# What is kept on disk


@pytest.mark.parametrize(("headers", "kept"), [(["persistent:true"], [b"x"]), ([], [])])
def test_dead_message_is_kept_as_it_was_before(headers: list[str], kept: list[bytes]) -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    reject(broker, "x", headers=headers)
    broker.commit()

    assert [each.body for each in disk.messages.values()] == kept
    assert {queue for queue, _ in disk.messages} <= {DEAD_LETTER_QUEUE}


def test_dead_message_of_a_durable_subscription_is_kept_as_it_was_there() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    alice = broker.connect(client_id="c")
    alice.subscribe("/topic/t", INDIVIDUAL, "durable:true")
    broker.connect().publish("/topic/t", "x")  # not persistent: the subscription is
    alice.nack(alice.received()[0], "requeue:false")
    broker.stop()

    assert dead_bodies(BrokerHarness(store=MemoryStore(disk))) == ["x"]


def test_what_a_full_durable_subscription_has_no_room_for_is_kept() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(Limits(max_queue_messages=1), store=MemoryStore(disk))
    alice = broker.connect(client_id="c")
    alice.subscribe("/topic/t", "durable:true")
    alice.lose()
    broker.connect().publish("/topic/t", "first", "second")
    broker.stop()

    assert dead_bodies(BrokerHarness(store=MemoryStore(disk))) == ["second"]


def test_receipt_of_a_rejection_waits_until_the_dead_message_is_kept() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    bob = broker.connect()
    bob.subscribe(QUEUE, INDIVIDUAL)
    broker.connect().publish(QUEUE, "x", headers=["persistent:true"])
    broker.commit()
    (frame,) = bob.received()
    bob.nack(frame, "requeue:false", "receipt:n")
    assert bob.received() == []

    broker.commit()

    assert bob.received() == [("RECEIPT", {"receipt-id": "n"})]


def test_dead_message_tells_its_story_after_a_restart() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    reject(broker, "x", headers=["persistent:true", "kind:new"])
    broker.stop()

    again = BrokerHarness(store=MemoryStore(disk))

    headers, _ = reader(again).message()
    assert headers["dead-letter-reason"] == "rejected"
    assert headers["dead-letter-from"] == QUEUE
    assert headers["kind"] == "new"


# Who may read it (G.dead-letter)

RIGHTS = Grants(
    {
        "all-queues": Capability(publish=("/queue/*",), subscribe=("/queue/*",)),
        "undertaker": Capability(subscribe=(DEAD_LETTER_QUEUE,)),
    },
    {"carol": ("all-queues",), "dave": ("undertaker",)},
)
IGNORED: Received = ("RECEIPT", {"receipt-id": "r", "result": "ignored"})


@pytest.mark.parametrize(
    ("principal", "answers"), [("carol", IGNORED), ("dave", ("RECEIPT", {"receipt-id": "r"}))]
)
def test_dead_letter_queue_is_read_by_whom_it_is_granted_by_name(principal: str, answers: Received) -> None:
    broker = BrokerHarness(grants=RIGHTS)
    peer = broker.connect(principal=principal)
    peer.subscribe(DEAD_LETTER_QUEUE, "receipt:r")

    assert peer.received() == [answers]


def test_reader_of_a_dead_request_may_not_answer_it_unless_its_sender_could_receive_the_answer() -> None:
    capabilities = {**RIGHTS.capabilities, "dead": Capability(subscribe=(DEAD_LETTER_QUEUE,))}
    identities = {**RIGHTS.identities, "carol": (*RIGHTS.identities["carol"], "dead")}
    broker = BrokerHarness(grants=Grants(capabilities, identities))
    carol, bob = broker.connect(principal="carol"), broker.connect(principal="carol")
    bob.subscribe(QUEUE, INDIVIDUAL)
    carol.publish(QUEUE, "x", headers=[f"neb-reply-to:{DEAD_LETTER_QUEUE}", "neb-reply-id:1"])
    broker.broker.review(RIGHTS, broker.now)
    bob.nack(bob.received()[0], "requeue:false")
    dave = broker.connect(principal="dave")
    dave.subscribe(DEAD_LETTER_QUEUE)
    dave.received()
    dave.publish(DEAD_LETTER_QUEUE, "answer", headers=["neb-in-reply-to:1", "receipt:r"])

    assert dave.received()[0][1]["disposition"] == "rejected-unauthorised"


def test_request_that_is_over_is_counted_and_no_dead_letter(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/queue/a", "ack:client-individual")
    alice.publish("/queue/a", "late", headers=["neb-timeout:1000"])
    (message,) = bob.received()

    broker.advance(2)
    bob.nack(message, "requeue:false")

    assert "/queue/DLQ" not in broker.destinations
    assert broker.broker.account.dropped["expired"] == 1


def test_what_the_brokers_own_service_rejects_takes_no_place_among_dead_letters(
    broker: BrokerHarness,
) -> None:
    # Whoever may connect may send to it: a stranger's nonsense would drive out what others have lost.
    own, stranger = broker.connect(principal=BROKERS_OWN), broker.connect()
    own.subscribe(BROKER_QUEUE, INDIVIDUAL)
    stranger.publish(BROKER_QUEUE, "nonsense")
    (frame,) = own.received()
    own.nack(frame, "requeue:false")

    assert dead_bodies(broker) == []
    assert broker.broker.account.dropped["rejected"] == 1
