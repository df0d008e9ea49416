"""Each way in which a peer might read or write what it may not (issue: intruder tests; B.7, B.8, D.5, D.36).

Rules: G.reply-address.

Nothing says why to the peer: a SEND gets its verdict, anything else is ignored.
"""

from __future__ import annotations

import pytest

from nebula.broker.core.access import BROKERS_OWN, Grants
from nebula.broker.core.profiles import MAXAM, STANDARD, Profile
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.guarded import (
    ACCEPTED,
    CAPABILITIES,
    IGNORED,
    INBOX,
    PRIVATE,
    SUBSCRIBED,
    UNAUTHORISED,
    connect,
    grants,
    review,
    verdict,
)
from tests.broker.harness import BrokerHarness


@pytest.fixture
def broker() -> BrokerHarness:
    """A broker with rights."""
    return BrokerHarness(grants=grants())


# SEND and SUBSCRIBE, in both profiles


@pytest.mark.parametrize("destination", PRIVATE)
@pytest.mark.parametrize("profile", [STANDARD, MAXAM], ids=["standard", "maxam"])
def test_send_without_a_right_has_no_effect_and_the_next_one_works(
    broker: BrokerHarness, destination: str, profile: Profile
) -> None:
    alice, mallory = connect(broker, "alice"), connect(broker, "mallory", profile=profile)
    alice.subscribe(destination)

    assert verdict(mallory, destination) == UNAUTHORISED
    assert alice.received() == []
    assert verdict(mallory, destination.replace("alice", "mallory")) == ACCEPTED
    assert broker.broker.account.dropped == {UNAUTHORISED: 1}


@pytest.mark.parametrize("destination", PRIVATE)
@pytest.mark.parametrize("more", [[], ["durable:true"], ["eager:true"], ["exclusive:true"]])
def test_subscribe_without_a_right_is_ignored(
    broker: BrokerHarness, destination: str, more: list[str]
) -> None:
    mallory = connect(broker, "mallory", client_id="m")
    connect(broker, "alice").publish(destination, "secret")
    mallory.subscribe(destination, "receipt:r", *more)
    connect(broker, "alice").publish(destination, "secret")

    assert mallory.received() == [IGNORED]
    assert broker.broker.durable_sessions.by_id == {}
    assert "s" not in mallory.session.subscriptions


@pytest.mark.parametrize("destination", PRIVATE)
def test_maxam_says_nothing_at_all_of_a_subscribe_without_a_right(
    broker: BrokerHarness, destination: str
) -> None:
    mallory = connect(broker, "mallory", profile=MAXAM)
    mallory.subscribe(destination, "receipt:r")
    mallory.subscribe("/topic/public.1", "receipt:s", id="p")

    assert mallory.received() == [("RECEIPT", {"receipt-id": "s"})]


def test_ignored_subscription_leaves_its_id_free(broker: BrokerHarness) -> None:
    mallory = connect(broker, "mallory")
    mallory.subscribe("/queue/alice.1", "receipt:r")
    mallory.subscribe("/queue/mallory.1", "receipt:r")

    assert mallory.received() == [IGNORED, SUBSCRIBED]


def test_one_who_is_not_named_has_no_right_at_all(broker: BrokerHarness) -> None:
    stranger = connect(broker, "stranger")
    for number, destination in enumerate(
        [*PRIVATE, "/topic/public.1", "X/public.1", "/queue/prices", "bare"]
    ):
        assert verdict(stranger, destination) == UNAUTHORISED
        stranger.subscribe(destination, "receipt:r", id=f"{number}")
        assert stranger.received() == [IGNORED]


@pytest.mark.parametrize("principal", ["*", "[am]*", "alice.1", "alice/../mallory", "{identity}"])
def test_name_of_a_principal_is_no_glob(broker: BrokerHarness, principal: str) -> None:
    broker.broker.review(Grants(CAPABILITIES, {principal: ("own",)}), broker.now)
    intruder = connect(broker, principal)

    assert [verdict(intruder, destination) for destination in PRIVATE] == [UNAUTHORISED] * 3


# Globs over what is forbidden


