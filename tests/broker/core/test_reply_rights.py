"""Reply rights: who received a request may answer it once, and nobody else may (G.reply-right)."""

from __future__ import annotations

import pytest

from nebula.broker.core.access import BROKERS_OWN, Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.broker.core.profiles import MAXAM
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

INBOX = "/queue/nebula.inbox.1"
SERVICE = "/queue/prices"
ANSWERS = "/queue/answers.alice"
ACCEPTED, UNAUTHORISED, NO_CONSUMER = "accepted", "rejected-unauthorised", "rejected-no-consumer"

RIGHTS = Grants(
    {
        "caller": Capability(
            publish=(SERVICE, "/topic/asked", "X/asked"), subscribe=("/queue/answers.{identity}",)
        ),
        "service": Capability(subscribe=(SERVICE, "/topic/asked", "X/asked")),
        "reader of values": Capability(subscribe=("X/private",)),
    },
    {
        "alice": ("caller", "reader of values"),
        "mallory": ("caller",),
        "bob": ("service",),
        "carol": ("service",),
    },
)


@pytest.fixture(params=["open", "rights"])
def world(request: pytest.FixtureRequest) -> BrokerHarness:
    """A broker without configured rights, and one with."""
    return BrokerHarness(grants=RIGHTS if request.param == "rights" else None)


def caller(broker: BrokerHarness, principal: str = "alice", inbox: str = INBOX) -> Peer:
    """Somebody with an inbox of its own."""
    peer = broker.connect(principal=principal)
    peer.subscribe(inbox, "exclusive:true")
    return peer


def service(broker: BrokerHarness, *headers: str, principal: str = "bob", name: str = SERVICE) -> Peer:
    peer = broker.connect(principal=principal)
    peer.subscribe(name, *headers)
    return peer


def ask(peer: Peer, *headers: str, to: str = INBOX, id: str | None = "1", name: str = SERVICE) -> None:  # noqa: A002
    """Send a request that wants its answer at `to`."""
    more = [] if id is None else [f"neb-reply-id:{id}"]
    peer.publish(name, "request", headers=[f"neb-reply-to:{to}", *more, *headers])


def answer(peer: Peer, *headers: str, to: str = INBOX, id: str | None = "1") -> str:  # noqa: A002
    """The verdict on an answer."""
    more = [] if id is None else [f"neb-in-reply-to:{id}"]
    peer.publish(to, "answer", headers=[*more, "receipt:answered", *headers])
    (verdict,) = (
        frame[1]["disposition"]
        for frame in peer.received()
        if frame[0] == "RECEIPT" and frame[1]["receipt-id"] == "answered"
    )
    return verdict


# To whom


def test_who_received_a_request_may_answer_it(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)

    assert answer(bob) == ACCEPTED
    assert alice.bodies() == ["answer"]


def test_inbox_takes_nothing_from_who_received_nothing(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)

    assert answer(bob) == UNAUTHORISED
    assert alice.received() == []


def test_one_may_send_to_ones_own_inbox_again_and_again(world: BrokerHarness) -> None:
    alice = caller(world)
    alice.publish(INBOX, "1", "2")

    assert alice.bodies() == ["1", "2"]


def test_another_connection_of_the_same_principal_may_not_send_to_an_inbox(world: BrokerHarness) -> None:
    caller(world)

    assert answer(world.connect(principal="alice")) == UNAUTHORISED


def test_right_belongs_to_the_connection_that_received_the_request(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)

    assert answer(world.connect(principal="bob")) == UNAUTHORISED
    assert answer(bob) == ACCEPTED


def test_request_that_waits_gives_no_right_yet(world: BrokerHarness) -> None:
    alice = caller(world)
    bob = service(world, "ack:client", "prefetch-count:1")
    ask(alice, id="1")
    ask(alice, id="2")

    assert answer(bob, id="2") == UNAUTHORISED
    assert answer(bob, id="1") == ACCEPTED


