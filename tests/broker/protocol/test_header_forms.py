"""The forms of our own headers: each one that the broker reads, on each kind of destination and frame.

Rules: G.forms.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from nebula import headers as names
from nebula.broker.core.profiles import MAXAM, STANDARD, Profile
from nebula.broker.protocol import send_headers
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer


@dataclass(frozen=True, slots=True)
class Form:
    """Values of one header on a SEND: within its form, and outside of it."""

    good: tuple[str, ...]
    bad: tuple[str, ...]


SOON = str(round((WALL_OFFSET + 60) * 1000))
FLAG = Form(("true", "false", ""), ("yes", "1", "truely", " true"))
NUMBERS = ("soon", "", "-1", "+1", " 1", "1_0", "1.5", "1" * 16, "²")
IDENTIFIER = Form(("x" * 256, "é" * 256, ""), ("x" * 257,))
FORMS = {
    names.PERSISTENT: FLAG,
    names.REQUIRE_CONSUMERS: FLAG,
    names.EPHEMERAL: FLAG,
    names.RECEIPT_ON_REJECTION: Form(("false", ""), FLAG.bad),  # with `true` there is no RECEIPT
    names.RESPONSE: FLAG,
    names.STREAM: FLAG,
    names.STREAM_END: FLAG,
    names.EXPIRES: Form((SOON,), NUMBERS),
    names.DELAY: Form(("0", "5000"), NUMBERS),
    names.DELIVER_AT: Form((SOON,), NUMBERS),
    names.TIMEOUT: Form(("0", "5000"), NUMBERS),
    names.PRIORITY: Form(("0", "9"), ("10", "-1", "high", "", "²")),
    names.DEDUP_ID: IDENTIFIER,
    names.REPLY_ID: IDENTIFIER,
    names.REPLY_TO: IDENTIFIER,
}
VALUES = [
    (header, value, is_good)
    for header, form in FORMS.items()
    for is_good, values in ((True, form.good), (False, form.bad))
    for value in values
]
DESTINATIONS = ("/queue/a", "/topic/a", "X/a")
FLAGS = [header for header, form in FORMS.items() if form.bad is FLAG.bad]
ANY_CASE = ("True", "TRUE", "False", "fAlSe")
BOTH = pytest.mark.parametrize("profile", [STANDARD, MAXAM], ids=lambda profile: profile.name)


@pytest.fixture
def broker() -> BrokerHarness:
    return BrokerHarness()


def verdict(broker: BrokerHarness, profile: Profile, destination: str, header: str) -> str:
    alice, bob = broker.connect(profile=profile), broker.connect()
    bob.subscribe(destination)  # for `require-consumers`
    alice.say(f"SEND destination:{destination}; receipt:r; {header} | x")
    ((command, headers, *_),) = alice.received()
    assert command == "RECEIPT"
    return headers["disposition"]


def test_table_has_every_header_that_is_read_on_a_send() -> None:
    # The id of a request is not among what is read once for all messages that share their headers.
    assert set(FORMS) == set(send_headers.FORMS) | send_headers.IDENTIFIERS | {names.REPLY_ID}


@pytest.mark.parametrize(("header", "value", "is_good"), VALUES)
@pytest.mark.parametrize("destination", DESTINATIONS)
@BOTH
def test_value_outside_its_form_is_invalid_on_each_kind_of_destination(
    broker: BrokerHarness, profile: Profile, destination: str, header: str, value: str, is_good: bool
) -> None:
    expected = "accepted" if is_good else "rejected-invalid"

    assert verdict(broker, profile, destination, f"{header}:{value}") == expected


@pytest.mark.parametrize("value", ANY_CASE)
@pytest.mark.parametrize("header", FLAGS)
@BOTH
def test_flag_of_a_send_is_read_in_any_case_in_standard_alone(
    broker: BrokerHarness, profile: Profile, header: str, value: str
) -> None:
    if header == names.RECEIPT_ON_REJECTION:
        value = "False"  # with `true` there is no RECEIPT
    expected = "accepted" if profile is STANDARD else "rejected-invalid"

    assert verdict(broker, profile, "/queue/a", f"{header}:{value}") == expected


def test_flag_in_another_case_means_the_same(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.say("SEND destination:/queue/a; persistent:True; ephemeral:TRUE; require-consumers:False | x")
    alice.say("SEND destination:/queue/b; require-consumers:True; receipt:r | x")
    (queue,) = broker.broker.queues.by_name.values()

    (message,) = queue.store.line.in_memory()
    assert message.head.is_persistent
    assert alice.received()[0][1]["disposition"] == "rejected-no-consumer"


def unacked(broker: BrokerHarness, profile: Profile) -> tuple[Peer, str]:
    """A peer with a message, and what names that in an ACK or NACK."""
    peer = broker.connect(profile=profile)
    peer.subscribe("/queue/a", "ack:client")
    broker.connect().publish("/queue/a", "x")
    return peer, f"id:{peer.message()[0]['ack']}"


SUBSCRIBE_FLAGS = [names.EXCLUSIVE, names.AUTO_DELETE, names.DURABLE, names.EAGER, names.SNAPSHOT]


@pytest.mark.parametrize("value", ["true", "false", "", "True", "FALSE", "yes", " true"])
@pytest.mark.parametrize("frame", [*SUBSCRIBE_FLAGS, names.KEEP_UNACKED, names.REQUEUE])
@BOTH
def test_flag_of_another_frame_is_read_in_any_case_in_standard_and_else_an_error(
    broker: BrokerHarness, profile: Profile, frame: str, value: str
) -> None:
    peer, named = unacked(broker, profile)
    if frame == names.REQUEUE:
        peer.say(f"NACK {named}; receipt:r; requeue:{value}")
    elif frame == names.KEEP_UNACKED:
        peer.say(f"UNSUBSCRIBE id:s; receipt:r; keep-unacked:{value}")
    else:
        peer.say(f"SUBSCRIBE id:t; destination:X/a; receipt:r; {frame}:{value}")

    is_fine = value in ("true", "false", "") or (profile is STANDARD and value.lower() in ("true", "false"))
    answers = {frame[0] for frame in peer.received()} - {"MESSAGE"}  # a NACKed one comes again
    assert answers == {"RECEIPT" if is_fine else "ERROR"}
    assert peer.is_closed == (not is_fine)


@pytest.mark.parametrize(("value", "is_dead"), [("False", True), ("FALSE", True), ("True", False)])
def test_requeue_in_another_case_means_the_same(broker: BrokerHarness, value: str, is_dead: bool) -> None:
    peer, named = unacked(broker, STANDARD)
    peer.say(f"NACK {named}; requeue:{value}")

    assert ("/queue/DLQ" in broker.broker.queues.by_name) == is_dead


@pytest.mark.parametrize("value", ["no", "yes", "0", "False", "maybe", " true", "truE."])
@BOTH
def test_unsubscribe_pauses_where_durable_is_not_true(
    broker: BrokerHarness, profile: Profile, value: str
) -> None:
    peer = broker.connect(profile=profile)
    peer.subscribe("/topic/t", "durable:true")
    peer.say(f"UNSUBSCRIBE id:s; receipt:u; durable:{value}")

    assert peer.received() == [("RECEIPT", {"receipt-id": "u", "result": "paused"})]


@pytest.mark.parametrize(("profile", "result"), [(STANDARD, "removed"), (MAXAM, "paused")])
def test_unsubscribe_with_true_in_another_case_removes_in_standard_alone(
    broker: BrokerHarness, profile: Profile, result: str
) -> None:
    peer = broker.connect(profile=profile)
    peer.subscribe("/topic/t", "durable:true")
    peer.say("UNSUBSCRIBE id:s; receipt:u; durable:True")

    assert peer.received() == [("RECEIPT", {"receipt-id": "u", "result": result})]
