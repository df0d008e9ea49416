"""The broker's shell over real sockets, with peers that behave badly."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest
import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.server.connection import Connection
from nebula.broker.server.server import Listener, Server
from tests.faults.served import Served, Wire, serve, wait_until
from tests.ports import free_port

LIMITS = Limits(
    max_body_bytes=1 << 20,
    max_outbox_bytes=4 << 20,
    max_queue_messages=100,
    max_pause_seconds=0.5,
    drain_seconds=0.5,
    max_connections=300,
)


@pytest.fixture
def broker() -> Iterator[Served]:
    """A broker on uvloop."""
    with serve(replace(LIMITS)) as served:
        yield served


@pytest.fixture(params=[uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def any_broker(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A broker on either loop: they differ in what a closing transport does."""
    with serve(replace(LIMITS), run_loop=request.param) as served:
        yield served


def block(broker: Served, destination: str) -> None:
    """Send to a deaf subscriber until nothing more fits into the kernel's buffers."""
    alice = broker.connect()
    for _ in range(200):
        alice.say(f"SEND destination:{destination} | " + "x" * 100_000)
        assert alice.is_in_order()
        if broker.ask(lambda: any(each._is_blocked for each in broker.connections)):
            return
    raise AssertionError("the kernel takes everything")


# Start and stop


def test_server_tells_where_it_listens_and_stops_with_an_error_to_all(any_broker: Served) -> None:
    broker = any_broker
    alice = broker.connect()
    assert broker.server.urls == [f"stomp://127.0.0.1:{broker.port}"]

    broker.stop()

    (frame,) = alice.rest()
    assert (frame[0], frame[1]["message"]) == ("ERROR", "the broker is shutting down")
    with pytest.raises(ConnectionError):
        Wire(broker.port).connect("1.2")