def test_right_is_for_the_destination_that_the_request_names(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    caller(world, inbox="/queue/nebula.inbox.2")
    ask(alice)

    assert answer(bob, to="/queue/nebula.inbox.2") == UNAUTHORISED


def test_right_is_for_the_id_that_the_request_has(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, id="1")

    assert answer(bob, id="2") == UNAUTHORISED
    assert answer(bob, id=None) == UNAUTHORISED
    assert answer(bob, id="1") == ACCEPTED


def test_request_on_a_topic_gives_a_right_to_all_who_received_it(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world, name="/topic/asked")
    carol = service(world, "ack:client", name="/topic/asked", principal="carol")
    ask(alice, name="/topic/asked")

    assert (answer(bob), answer(carol)) == (ACCEPTED, ACCEPTED)


# How often


def test_answer_spends_the_right(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)

    assert [answer(bob), answer(bob)] == [ACCEPTED, UNAUTHORISED]
    assert alice.bodies() == ["answer"]


def test_each_delivery_gives_one_right(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, id="1")
    ask(alice, id="2")

    assert [answer(bob, id=id_) for id_ in ("2", "1", "1", "2")] == [ACCEPTED] * 2 + [UNAUTHORISED] * 2


def test_requests_without_an_id_give_one_right_each(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, id=None)
    ask(alice, id=None)

    assert [answer(bob, id=None) for _ in range(3)] == [ACCEPTED, ACCEPTED, UNAUTHORISED]


def test_answer_that_was_refused_spends_nothing() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    alice, bob = broker.connect(), service(broker)
    alice.subscribe(INBOX, "exclusive:true", "ack:client", "prefetch-count:1")
    ask(alice)
    alice.publish(INBOX, "fills it")
    assert answer(bob) == "rejected-full"
    bob.subscribe("/queue/nebula.inbox.bob", "exclusive:true", id="inbox")
    bob.publish("/queue/nebula.inbox.bob", "needs no right, and spends none")

    alice.ack(alice.received()[0])

    assert answer(bob) == ACCEPTED


def test_redelivery_gives_a_right_to_who_receives_it_then(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world, "ack:client")
    ask(alice)
    bob.lose()
    carol = service(world, principal="carol")

    assert answer(carol) == ACCEPTED


PART, LAST = "neb-stream:true", ("neb-stream:true", "neb-stream-end:true")


@pytest.mark.parametrize("end", [LAST, ()], ids=["last part", "error"])
def test_parts_of_a_stream_spend_no_right_but_its_end_does(
    world: BrokerHarness, end: tuple[str, ...]
) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, PART)

    assert [answer(bob, PART) for _ in range(3)] == [ACCEPTED] * 3
    assert [answer(bob, *end), answer(bob, PART)] == [ACCEPTED, UNAUTHORISED]


def test_request_for_one_answer_gets_no_stream(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)

    assert [answer(bob, PART), answer(bob, PART)] == [ACCEPTED, UNAUTHORISED]


def test_parts_of_a_stream_in_a_transaction_spend_no_right(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, PART)
    bob.say("BEGIN transaction:t")
    for _ in range(2):
        bob.publish(INBOX, "item", headers=["neb-in-reply-to:1", PART, "transaction:t"])
    bob.say("COMMIT transaction:t")

    assert alice.bodies() == ["item", "item"]


def test_right_to_a_stream_lasts_while_the_stream_goes_on(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, PART)
    for _ in range(3):
        world.now += 3599
        assert answer(bob, PART) == ACCEPTED
    world.now += 3600

    assert answer(bob, PART) == UNAUTHORISED


def test_right_to_a_stream_ends_with_its_requests_time_to_live(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, PART, "neb-timeout:2000")

    assert answer(bob, PART) == ACCEPTED
    world.advance(2)
    assert answer(bob, PART) == UNAUTHORISED


