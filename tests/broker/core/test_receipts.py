"""RECEIPTs where there is a store: they wait for it and stay in order; deliveries do not wait."""

from __future__ import annotations

import pytest

from nebula.broker.core.fixed_limits import ERROR_WAIT_SECONDS
from nebula.broker.core.profiles import MAXAM, STANDARD, Profile
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore


@pytest.fixture
def broker() -> BrokerHarness:
    """A broker with a store, which has what it is told after `commit`."""
    return BrokerHarness(store=MemoryStore(MemoryDisk()))


def receipts(peer: Peer) -> list[str]:
    return [frame[1]["receipt-id"] for frame in peer.received() if frame[0] == "RECEIPT"]


@pytest.mark.parametrize(
    "send",
    [
        "SEND destination:/queue/a; persistent:true; receipt:r | v",
        "SEND destination:X/a; receipt:r | v",
        "SEND destination:X/a; receipt:r",
        "SUBSCRIBE id:t; destination:X/*; durable:true; receipt:r",
        "SUBSCRIBE id:t; destination:/topic/*; durable:true; receipt:r",
    ],
)
def test_receipt_of_what_is_kept_waits_for_the_store(broker: BrokerHarness, send: str) -> None:
    alice = broker.connect(client_id="alice")
    alice.say(send)
    assert alice.received() == []
    broker.commit()

    ((command, headers, *_),) = alice.received()
    assert (command, headers["receipt-id"]) == ("RECEIPT", "r")
    assert "durable" not in headers