def test_server_stops_in_time_also_when_a_peer_reads_nothing(
    any_broker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = any_broker
    deaf = broker.connect(receive_buffer_bytes=4096)
    deaf.say("SUBSCRIBE id:s; destination:/topic/t")
    assert deaf.is_in_order()
    block(broker, "/topic/t")
    # A peer that is to be told why gets so long: who waited for it would not come to an end here.
    monkeypatch.setattr("nebula.broker.server.connection.FLUSH_SECONDS", 60.0)

    broker.stop()


def test_stop_hands_what_one_consumer_held_to_no_other(broker: Served) -> None:
    # Each of them would count as an attempt that failed, and the message might end as a dead letter.
    wires = [broker.connect() for _ in range(5)]
    for wire in wires:
        wire.say("SUBSCRIBE id:s; destination:/queue/a; ack:client")
        assert wire.is_in_order()
    sender = broker.connect()
    sender.say(*(f"SEND destination:/queue/a | {number}" for number in range(20)))
    sender.probe()

    broker.stop()

    bodies = [
        frame[2] for wire in wires for frame in wire.rest() if len(frame) == 3 and frame[0] == "MESSAGE"
    ]
    assert sorted(bodies, key=int) == [str(number) for number in range(20)]


def test_stop_twice_is_stop_once(broker: Served) -> None:
    broker.stop()
    broker.stop()


def test_address_that_cannot_be_had_is_an_error_and_nothing_listens() -> None:
    async def start() -> None:
        taken = socket.create_server(("127.0.0.1", 0))
        port = free_port()
        with taken:
            server = Server([Listener(port=port), Listener(port=taken.getsockname()[1])])
            with pytest.raises(OSError, match="address already in use"):
                await server.start()
        socket.create_server(("127.0.0.1", port)).close()

    asyncio.run(start())


# Many, and too many


def test_two_hundred_connections_come_and_go(broker: Served) -> None:
    wires = [broker.connect() for _ in range(200)]
    assert all(wire.is_in_order() for wire in wires)
    for wire in wires:
        wire.close()

    wait_until(broker, lambda: not broker.connections)
    assert broker.connect().is_in_order()


def test_peer_above_the_number_of_connections_is_told_so() -> None:
    with serve(Limits(max_connections=2)) as broker:
        alice, bob = broker.connect(), broker.connect()
        carol = Wire(broker.port)

        (frame,) = carol.rest()
        assert (frame[0], frame[1]["message"]) == ("ERROR", "more than 2 connections")
        carol.close()
        alice.close()
        wait_until(broker, lambda: len(broker.connections) == 1)
        assert broker.connect().is_in_order()
        assert bob.is_in_order()


def test_peer_that_says_nothing_is_ended(broker: Served) -> None:
    broker.limit(connect_timeout=0.5)
    (frame,) = Wire(broker.port).rest()

    assert frame[1]["message"] == "no CONNECT came in time"


# Bad octets


def test_garbage_ends_its_own_connection_only(any_broker: Served) -> None:
    broker = any_broker
    alice = broker.connect()
    chance = random.Random(7)
    for _ in range(50):
        mallory = Wire(broker.port)
        mallory.send(chance.randbytes(chance.randrange(1, 5000)) + b"\n\n\0")
        assert {frame[0] for frame in mallory.rest()} <= {"ERROR"}
        mallory.close()

    assert alice.is_in_order()


def test_garbage_behind_a_connect_is_answered_with_an_error(broker: Served) -> None:
    mallory = Wire(broker.port)
    mallory.send(b"CONNECT\naccept-version:1.2\nhost:h\n\n\0\xff\xfe garbage\n\n\0")

    assert [frame[0] for frame in mallory.rest()] == ["CONNECTED", "ERROR"]


def test_error_reaches_a_peer_that_goes_on_sending(any_broker: Served) -> None:
    broker = any_broker
    mallory = broker.connect()
    mallory.send(b"COMMIT\ntransaction:t\n\n\0" + b"SEND\ndestination:/queue/a\n\nx\0" * 50_000)

    assert mallory.rest()[0][0] == "ERROR"


def test_session_that_was_lost_is_settled_for_the_others(any_broker: Served) -> None:
    broker = any_broker
    bob = broker.connect()
    bob.say("SUBSCRIBE id:s; destination:/queue/a; ack:client")
    alice = broker.connect()
    alice.say("SEND destination:/queue/a | x")
    assert alice.is_in_order()
    # An abrupt reset: nothing is said, not even FIN.
    bob.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bob.close()
    carol = broker.connect()
    carol.say("SUBSCRIBE id:s; destination:/queue/a")

    frame = carol.next()
    assert frame is not None
    assert (*frame[2:], frame[1]["delivery-count"]) == ("x", "1")


def test_client_that_shuts_its_sending_half_still_gets_its_answers(any_broker: Served) -> None:
    broker = any_broker
    alice = broker.connect()
    alice.say(*(f"SEND destination:/topic/t; receipt:{number} | x" for number in range(1000)))
    alice.socket.shutdown(socket.SHUT_WR)

    assert [frame[1]["receipt-id"] for frame in alice.rest()] == list(map(str, range(1000)))


def test_half_gone_peer_that_reads_nothing_is_forgotten(any_broker: Served) -> None:
    broker = any_broker
    bob = broker.connect(receive_buffer_bytes=4096)
    bob.say("SUBSCRIBE id:s; destination:/queue/a")
    block(broker, "/queue/a")
    bob.socket.shutdown(socket.SHUT_WR)

    def is_forgotten() -> bool:
        queue = broker.server.broker.queues.get("/queue/a")
        # A queue without messages goes with its consumer.
        return queue is None or not queue.consumers.subscriptions

    wait_until(broker, is_forgotten)


def test_disconnect_without_a_receipt_ends_in_a_close(any_broker: Served) -> None:
    broker = any_broker
    alice = broker.connect()
    alice.say("DISCONNECT")

    assert alice.rest() == []


# Slow readers and paused senders


def test_slow_reader_of_a_queue_gets_everything_in_order(broker: Served) -> None:
    bob = broker.connect(receive_buffer_bytes=4096)
    bob.say("SUBSCRIBE id:s; destination:/queue/a")
    assert bob.is_in_order()
    alice = broker.connect()
    for number in range(90):
        alice.say(f"SEND destination:/queue/a | {number} " + "x" * 100_000)
    assert alice.is_in_order()  # while the kernel's buffers are full

    frames = [bob.next() for _ in range(90)]
    assert [int("".join(frame[2:]).split()[0]) for frame in frames if frame] == list(range(90))


def test_slow_reader_of_a_topic_is_ended_and_the_others_get_everything(broker: Served) -> None:
    deaf, bob = broker.connect(receive_buffer_bytes=4096), broker.connect()
    for wire in (deaf, bob):
        wire.say("SUBSCRIBE id:s; destination:/topic/t")
        assert wire.is_in_order()
    alice = broker.connect()
    for number in range(150):
        alice.say(f"SEND destination:/topic/t | {number} " + "x" * 100_000)
        assert bob.next() is not None

    wait_until(broker, lambda: broker.server.broker.topics.topics["/topic/t"].subscriber_count == 1)
    assert alice.is_in_order()
    assert bob.is_in_order()


def test_blocked_peer_with_beats_does_not_keep_the_loop_busy(broker: Served) -> None:
    deaf = Wire(broker.port, receive_buffer_bytes=4096)
    deaf.connect("1.2", heart_beat="0,1000")
    deaf.say("SUBSCRIBE id:s; destination:/topic/t")
    assert deaf.is_in_order()
    block(broker, "/topic/t")
    (connection,) = broker.ask(lambda: [each for each in broker.connections if each._is_blocked])
    ticks: list[float] = []
    tick = connection._protocol.tick

    def counted(now: float) -> float:
        ticks.append(now)
        return float(tick(now))

    connection._protocol.tick = counted

    begin = broker.ask(broker.server.runtime.time)
    wait_until(broker, lambda: broker.server.runtime.time() > begin + 1.5 and len(ticks) >= 2)

    assert len(ticks) <= 2 + 2 * (broker.ask(broker.server.runtime.time) - begin)


def test_publisher_that_outruns_its_consumer_is_not_read_for_a_while(broker: Served) -> None:
    bob, alice = broker.connect(), broker.connect()
    bob.say("SUBSCRIBE id:s; destination:/queue/a; ack:client; prefetch-count:1")
    assert bob.is_in_order()
    alice.say(*(f"SEND destination:/queue/a; receipt:{number} | x" for number in range(101)))
    receipts = [alice.next() for _ in range(101)]

    assert [frame[1]["disposition"] for frame in receipts if frame] == ["accepted"] * 100 + ["rejected-full"]


def test_peer_that_goes_silent_after_it_was_held_back_is_found_dead(broker: Served) -> None:
    bob = broker.connect()
    bob.say("SUBSCRIBE id:s; destination:/queue/a; ack:client; prefetch-count:1")
    assert bob.is_in_order()
    alice = Wire(broker.port)
    alice.connect("1.2", heart_beat="100,0")
    # Held back when the timer for its death would fire (2 s), by waits of half a second each.
    broker.limit(max_pause_seconds=2.5)
    alice.say(*(["SEND destination:/queue/a | x"] * 101))

    assert alice.rest()[-1][1]["message"] == "no heart-beat came in time"


# Faults of ours


class BrokenTransport(asyncio.Transport):
    """A transport whose writing fails."""

    is_aborted = False

    def write(self, data: object) -> None:
        raise RuntimeError("broken")

    def abort(self) -> None:
        self.is_aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def test_fault_at_one_peer_does_not_harm_the_others(any_broker: Served) -> None:
    broker = any_broker
    bob, alice = broker.connect(), broker.connect()
    transport = BrokenTransport()

    def serve_broken() -> None:
        connection = Connection(broker.server.runtime)
        connection.connection_made(transport)
        connection.data_received(
            b"CONNECT\naccept-version:1.2\nhost:h\n\n\0SUBSCRIBE\nid:s\ndestination:/topic/t\n\n\0"
        )

    bob.say("SUBSCRIBE id:s; destination:/topic/t")
    assert bob.is_in_order()
    broker.ask(serve_broken)
    alice.say("SEND destination:/topic/t | x")

    frame = bob.next()
    assert frame is not None
    assert frame[2:] == ("x",)
    assert transport.is_aborted
    assert broker.ask(lambda: broker.server.broker.topics.topics["/topic/t"].subscriber_count) == 1


def test_bug_of_ours_ends_one_connection_with_a_word_that_says_nothing(
    broker: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = broker.connect(), broker.connect()

    def fail(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(broker.server.broker.subscriptions, "subscribe", fail)
    alice.say("SUBSCRIBE id:s; destination:/queue/a")

    ((command, headers, *body),) = alice.rest()
    assert (command, headers["message"], body) == ("ERROR", "internal error", ["internal error"])
    assert bob.is_in_order()
