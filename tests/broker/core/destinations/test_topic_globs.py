"""Globs over topics, and durable subscriptions to topics (B.5, B.6, D.3, D.32, D.33)."""

from __future__ import annotations

import random

import pytest

from nebula.broker.core.access import Capability, Grants, Rights
from nebula.broker.core.limits import Limits
from nebula.globs import compile_glob, is_glob
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore

TOPIC = "/topic/news.uk"
INDIVIDUAL = "ack:client-individual"
DURABLE = "durable:true"


@pytest.mark.parametrize(
    ("pattern", "matches", "others"),
    [
        ("/topic/news.*", ["news.uk", "news.", "news.uk.london"], ["news", "news.uk/london", "sport.uk"]),
        ("/topic/news.?k", ["news.uk", "news..k"], ["news.k", "news./k"]),
        ("/topic/[mn]ews", ["mews", "news"], ["ews", "mnews"]),
        ("/topic/[!n]ews", ["mews"], ["news", "/ews"]),
        ("/topic/**", ["a", "a/b", ""], []),
        ("/topic/a/**/z", ["a/b/z", "a/b/c/z"], ["a/b/c"]),
    ],
)
@pytest.mark.parametrize("ack", ["ack:auto", "ack:client"])
def test_glob_gets_what_it_matches_and_nothing_else(
    broker: BrokerHarness, pattern: str, matches: list[str], others: list[str], ack: str
) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(pattern, ack)
    for name in (*matches, *others):
        alice.publish(f"/topic/{name}", name or "-")

    assert bob.bodies() == [name or "-" for name in matches]