def test_answer_of_ours_gives_no_right_to_answer_it(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    bob.subscribe("/queue/nebula.inbox.bob", "exclusive:true", id="inbox")
    ask(alice, PART)
    part = answer(bob, PART, "neb-response:true", "neb-reply-to:/queue/nebula.inbox.bob")

    assert part == ACCEPTED
    assert answer(alice, to="/queue/nebula.inbox.bob", id=None) == UNAUTHORISED


# How long


@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_right_survives_the_ack(world: BrokerHarness, ack: str) -> None:
    alice, bob = caller(world), service(world, f"ack:{ack}")
    ask(alice)
    bob.ack(bob.received()[0])

    assert answer(bob) == ACCEPTED


def test_right_survives_the_end_of_the_subscription(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)
    bob.say("UNSUBSCRIBE id:s")

    assert answer(bob) == ACCEPTED


@pytest.mark.parametrize(("seconds", "verdict"), [(3599, ACCEPTED), (3600, UNAUTHORISED)])
def test_right_ends_after_an_hour(world: BrokerHarness, seconds: int, verdict: str) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)
    world.now += seconds

    assert answer(bob) == verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(1.75, ACCEPTED), (2, UNAUTHORISED)])
def test_right_ends_with_the_time_to_live_of_the_request(
    world: BrokerHarness, seconds: float, verdict: str
) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, "neb-timeout:2000")
    world.advance(seconds)

    assert answer(bob) == verdict


def test_time_to_live_may_be_longer_than_an_hour(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, "neb-timeout:7200000")
    world.now += 7000

    assert answer(bob) == ACCEPTED


def test_time_that_is_over_for_one_request_does_not_end_the_next_ones_right(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, "neb-timeout:2000")
    ask(alice)
    world.advance(3)

    assert [answer(bob), answer(bob)] == [ACCEPTED, UNAUTHORISED]


def test_answer_to_an_inbox_that_is_gone_has_no_consumer(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)
    alice.lose()

    assert answer(bob) == NO_CONSUMER


def test_right_ends_with_the_inbox_also_where_another_gets_its_name(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, "neb-timeout:7200000")
    alice.lose()
    world.now += 3600
    world.advance(0.25)
    caller(world, principal="mallory")

    assert answer(bob) == UNAUTHORISED


@pytest.mark.interpreted
def test_consumer_that_never_answers_keeps_the_rights_of_its_latest_requests(
    world: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nebula.broker.core.reply_rights.MAX_REPLY_RIGHTS", 2)
    alice, bob = caller(world), service(world)
    for id_ in (None, None, "3"):
        ask(alice, id=id_)

    assert [answer(bob, id=id_) for id_ in (None, None, "3")] == [ACCEPTED, UNAUTHORISED, ACCEPTED]


# What the requester may have


@pytest.mark.parametrize("header", ["neb-reply-to", "neb-reply-id"])
def test_request_whose_answer_is_named_at_length_is_invalid_and_gives_no_right(
    world: BrokerHarness, header: str
) -> None:
    alice, bob = caller(world), service(world)
    for name in (SERVICE, "/topic/asked"):
        # Last, where the parser takes it apart, and not.
        for lines in (f"a:b\n{header}:{'x' * 257}", f"{header}:{'x' * 257}\na:b"):
            alice.send(f"SEND\ndestination:{name}\nreceipt:r\n{lines}\n\nrequest\0")

    assert [frame[1]["disposition"] for frame in alice.received()] == ["rejected-invalid"] * 4
    assert bob.received() == []


def test_request_without_a_reply_address_is_answered_by_a_grant_alone() -> None:
    broker = BrokerHarness(grants=RIGHTS)
    alice, bob = caller(broker), service(broker)
    alice.publish(SERVICE, "request", headers=["neb-reply-id:1"])
    assert bob.bodies() == ["request"]

    assert answer(bob, to=SERVICE) == UNAUTHORISED


def test_answer_goes_where_the_requester_may_subscribe() -> None:
    broker = BrokerHarness(grants=RIGHTS)
    alice, bob = broker.connect(principal="alice"), service(broker)
    ask(alice, to=ANSWERS)
    assert answer(bob, to=ANSWERS) == ACCEPTED

    alice.subscribe(ANSWERS)

    assert alice.bodies() == ["answer"]


@pytest.mark.parametrize(
    "to", [ANSWERS, "/queue/secret", "/topic/secret", "/queue/nebula.broker", "/queue/DLQ"]
)
def test_request_gives_no_right_to_what_its_sender_may_not_receive(to: str) -> None:
    broker = BrokerHarness(grants=RIGHTS)
    mallory, bob = broker.connect(principal="mallory"), service(broker)
    ask(mallory, to=to)

    verdict = UNAUTHORISED if to != "/queue/nebula.broker" else ACCEPTED  # everybody may ask the broker
    assert answer(bob, to=to) == verdict


def test_inbox_of_another_cannot_be_named(world: BrokerHarness) -> None:
    alice, mallory, bob = caller(world), world.connect(principal="mallory"), service(world)
    ask(mallory)

    assert answer(bob) == UNAUTHORISED
    assert alice.received() == []


@pytest.mark.parametrize("inbox", [INBOX, "/queue/nebula.inbox.2"])
def test_inbox_of_another_connection_cannot_be_named(world: BrokerHarness, inbox: str) -> None:
    alice, twin, bob = caller(world), world.connect(principal="alice"), service(world)
    twin.subscribe("/queue/nebula.inbox.2", "exclusive:true")
    ask(twin, to=inbox)

    assert answer(bob, to=inbox) == (UNAUTHORISED if inbox == INBOX else ACCEPTED)
    assert alice.received() == []


def test_right_ends_with_its_connection_also_where_another_of_its_principal_gets_the_inbox(
    world: BrokerHarness,
) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, "neb-timeout:7200000")
    alice.lose()
    world.now += 3600
    world.advance(0.25)
    twin = caller(world)

    assert answer(bob) == UNAUTHORISED
    assert twin.received() == []


