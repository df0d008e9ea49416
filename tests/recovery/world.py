"""The destinations that the traffic uses, each with its ledger, and what its messages look like."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Final

from nebula.stomp.frames import Frame
from tests.recovery.ledger import Group, Ledger, ValueLedger

VALUES: Final = "X/"
KEYS: Final = 40
WATCHER: Final = "watcher"

# The durable subscription to all values.
WATCH: Final = f"SUBSCRIBE\nid:s\ndestination:{VALUES}*\nack:client-individual\ndurable:true\n\n\0".encode()

# Of a body that is in no ledger.
END: Final = "end"

# In milliseconds.
_MOST_DELAY: Final = 250

_SIZES: Final = (0, 20, 200, 200, 1000, 6000)


@dataclass(frozen=True, eq=False)
class Line:
    """A queue, or a durable subscription to a topic, and its account.

    Attributes:
        client_id: of the session that the durable subscription belongs to; empty: it is a queue.
        consumers: how many share it.
        mode: of their ACKs.
        prefetch: of each of them; few make the line grow.
        deepest: it is not fed above this depth, since each restart has all of it read.
        delays: its messages are delivered later than they are sent.
        repeats: after a kill its sender sends again what had no RECEIPT, under the same `dedup-id`.
    """

    destination: str
    ledger: Ledger
    client_id: str = ""
    consumers: int = 1
    mode: str = "client-individual"
    prefetch: int = 100
    deepest: int = 600
    delays: bool = False
    repeats: bool = False

    def headers(self, number: int) -> str:
        """Of a SEND, beside its receipt."""
        delay = f"delay:{number % _MOST_DELAY}\n" if self.delays else ""
        dedup_id = f"dedup-id:{number}\n" if self.repeats else ""
        return f"persistent:true\n{delay}{dedup_id}"

    def end(self, turn: int) -> bytes:
        """A SEND behind all that is there."""
        return end_of(self.destination, turn, f"delay:{2 * _MOST_DELAY}\n" if self.delays else "")

    def subscribe(self, *, prefetch: int = 0, mode: str = "") -> bytes:
        """The SUBSCRIBE of one of its consumers, or of somebody who wants it otherwise."""
        durable = "durable:true\n" if self.client_id else ""
        return (
            f"SUBSCRIBE\nid:s\ndestination:{self.destination}\nack:{mode or self.mode}\n"
            f"prefetch-count:{prefetch or self.prefetch}\n{durable}\n\0"
        ).encode()


@dataclass
class World:
    """All that one broker keeps.

    Attributes:
        plain: lines that are fed one message at a time.
        joined: lines that transactions feed, each of them both.
        groups: transactions whose COMMIT has no RECEIPT yet.
    """

    plain: tuple[Line, ...] = field(
        default_factory=lambda: (
            Line("/queue/a", Ledger("/queue/a")),
            Line("/queue/b", Ledger("/queue/b"), consumers=2),
            Line("/queue/c", Ledger("/queue/c"), mode="client"),
            Line("/queue/deep", Ledger("/queue/deep"), prefetch=5, deepest=1200),
            Line("/queue/later", Ledger("/queue/later", is_ordered=False), delays=True),
            Line("/queue/once", Ledger("/queue/once"), repeats=True),
            Line("/topic/t", Ledger("/topic/t"), client_id="reader"),
        )
    )
    joined: tuple[Line, ...] = field(
        default_factory=lambda: (
            Line("/queue/d", Ledger("/queue/d")),
            Line("/queue/e", Ledger("/queue/e")),
        )
    )
    values: ValueLedger = field(default_factory=lambda: ValueLedger(VALUES))
    groups: list[Group] = field(default_factory=list)

    @property
    def lines(self) -> tuple[Line, ...]:
        """All of them."""
        return self.plain + self.joined

    @property
    def owed(self) -> int:
        """Messages and values that must survive a kill at this moment."""
        return sum(len(line.ledger.owed) for line in self.lines) + self.values.owed

    @property
    def doubtful(self) -> int:
        """Messages that may be there after it or not."""
        return sum(line.ledger.depth - len(line.ledger.owed) for line in self.lines)


def body_of(name: str, number: int) -> bytes:
    """The content of a message: of many sizes, always the same for this one."""
    seed = zlib.crc32(f"{name} {number}".encode())
    filler = bytes([97 + seed % 26]) * _SIZES[seed % len(_SIZES)]
    return f"{name} {number} {seed} ".encode() + filler


def read_body(body: bytes) -> tuple[str, int]:
    """The line and number of a message.

    Raises:
        ValueError: it is not as it was sent.
    """
    name, number, *_ = body.decode().split(" ", 2)
    if name != END and body != body_of(name, int(number)):
        raise ValueError(f"the body of {name} {number} is not what was sent: {body[:80]!r}")
    return name, int(number)


def end_of(destination: str, turn: int, headers: str = "") -> bytes:
    """A SEND behind all that is there; `read_body` says `END` and the turn of it."""
    return f"SEND\ndestination:{destination}\n{headers}\n{END} {turn}\0".encode()


def key_of(frame: Frame) -> str:
    """Of a last value."""
    return frame.headers["destination"].removeprefix(VALUES)


def ack_of(frame: Frame, *headers: str, command: str = "ACK") -> bytes:
    """The ACK or NACK of a MESSAGE; each header ends with its line's end."""
    return f"{command}\nid:{frame.headers['ack']}\n{''.join(headers)}\n\0".encode()