@pytest.mark.parametrize(
    "pattern", ["/topic/**", "/topic/*", "/topic/alice.*", "/topic/?lice.1", "/topic/[a]lice.1"]
)
@pytest.mark.parametrize("more", [["ack:auto"], ["ack:client"], ["durable:true"]])
def test_glob_over_topics_shows_what_is_permitted_only(
    broker: BrokerHarness, pattern: str, more: list[str]
) -> None:
    alice, mallory = connect(broker, "alice"), connect(broker, "mallory", client_id="m")
    mallory.subscribe(pattern, *more)
    alice.publish("/topic/alice.1", "secret")
    alice.publish("/topic/public.1", "public")

    assert set(mallory.bodies()) <= {"public"}


@pytest.mark.parametrize("more", [["ack:auto"], ["ack:client"], ["durable:true"], ["eager:true"]])
def test_glob_over_last_values_shows_what_is_permitted_only(broker: BrokerHarness, more: list[str]) -> None:
    alice, mallory = connect(broker, "alice"), connect(broker, "mallory", client_id="m")
    for destination in ("X/alice.old", "X/public.old"):
        alice.publish(destination, destination)
    mallory.subscribe("X/**", *more)
    for destination in ("X/alice.1", "X/public.1"):
        alice.publish(destination, destination)
    alice.publish("X/alice.1", "")

    seen = mallory.bodies()
    assert "X/public.1" in seen
    assert set(seen) <= {"X/public.old", "X/public.1"}


def test_overlapping_globs_of_two_peers_stay_apart(broker: BrokerHarness) -> None:
    peers = [connect(broker, who) for who in ("alice", "mallory")]
    for peer in peers:
        peer.subscribe("/topic/**", id="all")
        peer.subscribe("/topic/*.1", id="ones")
    for peer, who in zip(peers, ("alice", "mallory"), strict=True):
        peer.publish(f"/topic/{who}.1", f"of {who}")

    assert [peer.bodies() for peer in peers] == [["of alice"] * 2, ["of mallory"] * 2]


def test_durable_glob_keeps_nothing_that_is_forbidden(broker: BrokerHarness) -> None:
    mallory = connect(broker, "mallory", client_id="m")
    mallory.subscribe("/topic/**", "durable:true")
    mallory.lose()
    kept_bytes = broker.broker.account.stored_bytes
    connect(broker, "alice").publish("/topic/alice.1", "secret")

    assert broker.broker.account.stored_bytes == kept_bytes


@pytest.mark.parametrize("pattern", ["/topic/**", "/topic/nebula.**", "/topic/nebula.cancel.*"])
def test_glob_shows_cancelled_calls_to_the_service_alone(broker: BrokerHarness, pattern: str) -> None:
    alice, mallory, bob = (connect(broker, who) for who in ("alice", "mallory", "bob"))
    for peer in (mallory, bob):
        peer.subscribe(pattern)
    alice.publish("/topic/nebula.cancel.prices", "cancel")

    assert (mallory.bodies(), bob.bodies()) == ([], ["cancel"])


# Reserved names, with and without rights

RESERVED = ["/queue/nebula.broker", "/queue/nebula.secret", "/topic/nebula.secret", "X/nebula.secret"]


@pytest.mark.parametrize("who", ["anonymous", "audrey", "app:prices"])
@pytest.mark.parametrize("destination", RESERVED)
@pytest.mark.parametrize("has_rights", [False, True])
def test_what_is_reserved_is_nobodys(who: str, destination: str, has_rights: bool) -> None:
    broker = BrokerHarness(grants=grants() if has_rights else None)
    intruder = connect(broker, who)
    intruder.subscribe(destination, "receipt:r")
    assert intruder.received() == [IGNORED]

    may_ask = destination == "/queue/nebula.broker"
    assert verdict(intruder, destination) == (ACCEPTED if may_ask else UNAUTHORISED)


def test_brokers_own_responder_is_not_pushed_aside(broker: BrokerHarness) -> None:
    own = connect(broker, BROKERS_OWN)
    own.subscribe("/queue/nebula.broker", "receipt:r")
    connect(broker, "audrey").subscribe("/queue/nebula.broker", "exclusive:true")
    connect(broker, "mallory").publish("/queue/nebula.broker", "question")

    receipt, question = own.received()
    assert receipt == SUBSCRIBED
    assert question[2:] == ("question",)


@pytest.mark.parametrize("name", ["\0c\0s", "$SYS/a", "/queue/\0c\0s"])
def test_internal_queue_of_a_durable_subscription_cannot_be_reached(name: str) -> None:
    broker = BrokerHarness()
    alice, mallory = connect(broker, "alice", client_id="c"), connect(broker, "mallory")
    alice.subscribe("/topic/t", "durable:true")
    alice.lose()
    broker.connect().publish("/topic/t", "secret")
    mallory.feed(f"SUBSCRIBE\nid:s\ndestination:{name}\n\n\0".encode())

    assert not any("secret" in frame for frame in mallory.received())