@pytest.mark.parametrize("grants", [None, RIGHTS], ids=["open", "rights"])
@pytest.mark.parametrize(("inbox", "verdict"), [("/queue/nebula.inbox.own", ACCEPTED), (INBOX, UNAUTHORISED)])
def test_request_that_was_on_disk_alone_is_answered_at_the_inbox_of_its_connection(
    grants: Grants | None, inbox: str, verdict: str
) -> None:
    limits = Limits(queue_window_bytes=40_000)
    broker = BrokerHarness(limits, grants=grants, store=MemoryStore(MemoryDisk()))
    twin = caller(broker)
    alice = caller(broker, inbox="/queue/nebula.inbox.own")
    for number in range(40):
        to = inbox if number == 39 else "/queue/nebula.inbox.own"
        ask(alice, "persistent:true", f"padding:{'x' * 5000}", to=to, id=str(number))
        broker.commit()
    broker.broker.queues.page_out(10_000)
    assert broker.broker.queues.by_name[SERVICE].store.paging.is_deep
    bob = service(broker, "ack:client-individual")
    bob.received()

    assert answer(bob, to=inbox, id="39") == verdict
    assert twin.received() == []


def test_request_of_before_a_restart_reaches_no_inbox_of_after_it(world: BrokerHarness) -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    ask(caller(broker), "persistent:true")
    broker.stop()
    again = BrokerHarness(store=MemoryStore(disk))
    caller(again)
    bob = service(again)

    assert answer(bob) == UNAUTHORISED


def test_request_of_another_with_the_same_names_takes_nothing_away(world: BrokerHarness) -> None:
    alice, mallory, bob = caller(world), world.connect(principal="mallory"), service(world)
    ask(alice)
    ask(mallory)

    assert answer(bob) == ACCEPTED


@pytest.mark.parametrize("principal", ["alice", "mallory"])
def test_no_request_gives_a_right_to_a_last_value(principal: str) -> None:
    broker = BrokerHarness(grants=RIGHTS)
    alice, bob = broker.connect(principal=principal), service(broker)
    ask(alice, to="X/private")

    assert answer(bob, to="X/private") == UNAUTHORISED
    assert broker.broker.values.topics == {}


def test_request_that_is_a_last_value_gives_no_right() -> None:
    broker = BrokerHarness(grants=RIGHTS)
    alice, bob = caller(broker), service(broker, name="X/asked")
    ask(alice, name="X/asked")

    assert len(bob.received()) == 1
    assert answer(bob) == UNAUTHORISED


