"""No principal can take the broker from another: shares of every bound, and the operators' reserve."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

import pytest

from nebula.broker.core.access import Capability, Grants
from nebula.broker.core.limits import Limits
from nebula.broker.core.shares import Pool, Resource, Share, Usage
from nebula.broker.core.usages import Usages
from nebula.broker.operations.administration import Administration, DelayedFilter, Selection, Steps
from nebula.errors import Refused
from nebula.headers import BROKER_QUEUE, INBOX_PREFIX
from tests.broker.harness import WALL_OFFSET, BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.script import Received

T = TypeVar("T")

EVERYTHING = Capability(publish=("/**", "X/**"), subscribe=("/**", "X/**"))
GRANTS = Grants(
    {"all": EVERYTHING, "operate": Capability(call=("**",))},
    {"hog": ("all",), "alice": ("all",), "operator": ("all", "operate")},
)
TIGHT = Limits(
    max_body_bytes=2_000,
    max_memory_bytes=400_000,
    max_queue_bytes=400_000,
    max_destinations=40,
    max_subscriptions_in_all=40,
    max_globs=40,
    max_durable_sessions=40,
    max_durable_subscriptions=40,
    max_delayed_messages=40,
    max_dedup_ids=40,
    max_connections=40,
    max_pause_seconds=0.5,
)


def tight(limits: Limits = TIGHT, store: MemoryStore | None = None) -> BrokerHarness:
    """A broker with shares, of which there is little."""
    return BrokerHarness(limits, grants=GRANTS, shares=(), store=store)


def verdict(frames: list[Received]) -> str:
    """The disposition of the last frame, or its command if it has none."""
    return frames[-1][1].get("disposition", frames[-1][0])


def send(peer: Peer, destination: str, *headers: str, body: str = "x") -> str:
    """The verdict on a SEND."""
    peer.received()
    peer.say("; ".join((f"SEND destination:{destination}", "receipt:r", *headers)) + f" | {body}")
    if peer.is_held_back:
        peer.harness.advance(1)  # it waits for room, and then no more
    return verdict(peer.received())


# --- how shares are worked out


def usage(fraction: float, used: int = 0, **most: int) -> Usage:
    share = Share("**", fraction, {Resource(name.replace("_", "-")): count for name, count in most.items()})
    found = Usage("alice", None, share)
    found.counts[Resource.GLOBS] = used
    return found


def taken_alone(fraction: float, limit: int, reserved: int = 0) -> int:
    """How much a principal gets that takes one after the other until it is refused."""
    alice, pool = usage(fraction), Pool(Resource.GLOBS, limit, reserved)
    while pool.room_for(alice):
        pool.used += 1
        alice.counts[Resource.GLOBS] += 1
    return pool.used


@pytest.mark.parametrize(
    ("fraction", "limit", "reserved", "expected"),
    [(1.0, 100, 0, 100), (0.75, 100, 0, 75), (0.75, 1000, 100, 675), (0.1, 1000, 0, 100), (0.75, 1, 0, 1)],
)
def test_principal_that_is_alone_gets_its_fraction(
    fraction: float, limit: int, reserved: int, expected: int
) -> None:
    assert taken_alone(fraction, limit, reserved) == expected


def test_principals_that_press_a_pool_get_equal_parts_and_leave_some() -> None:
    hogs = [usage(0.75) for _ in range(5)]
    pool = Pool(Resource.GLOBS, 1_600)
    while any(pool.room_for(each) for each in hogs):
        for each in hogs:
            if pool.room_for(each):
                pool.used += 1
                each.counts[Resource.GLOBS] += 1

    held = [each.counts[Resource.GLOBS] for each in hogs]
    assert max(held) - min(held) <= 1
    assert pool.limit - pool.used == 100
    assert pool.room_for(usage(0.75)) >= 70


def test_further_limit_of_a_share_counts_as_well() -> None:
    assert Pool(Resource.GLOBS, 100).room_for(usage(0.75, globs=7)) == 7
    assert Pool(Resource.GLOBS, 100, used=7).room_for(usage(0.75, used=7, globs=7)) == 0


def test_first_share_that_matches_counts_and_places_tell_anonymous_peers_apart() -> None:
    broker = BrokerHarness(shares=[Share("sensor-*", 0.1), Share("anonymous@10.*", 0.2)])
    policy = broker.broker.access
    usages = Usages([Share("sensor-*", 0.1), Share("anonymous@10.*", 0.2)], 0.5)
    found = [
        usages.of(policy.rights_of(principal), place)
        for principal, place in [
            ("sensor-1", "10.0.0.1"),
            ("anonymous", "10.0.0.1"),
            ("anonymous", "10.0.0.2"),
            ("anonymous", "192.0.2.1"),
            ("alice", "10.0.0.1"),
        ]
    ]

    assert [each.share.fraction for each in found] == [0.1, 0.2, 0.2, 0.5, 0.5]
    assert len({each.name for each in found}) == 5


def test_usage_is_forgotten_with_the_last_thing_that_it_pays_for(broker: BrokerHarness) -> None:
    alice = broker.connect(principal="alice")
    alice.publish("/queue/a", "x")
    alice.disconnect()
    del alice
    assert "alice" in {each.name for each in broker.broker.account.usages.all}

    bob = broker.connect(principal="bob")
    bob.subscribe("/queue/a")
    assert bob.bodies() == ["x"]
    bob.disconnect()
    del bob
    gc.collect()
    assert "alice" not in {each.name for each in broker.broker.account.usages.all}


# --- every bound: who exhausts it is refused, another is not, and neither is an operator


def hold_memory(peer: Peer) -> bool:
    return send(peer, "/queue/held", body="x" * 2_000) == "accepted"


def hold_memory_in_values(peer: Peer) -> bool:
    number = len(peer.harness.broker.values.topics)
    return send(peer, f"X/{peer.session.principal}.{number}", body="x" * 2_000) == "accepted"


def hold_memory_in_a_transaction(peer: Peer) -> bool:
    name = f"t{len(peer.harness.broker.transactions.of(peer.session))}"
    peer.say(f"BEGIN transaction:{name}")
    if peer.is_closed:
        return False
    before_bytes = peer.session.usage.memory_bytes
    assert send(peer, "/queue/held", f"transaction:{name}", body="x" * 2_000) == "RECEIPT"
    return peer.session.usage.memory_bytes >= before_bytes + 2_000


def make_queues(peer: Peer) -> bool:
    number = len(peer.harness.broker.queues.by_name)
    return send(peer, f"/queue/{peer.session.principal}.{number}") == "accepted"


def _subscribe(peer: Peer, destination: str, *headers: str) -> bool:
    number = len(peer.session.subscriptions)
    peer.subscribe(destination, *headers, id=f"s{number}")
    return not peer.is_closed


def subscribe(peer: Peer) -> bool:
    return _subscribe(peer, "/topic/one")


def subscribe_to_topics(peer: Peer) -> bool:
    return _subscribe(peer, f"/topic/{peer.session.principal}.{len(peer.session.subscriptions)}")


def subscribe_to_globs(peer: Peer) -> bool:
    return _subscribe(peer, f"X/{peer.session.principal}.{len(peer.session.subscriptions)}.*")


def subscribe_durably(peer: Peer) -> bool:
    return _subscribe(peer, "X/v", "durable:true")


def open_durable_sessions(peer: Peer) -> bool:
    harness, principal = peer.harness, peer.session.principal
    number = len(harness.broker.durable_sessions.by_id)
    other = harness.connect(principal=principal, client_id=f"{principal}-{number}")
    other.subscribe("X/v", "durable:true")
    is_fine = not other.is_closed
    other.lose()
    return is_fine


def delay(peer: Peer) -> bool:
    return send(peer, "/queue/later", "delay:5000") == "accepted"


def use_dedup_ids(peer: Peer) -> bool:
    harness = peer.harness
    before = peer.session.usage.used(Resource.DEDUP_IDS)
    harness.now += 0.001
    if send(peer, f"/queue/{peer.session.principal}", f"dedup-id:{harness.now}") != "accepted":
        return False
    return peer.session.usage.used(Resource.DEDUP_IDS) > before


def open_connections(peer: Peer) -> bool:
    other = peer.harness.accept(principal=peer.session.principal)
    other.feed(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    _HELD.append(other)
    return not other.is_closed


_HELD: list[Peer] = []

WAYS: list[Callable[[Peer], bool]] = [
    hold_memory,
    hold_memory_in_values,
    hold_memory_in_a_transaction,
    make_queues,
    subscribe,
    subscribe_to_topics,
    subscribe_to_globs,
    subscribe_durably,
    open_durable_sessions,
    delay,
    use_dedup_ids,
    open_connections,
]


def exhaust(broker: BrokerHarness, principal: str, attempt: Callable[[Peer], bool]) -> int:
    """Try again and again until it is refused. Returns how often it was not; connections stay."""
    count, refused = 0, 0
    peer = broker.connect(principal=principal)
    while refused < 3:
        broker.now += 0.01
        if attempt(peer):
            count += 1
        else:
            refused += 1
        if peer.is_closed and refused < 3:
            peer = broker.connect(principal=principal)
        assert count < 500, "it is never refused"
    return count


@pytest.mark.parametrize("attempt", WAYS, ids=lambda each: each.__name__)
def test_who_exhausts_a_bound_is_refused_and_another_goes_on(attempt: Callable[[Peer], bool]) -> None:
    broker = tight()
    hog = broker.connect(principal="hog")
    exhaust(broker, "hog", attempt)

    alice = broker.connect(principal="alice")
    assert all(attempt(alice) for _ in range(3))
    assert send(alice, "/queue/orders") == "accepted"
    alice.subscribe("/queue/orders", id="o")
    alice.received()
    assert not alice.is_closed
    assert not hog.is_closed
    _HELD.clear()


@pytest.mark.parametrize("attempt", WAYS, ids=lambda each: each.__name__)
def test_operator_works_where_others_have_used_up_all_that_they_may(attempt: Callable[[Peer], bool]) -> None:
    broker = tight()
    exhaust(broker, "hog", attempt)
    exhaust(broker, "alice", attempt)

    # The broker's own responder, and somebody who asks it.
    own = broker.connect(principal="app:nebula")
    own.subscribe(BROKER_QUEUE, id="own")
    operator = broker.connect(principal="operator")
    operator.subscribe(f"{INBOX_PREFIX}op", "exclusive:true", id="inbox")
    assert send(operator, BROKER_QUEUE, f"neb-reply-to:{INBOX_PREFIX}op", "neb-reply-id:1") == "accepted"
    assert len(own.received()) == 1
    assert send(own, f"{INBOX_PREFIX}op", "neb-in-reply-to:1") == "accepted"
    assert len(operator.received()) == 1
    assert attempt(operator)
    _HELD.clear()


def queues_of(broker: BrokerHarness, principal: str) -> int:
    """How many queues a principal gets before it is refused one."""
    peer = broker.connect(principal=principal)
    for number in range(100):
        if send(peer, f"/queue/{principal}-{number}") != "accepted":
            return number
    raise AssertionError("it is never refused")


@pytest.mark.parametrize(("reserve", "expected"), [(0.1, 36), (0.25, 30), (0.5, 20)])
def test_reserve_is_left_for_operators(reserve: float, expected: int) -> None:
    limits = replace(TIGHT, max_destinations=40, operator_reserve=reserve, principal_share=1.0)
    broker = tight(limits)

    assert queues_of(broker, "hog") == expected
    assert queues_of(broker, "alice") == 0
    assert queues_of(broker, "operator") == 40 - expected


@pytest.mark.parametrize(("share", "expected"), [(0.25, 10), (0.5, 20), (1.0, 40)])
def test_principal_that_is_alone_gets_the_share_that_the_limits_say(share: float, expected: int) -> None:
    broker = tight(replace(TIGHT, max_destinations=40, principal_share=share, operator_reserve=1e-9))

    assert queues_of(broker, "hog") == expected


def test_anonymous_peers_of_one_address_leave_places_there_for_who_logs_in() -> None:
    core = tight(replace(TIGHT, max_connections=1_000, max_connections_per_address=20)).broker

    def come(number: int, principal: str = "anonymous", place: str = "192.0.2.1") -> None:
        core.enter(core.open_session(f"{principal}-{number}-{place}", principal, place=place), None, 0.0)

    for number in range(19):
        come(number)
    with pytest.raises(Refused):
        come(19)

    come(0, "operator")
    come(0, place="192.0.2.2")


PERSISTENT = "persistent:true"


def test_disk_is_shared_out_by_what_is_free() -> None:
    broker = tight(store=MemoryStore(MemoryDisk()))
    hog, alice = broker.connect(principal="hog"), broker.connect(principal="alice")
    hog.publish("/queue/held", *["x" * 2_000] * 10, headers=[PERSISTENT])
    broker.commit()
    used = broker.broker.usage_of("hog").disk_bytes
    assert used > 20_000

    # Three times what is free may be one's own.
    broker.broker.account.note_disk(used // 3 + 1, is_low=False)
    assert not broker.broker.usage_of("hog").is_disk_full
    broker.broker.account.note_disk(used // 3, is_low=False)
    for destination in ("/queue/held", "X/hog"):
        hog.publish(destination, "x", headers=[PERSISTENT, "receipt:r"])
        alice.publish(destination, "x", headers=[PERSISTENT, "receipt:r"])
        broker.commit()
        assert [verdict(peer.received()) for peer in (hog, alice)] == ["rejected-full", "accepted"]
    assert send(hog, "/queue/held", "delay:5000", PERSISTENT) == "rejected-full"
    assert send(hog, "/queue/held") == "accepted", "what is not kept on disk needs no room there"


@pytest.mark.parametrize("lifetime", [-1, 2], ids=["dead at once", "dead in its queue"])
def test_dead_letters_have_a_share_of_the_disk_and_not_all_of_it(lifetime: int) -> None:
    broker = tight(store=MemoryStore(MemoryDisk()))
    hog, alice = broker.connect(principal="hog"), broker.connect(principal="alice")
    dead = broker.broker.account.dead

    def die(count: int) -> None:
        expires = f"expires:{round((broker.now + WALL_OFFSET + lifetime) * 1000)}"
        hog.publish("/queue/old", *["x" * 2_000] * count, headers=[expires, PERSISTENT])
        broker.commit()
        broker.advance(5)
        broker.commit()

    die(10)
    used_bytes = dead.disk_bytes
    assert used_bytes > 20_000
    broker.broker.account.note_disk(used_bytes // 3, is_low=False)
    die(10)

    assert dead.disk_bytes == used_bytes
    assert broker.broker.account.dropped["dead-letter-full"] == 10
    alice.publish("/queue/orders", "x", headers=[PERSISTENT, "receipt:r"])
    broker.commit()
    assert verdict(alice.received()) == "accepted"


def test_dead_letters_take_nothing_of_what_is_reserved_for_operators() -> None:
    broker = tight()
    hog = broker.connect(principal="hog")
    for _ in range(300):
        hog.publish("/queue/old", "x" * 2_000, headers=["expires:1"])
    account = broker.broker.account

    assert account.dead.memory_bytes > 100_000
    assert account.stored_bytes < account.max_bytes - account.reserved_bytes
    assert send(broker.connect(principal="alice"), "/queue/orders", body="x" * 2_000) == "accepted"


def test_what_is_on_disk_alone_is_paid_for_and_given_back() -> None:
    disk = MemoryDisk()
    limits = Limits(max_memory_bytes=9_000_000, queue_window_bytes=200_000)
    broker = tight(limits, MemoryStore(disk))
    hog = broker.connect(principal="hog")
    hog.publish("/queue/deep", *["x" * 100_000] * 50, headers=[PERSISTENT])
    broker.commit()
    used = broker.broker.usage_of("hog").disk_bytes
    assert used > 5_000_000
    queue = broker.broker.queues.by_name["/queue/deep"]
    assert queue.store.paging.is_deep

    # After a restart it is not known whose that is which was not in memory yet.
    broker = tight(limits, MemoryStore(disk))
    hog = broker.connect(principal="hog")
    assert 0 < broker.broker.usage_of("hog").disk_bytes < used
    hog.publish("/queue/deep", *["y" * 100_000] * 20, headers=[PERSISTENT])
    broker.commit()
    bob = broker.connect(principal="alice")
    bob.subscribe("/queue/deep")
    assert len(bob.bodies()) == 70
    assert broker.broker.usage_of("hog").disk_bytes == 0

    bob.disconnect()
    hog.publish("/queue/deep", *["z" * 100_000] * 50, headers=[PERSISTENT])
    broker.commit()
    result(Administration(broker.broker, broker.now).purge("/queue/deep", broker.now))
    assert broker.broker.usage_of("hog").disk_bytes == 0


# --- what was found


WIDE = "\N{GRINNING FACE}"


def test_subscriptions_fill_no_more_than_a_share_of_the_memory() -> None:
    broker = tight(
        replace(TIGHT, max_subscriptions=5, max_subscriptions_in_all=10_000, max_connections=1_000)
    )
    alice = broker.connect(principal="alice")
    for _ in range(40):
        hog = broker.connect(principal="hog")
        for number in range(5):
            if not hog.is_closed:
                hog.subscribe(f"/topic/{WIDE * 400}*", id=f"{WIDE * 200}{number}")

    usage = broker.broker.usage_of("hog")
    assert usage.memory_bytes < 310_000
    assert send(alice, "/queue/orders") == "accepted"


def test_principal_whose_memory_is_full_may_still_subscribe_to_take_its_messages() -> None:
    broker = tight()
    exhaust(broker, "hog", hold_memory)
    consumer = broker.connect(principal="hog")
    consumer.subscribe("/queue/held", id="h")

    assert len(consumer.received()) > 0


def test_open_transactions_fill_no_more_than_a_share_of_the_memory() -> None:
    broker = tight(replace(TIGHT, max_connections=1_000))
    alice = broker.connect(principal="alice")
    for _ in range(40):
        hog = broker.connect(principal="hog")
        for number in range(20):
            if not hog.is_closed:
                hog.say(f"BEGIN transaction:{WIDE * 200}{number}")

    assert broker.broker.usage_of("hog").memory_bytes < 340_000
    assert send(alice, "/queue/orders") == "accepted"


def test_ids_of_one_principal_push_out_none_of_another() -> None:
    broker = tight()
    hog, alice = broker.connect(principal="hog"), broker.connect(principal="alice")
    assert send(alice, "/queue/a", "dedup-id:mine") == "accepted"
    for number in range(200):
        hog.publish("/queue/hog", "x", headers=[f"dedup-id:{number}"])

    alice.publish("/queue/a", "again", headers=["dedup-id:mine", "receipt:r"])
    assert alice.received()[0][1]["duplicate"] == "true"
    assert broker.broker.usage_of("hog").used(Resource.DEDUP_IDS) < 40


def test_principal_whose_share_became_smaller_forgets_its_ids_bit_by_bit() -> None:
    broker = tight()
    hog, alice = broker.connect(principal="hog"), broker.connect(principal="alice")
    for number in range(60):
        hog.publish("/queue/hog", "x", headers=[f"dedup-id:{number}"])
    for number in range(60):
        alice.publish("/queue/a", "x", headers=[f"dedup-id:{number}"])
    usage = broker.broker.usage_of("hog")
    counts = [usage.used(Resource.DEDUP_IDS)]
    for number in range(60, 120):
        hog.publish("/queue/hog", "x", headers=[f"dedup-id:{number}"])
        counts.append(usage.used(Resource.DEDUP_IDS))

    assert counts[-1] < counts[0]
    assert max(before - after for before, after in pairwise(counts)) == 1


def test_delay_is_bounded_and_none_is_for_inboxes(broker: BrokerHarness) -> None:
    alice = broker.connect()
    alice.subscribe(f"{INBOX_PREFIX}a", "exclusive:true")
    for headers in (["delay:999999999999999"], ["deliver-at:999999999999999"]):
        assert send(alice, "/queue/a", *headers) == "rejected-invalid"
    assert send(alice, f"{INBOX_PREFIX}a", "delay:1000") == "rejected-invalid"
    assert broker.broker.account.pools[Resource.DELAYED].used == 0


def test_delayed_messages_are_counted_again_after_a_restart_and_can_be_purged() -> None:
    disk = MemoryDisk()
    broker = tight(store=MemoryStore(disk))
    for principal in ("hog", "alice"):
        peer = broker.connect(principal=principal)
        peer.publish("/queue/later", "1", "2", headers=["delay:3600000", PERSISTENT])
    broker.commit()

    broker = tight(store=MemoryStore(disk))
    assert broker.broker.usage_of("hog").used(Resource.DELAYED) == 2
    administration = Administration(broker.broker, broker.now)
    rows = administration.delayed(DelayedFilter(), 3, broker.now)
    assert [(row.principal, row.destination) for row in rows.rows] == [
        ("hog", "/queue/later"),
        ("hog", "/queue/later"),
        ("alice", "/queue/later"),
    ]
    assert (rows.matched, rows.after) == (4, str(rows.rows[-1].number))
    assert rows.rows[0].due_seconds == pytest.approx(3600)
    rest = administration.delayed(DelayedFilter(after=rows.rows[-1].number), 3, broker.now)
    assert ([row.principal for row in rest.rows], rest.matched, rest.after) == (["alice"], 4, None)
    assert administration.purge_delayed(DelayedFilter(principal="hog")) == 2
    broker.commit()

    broker = tight(store=MemoryStore(disk))
    assert len(broker.broker.routing.delayed) == 2
    assert "hog" not in {each.name for each in broker.broker.account.usages.all}


def test_places_of_queues_are_paid_for_by_their_senders_after_a_restart() -> None:
    disk = MemoryDisk()
    broker = tight(store=MemoryStore(disk))
    hog = broker.connect(principal="hog")
    for number in range(20):
        hog.publish(f"/queue/hog.{number}", "x", headers=[PERSISTENT])
    broker.commit()

    broker = tight(store=MemoryStore(disk))
    assert broker.broker.usage_of("hog").used(Resource.DESTINATIONS) == 20
    assert exhaust(broker, "hog", make_queues) < 10
    assert all(make_queues(broker.connect(principal="alice")) for _ in range(3))


def test_principals_are_ordered_by_what_they_used_up_of_their_shares(broker: BrokerHarness) -> None:
    alice, hog = (broker.connect(principal=each) for each in ("alice", "hog"))
    alice.subscribe("/queue/a", id="1")
    for number in range(20):
        hog.subscribe(f"/queue/{number}", id=str(number))
    administration = Administration(broker.broker, broker.now)

    first, *others = result(administration.principals(Selection("**", "used", "", 10))).rows

    assert first.principal == "hog"
    assert first.used_fraction > max(each.used_fraction for each in others) > 0


def test_durable_subscription_needs_a_grant_that_may_match() -> None:
    grants = Grants({"some": Capability(subscribe=("X/mine.*",))}, {"alice": ("some",)})
    broker = BrokerHarness(grants=grants)
    alice, mallory = (broker.connect(principal=each, client_id=each) for each in ("alice", "mallory"))
    outcomes = []
    for number, (peer, pattern) in enumerate(
        [(alice, "X/mine.*"), (alice, "X/**"), (alice, "X/theirs.*"), (alice, "X/theirs"), (mallory, "X/**")]
    ):
        peer.subscribe(pattern, "durable:true", "receipt:r", id=str(number))
        outcomes.append(peer.received()[0][1].get("result"))

    assert outcomes == [None, None, "ignored", "ignored", "ignored"]


def test_operator_ends_a_durable_session_and_its_connection() -> None:
    broker = tight(store=MemoryStore(MemoryDisk()))
    hog = broker.connect(principal="hog", client_id="h")
    hog.subscribe("/topic/t", "durable:true", id="1")
    hog.subscribe("X/*", "durable:true", id="2")
    broker.commit()
    Administration(broker.broker, broker.now).end_durable_session("h", broker.now)
    broker.settle()

    assert hog.is_closed
    assert not broker.broker.durable_sessions.by_id
    assert not broker.destinations


def test_operator_drops_the_backlog_of_a_durable_session() -> None:
    broker = tight()
    hog, alice = broker.connect(principal="hog", client_id="h"), broker.connect(principal="alice")
    hog.subscribe("/topic/t", "durable:true", id="1")
    hog.subscribe("X/*", "durable:true", id="2")
    hog.lose()
    alice.publish("/topic/t", "1", "2")
    for number in range(3):
        alice.publish(f"X/{number}", "v")
    assert Administration(broker.broker, broker.now).drop_backlog("h") == 5

    alice.publish("X/0", "new")
    hog = broker.connect(principal="hog", client_id="h")
    hog.subscribe("/topic/t", "durable:true", id="1")
    hog.subscribe("X/*", "durable:true", id="2")
    assert hog.bodies() == ["new"]


def test_durable_subscription_over_its_share_does_not_fill_the_dead_letters() -> None:
    broker = tight()
    hog, alice = broker.connect(principal="hog", client_id="h"), broker.connect(principal="alice")
    hog.subscribe("/topic/**", "durable:true")
    hog.lose()
    for _ in range(300):
        alice.publish("/topic/t", "x" * 2_000)

    assert broker.broker.account.dropped["share"] > 0
    assert broker.broker.queues.dead_letter not in broker.broker.queues.by_name
    assert send(alice, "/queue/a") == "accepted"
    assert broker.broker.usage_of("alice").refusals == 0


def test_values_that_a_slow_or_absent_peer_is_to_be_told_of_count_for_it() -> None:
    limits = replace(TIGHT, max_destinations=1_000, max_unacked_values=1, max_memory_bytes=1_500_000)
    broker = tight(limits)
    alice = broker.connect(principal="alice")
    hog = broker.connect(principal="hog", client_id="h")
    away = broker.connect(principal="hog", client_id="away")
    for number in range(30):
        hog.subscribe(f"X/{'?' * number}*", "ack:client", id=str(number))
    for number in range(10):
        away.subscribe(f"X/{'?' * number}*", "durable:true", id=str(number))
    away.lose()
    for number in range(200):
        assert send(alice, f"X/{number:040}") in ("accepted", "rejected-full")
    broker.advance(1)

    hog_usage = broker.broker.usage_of("hog")
    assert hog.is_closed or not broker.broker.durable_sessions.by_id
    assert not broker.broker.account.is_overdrawn(hog_usage)
    assert send(alice, "X/last") == "accepted"


def test_durable_subscriptions_to_topics_take_places_among_the_destinations() -> None:
    broker = tight()
    exhaust(broker, "hog", make_queues)
    hog = broker.connect(principal="hog", client_id="h")
    hog.subscribe("/topic/hog", "durable:true")

    assert hog.is_closed
    assert not broker.broker.durable_sessions.by_id


def test_delayed_messages_that_fall_due_take_no_more_places_than_their_sender_may_have() -> None:
    broker = tight()
    hog = broker.connect(principal="hog")
    for number in range(20):
        assert send(hog, f"/queue/later.{number}", "delay:5000") == "accepted"
    exhaust(broker, "hog", make_queues)
    broker.advance(6)

    alice = broker.connect(principal="alice")
    assert all(make_queues(alice) for _ in range(3))
    assert broker.broker.queues.by_name[broker.broker.queues.dead_letter].store.depth == 20


@pytest.mark.parametrize("destination", ["/topic/t", "/topic/t.*", "X/t.*"])
@pytest.mark.parametrize("is_durable", [False, True])
def test_who_stays_pays_for_what_another_has_left(destination: str, *, is_durable: bool) -> None:
    broker = tight()
    alice, hog = broker.connect(principal="alice"), broker.connect(principal="hog", client_id="h")
    alice.subscribe(destination)
    hog.subscribe(destination, f"durable:{'true' if is_durable else 'false'}")
    alice.subscribe(destination, id="second")
    alice.say("UNSUBSCRIBE id:s")
    resources = Resource.DESTINATIONS, Resource.GLOBS
    held = sum(broker.broker.usage_of("alice").used(each) for each in resources)
    alice.say("UNSUBSCRIBE id:second")

    assert held > 0
    assert [broker.broker.usage_of("alice").used(each) for each in resources] == [0, 0]
    assert sum(broker.broker.usage_of("hog").used(each) for each in resources) == held


LONG = "x" * 200


def test_everything_is_given_back_when_it_ends() -> None:
    broker = tight()
    for attempt in WAYS:
        exhaust(broker, "hog", attempt)
    for peer in list(broker.peers):
        peer.lose()
    _HELD.clear()
    operator = broker.connect(principal="operator")
    administration = Administration(broker.broker, broker.now)
    for name in list(broker.broker.durable_sessions.by_id):
        administration.end_durable_session(name, broker.now)
    administration.purge_delayed(DelayedFilter())
    for name in list(broker.broker.queues.by_name):
        result(administration.purge(name, broker.now))
    for name in list(broker.broker.values.topics):
        send(operator, name, "content-length:0", body="")
    operator.disconnect()

    assert broker.broker.account.stored_bytes == 0
    assert {resource: pool.used for resource, pool in broker.broker.account.pools.items() if pool.used} == {}


def result(steps: Steps[T]) -> T:
    """What steps return, done at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
