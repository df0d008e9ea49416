"""What is on its way of all connections together has a limit, and who holds most gives way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from nebula.broker.core.limits import Limits
from tests.broker.script import octets
from tests.faults.served import Served, serve, wait_until
from tests.faults.sinks import Deaf, Sink, attach

LIMITS = Limits(
    max_body_bytes=1_000_000,
    outbox_high_water_bytes=50_000,
    max_outbox_bytes=1_000_000,
    max_transit_bytes=2_000_000,
    drain_seconds=0.1,  # the deaf would have it wait to the end
)
_NO_ROOM = b"the broker has no room for what is on its way"
_HALF = b"SEND\ndestination:/queue/a\ncontent-length:900000\n\n"


@pytest.fixture
def broker() -> Iterator[Served]:
    """A broker with little room."""
    with serve(LIMITS) as served:
        yield served


def deaf(broker: Served, topic: str, count: int) -> list[Deaf]:
    """Subscribers that read nothing."""
    peers = [Deaf() for _ in range(count)]
    line = f"SUBSCRIBE id:s; destination:/topic/{topic}"
    broker.ask(lambda: [attach(broker, peer, line) for peer in peers])
    return peers


def sessions(broker: Served) -> int:
    return len(broker.server.broker.sessions)


def test_largest_of_many_half_frames_are_ended_until_there_is_room(broker: Served) -> None:
    sizes = [100_000] * 5 + [800_000] * 3
    peers = [Sink() for _ in sizes]

    def begin() -> None:
        for peer, size in zip(peers, sizes, strict=True):
            attach(broker, peer).data_received(_HALF + b"x" * size)

    broker.ask(begin)
    wait_until(broker, lambda: sessions(broker) == 6)

    assert [_NO_ROOM in peer.octets for peer in peers[:5]] == [False] * 5
    assert sum(_NO_ROOM in peer.octets for peer in peers[5:]) == 2
    assert broker.ask(lambda: sessions(broker)) == 6


def test_half_of_a_websocket_frame_counts_too(broker: Served) -> None:
    def begin() -> None:
        for _ in range(3):
            attach(broker, Sink()).note_partial(900_000)

    broker.ask(begin)

    wait_until(broker, lambda: sessions(broker) == 1)


def test_held_back_octets_count_too(broker: Served) -> None:
    peers = [Sink() for _ in range(3)]

    def hold_back() -> None:
        for peer in peers:
            connection = attach(broker, peer)
            connection._protocol.is_held_back = True
            connection.data_received(b"x" * 900_000)

    broker.ask(hold_back)

    wait_until(broker, lambda: sessions(broker) == 1)


def test_frames_that_wait_for_their_turn_count_too(broker: Served) -> None:
    few = b"".join(b"ACK\na%d:\nid:%d\n\n\0" % (number, number) for number in range(1_500))

    def send() -> None:
        for _ in range(5):
            # Each SUBSCRIBE to a glob ends the turn, and the frames behind it wait.
            globs = b"".join(b"SUBSCRIBE\nid:%d\ndestination:X/%d.*\n\n\0" % (n, n) for n in range(100))
            attach(broker, Sink()).data_received(globs + few)
        broker.server.runtime.relieve()

    broker.ask(send)

    assert sessions(broker) < 5


def test_those_who_read_nothing_are_ended_where_there_are_too_many(broker: Served) -> None:
    peers = deaf(broker, "t", 20)
    quick = broker.connect()
    # Each of them is far below its own limit.
    for _ in range(4):
        quick.say(*["SEND destination:/topic/t | " + "x" * 10_000] * 20)
        assert quick.is_in_order()

    wait_until(broker, lambda: sessions(broker) < 21)

    assert broker.ask(lambda: sum(peer.is_aborted for peer in peers)) >= 1
    assert quick.is_in_order()


def test_what_they_have_not_read_who_have_said_goodbye_counts_too(broker: Served) -> None:
    def leave_much() -> list[Deaf]:
        peers = [Deaf() for _ in range(20)]
        for number, peer in enumerate(peers):
            connection = attach(broker, peer, f"SUBSCRIBE id:s; destination:/topic/{number}")
            attach(broker, Sink(), f"SEND destination:/topic/{number} | " + "x" * 300_000)
            connection.data_received(octets("DISCONNECT"))
        return peers

    peers = broker.ask(leave_much)
    broker.ask(broker.server.runtime.relieve)

    left = sum(peer.get_write_buffer_size() for peer in peers if not peer.is_aborted)
    assert 0 < left <= LIMITS.max_transit_bytes


def test_body_that_many_do_not_read_counts_once(broker: Served) -> None:
    peers = deaf(broker, "t", 30)

    def publish() -> None:
        attach(broker, Sink(), *["SEND destination:/topic/t | " + "x" * 300_000] * 2)

    broker.ask(publish)
    wait_until(broker, lambda: sum(len(peer.pieces) > 2 for peer in peers) == 30)
    broker.ask(broker.server.runtime.relieve)

    assert broker.ask(lambda: sessions(broker)) == 31


def test_small_messages_that_many_do_not_read_count_once(broker: Served) -> None:
    peers = deaf(broker, "t", 10)

    def publish() -> None:
        # What was handed to the transport is each one's own; what waits behind it is everybody's.
        attach(broker, Sink(), *["SEND destination:/topic/t | " + "x" * 10_000] * 40)

    broker.ask(publish)
    broker.ask(broker.server.runtime.relieve)

    assert broker.ask(lambda: sessions(broker)) == 11
    assert all(not peer.is_aborted for peer in peers)


def test_much_at_once_is_not_left_until_the_next_look(broker: Served) -> None:
    for number in range(8):
        deaf(broker, str(number), 1)

    def publish() -> None:
        # Time stands still: nobody looks unasked.
        broker.server.runtime.stop_clock()
        for number in range(8):
            attach(broker, Sink(), f"SEND destination:/topic/{number} | " + "x" * 300_000)

    broker.ask(publish)

    wait_until(broker, lambda: sessions(broker) < 16)