def test_right_is_judged_by_the_rights_of_the_requester_at_the_answer() -> None:
    broker = BrokerHarness(grants=RIGHTS)
    alice, bob = broker.connect(principal="alice"), service(broker)
    ask(alice, to=ANSWERS)
    broker.broker.review(Grants(RIGHTS.capabilities, {"bob": ("service",)}), broker.now)

    assert answer(bob, to=ANSWERS) == UNAUTHORISED


def test_who_may_send_anyway_needs_and_spends_no_right() -> None:
    broker = BrokerHarness()
    alice, bob = broker.connect(), service(broker)
    ask(alice, to="/queue/answers")

    assert [answer(bob, to="/queue/answers") for _ in range(3)] == [ACCEPTED] * 3


def test_requester_of_before_a_restart_is_judged_by_its_stored_name() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(grants=RIGHTS, store=MemoryStore(disk))
    for principal, id_ in [("alice", "1"), ("mallory", "2")]:
        ask(broker.connect(principal=principal), "persistent:true", to=ANSWERS, id=id_)
    broker.stop()

    again = BrokerHarness(grants=RIGHTS, store=MemoryStore(disk))
    bob = service(again)

    assert [answer(bob, to=ANSWERS, id=id_) for id_ in "12"] == [ACCEPTED, UNAUTHORISED]


# Whose word it is

DEPUTY = Grants(
    {
        "caller": Capability(
            publish=(SERVICE, "/topic/told", "X/told"), subscribe=(ANSWERS, "X/board", "/topic/heard")
        ),
        "service": Capability(
            publish=("/queue/payments", "/topic/**", "X/**", ANSWERS), subscribe=(SERVICE,)
        ),
    },
    {"alice": ("caller",), "bob": ("service",)},
)
REPLY_TO, NOTIFY = "neb-reply-to", "neb-job-notify"


def verdict_on(peer: Peer, *headers: str) -> str:
    """The verdict on a request."""
    peer.publish(SERVICE, "request", headers=[*headers, "receipt:asked"])
    return next(frame[1]["disposition"] for frame in peer.received() if frame[0] == "RECEIPT")


@pytest.mark.parametrize(
    ("header", "address", "verdict"),
    [
        (REPLY_TO, "/queue/payments", UNAUTHORISED),
        (REPLY_TO, SERVICE, UNAUTHORISED),  # alice may publish there herself, and receives nothing from there
        (REPLY_TO, "/topic/payments", UNAUTHORISED),
        (REPLY_TO, "X/board", UNAUTHORISED),
        (REPLY_TO, "X/told", UNAUTHORISED),
        (REPLY_TO, "X/nebula.services.prices.1", UNAUTHORISED),
        (REPLY_TO, "/queue/nebula.broker", UNAUTHORISED),
        (REPLY_TO, "/queue/DLQ", UNAUTHORISED),
        (REPLY_TO, INBOX, UNAUTHORISED),  # another's
        (REPLY_TO, "/queue/nebula.inbox.gone", UNAUTHORISED),
        (REPLY_TO, "/queue/nebula.inbox.own", ACCEPTED),
        (REPLY_TO, ANSWERS, ACCEPTED),
        (REPLY_TO, "/topic/heard", ACCEPTED),
        (REPLY_TO, "", ACCEPTED),
        (NOTIFY, "/queue/payments", UNAUTHORISED),
        (NOTIFY, "X/board", UNAUTHORISED),  # to read it is not to replace it
        (NOTIFY, "/queue/nebula.broker", UNAUTHORISED),
        (NOTIFY, INBOX, UNAUTHORISED),
        (NOTIFY, "/queue/nebula.inbox.own", ACCEPTED),
        (NOTIFY, ANSWERS, ACCEPTED),
        (NOTIFY, "/topic/told", ACCEPTED),
        (NOTIFY, "/topic/heard", ACCEPTED),
        (NOTIFY, "X/told", ACCEPTED),
    ],
)
def test_request_names_no_address_that_is_not_its_senders(header: str, address: str, verdict: str) -> None:
    broker = BrokerHarness(grants=DEPUTY)
    caller(broker, principal="alice")  # another connection of hers
    alice, bob = caller(broker, inbox="/queue/nebula.inbox.own"), service(broker)

    # The second one has a head that was judged before.
    assert [verdict_on(alice, f"{header}:{address}") for _ in range(2)] == [verdict] * 2
    assert len(bob.received()) == (2 if verdict == ACCEPTED else 0)