def test_delivery_does_not_wait(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    for destination in ("/queue/a", "X/a"):
        bob.subscribe(destination, "ack:client", id=destination)
        alice.publish(destination, "v", headers=["persistent:true", "receipt:r"])

    assert bob.bodies() == ["v", "v"]
    assert alice.received() == []


@pytest.mark.parametrize(
    ("profile", "says"), [(STANDARD, {"durable": "false"}), (MAXAM, {"content-disposition": "accepted"})]
)
@pytest.mark.parametrize("destination", ["/queue/a", "/topic/a", "/topic/a; persistent:true"])
def test_receipt_of_what_is_not_kept_comes_at_once_and_says_so_in_standard(
    broker: BrokerHarness, profile: Profile, says: dict[str, str], destination: str
) -> None:
    alice = broker.connect(profile=profile)
    alice.say(f"SEND destination:{destination}; receipt:r | v")
    ((_, headers, *_),) = alice.received()
    headers.pop("consumers", None)

    assert headers == {"receipt-id": "r", "disposition": "accepted", **says}


def test_rejected_send_says_nothing_of_the_disk(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; persistent:maybe; receipt:r | v")

    assert alice.received()[0][1]["disposition"] == "rejected-invalid"


def test_receipt_that_is_wanted_on_rejection_comes_then_and_never_else(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.say("SEND destination:/queue/a; receipt-on-rejection:true; require-consumers:true; receipt:1 | v")
    bob.subscribe("/queue/a")
    alice.say("SEND destination:/queue/a; receipt-on-rejection:true; require-consumers:true; receipt:2 | v")
    alice.say("SEND destination:/queue/a; receipt-on-rejection:true; persistent:true; receipt:3 | v")
    alice.say("SEND destination:/queue/a; receipt-on-rejection:maybe; receipt:4 | v")
    alice.say("SEND destination:/queue/a; receipt-on-rejection:false; receipt:5 | v")
    broker.commit()

    verdicts = [(frame[1]["receipt-id"], frame[1]["disposition"]) for frame in alice.received()]
    assert verdicts == [("1", "rejected-no-consumer"), ("4", "rejected-invalid"), ("5", "accepted")]


def test_wish_for_a_receipt_is_not_passed_on(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/queue/a")
    alice.say("SEND destination:/queue/a; receipt-on-rejection:true; receipt:1; other:x | v")

    ((_, headers, *_),) = bob.received()
    assert "other" in headers
    assert "receipt-on-rejection" not in headers


def test_receipts_stay_in_order_behind_one_that_waits(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(
        "SEND destination:/queue/a; receipt:1 | v",
        "SEND destination:X/a; receipt:2 | v",
        "SEND destination:/queue/a; receipt:3 | v",
        "SUBSCRIBE id:s; destination:/queue/b; receipt:4",
        "UNSUBSCRIBE id:s; receipt:5",
        "BEGIN transaction:t; receipt:6",
    )
    assert receipts(alice) == ["1"]
    broker.commit()

    assert receipts(alice) == ["2", "3", "4", "5", "6"]


def test_receipt_waits_for_its_own_batch(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:X/a; receipt:1 | v")
    broker.begin_commit()
    alice.say("SEND destination:X/b; receipt:2 | v")
    broker.commit()
    assert receipts(alice) == ["1"]
    broker.commit()

    assert receipts(alice) == ["2"]


def test_one_peer_does_not_wait_for_another(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.say("SEND destination:X/a; receipt:1 | v")
    bob.say("SEND destination:/queue/a; receipt:2 | v")

    assert (receipts(alice), receipts(bob)) == ([], ["2"])


def test_commit_waits_for_the_store(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say(
        "BEGIN transaction:t",
        "SEND destination:X/a; transaction:t | v",
        "COMMIT transaction:t; receipt:c",
    )
    assert alice.received() == []
    broker.commit()

    assert alice.received() == [("RECEIPT", {"receipt-id": "c"})]


def test_ack_of_what_is_kept_waits_for_the_store(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe("/queue/a", "ack:client")
    alice.publish("/queue/a", "v", headers=["persistent:true"])
    (frame,) = alice.received()
    broker.commit()
    alice.ack(frame, "receipt:r")
    assert alice.received() == []
    broker.commit()

    assert receipts(alice) == ["r"]


def test_receipt_of_disconnect_is_the_last(broker: BrokerHarness) -> None:
    alice = broker.connect(client_id="alice")
    alice.subscribe("X/*", "durable:true", "ack:client")
    broker.commit()
    alice.received()
    alice.say("SEND destination:X/a; receipt:1 | v", "DISCONNECT receipt:d")
    assert receipts(alice) == []
    assert not alice.is_closed
    broker.commit()

    assert receipts(alice) == ["1", "d"]
    assert alice.is_closed


def test_disconnect_without_a_receipt_waits_for_those_before_it(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:X/a; receipt:1 | v", "DISCONNECT")
    assert not alice.is_closed
    broker.commit()

    assert receipts(alice) == ["1"]
    assert alice.is_closed


def test_peer_that_is_lost_while_its_receipts_wait_is_told_nothing(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    alice.say("SEND destination:X/a; receipt:1 | v", "DISCONNECT receipt:d")
    bob.say("SEND destination:X/b; receipt:1 | v")
    alice.lose()
    broker.commit()

    assert alice.received() == []
    assert alice.session.outbox == []
    assert receipts(bob) == ["1"]


def test_peer_that_is_taken_over_is_told_why_and_nothing_behind_it(broker: BrokerHarness) -> None:
    old = broker.connect(client_id="alice")
    old.say("SEND destination:X/a; receipt:1 | v")
    broker.connect(client_id="alice")
    broker.commit()

    assert [frame[0] for frame in old.received()] == ["ERROR"]
    assert set(broker.broker.values.topics) == {"X/a"}


# --- an ERROR behind RECEIPTs that wait ---

# What ends a connection by the peer's own fault: the codec, the table of states, a handler and the core.
FAULTS = ["bogus\n", "CONNECTED\n\n\0", "CONNECT\n\n\0", "SEND\n\nx\0", "COMMIT\ntransaction:t\n\n\0"]
PERSISTENT = "SEND\ndestination:/queue/a\npersistent:true\nreceipt:{}\n\nv\0"


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("comes_apart", [False, True])
def test_error_comes_behind_the_receipts_that_wait(
    broker: BrokerHarness, fault: str, comes_apart: bool
) -> None:
    alice = broker.connect()
    sends = "".join(PERSISTENT.format(number) for number in range(3))
    for octets in (sends, fault) if comes_apart else (sends + fault,):
        alice.send(octets)
    assert alice.received() == []
    assert not alice.is_closed
    broker.commit()

    said = [(frame[0], frame[1].get("receipt-id")) for frame in alice.received()]
    assert said == [("RECEIPT", "0"), ("RECEIPT", "1"), ("RECEIPT", "2"), ("ERROR", None)]
    assert alice.is_closed


def test_error_comes_at_once_where_no_receipt_waits(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; persistent:true | v", "bogus ")

    assert [frame[0] for frame in alice.received()] == ["ERROR"]
    assert alice.is_closed


def test_error_waits_for_the_batch_of_the_last_receipt(broker: BrokerHarness) -> None:
    alice = broker.connect()
    journal = broker.broker.journal
    assert journal is not None
    alice.send(PERSISTENT.format(1))
    first, _ = journal.take()
    alice.send(PERSISTENT.format(2) + "bogus\n")
    broker.broker.committed(first, broker.now)
    broker.settle()
    assert receipts(alice) == ["1"]
    assert not alice.is_closed
    broker.commit()

    assert [frame[0] for frame in alice.received()] == ["RECEIPT", "ERROR"]


def test_what_a_faulty_peer_holds_is_free_before_its_error_is_said(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(client_id="alice"), broker.connect()
    alice.subscribe("/queue/b", "ack:client")
    bob.publish("/queue/b", "work")
    bob.subscribe("/queue/b")
    alice.received()
    alice.send(PERSISTENT.format(1) + "bogus\n")
    assert not alice.is_closed

    assert bob.bodies() == ["work"]
    assert not broker.connect(client_id="alice").is_closed
    alice.send(PERSISTENT.format(2))
    broker.commit()
    assert [frame[0] for frame in alice.received()] == ["RECEIPT", "ERROR"]
    queue = broker.broker.queues.by_name["/queue/a"]
    assert queue.store.depth == 1, "what follows a fault counts for nothing"


def test_error_waits_no_longer_than_its_time(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.send(PERSISTENT.format(1) + "bogus\n")
    broker.advance(ERROR_WAIT_SECONDS - 0.25)
    assert alice.received() == []
    broker.advance(0.25)

    assert [frame[0] for frame in alice.received()] == ["ERROR"]
    assert alice.is_closed
    broker.commit()
    assert alice.received() == []
    assert broker.broker.receipts.waiting == {}


def test_faulty_peer_that_is_lost_while_its_receipts_wait_is_told_nothing(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.send(PERSISTENT.format(1) + "bogus\n")
    alice.lose()
    broker.commit()

    assert alice.received() == []
    assert alice.session.outbox == []


@pytest.mark.parametrize("is_faulty", [False, True])
def test_end_for_a_reason_of_the_broker_does_not_wait(broker: BrokerHarness, is_faulty: bool) -> None:
    alice = broker.connect()
    alice.send(PERSISTENT.format(1) + ("bogus\n" if is_faulty else ""))
    alice.protocol.fail("the broker is shutting down", broker.now)
    broker.settle()

    ((command, headers, *_),) = alice.received()
    assert command == "ERROR"
    assert headers["message"].startswith("unknown command" if is_faulty else "the broker")
    assert alice.is_closed