def test_message_names_the_topic_that_it_was_sent_to(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/topic/*")
    alice.publish(TOPIC, "x")

    headers, _ = bob.message()
    assert headers["destination"] == TOPIC


def test_each_matching_subscription_gets_a_message_of_its_own(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    for name, pattern in [("1", TOPIC), ("2", "/topic/*"), ("3", "/topic/news.*"), ("4", "/topic/sport.*")]:
        bob.subscribe(pattern, id=name)
    alice.publish(TOPIC, "x")

    assert sorted(frame[1]["subscription"] for frame in bob.received()) == ["1", "2", "3"]


def test_glob_does_not_cross_from_topics_to_other_destinations(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/topic/**")
    alice.publish("/queue/a", "queue")
    alice.publish("X/a", "value")

    assert bob.received() == []


def test_glob_characters_are_ordinary_in_the_names_of_queues(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/queue/*")
    alice.publish("/queue/a", "other")
    alice.publish("/queue/*", "same name")

    assert bob.bodies() == ["same name"]


@pytest.mark.parametrize("pattern", ["/topic/[", "/topic/[]", "/topic/a[b", "X/["])
@pytest.mark.parametrize("more", [[], [DURABLE]])
def test_malformed_glob_is_an_error_and_leaves_nothing_behind(
    broker: BrokerHarness, pattern: str, more: list[str]
) -> None:
    bob = broker.connect(client_id="c")
    bob.subscribe(pattern, "receipt:r", *more)

    ((command, headers, *_),) = bob.received()
    assert (command, headers["receipt-id"]) == ("ERROR", "r")
    assert broker.destinations == {}
    assert broker.broker.durable_sessions.by_id == {}


@pytest.mark.parametrize("ending", ["unsubscribe", "disconnect", "lose"])
def test_glob_that_ended_gets_nothing_and_is_forgotten(broker: BrokerHarness, ending: str) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/topic/*")
    if ending == "unsubscribe":
        bob.say("UNSUBSCRIBE id:s")
    else:
        getattr(bob, ending)()
    alice.publish(TOPIC, "x")

    assert bob.received() == []
    assert broker.destinations == {}


def test_subscription_that_comes_after_a_name_was_warm_is_told_too(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/topic/news.*", id="1")
    alice.publish(TOPIC, "1")
    bob.subscribe("/topic/*.uk", id="2")
    alice.publish(TOPIC, "2")
    bob.say("UNSUBSCRIBE id:1")
    alice.publish(TOPIC, "3")

    assert [(frame[1]["subscription"], frame[2:]) for frame in bob.received()] == [
        ("1", ("1",)),
        ("1", ("2",)),
        ("2", ("2",)),
        ("2", ("3",)),
    ]


def test_slow_reader_of_a_glob_is_ended_and_the_others_go_on() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=2))
    alice, bob, carol = broker.connect(), broker.connect(), broker.connect()
    bob.subscribe("/topic/*", "ack:client", "prefetch-count:1")
    carol.subscribe("/topic/*")
    alice.publish(TOPIC, "1", "2", "3")

    assert bob.is_closed
    assert carol.bodies() == ["1", "2", "3"]


# Durable


def durable(broker: BrokerHarness, *headers: str, pattern: str = TOPIC, client_id: str = "c") -> Peer:
    peer = broker.connect(client_id=client_id)
    peer.subscribe(pattern, DURABLE, *headers)
    return peer


@pytest.mark.parametrize("pattern", [TOPIC, "/topic/*"])
@pytest.mark.parametrize("ack", ["ack:auto", "ack:client", INDIVIDUAL])
@pytest.mark.parametrize("ending", ["lose", "disconnect"])
def test_durable_subscription_keeps_each_message_while_its_session_is_away(
    broker: BrokerHarness, pattern: str, ack: str, ending: str
) -> None:
    alice = broker.connect()
    getattr(durable(broker, ack, pattern=pattern), ending)()
    alice.publish(TOPIC, "1", "2", "3")

    assert durable(broker, ack, pattern=pattern).bodies() == ["1", "2", "3"]


def test_durable_subscription_is_served_at_once_while_it_is_there(broker: BrokerHarness) -> None:
    bob = durable(broker)
    broker.connect().publish(TOPIC, "1")

    assert bob.bodies() == ["1"]


def test_unacked_messages_of_a_durable_subscription_come_again_first(broker: BrokerHarness) -> None:
    alice, bob = broker.connect(), durable(broker, INDIVIDUAL)
    alice.publish(TOPIC, "1", "2")
    _, two = bob.received()
    bob.ack(two)
    bob.lose()
    alice.publish(TOPIC, "3")

    again = durable(broker, INDIVIDUAL).received()

    assert [frame[2:] for frame in again] == [("1",), ("3",)]
    assert again[0][1]["delivery-count"] == "1"


def test_receipt_of_a_durable_subscribe_comes_before_what_was_kept(broker: BrokerHarness) -> None:
    alice = broker.connect()
    durable(broker).lose()
    alice.publish(TOPIC, "1")

    assert [frame[0] for frame in durable(broker, "receipt:r").received()] == ["RECEIPT", "MESSAGE"]


def test_session_that_connected_without_a_client_id_is_resumed_by_what_it_was_told(
    broker: BrokerHarness,
) -> None:
    alice, bob = broker.connect(), broker.connect(name="bob")
    bob.subscribe(TOPIC, DURABLE)
    bob.lose()
    alice.publish(TOPIC, "1")

    assert durable(broker, client_id="session-bob").bodies() == ["1"]


@pytest.mark.parametrize("header", ["", "; durable:false"])
def test_unsubscribe_pauses(broker: BrokerHarness, header: str) -> None:
    alice, bob = broker.connect(), durable(broker)
    bob.say(f"UNSUBSCRIBE id:s; receipt:u{header}")
    alice.publish(TOPIC, "1")
    assert bob.received() == [("RECEIPT", {"receipt-id": "u", "result": "paused"})]

    bob.subscribe(TOPIC, DURABLE)

    assert bob.bodies() == ["1"]


@pytest.mark.parametrize("is_paused", [False, True])
def test_unsubscribe_with_durable_removes_it_and_what_it_kept(broker: BrokerHarness, is_paused: bool) -> None:
    alice, bob = broker.connect(), durable(broker, "ack:client", "prefetch-count:1")
    alice.publish(TOPIC, "1", "2")
    bob.received()
    if is_paused:
        bob.say("UNSUBSCRIBE id:s")
    bob.say("UNSUBSCRIBE id:s; durable:true; receipt:u")

    assert bob.received() == [("RECEIPT", {"receipt-id": "u", "result": "removed"})]
    assert broker.destinations == {}
    assert broker.broker.durable_sessions.by_id == {}
    assert broker.broker.account.stored_bytes == 0
    bob.subscribe(TOPIC, DURABLE)
    assert bob.received() == []


def test_same_id_with_another_destination_replaces(broker: BrokerHarness) -> None:
    alice = broker.connect()
    durable(broker).lose()
    alice.publish(TOPIC, "old")
    bob = durable(broker, pattern="/topic/sport")
    alice.publish(TOPIC, "old")
    alice.publish("/topic/sport", "new")

    assert bob.bodies() == ["new"]
    assert list(broker.destinations) == ["/topic/sport"]


def test_ack_mode_and_prefetch_are_those_of_the_last_subscribe(broker: BrokerHarness) -> None:
    alice = broker.connect()
    durable(broker, INDIVIDUAL).lose()
    alice.publish(TOPIC, "1", "2", "3")
    bob = durable(broker, "ack:client", "prefetch-count:2")
    _, two = bob.received()
    bob.ack(two)

    assert bob.bodies() == ["3"]


def test_two_sessions_have_each_their_own(broker: BrokerHarness) -> None:
    alice = broker.connect()
    durable(broker, client_id="b").lose()
    durable(broker, client_id="c").lose()
    alice.publish(TOPIC, "1")

    assert durable(broker, client_id="b").bodies() == ["1"]
    assert durable(broker, client_id="c").bodies() == ["1"]


def test_durable_on_a_queue_means_nothing(broker: BrokerHarness) -> None:
    bob = broker.connect(client_id="c")
    bob.subscribe("/queue/a", DURABLE, "eager:true", "receipt:r")
    bob.say("UNSUBSCRIBE id:s; receipt:u")

    assert [frame[1] for frame in bob.received()] == [{"receipt-id": "r"}, {"receipt-id": "u"}]
    assert broker.destinations == {}
    assert broker.broker.durable_sessions.by_id == {}


def test_queue_of_a_durable_subscription_cannot_be_named_by_peers(broker: BrokerHarness) -> None:
    alice = broker.connect()
    durable(broker).lose()
    alice.publish(TOPIC, "secret")

    (queue,) = broker.broker.topics.topics[TOPIC].queues
    assert queue.name not in broker.broker.queues.by_name
    assert queue.name.startswith("\0")


def test_request_that_waits_for_a_durable_subscriber_passes_its_time_unread(broker: BrokerHarness) -> None:
    durable(broker).lose()
    broker.connect().publish(TOPIC, "x", headers=["neb-timeout:1000"])
    broker.advance(5)

    headers, _ = durable(broker).message()
    assert headers["neb-timeout"] == "1000"


def test_abandoned_session_is_forgotten_with_what_it_kept() -> None:
    broker = BrokerHarness(Limits(session_expiry_seconds=10))
    alice = broker.connect()
    durable(broker).lose()
    alice.publish(TOPIC, "1")
    broker.advance(9)
    durable(broker).disconnect()  # the time begins anew
    alice.publish(TOPIC, "2")
    broker.advance(9.75)
    assert broker.broker.account.stored_bytes

    broker.advance(0.25)

    assert broker.destinations == {}
    assert broker.broker.durable_sessions.by_id == {}
    assert broker.broker.account.stored_bytes == 0


def test_full_durable_subscription_loses_the_newest_to_the_dead_letter_queue() -> None:
    broker = BrokerHarness(Limits(max_queue_messages=2))
    alice = broker.connect()
    durable(broker).lose()
    alice.publish(TOPIC, "1", "2", "3")
    undertaker = broker.connect()
    undertaker.subscribe(DEAD_LETTER_QUEUE)

    assert undertaker.bodies() == ["3"]
    assert durable(broker).bodies() == ["1", "2"]


# Over a restart


def test_what_a_durable_subscription_kept_is_there_after_a_restart() -> None:
    disk = MemoryDisk()
    broker = BrokerHarness(store=MemoryStore(disk))
    bob = durable(broker, INDIVIDUAL, pattern="/topic/*")
    broker.connect().publish(TOPIC, "1", "2")
    bob.ack(bob.received()[0])
    broker.stop()

    again = BrokerHarness(store=MemoryStore(disk))
    again.connect().publish(TOPIC, "3")

    assert durable(again, pattern="/topic/*").bodies() == ["2", "3"]


def test_send_to_a_durable_subscription_is_receipted_when_it_is_kept() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice = broker.connect()
    durable(broker)
    broker.commit()
    alice.subscribe(TOPIC, DURABLE, INDIVIDUAL)
    broker.commit()
    alice.say(f"SEND destination:{TOPIC}; receipt:r | x")
    assert [frame[0] for frame in alice.received()] == ["MESSAGE"]

    broker.commit()

    assert alice.received() == [("RECEIPT", {"receipt-id": "r", "disposition": "accepted"})]


def test_send_to_a_topic_without_a_durable_subscription_is_not_kept() -> None:
    broker = BrokerHarness(store=MemoryStore(MemoryDisk()))
    alice = broker.connect()
    alice.subscribe(TOPIC)
    alice.say(f"SEND destination:{TOPIC}; persistent:true; receipt:r | x")

    assert alice.received()[1] == (
        "RECEIPT",
        {"receipt-id": "r", "disposition": "accepted", "durable": "false"},
    )


# --- who may receive nothing costs nothing ---

GRANTS = Grants(
    {
        "all": Capability(publish=("/topic/**",), subscribe=("/topic/**",)),
        "news": Capability(subscribe=("/topic/news.*",)),
    },
    {"alice": ("all",), "bob": ("news",)},
)


def test_globs_of_who_may_receive_nothing_of_it_cost_a_warm_destination_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = BrokerHarness(grants=GRANTS)
    alice, bob, mallory = (broker.connect(principal=name) for name in ("alice", "bob", "mallory"))
    bob.subscribe("/topic/news.*")
    for number in range(100):
        mallory.subscribe(f"/topic/[!{chr(0x4E00 + number)}]*", id=str(number))
    alice.publish(TOPIC, "1")
    asked: list[str] = []
    may_receive = Rights.may_receive

    def counted(rights: Rights, name: str) -> bool:
        asked.append(name)
        return may_receive(rights, name)

    monkeypatch.setattr(Rights, "may_receive", counted)
    alice.publish(TOPIC, "2")
    mallory.subscribe("/topic/*", id="one more")
    alice.publish(TOPIC, "3")

    assert bob.bodies() == ["1", "2", "3"]
    assert mallory.bodies() == []
    assert len(asked) < 10


@pytest.mark.parametrize("seed", range(20))
def test_who_receives_is_the_same_whatever_is_remembered(seed: int) -> None:
    chance = random.Random(seed)
    broker = BrokerHarness(grants=GRANTS)
    alice = broker.connect(principal="alice")
    patterns = ("/topic/*", "/topic/news.*", TOPIC, "/topic/[!x]*", "/topic/news.?k", "/topic/sport")
    readers: list[tuple[Peer, str, dict[str, str]]] = [
        (broker.connect(principal=name), name, {}) for name in ("alice", "bob", "bob", "mallory")
    ]
    for number in range(150):
        reader, name, theirs = chance.choice(readers)
        what = chance.random()
        if what < 0.4:
            pattern = chance.choice(patterns)
            if is_glob(pattern) or broker.broker.access.rights_of(name).may_subscribe(pattern):
                reader.subscribe(pattern, chance.choice(["ack:auto", "ack:client"]), id=str(number))
                theirs[str(number)] = pattern
        elif what < 0.6 and theirs:
            gone = chance.choice(sorted(theirs))
            del theirs[gone]
            reader.say(f"UNSUBSCRIBE id:{gone}")
        elif what < 0.65:
            identities = {**GRANTS.identities, "mallory": chance.choice([(), ("news",)])}
            broker.broker.review(Grants(GRANTS.capabilities, identities), broker.now)
        destination = chance.choice([TOPIC, "/topic/sport", "/topic/news.us"])
        alice.publish(destination, str(number))
        for each, owner, patterns_of in readers:
            rights = broker.broker.access.rights_of(owner)
            expected = [
                id_
                for id_, pattern in patterns_of.items()
                if compile_glob(pattern)(destination) and rights.may_receive(destination)
            ]
            got = [frame[1]["subscription"] for frame in each.received()]
            assert sorted(got) == sorted(expected)
