"""What is shared out by principal outside of the core: places at the door, bytes in flight, turns."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from nebula.broker.server.admission import Admission
from nebula.broker.server.fairness import FairScheduler
from nebula.broker.server.inflight import InFlightBytes, Load

# --- places at the door


def test_newcomer_takes_the_place_of_who_has_waited_longest_where_most_wait() -> None:
    gone: list[object] = []
    admission = Admission(4, 4, gone.append)
    for guest, address in [("a", "192.0.2.1"), ("h1", "192.0.2.9"), ("h2", "192.0.2.9"), ("h3", "192.0.2.9")]:
        assert admission.enter(guest, address) is None

    assert admission.enter("b", "192.0.2.2") is None
    assert gone == ["h1"]
    assert len(admission) == 4


def test_newcomer_takes_the_place_of_who_has_waited_longest_at_an_address_that_has_all_its_places() -> None:
    gone: list[object] = []
    admission = Admission(10, 2, gone.append)
    for guest, address in [("a", "192.0.2.9"), ("h1", "192.0.2.1"), ("h2", "192.0.2.1")]:
        assert admission.enter(guest, address) is None

    assert admission.enter("operator", "192.0.2.1") is None
    assert gone == ["h1"]
    assert len(admission) == 3


def test_who_has_said_who_it_is_makes_room_for_nobody() -> None:
    gone: list[object] = []
    admission = Admission(2, 2, gone.append)
    for guest in ("a", "b"):
        admission.enter(guest, "192.0.2.1")
        admission.know(guest, has_share=False)

    assert admission.enter("c", "192.0.2.2") == "more than 2 connections"
    assert gone == []


def test_who_is_at_its_end_makes_room_before_all_others() -> None:
    gone: list[object] = []
    admission = Admission(3, 3, gone.append)
    for guest in ("stranger", "a", "b"):
        admission.enter(guest, "192.0.2.1")
    for guest in ("a", "b"):
        admission.know(guest, has_share=True)
        admission.linger(guest)
    admission.leave("a")

    assert [admission.enter(guest, "192.0.2.2") for guest in ("c", "d")] == [None, None]
    assert gone == ["b"]
    assert len(admission) == 3


def test_principal_with_a_share_of_its_own_keeps_nobody_of_its_address_out() -> None:
    admission = Admission(10, 2, lambda _: None)
    for guest in ("a", "b"):
        assert admission.enter(guest, "192.0.2.1") is None
        admission.know(guest, has_share=False)
    assert admission.enter("c", "192.0.2.1") == "more than 2 connections from your address"

    admission.know("a", has_share=True)
    assert admission.enter("c", "192.0.2.1") is None
    for guest in ("a", "b", "c"):
        admission.leave(guest)
    assert len(admission) == 0
    assert admission.enter("d", "192.0.2.1") is None


# --- bytes in flight


@dataclass(eq=False)
class Peer:
    """A connection and the way to its peer in one."""

    payer: str
    size_bytes: int = 0
    turns: list[Peer] = field(default_factory=list)

    @property
    def peer(self) -> Peer:
        return self

    @property
    def outbox_bytes(self) -> int:
        return 0

    @property
    def most_in_flight_bytes(self) -> int:
        return self.size_bytes

    def load(self) -> Load:
        return Load(self.size_bytes, {})

    def take_turn(self) -> None:
        self.turns.append(self)


def test_many_small_connections_of_one_principal_give_way_before_a_larger_one_of_another() -> None:
    transit: InFlightBytes[Peer] = InFlightBytes(1_000)
    alice = Peer("alice", 200)
    hogs = [Peer("hog", 100) for _ in range(9)]
    for each in (alice, *hogs):
        transit.touch(each)

    ended = transit.excess(0.0)
    assert 0 < len(ended) < 9
    assert {each.payer for each in ended} == {"hog"}


def test_largest_connection_of_the_principal_gives_way() -> None:
    transit: InFlightBytes[Peer] = InFlightBytes(1_000)
    small, large, other = Peer("hog", 300), Peer("hog", 500), Peer("alice", 400)
    for each in (small, large, other):
        transit.touch(each)

    assert transit.excess(0.0) == [large]


# --- turns


def test_principals_are_read_in_rotation_however_many_connections_they_have() -> None:
    order: list[Peer] = []
    loop = asyncio.new_event_loop()
    turns: FairScheduler[Peer] = FairScheduler(loop, lambda _connection, _now: None, lambda: None)
    hogs = [Peer("hog", turns=order) for _ in range(10)]
    alice = Peer("alice", turns=order)
    for each in (*hogs, alice):
        turns.line_up(each)
    for _ in range(20):
        loop.call_soon(loop.stop)
        loop.run_forever()
    loop.close()

    assert len(order) == 11
    assert order.index(alice) <= 1
