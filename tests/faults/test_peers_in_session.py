"""Peers that misbehave in a session, over real sockets: others do not notice, and nothing is left behind."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.server.listener import Listener
from tests.broker.browser import BINARY, CONTINUATION, PING, UPGRADE, Browser, wrap
from tests.broker.invariants import destinations
from tests.broker.script import octets
from tests.faults.served import Served, Wire, serve

LIMITS = Limits(
    max_body_bytes=100_000,
    max_headers=50,
    max_header_line_bytes=2000,
    max_subscriptions=20,
    principal_share=1.0,
    operator_reserve=1e-9,
    max_globs=30,
    max_destinations=60,
    max_deliveries=5,
    max_transaction_bytes=200_000,
)


@pytest.fixture
def broker() -> Iterator[Served]:
    with serve(
        replace(LIMITS), listeners=[Listener("127.0.0.1", 0), Listener("127.0.0.1", 0, http=True)]
    ) as served:
        yield served


@pytest.fixture(autouse=True)
def innocent(broker: Served) -> Iterator[None]:
    """Somebody sends to himself all the time; afterwards nothing of the others is left."""
    wire = broker.connect()
    wire.say("SUBSCRIBE id:s; destination:/queue/innocent")
    is_over = threading.Event()
    bodies: list[str] = []

    def go_on() -> None:
        for number in itertools.count():
            wire.say(f"SEND destination:/queue/innocent | {number}")
            frame = wire.next()
            if frame is None:
                return
            bodies.append("".join(frame[2:]))
            if is_over.is_set():
                return

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    yield
    is_over.set()
    thread.join(10)
    assert bodies
    assert bodies == [str(number) for number in range(len(bodies))]
    assert wire.is_in_order()


def complaint(wire: Wire | Browser) -> str:
    """The text of the ERROR that it gets at the end."""
    frame = None
    while (following := wire.next()) is not None:
        frame = following
    assert frame is not None
    assert frame[0] == "ERROR"
    return frame[1]["message"]


def pour(wire: Wire, piece: bytes) -> threading.Thread:
    """Send it again and again until the broker has had enough."""

    def go_on() -> None:
        with contextlib.suppress(OSError):
            while True:
                wire.send(piece)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    return thread


def drip(send: Callable[[bytes], None], octet: bytes) -> threading.Thread:
    """Send an octet now and then, for as long as they are taken."""

    def go_on() -> None:
        with contextlib.suppress(OSError):
            while True:
                send(octet)
                time.sleep(0.02)

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    return thread


def upgraded(broker: Served) -> Browser:
    """A client on WebSocket that has connected."""
    browser = Browser(int(broker.server.urls[1].rpartition(":")[2]))
    browser.ask("/stomp", UPGRADE)
    assert browser.answer()[0] == 101
    browser.connect(BINARY)
    return browser


# Frames without end, and slow ones


@pytest.mark.parametrize(
    ("beginning", "piece", "text"),
    [
        (b"SEND\ndestination:/queue/a\n\n", b"x" * 5000, "a body exceeds 100000 bytes"),
        (b"SEND\n", b"h:v\n" * 100, "more than 50 headers"),
        (b"SEND\nh:", b"v" * 500, "a header line exceeds 2000 bytes"),
        (b"SEND\ndestination:/queue/a\ncontent-length:99999999999\n\n", b"x", "a body exceeds 100000 bytes"),
    ],
    ids=["body", "headers", "header", "announced"],
)
def test_frame_without_end_is_not_kept(broker: Served, beginning: bytes, piece: bytes, text: str) -> None:
    mallory = broker.connect()
    mallory.send(beginning)
    thread = pour(mallory, piece)

    assert complaint(mallory) == text
    mallory.close()
    thread.join(10)


def test_frame_that_comes_octet_by_octet_has_its_time(broker: Served) -> None:
    broker.limit(frame_timeout=0.5)
    mallory = broker.connect()
    mallory.send(b"SEND\ndestination:/queue/a\ncontent-length:50000\n\n")
    thread = drip(mallory.send, b"x")

    assert complaint(mallory) == "a frame took too long"
    thread.join(10)


@pytest.mark.parametrize("stomp", [b"SEND\ndestination:/queue/a\n\n" + b"x" * 500, b"\n" * 500])
def test_frame_of_a_websocket_that_comes_octet_by_octet_has_its_time(broker: Served, stomp: bytes) -> None:
    broker.limit(frame_timeout=0.5)
    mallory = upgraded(broker)
    # All of it but its end, which never comes.
    frame = wrap(BINARY, stomp)
    mallory.socket.sendall(frame[:100])
    rest = iter(frame[100:-1])
    thread = drip(lambda _: mallory.socket.sendall(bytes([next(rest)])), b"")

    assert complaint(mallory) == "a frame took too long"
    thread.join(10)


def test_tiny_frames_of_a_websocket_are_endured(broker: Served) -> None:
    mallory = upgraded(broker)
    mallory.socket.sendall(wrap(BINARY, b"\n", fin=False))
    mallory.socket.sendall(wrap(CONTINUATION, b"", fin=False) * 50_000)
    mallory.socket.sendall(wrap(PING, b"") * 1000)
    mallory.socket.sendall(wrap(CONTINUATION, octets("SEND destination:/queue/f; receipt:r | x")))

    frame = mallory.next()
    assert frame is not None
    assert frame[1]["receipt-id"] == "r"


# Subscriptions and destinations


def test_subscriptions_by_the_thousand_end_their_connection(broker: Served) -> None:
    mallory = broker.connect()
    mallory.say(*(f"SUBSCRIBE id:{number}; destination:/topic/{number}" for number in range(2000)))

    assert complaint(mallory) == "more than 20 subscriptions"
    assert broker.ask(lambda: len(broker.server.broker.topics.topics)) == 0


def test_globs_by_the_thousand_end_their_connection(broker: Served) -> None:
    peers = [broker.connect(), broker.connect()]
    pattern = "X/" + "*a" * 30
    for peer, first in zip(peers, (0, 1000), strict=True):
        peer.say(*(f"SUBSCRIBE id:{number}; destination:{pattern}{first + number}" for number in range(16)))
        # The broker may read them in any order: the first one is done before the second one begins.
        assert peer is peers[1] or peer.is_in_order()

    assert complaint(peers[1]) == "the broker has no room for more of your globs"
    assert peers[0].is_in_order()
    assert broker.ask(lambda: len(broker.server.broker.values.feeds.table.globs)) == 16


@pytest.mark.parametrize("pattern", ["/topic/" + "**a*b" * 20, "/topic/" + "*" * 600, "/topic/[", "X/[z-a]"])
def test_glob_that_explodes_is_refused(broker: Served, pattern: str) -> None:
    mallory = broker.connect()
    mallory.say(f"SUBSCRIBE id:s; destination:{pattern}")

    assert complaint(mallory).startswith(pattern[:60])


def test_destinations_by_the_million_leave_those_that_are_there_alone(broker: Served) -> None:
    mallory = broker.connect()
    sends = (f"SEND destination:/queue/{number}; receipt:{number} | x" for number in range(2000))
    mallory.say(*sends)
    verdicts = [frame[1]["disposition"] for _ in range(2000) if (frame := mallory.next())]

    assert verdicts == ["accepted"] * 59 + ["rejected-full"] * 1941
    # What is consumed leaves its place, and its name, to the next one.
    for number in range(59):
        mallory.say(f"SUBSCRIBE id:s; destination:/queue/{number}", "UNSUBSCRIBE id:s")
    assert mallory.is_in_order()
    assert broker.ask(lambda: list(destinations(broker.server.broker))) == ["/queue/innocent"]


def test_name_that_is_absurdly_long_ends_its_connection(broker: Served) -> None:
    mallory = broker.connect()
    mallory.say(f"SEND destination:/topic/{'a' * 1500} | x")

    assert complaint(mallory) == "destination exceeds 1024 characters"


# Transactions, ACKs, NACKs


def test_transaction_that_grows_ends_its_connection_and_leaves_nothing(broker: Served) -> None:
    mallory = broker.connect()
    mallory.say("BEGIN transaction:t")
    mallory.say(*[f"SEND destination:/queue/a; transaction:t | {'x' * 1000}"] * 500)

    assert complaint(mallory) == "more than 200000 bytes in transactions"
    assert broker.ask(lambda: broker.server.broker.account.stored_bytes) < 5000


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
def test_storm_of_acks_of_nothing_is_endured(broker: Served, version: str) -> None:
    mallory = broker.connect(version)
    mallory.say(*(f"SUBSCRIBE id:{number}; destination:/topic/a; ack:client" for number in range(20)))
    ack = "ACK id:7 m-99; subscription:7; message-id:m-99"

    mallory.say(*[ack] * 20_000)
    mallory.say(*[f"N{ack}"] * (0 if version == "1.0" else 20_000))

    assert mallory.is_in_order()


def test_loop_of_nacks_ends_in_the_dead_letter_queue(broker: Served) -> None:
    mallory = broker.connect()
    mallory.say(
        "SUBSCRIBE id:s; destination:/queue/a; ack:client-individual", "SEND destination:/queue/a | x"
    )
    counts = []
    for _ in range(5):
        frame = mallory.next()
        assert frame is not None
        counts.append(frame[1].get("delivery-count"))
        mallory.say(f"NACK id:{frame[1]['ack']}")

    assert counts == [None, "1", "2", "3", "4"]
    assert mallory.probe() == []
    assert broker.ask(lambda: [*broker.server.broker.queues.by_name]) == [
        "/queue/innocent",
        "/queue/a",
        "/queue/DLQ",
    ]


def test_loop_of_nacks_on_dead_letters_goes_at_its_own_pace(broker: Served) -> None:
    mallory = broker.connect()
    mallory.say("SEND destination:/queue/a | x", "SUBSCRIBE id:s; destination:/queue/a; ack:client")
    frame = mallory.next()
    assert frame is not None
    mallory.say(
        f"NACK id:{frame[1]['ack']}; requeue:false", "SUBSCRIBE id:d; destination:/queue/DLQ; ack:client"
    )
    for _ in range(500):
        frame = mallory.next()
        assert frame is not None
        mallory.say(f"NACK id:{frame[1]['ack']}")

    assert frame[1]["delivery-count"] == "499"
