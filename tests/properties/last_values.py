"""What the model of the last-value machine knows: present values, and each subscription."""

from __future__ import annotations

from dataclasses import dataclass, field

from nebula.globs import compile_glob
from tests.broker.harness import Peer
from tests.broker.script import Received


@dataclass(eq=False)
class Value:
    """The present one of a key."""

    body: str
    owner: Peer | None


@dataclass(eq=False)
class Subscribed:
    """What the model knows of one subscription."""

    reader: str
    pattern: str
    ack: str
    is_durable: bool
    is_away: bool = False
    is_receipted: bool = True
    due: set[str] = field(default_factory=set)
    possible: set[str] = field(default_factory=set)
    told: dict[str, str] = field(default_factory=dict)  # what it believes, by key
    in_flight: dict[str, Received] = field(default_factory=dict)  # in the order of delivery
    snapshot: set[str] | None = None
    owes_marker: bool = False

    def matches(self, key: str) -> bool:
        return bool(compile_glob(self.pattern)(key))

    def land(self) -> None:
        self.due |= set(self.in_flight) - {""}
        self.in_flight.clear()
        self.is_away = True
        self.snapshot = None
        self.owes_marker = False