# Inboxes


@pytest.mark.parametrize("has_rights", [False, True])
@pytest.mark.parametrize("who", ["alice", "mallory", "audrey"])
@pytest.mark.parametrize("when", ["while it is there", "after its owner left"])
def test_inbox_of_another_connection_cannot_be_had(has_rights: bool, who: str, when: str) -> None:
    broker = BrokerHarness(grants=grants() if has_rights else None)
    alice, intruder = connect(broker, "alice"), connect(broker, who)
    alice.subscribe(INBOX, "exclusive:true")
    if when == "after its owner left":
        alice.lose()
    intruder.subscribe(INBOX, "exclusive:true", "receipt:r")
    assert intruder.received() == [IGNORED]

    # Not even by who is told at once that nobody is there.
    is_there = when == "while it is there"
    assert verdict(intruder, INBOX) == (UNAUTHORISED if is_there else "rejected-no-consumer")
    assert not intruder.is_closed


def test_inbox_cannot_be_had_before_its_owner_comes(broker: BrokerHarness) -> None:
    mallory = connect(broker, "mallory")

    assert verdict(mallory, INBOX) == "rejected-no-consumer"
    mallory.subscribe(INBOX, "receipt:r")
    assert mallory.received() == [IGNORED]
    assert broker.destinations == {}


def test_who_may_not_send_is_not_told_how_many_listen(broker: BrokerHarness) -> None:
    alice, mallory = connect(broker, "alice"), connect(broker, "mallory")
    alice.subscribe("/queue/alice.1")
    mallory.publish("/queue/alice.1", "x", headers=["receipt:r"])

    assert mallory.received() == [("RECEIPT", {"receipt-id": "r", "disposition": UNAUTHORISED})]


# What a request could open


@pytest.mark.parametrize(
    "reply_to", ["/queue/alice.1", "/topic/alice.1", "X/alice.1", DEAD_LETTER_QUEUE, INBOX]
)
def test_request_does_not_have_a_service_write_where_its_sender_may_not(
    broker: BrokerHarness, reply_to: str
) -> None:
    alice, mallory, bob = (connect(broker, who) for who in ("alice", "mallory", "bob"))
    alice.subscribe(INBOX, "exclusive:true")
    bob.subscribe("/queue/prices")
    mallory.publish("/queue/prices", "q", headers=[f"neb-reply-to:{reply_to}", "neb-reply-id:1"])
    bob.received()

    assert verdict(bob, reply_to, "neb-in-reply-to:1") == UNAUTHORISED


def test_sender_cannot_be_forged(broker: BrokerHarness) -> None:
    mallory, bob = connect(broker, "mallory"), connect(broker, "bob")
    bob.subscribe("/queue/prices")
    mallory.publish("/queue/prices", "q", headers=["sender:alice", r"sender\c:alice"])

    assert bob.message()[0]["sender"] == "mallory"


def test_only_callers_of_a_service_cancel_there_and_only_it_listens(broker: BrokerHarness) -> None:
    alice, bob, audrey = (connect(broker, who) for who in ("alice", "bob", "audrey"))
    bob.subscribe("/topic/nebula.cancel.prices")
    assert verdict(audrey, "/topic/nebula.cancel.prices") == UNAUTHORISED
    assert verdict(alice, "/topic/nebula.cancel.flights") == UNAUTHORISED
    alice.subscribe("/topic/nebula.cancel.prices", "receipt:r")
    assert alice.received() == [IGNORED]

    assert verdict(alice, "/topic/nebula.cancel.prices") == ACCEPTED
    assert bob.bodies() == ["intrusion"]


def test_only_a_service_speaks_for_itself(broker: BrokerHarness) -> None:
    alice, bob = connect(broker, "alice"), connect(broker, "bob")
    for destination in ("X/jobs.prices.1", "X/nebula.services.prices.i1", "/topic/jobs.prices.1"):
        assert verdict(alice, destination) == UNAUTHORISED
        assert verdict(bob, destination) == ACCEPTED


# The dead-letter queue