@pytest.mark.parametrize("address", ["/queue/payments", "X/board"])
@pytest.mark.parametrize("header", [REPLY_TO, NOTIFY])
def test_service_writes_nothing_where_its_caller_may_not(header: str, address: str) -> None:
    broker = BrokerHarness(grants=DEPUTY)
    alice, bob = broker.connect(principal="alice"), service(broker)
    verdict_on(alice, f"{header}:{address}", "neb-reply-id:1")
    for _, headers, *_ in bob.received():
        bob.publish(headers[header], "confused", headers=["neb-in-reply-to:1"])

    assert answer(bob, "neb-response:true", to=address) == UNAUTHORISED
    assert address not in broker.destinations


def test_address_is_judged_anew_when_rights_or_inboxes_have_changed() -> None:
    broker = BrokerHarness(grants=DEPUTY)
    alice = broker.connect(principal="alice")
    own, there = f"{REPLY_TO}:/queue/nebula.inbox.own", f"{REPLY_TO}:{ANSWERS}"
    assert [verdict_on(alice, own), verdict_on(alice, there)] == [UNAUTHORISED, ACCEPTED]

    alice.subscribe("/queue/nebula.inbox.own", "exclusive:true")
    assert verdict_on(alice, own) == ACCEPTED
    only = {**DEPUTY.capabilities, "caller": Capability(publish=(SERVICE,))}
    broker.broker.review(Grants(only, DEPUTY.identities), broker.now)

    assert [verdict_on(alice, own), verdict_on(alice, there)] == [ACCEPTED, UNAUTHORISED]


def test_request_in_a_transaction_names_no_address_that_is_not_its_senders() -> None:
    broker = BrokerHarness(grants=DEPUTY)
    alice, bob = broker.connect(principal="alice"), service(broker)
    alice.say("BEGIN transaction:t")
    ask(alice, "transaction:t", to="/queue/payments")
    alice.say("COMMIT transaction:t; receipt:c")

    assert alice.received()[0][1]["disposition"] == UNAUTHORISED
    assert bob.received() == []


@pytest.mark.parametrize(
    ("credit_to", "verdict"),
    [("/queue/prices.one", ACCEPTED), ("/queue/secret", UNAUTHORISED), ("X/board", UNAUTHORISED)],
)
def test_stream_has_its_credit_sent_where_its_service_may_receive_it(credit_to: str, verdict: str) -> None:
    broker = BrokerHarness(grants=DEPUTY)
    alice, bob = caller(broker), service(broker)
    ask(alice, PART)

    assert answer(bob, PART, "neb-response:true", f"neb-reply-to:{credit_to}") == verdict


@pytest.mark.parametrize("to", ["/queue/payments", "X/board", ANSWERS])
def test_answer_goes_by_the_right_to_answer_alone(to: str) -> None:
    broker = BrokerHarness(grants=DEPUTY)
    alice, bob = broker.connect(principal="alice"), service(broker)

    assert answer(bob, "neb-response:true", to=to) == UNAUTHORISED
    assert answer(bob, to=to) == ACCEPTED  # no answer: by its own grants
    ask(alice, to=ANSWERS)
    assert answer(bob, "neb-response:true", to=ANSWERS) == ACCEPTED
    assert answer(bob, "neb-response:true", to=ANSWERS) == UNAUTHORISED


def test_answer_may_go_to_its_senders_own_inbox() -> None:
    broker = BrokerHarness(grants=DEPUTY)

    assert answer(caller(broker), "neb-response:true") == ACCEPTED


