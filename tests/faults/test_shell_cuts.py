"""A connection that is cut at any octet leaves what its whole frames asked for, and nothing else."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest

from tests.broker import invariants
from tests.broker.script import octets
from tests.faults.served import Served, Wire, serve, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

_OPENING = b"CONNECT\naccept-version:1.2\nhost:h\nclient-id:c\n\n\0"

# Each frame, and the bodies that wait in the queue when it was the last one.
_SCRIPT: tuple[tuple[bytes, tuple[str, ...]], ...] = (
    (_OPENING, ()),
    (octets("SEND destination:/queue/a; receipt:1 | one"), ("one",)),
    (b"\nSEND\ndestination:/queue/a\ncontent-length:5\n\ntw\0o!\0", ("one", "tw\0o!")),
    (octets("SUBSCRIBE id:s; destination:/queue/a; ack:client-individual"), ("one", "tw\0o!")),
    (octets("SUBSCRIBE id:x; destination:X/*; durable:false; receipt:2"), ("one", "tw\0o!")),
    (octets("BEGIN transaction:t"), ("one", "tw\0o!")),
    (octets("SEND destination:/queue/a; transaction:t | three"), ("one", "tw\0o!")),
    (octets("SEND destination:/topic/t; transaction:t | lost"), ("one", "tw\0o!")),
    (octets("COMMIT transaction:t; receipt:3"), ("one", "tw\0o!", "three")),
    (octets("UNSUBSCRIBE id:s"), ("one", "tw\0o!", "three")),
    (b"SEND\r\ndestination:/queue/a\r\n\r\nfour\0", ("one", "tw\0o!", "three", "four")),
    (octets("BEGIN transaction:u"), ("one", "tw\0o!", "three", "four")),
    (octets("SEND destination:/queue/a; transaction:u | never"), ("one", "tw\0o!", "three", "four")),
)
_OCTETS = b"".join(frame for frame, _ in _SCRIPT)


def _left_by(length: int) -> tuple[str, ...]:
    """What waits when so many octets have been handled."""
    left: tuple[str, ...] = ()
    for frame, bodies in _SCRIPT:
        length -= len(frame)
        if length < 0:
            break
        left = bodies
    return left


@pytest.fixture(scope="module")
def broker() -> Iterator[Served]:
    with serve() as served:
        yield served


def _forget(broker: Served) -> None:
    """Wait until the broker has, and hold its books against its invariants."""
    wait_until(broker, lambda: not broker.connections)
    broker.ask(lambda: invariants.check(broker.server.broker, [], []))


def _drain(broker: Served) -> tuple[str, ...]:
    """All that waits, which is settled; after it the books are empty."""
    wire = broker.connect()
    wire.say("SUBSCRIBE id:s; destination:/queue/a")
    bodies = tuple("".join(frame[2:]) for frame in wire.probe() if frame[0] == "MESSAGE")
    wire.say("DISCONNECT")
    wire.rest()
    wire.close()
    _forget(broker)
    books = broker.ask(
        lambda: (broker.server.broker.account.stored_bytes, dict(broker.server.broker.sessions))
    )
    assert books == (0, {})
    return bodies


def test_end_behind_any_octet_leaves_what_the_whole_frames_asked_for(broker: Served) -> None:
    for length in range(len(_OCTETS) + 1):
        wire = Wire(broker.port)
        wire.send(_OCTETS[:length])
        wire.socket.shutdown(socket.SHUT_WR)
        wire.rest()
        wire.close()

        _forget(broker)
        assert _drain(broker) == _left_by(length), f"cut behind octet {length}"


def test_reset_behind_any_octet_leaves_what_some_of_the_whole_frames_asked_for(broker: Served) -> None:
    for length in range(0, len(_OCTETS) + 1, 3):
        wire = Wire(broker.port)
        wire.send(_OCTETS[:length])
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wire.close()

        _forget(broker)
        # What the broker had not read when the reset came is gone.
        left, most = _drain(broker), _left_by(length)
        assert left == most[: len(left)], f"cut behind octet {length}"
