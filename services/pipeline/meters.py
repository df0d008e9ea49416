"""Readings of a venue's meters: as many as are wanted, equal for equal seeds, and a ledger of their totals.

A machine is read once a minute. Its meters only rise: cents since it was installed.
"""

from __future__ import annotations

import io
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import fastavro

from nebula.avro import Schema

MACHINES: Final = 500
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
# A midnight, UTC.
BEGIN_MS: Final = 1_760_054_400_000

READING: Final = Schema({
    "type": "record",
    "name": "venue.MeterReading_v1",
    "doc": "A machine's money meters at one moment, in cents. They only rise.",
    "fields": [
        {"name": "machine", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "turnover", "type": "long", "doc": "All money bet."},
        {"name": "wins", "type": "long", "doc": "All money won."},
    ],
})  # fmt: skip


@dataclass(slots=True)
class Ledger:
    """What was bet, as the generator knows it.

    Attributes:
        turnover: cents, by machine and hour (ms since 1970).
        readings: how many there were.
        cents: the sum of what they tell as turnover: it shows one that is lost where another is doubled.
    """

    turnover: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    readings: int = 0
    cents: int = 0

    @property
    def total(self) -> int:
        """All money bet, in cents."""
        return sum(self.turnover.values())

    @property
    def hours(self) -> dict[int, int]:
        """Cents by hour, over all machines."""
        found: dict[int, int] = defaultdict(int)
        for (_, hour), cents in self.turnover.items():
            found[hour] += cents
        return found


def readings(most: int, ledger: Ledger, *, seed: int = 1) -> Iterator[bytes]:
    """Yield `most` readings as Avro data, minute by minute, and note each in the ledger.

    The first reading of a machine is taken before its first game, so it shows no turnover.
    """
    dice = random.Random(seed)  # noqa: S311  # chance, not a secret
    names = [f"egm-{number:04}" for number in range(MACHINES)]
    turnover = [dice.randrange(10_000_000) for _ in names]
    wins = [cents * 9 // 10 for cents in turnover]
    for number in range(most):
        minute, place = divmod(number, MACHINES)
        at = BEGIN_MS + minute * MINUTE_MS
        if minute:
            bet = int(_busy(minute) * dice.randrange(500))
            turnover[place] += bet
            wins[place] += bet * dice.randrange(180) // 100
            ledger.turnover[names[place], at - at % HOUR_MS] += bet
        ledger.readings += 1
        ledger.cents += turnover[place]
        out = io.BytesIO()
        value = {"machine": names[place], "at": at, "turnover": turnover[place], "wins": wins[place]}
        fastavro.schemaless_writer(out, READING.parsed, value)
        yield out.getvalue()


def _busy(minute: int) -> float:
    """How busy the floor is: hardly at five in the morning, fully at five in the afternoon."""
    return 1.05 - math.cos((minute / 60 - 5) * math.pi / 12)