def test_broker_without_rights_judges_no_address() -> None:
    broker = BrokerHarness()
    alice, bob = broker.connect(), service(broker)
    for address in ("/queue/out", "X/board", "/queue/nebula.inbox.gone"):
        assert verdict_on(alice, f"{REPLY_TO}:{address}", f"{NOTIFY}:{address}") == ACCEPTED

    assert answer(bob, "neb-response:true", to="/queue/out") == ACCEPTED


def test_address_is_judged_once_for_all_requests_that_name_it() -> None:
    broker = BrokerHarness(grants=DEPUTY)
    alice = caller(broker)
    for id_ in "123":
        ask(alice, id=id_)
    (head,) = {message.head for message in broker.broker.queues.by_name[SERVICE].store.line.in_memory()}

    # With that the others go by the short way, as those without an address do.
    assert head.free_in == broker.broker.access.epoch


# In transactions, and in both profiles


def test_right_is_spent_once_in_a_transaction(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)
    bob.received()
    held = f"SEND destination:{INBOX}; neb-in-reply-to:1; transaction:t"
    bob.say("BEGIN transaction:t", f"{held}; receipt:first | 1", f"{held}; receipt:second | 2")
    bob.say("COMMIT transaction:t; receipt:c")

    assert bob.received()[-1] == (
        "RECEIPT",
        {"receipt-id": "c", "disposition": UNAUTHORISED, "failed-receipt": "second"},
    )
    assert answer(bob) == ACCEPTED  # the refused transaction has spent nothing
    assert alice.bodies() == ["answer"]


def test_requests_without_an_id_are_answered_in_one_transaction(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, id=None)
    ask(alice, id=None)
    held = f"SEND destination:{INBOX}; transaction:t"
    bob.say("BEGIN transaction:t", f"{held} | 1", f"{held} | 2", "COMMIT transaction:t")

    assert alice.bodies() == ["1", "2"]
    assert answer(bob, id=None) == UNAUTHORISED


def test_answer_in_a_transaction_spends_the_right(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice)
    bob.received()
    bob.say(
        "BEGIN transaction:t",
        f"SEND destination:{INBOX}; neb-in-reply-to:1; transaction:t | answer",
        "COMMIT transaction:t; receipt:c",
    )

    assert bob.received() == [("RECEIPT", {"receipt-id": "c"})]
    assert alice.bodies() == ["answer"]
    assert answer(bob) == UNAUTHORISED


def test_right_that_ended_before_the_commit_is_not_there(world: BrokerHarness) -> None:
    alice, bob = caller(world), service(world)
    ask(alice, "neb-timeout:2000")
    bob.received()
    bob.say("BEGIN transaction:t", f"SEND destination:{INBOX}; neb-in-reply-to:1; transaction:t | late")
    world.advance(2)
    bob.say("COMMIT transaction:t; receipt:c")

    assert bob.received() == [("RECEIPT", {"receipt-id": "c", "disposition": UNAUTHORISED})]
    assert alice.received() == []


def test_maxam_knows_reply_rights_too(world: BrokerHarness) -> None:
    alice = caller(world)
    bob = world.connect(principal="bob", profile=MAXAM, heart_beat="10000,10000")
    bob.subscribe(SERVICE)
    ask(alice)

    assert [answer(bob), answer(bob)] == [ACCEPTED, UNAUTHORISED]


def test_broker_itself_keeps_no_right_to_an_answer_that_a_full_inbox_refuses() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=1))
    alice, own = broker.connect(), broker.connect(principal=BROKERS_OWN)
    alice.subscribe(INBOX, "exclusive:true", "ack:client-individual")
    own.subscribe("/queue/nebula.broker")
    for number in range(5):
        alice.say(f"SEND destination:/queue/nebula.broker; neb-reply-to:{INBOX}; neb-reply-id:{number}")
    verdicts = []
    for number in range(5):
        own.say(f"SEND destination:{INBOX}; neb-in-reply-to:{number}; receipt:r")
        verdicts += [frame[1]["disposition"] for frame in own.received() if frame[0] == "RECEIPT"]

    assert verdicts == [ACCEPTED, *["rejected-full"] * 4]
    assert own.session.reply_rights._size_bytes == 0