@pytest.mark.parametrize("who", ["alice", "audrey", "bob"])
def test_dead_letters_are_read_by_whom_they_are_granted_by_name(broker: BrokerHarness, who: str) -> None:
    intruder = connect(broker, who)
    intruder.subscribe(DEAD_LETTER_QUEUE, "receipt:r")

    assert intruder.received() == [IGNORED]


# Transactions


def test_transaction_opens_nothing(broker: BrokerHarness) -> None:
    alice, mallory = connect(broker, "alice"), connect(broker, "mallory")
    alice.subscribe("/queue/alice.1")
    mallory.say("BEGIN transaction:t")
    mallory.publish("/queue/mallory.1", "mine", headers=["transaction:t"])
    mallory.publish("/queue/alice.1", "intrusion", headers=["transaction:t", "receipt:bad"])
    mallory.say("COMMIT transaction:t; receipt:c")

    assert mallory.received()[-1] == (
        "RECEIPT",
        {"receipt-id": "c", "disposition": UNAUTHORISED, "failed-receipt": "bad"},
    )
    assert alice.received() == []
    assert "/queue/mallory.1" not in broker.destinations


def test_right_that_was_withdrawn_after_the_send_counts_at_the_commit(broker: BrokerHarness) -> None:
    alice = connect(broker, "alice")
    alice.say("BEGIN transaction:t")
    alice.publish("/queue/prices", "x", headers=["transaction:t"])
    review(broker, alice=())
    alice.say("COMMIT transaction:t; receipt:c")

    assert alice.received() == [("RECEIPT", {"receipt-id": "c", "disposition": UNAUTHORISED})]


def test_one_connection_cannot_settle_what_another_holds(broker: BrokerHarness) -> None:
    alice, mallory = connect(broker, "alice"), connect(broker, "mallory")
    alice.subscribe("/queue/alice.1", "ack:client")
    alice.publish("/queue/alice.1", "x")
    (held,) = alice.received()
    for command in ("ACK", "NACK"):
        mallory.ack(held, "receipt:r", command=command)

    assert mallory.received() == [IGNORED, IGNORED]
    assert broker.broker.queues.by_name["/queue/alice.1"].store.depth == 1


# Sessions


def test_session_of_another_principal_is_not_taken_over(broker: BrokerHarness) -> None:
    alice = connect(broker, "alice", client_id="c")
    mallory = broker.accept(principal="mallory")
    mallory.say("CONNECT accept-version:1.2; host:h; client-id:c")

    ((command, headers, *_),) = mallory.received()
    assert (command, headers["message"]) == ("ERROR", "the session cannot be had")
    assert not alice.is_closed


def test_operator_is_told_who_wanted_anothers_session(broker: BrokerHarness) -> None:
    connect(broker, "alice", client_id="c")
    mallory = broker.accept(principal="mallory")
    mallory.say("CONNECT accept-version:1.2; host:h; client-id:c")

    refusals, uncounted = broker.broker.account.take_refusals()
    assert [(each.principal, each.what, each.destination) for each in refusals] == [
        ("mallory", "CONNECT", "c")
    ]
    assert not uncounted


def test_operator_is_told_of_what_is_invalid_by_its_headers_alone(broker: BrokerHarness) -> None:
    mallory = connect(broker, "mallory")
    for _ in range(2):  # the second has known headers
        mallory.publish("X/*", "x")

    refusals, _ = broker.broker.account.take_refusals()
    assert [(each.destination, each.verdict) for each in refusals] == [("X/*", "rejected-invalid")] * 2


def test_session_of_another_principal_is_not_resumed(broker: BrokerHarness) -> None:
    alice = connect(broker, "alice", client_id="c")
    alice.subscribe("/topic/alice.1", "durable:true")
    alice.lose()
    mallory = broker.accept(principal="mallory")
    mallory.say("CONNECT accept-version:1.2; host:h; client-id:c")
    connect(broker, "alice").publish("/topic/alice.1", "kept")

    assert mallory.received()[0][0] == "ERROR"
    assert mallory.is_closed
    again = connect(broker, "alice", client_id="c")
    again.subscribe("/topic/alice.1", "durable:true")
    assert again.bodies() == ["kept"]


def test_session_id_that_the_broker_made_is_as_well_guarded(broker: BrokerHarness) -> None:
    alice = connect(broker, "alice")
    mallory = broker.accept(principal="mallory")
    mallory.say(f"CONNECT accept-version:1.2; host:h; client-id:{alice.session.id}")

    assert mallory.received()[0][0] == "ERROR"
    assert not alice.is_closed
