"""What an operator sees of the core, and how he interferes: without a server."""

from __future__ import annotations

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import LAST_VALUE_KIND, QUEUE_KIND, TOPIC_KIND
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.operations.administration import MOST_ROWS, Administration, Selection
from nebula.broker.operations.dead_letters import peek
from nebula.broker.operations.rows import Arrivals
from nebula.errors import Refused
from tests.broker.harness import BrokerHarness
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.walks import counted, result

QUEUE = "/queue/orders"


def looking_at(broker: BrokerHarness) -> Administration:
    return Administration(broker.broker, broker.now)


# --- lists ---


def test_queue_shows_what_it_holds_and_who_consumes(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect(principal="bob")
    bob.subscribe(QUEUE, "ack:client-individual", "prefetch-count:2", id="7")
    before_bytes = broker.broker.account.stored_bytes
    alice.publish(QUEUE, "a", "b", "c")

    details = administration.queue(QUEUE, broker.now)

    summary = details.summary
    assert (summary.depth, summary.unacked, summary.consumers, summary.taken) == (3, 2, 1, 3)
    assert summary.stored_bytes == broker.broker.account.stored_bytes - before_bytes
    (consumer,) = details.subscriptions
    assert (consumer.session, consumer.principal, consumer.id) == (bob.session.id, "bob", "7")
    assert (consumer.ack, consumer.prefetch, consumer.unacked) == ("client-individual", 2, 2)


def test_oldest_message_tells_its_age_and_an_empty_queue_none(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect()
    for _ in range(4):
        broker.advance(1.0)
        administration.advance(broker.now)
    alice.publish(QUEUE, "a")
    administration.advance(broker.now)
    broker.advance(30.0)
    administration.advance(broker.now)
    alice.publish(QUEUE, "b")

    assert administration.queue(QUEUE, broker.now).summary.oldest_seconds == 30.0
    bob.subscribe(QUEUE)
    assert administration.queue(QUEUE, broker.now).summary.oldest_seconds is None


def test_list_goes_on_behind_its_last_name_until_all_were_shown(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    for number in (3, 1, 4, 0, 2):
        alice.publish(f"/queue/{number}", "m")
    alice.publish("/queue/x/y", "m")

    pages, after = [], ""
    while True:
        listing = result(administration.queues(Selection("/queue/*", None, after, 2), broker.now))
        assert listing.matched == 5
        pages.append([row.queue for row in listing.rows])
        if listing.after is None:
            break
        after = listing.after

    assert pages == [["/queue/0", "/queue/1"], ["/queue/2", "/queue/3"], ["/queue/4"]]


def test_internal_queues_are_left_out_and_counted_where_they_are_not_wanted(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    for name in ("nebula.inbox.1", "nebula.inbox.2"):
        alice.subscribe(f"/queue/{name}", "exclusive:true", id=name)
    alice.publish("/queue/nebulae", "m")

    asked = Selection("/queue/*", "depth", limit=1, has_internal=False)
    some = result(administration.queues(asked, broker.now))
    every = result(administration.queues(Selection("/queue/*"), broker.now))

    assert [row.queue for row in some.rows] == ["/queue/nebulae"]
    assert (some.matched, some.hidden, every.matched, every.hidden) == (1, 2, 3, 0)


def test_queues_can_be_listed_by_depth(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    for name, depth in (("a", 2), ("b", 5), ("c", 1)):
        alice.publish(f"/queue/{name}", *["m"] * depth)

    listing = result(administration.queues(Selection(rank="depth", limit=2), broker.now))

    assert [(row.queue, row.depth) for row in listing.rows] == [("/queue/b", 5), ("/queue/a", 2)]
    assert (listing.matched, listing.after) == (3, None)


def test_queues_by_rank_go_on_behind_those_that_are_skipped(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    for number in range(5):
        alice.publish(f"/queue/{number}", *["m"] * (number + 1))

    pages = [
        result(administration.queues(Selection(rank="depth", limit=2, skip=skip), broker.now))
        for skip in (0, 2, 4, 6)
    ]

    assert [[row.depth for row in page.rows] for page in pages] == [[5, 4], [3, 2], [1], []]
    assert {page.matched for page in pages} == {5}


def test_reversed_lists_begin_at_the_other_end(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    for number in range(5):
        alice.publish(f"/queue/{number}", *["m"] * (number + 1))

    def page(rank: str | None, after: str = "", skip: int = 0) -> tuple[list[str], str | None]:
        selection = Selection("**", rank, after, 2, skip=skip, is_reversed=True)
        listing = result(administration.queues(selection, broker.now))
        return [row.queue for row in listing.rows], listing.after

    assert page("depth") == (["/queue/0", "/queue/1"], None)
    assert page("depth", skip=4) == (["/queue/4"], None)
    assert page(None) == (["/queue/4", "/queue/3"], "/queue/3")
    assert page(None, "/queue/3") == (["/queue/2", "/queue/1"], "/queue/1")
    assert page(None, skip=4) == (["/queue/0"], None)


def test_names_can_be_skipped(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    for number in range(5):
        alice.publish(f"/queue/{number}", "m")

    middle = result(administration.queues(Selection(limit=2, skip=2), broker.now))
    last = result(administration.queues(Selection(limit=2, skip=4), broker.now))

    assert ([row.queue for row in middle.rows], middle.after) == (["/queue/2", "/queue/3"], "/queue/3")
    assert ([row.queue for row in last.rows], last.after) == (["/queue/4"], None)


def test_queues_can_be_listed_by_their_oldest_message_and_by_what_consumers_hold(
    broker: BrokerHarness,
) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    alice.publish("/queue/old", "m")
    alice.publish("/queue/new", "m")
    alice.subscribe("/queue/read", "ack:client", id="1")
    alice.publish("/queue/read", "m", "m")

    def names(rank: str) -> list[str]:
        return [row.queue for row in result(administration.queues(Selection(rank=rank), broker.now)).rows]

    assert names("oldest") == ["/queue/old", "/queue/new", "/queue/read"]
    assert names("unacked")[0] == names("consumers")[0] == "/queue/read"


def test_topics_and_values_can_be_listed_by_rank(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    alice.publish("X/first", "a long value")
    administration.advance(broker.now)
    broker.advance(5)
    alice.publish("X/second", "v")
    alice.subscribe("/topic/news", id="1")

    def names(rank: str) -> list[str]:
        return [
            row.topic for row in result(administration.topics(Selection(rank=rank), None, broker.now)).rows
        ]

    assert names("subscribers")[0] == "/topic/news"
    assert names("bytes") == ["X/first", "X/second", "/topic/news"]
    assert names("changed") == ["X/second", "X/first", "/topic/news"]


def test_walk_over_many_destinations_pauses_and_minds_what_happens_meanwhile(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    names = [f"/queue/{number:05}" for number in range(2_500)]
    alice.say(*(f"SEND destination:{name} | m" for name in names))
    steps = administration.queues(Selection(limit=3), broker.now)
    next(steps)
    result(administration.purge(names[0], broker.now))  # is shown already, and gone now
    result(administration.purge(names[-1], broker.now))  # is still to be looked at

    listing, pieces = counted(steps)

    assert pieces == 2
    assert listing.matched == 2_499
    assert [row.queue for row in listing.rows] == names[1:3]
    assert listing.after == names[2]


def test_page_ends_early_where_names_are_long(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    names = [f"/queue/{number:03}-{'n' * 900}" for number in range(400)]
    alice.say(*(f"SEND destination:{name} | m" for name in names))

    listing = result(administration.queues(Selection(limit=MOST_ROWS), broker.now))

    assert sum(len(row.queue) for row in listing.rows) < 300_000
    assert listing.after == listing.rows[-1].queue
    rest = result(administration.queues(Selection(after=listing.after, limit=MOST_ROWS), broker.now))
    assert rest.rows[0].queue == names[len(listing.rows)]


def test_malformed_glob_is_refused(broker: BrokerHarness) -> None:
    with pytest.raises(Refused, match="bad-pattern"):
        looking_at(broker).queues(Selection("/queue/[a"), broker.now)


def test_topics_and_last_values_stand_in_one_list_or_in_one_each(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(principal="alice"), broker.connect()
    bob.subscribe("/topic/news.*", id="1")
    bob.subscribe("/topic/other", "ack:client", "prefetch-count:1", id="2")
    alice.publish("X/a", "value")
    alice.publish("/topic/other", "1", "2", "3")

    rows = {row.topic: row for row in result(administration.topics(Selection(), None, broker.now)).rows}
    topics = result(administration.topics(Selection(), TOPIC_KIND, broker.now)).rows
    values = result(administration.topics(Selection(), LAST_VALUE_KIND, broker.now)).rows

    assert list(rows) == ["/topic/news.*", "/topic/other", "X/a"]
    assert (rows["/topic/other"].subscribers, rows["/topic/other"].waiting) == (1, 3)
    assert (rows["X/a"].kind, rows["X/a"].has_value, rows["X/a"].sender) == ("last-value", True, "alice")
    assert [row.topic for row in topics] == ["/topic/news.*", "/topic/other"]
    assert [row.topic for row in values] == ["X/a"]
    shown = administration.topic("/topic/other", broker.now)
    assert [(each.session, each.id) for each in shown.subscriptions] == [(bob.session.id, "2")]


def test_session_with_durable_subscriptions_is_shown_while_it_is_away(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect(client_id="till-1")
    bob.subscribe("/topic/news", "durable:true", "ack:client", id="news")
    assert administration.session("till-1", broker.now).summary.away_seconds is None
    bob.disconnect()
    broker.advance(5.0)
    alice.publish("/topic/news", "1", "2")

    (row,) = result(administration.sessions(Selection("till-*"), broker.now)).rows
    (durable,) = administration.session("till-1", broker.now).subscriptions

    assert (row.session, row.away_seconds, row.subscriptions, row.waiting) == ("till-1", 5.0, 1, 2)
    assert (durable.id, durable.destination, durable.is_active, durable.waiting) == (
        "news",
        "/topic/news",
        False,
        2,
    )
    assert durable.stored_bytes > 0


@pytest.mark.parametrize("kind", ["queue", "topic", "session", "connection"])
def test_what_is_not_there_is_not_found(broker: BrokerHarness, kind: str) -> None:
    with pytest.raises(Refused, match="not-found") as caught:
        getattr(looking_at(broker), kind)("n" * 5_000, broker.now)
    assert len(caught.value.detail) < 400


def test_totals_add_up_over_all_destinations_of_a_kind(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe("/queue/a", "ack:client", "prefetch-count:1")
    alice.publish("/queue/a", "1", "2")
    alice.publish("/queue/b", "3")
    alice.publish("X/v", "value")

    totals = result(administration.totals())

    queues, values = totals[QUEUE_KIND], totals[LAST_VALUE_KIND]
    assert (queues.destinations, queues.messages, queues.unacked, queues.subscriptions) == (2, 3, 1, 1)
    assert (values.destinations, values.messages) == (1, 1)
    assert totals[TOPIC_KIND].destinations == 0
    assert queues.stored_bytes == sum(
        each.store.stored_bytes for each in broker.broker.queues.by_name.values()
    )
    assert values.stored_bytes == broker.broker.values.topics["X/v"].value.size_bytes


def test_received_messages_are_counted_by_their_numbers_and_looks_are_not(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    for _ in range(3):
        administration.advance(broker.now)
        assert administration.received_count == 0
    alice.publish(QUEUE, "a", "b")
    alice.publish("/topic/nobody", "c")

    assert administration.received_count == 3
    assert administration.received_count == 3


# --- ages ---


def test_age_is_that_of_the_first_look_after_a_message_came() -> None:
    arrivals = Arrivals(1, 0.0)
    arrivals.note(10, 5.0)
    arrivals.note(20, 6.0)

    assert [arrivals.age_of(number, 8.0) for number in (0, 1, 9, 10, 11, 19, 20, 21)] == [
        *(8.0, 3.0, 3.0, 3.0, 2.0, 2.0, 2.0),
        0.0,
    ]


def test_ages_of_long_ago_are_known_less_exactly_and_never_too_high() -> None:
    arrivals = Arrivals(1, 0.0)
    looks = 40_000
    for look in range(1, looks + 1):
        arrivals.note(look * 10, float(look))

    ages = [(number, arrivals.age_of(number, float(looks))) for number in range(10, looks * 10, 997)]

    for number, age in ages:
        truth = looks - number / 10
        assert age <= truth
        assert age >= truth * 0.98 - 1
    assert arrivals.age_of(looks * 10 - 5, float(looks)) == 0.0


# --- peeking ---


def test_peek_shows_messages_in_order_of_arrival_and_leaves_them(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect(principal="alice")
    alice.publish(QUEUE, "one", "two", headers=["kind:new", "persistent:true", "neb-timeout:5000"])
    alice.publish(QUEUE, "three")
    queue = administration.find_queue(QUEUE)

    first, second = peek(queue, administration.arrivals, broker.now, limit=2)
    (third,) = peek(queue, administration.arrivals, broker.now, after=second.number)

    assert (first.body, first.encoding, first.is_cut, first.body_bytes) == ("one", "text", False, 3)
    assert (first.sender, first.headers["kind"], first.is_persistent) == ("alice", "new", True)
    assert first.expires_in_seconds == 5.0
    assert (third.body, third.headers, third.is_persistent) == ("three", {}, False)
    bob = broker.connect()
    bob.subscribe(QUEUE)
    assert bob.bodies() == ["one", "two", "three"]


def test_peek_goes_by_arrival_where_delivery_goes_by_priority() -> None:
    broker = BrokerHarness(policies=[DestinationPolicy(pattern=QUEUE, has_priorities=True)])
    administration = looking_at(broker)
    alice = broker.connect()
    for number in range(9):
        alice.publish(QUEUE, str(number), headers=[f"priority:{9 - number // 2}"])
    queue = administration.find_queue(QUEUE)

    first = peek(queue, administration.arrivals, broker.now, limit=5)
    rest = peek(queue, administration.arrivals, broker.now, after=first[-1].number, limit=5)

    assert [each.body for each in [*first, *rest]] == [str(number) for number in range(9)]


def test_peek_tells_how_often_a_message_came_back(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "ack:client-individual")
    alice.publish(QUEUE, "m")
    (frame,) = bob.received()
    bob.lose()
    assert frame[0] == "MESSAGE"

    (message,) = peek(administration.find_queue(QUEUE), administration.arrivals, broker.now)

    assert message.attempts == 1


@pytest.mark.parametrize(
    ("body", "most", "shown", "encoding", "is_cut"),
    [
        (b"abc", 3, "abc", "text", False),
        (b"abc", 2, "ab", "text", True),
        (b"abc", 0, "", "text", True),
        ("aü".encode(), 2, "a", "text", True),  # the cut goes through a character
        ("aü€".encode(), 5, "aü", "text", True),
        (b"a\xff\x00", 9, "Yf8A", "base64", False),
        (b"\xff\xfe\xfd\xfc", 3, "//79", "base64", True),
        (b"ab\xc3", 9, "YWLD", "base64", False),  # not cut, so not text
    ],
)
def test_body_is_shown_as_text_where_it_is_one(
    broker: BrokerHarness, body: bytes, most: int, shown: str, encoding: str, is_cut: bool
) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    head = f"SEND\ndestination:{QUEUE}\ncontent-length:{len(body)}\n\n".encode()
    alice.send(head + body + b"\0")

    queue = administration.find_queue(QUEUE)
    (message,) = peek(queue, administration.arrivals, broker.now, max_bytes=most)

    assert (message.body, message.encoding, message.is_cut) == (shown, encoding, is_cut)
    assert message.body_bytes == len(body)


def test_peek_shows_fewer_messages_where_they_are_large(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    alice.publish(QUEUE, *["m" * 300_000] * 5)
    queue = administration.find_queue(QUEUE)

    shown = peek(queue, administration.arrivals, broker.now, limit=5, max_bytes=1_000_000)

    assert len(shown) == 2
    assert len(peek(queue, administration.arrivals, broker.now, after=shown[-1].number, limit=5)) == 3


# --- interfering ---


def test_purge_drops_and_counts_what_waits_and_leaves_what_is_unacked(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "ack:client", "prefetch-count:1")
    alice.publish(QUEUE, "a", "b", "c")

    assert result(administration.purge(QUEUE, broker.now)) == 2
    broker.settle()

    assert broker.broker.account.dropped["purged"] == 2
    assert administration.queue(QUEUE, broker.now).summary.depth == 1
    bob.lose()
    carol = broker.connect()
    carol.subscribe(QUEUE)
    assert carol.bodies() == ["a"]


def test_purged_queue_that_nobody_reads_is_forgotten(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    broker.connect().publish(QUEUE, "a")

    assert result(administration.purge(QUEUE, broker.now)) == 1

    with pytest.raises(Refused, match="not-found"):
        result(administration.purge(QUEUE, broker.now))


def test_purge_pauses_and_leaves_what_came_after_it_began(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice = broker.connect()
    alice.publish(QUEUE, *map(str, range(2_500)))
    steps = administration.purge(QUEUE, broker.now)
    next(steps)
    alice.publish(QUEUE, "late")

    assert counted(steps) == (2_500, 1)
    assert broker.broker.account.dropped["purged"] == 2_500
    bob = broker.connect()
    bob.subscribe(QUEUE)
    assert bob.bodies() == ["late"]


@pytest.mark.parametrize("has_priorities", [False, True])
def test_purge_beside_paging_drops_all_that_was_there_and_nothing_else(*, has_priorities: bool) -> None:
    disk = MemoryDisk()
    policy = DestinationPolicy(pattern=QUEUE, has_priorities=has_priorities)
    broker = BrokerHarness(Limits(queue_window_bytes=2000), [policy], store=MemoryStore(disk))
    administration = looking_at(broker)
    alice = broker.connect()
    persistent = ["persistent:true"]
    # Some on disk alone, some written but not known to be, some not even that.
    alice.publish(QUEUE, *map(str, range(100)), headers=persistent)
    broker.commit()
    alice.publish(QUEUE, *map(str, range(100, 1_400)), headers=persistent)
    journal = broker.broker.journal
    assert journal is not None
    batch, writes = journal.take()
    alice.publish(QUEUE, *map(str, range(1_400, 2_800)), headers=[*persistent, "priority:9"])

    steps = administration.purge(QUEUE, broker.now)
    next(steps)
    late = [f"late {number}" for number in range(100)]
    alice.publish(QUEUE, *late, headers=persistent)
    assert broker.store is not None
    broker.store.apply(writes)
    broker.broker.committed(batch, broker.now)
    broker.settle()
    broker.commit()
    bob = broker.connect()
    bob.subscribe(QUEUE, "ack:client-individual", "prefetch-count:10")
    assert bob.bodies() == late[:10]

    assert result(steps) == 2_800
    broker.settle()
    broker.commit()
    assert [row.body.decode() for row in disk.messages.values()] == late
    assert broker.broker.account.dropped["purged"] == 2_800
    bob.lose()
    carol = broker.connect()
    carol.subscribe(QUEUE)
    assert carol.bodies() == late


def test_purge_leaves_what_came_back_after_it_began(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect()
    bob.subscribe(QUEUE, "ack:client", "prefetch-count:1")
    alice.publish(QUEUE, *map(str, range(2_500)))
    steps = administration.purge(QUEUE, broker.now)
    next(steps)
    bob.lose()

    assert result(steps) == 2_499
    carol = broker.connect()
    carol.subscribe(QUEUE)
    assert carol.bodies() == ["0"]


def test_purge_that_nobody_ends_is_done_all_the_same(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    broker.connect().publish(QUEUE, *map(str, range(2_500)))
    steps = administration.purge(QUEUE, broker.now)
    next(steps)
    steps.close()
    broker.settle()

    assert broker.broker.account.dropped["purged"] == 2_500
    assert broker.broker.account.stored_bytes == 0
    assert broker.destinations == {}


def test_session_that_is_ended_hears_why_and_its_messages_go_to_others(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    alice, bob = broker.connect(), broker.connect(client_id="till-1")
    bob.subscribe(QUEUE, "ack:client")
    alice.publish(QUEUE, "a")
    bob.received()

    administration.end_session("till-1")
    broker.settle()

    ((command, headers, *_),) = bob.received()
    assert (command, headers["message"]) == ("ERROR", "an operator has ended the connection")
    assert bob.is_closed
    carol = broker.connect()
    carol.subscribe(QUEUE)
    assert carol.bodies() == ["a"]


def test_service_that_the_broker_hosts_itself_is_not_ended(broker: BrokerHarness) -> None:
    administration = looking_at(broker)
    service = broker.connect(principal="app:nebula", client_id="own")

    with pytest.raises(Refused, match="hosts itself"):
        administration.end_session("own")
    broker.settle()

    assert not service.is_closed
