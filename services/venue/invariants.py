"""What has to hold of the venue, whatever the network did (F.4). No I/O.

Each check returns a sentence for each breach: an empty list means that it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from services.venue.ledger import Ledger
from services.venue.topics import Topic, key_of, topic_of

# A report that lists fifty wrong machines is no more useful than a short one.
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """What the checks want to know of an `EGMMeterReading`; money in cents, times in ms since the epoch."""

    gmid: str
    wins: int
    turnover: int
    credits: int
    debits: int
    reset_at: int | None
    updated_at: int

    @classmethod
    def of(cls, gmid: str, record: Mapping[str, Any]) -> Reading:
        """Read the record of a machine. Only credit and debit sets may be added up (F.3)."""
        groups = record["meters"]["protocol"]
        game = groups["Game"]
        return cls(
            gmid=gmid,
            wins=game["Credit"]["Wins"],
            turnover=game["Debit"]["Turnover"],
            credits=_total(groups, "Credit"),
            debits=_total(groups, "Debit"),
            reset_at=record["resetDateTime"],
            updated_at=record["from"]["updatedTime"],
        )

    @property
    def net(self) -> int:
        """Credits less debits."""
        return self.credits - self.debits


class RisingMeters:
    """Watches the readings of one reader, in the order in which they came.

    Wins and turnover of a machine never fall, except when its `resetDateTime` changes.

    Attributes:
        breaches: a sentence for each fall.
        seen: readings watched.
    """

    def __init__(self) -> None:
        self.breaches: list[str] = []
        self.seen = 0
        self._last: dict[str, Reading] = {}

    def see(self, reading: Reading) -> None:
        """Watch one reading."""
        self.seen += 1
        last = self._last.get(reading.gmid)
        self._last[reading.gmid] = reading
        if last is None or last.reset_at != reading.reset_at:
            return
        for name, before, now in (
            ("Turnover", last.turnover, reading.turnover),
            ("Wins", last.wins, reading.wins),
        ):
            if now < before:
                self.breaches.append(f"{reading.gmid}: {name} fell from {before} to {now} cents")


def unreconciled(readings: Mapping[str, Reading], ledger: Ledger) -> list[str]:
    """Machines whose last reading, credits less debits, is not what the ledger says."""
    return [
        f"{gmid}: the meters come to {reading.net} cents, the ledger to {ledger.net(gmid)}"
        for gmid, reading in readings.items()
        if reading.net != ledger.net(gmid)
    ]


def stale(delivered: Mapping[str, bytes], accepted: Mapping[str, bytes]) -> list[str]:
    """Destinations where what a reader saw last is not what the broker accepted last.

    A deleted value is empty. A reader that came later never received it, which counts as empty too.
    """
    return [
        f"{destination}: delivered last was {_shown(delivered, destination)}, "
        f"accepted last {_shown(accepted, destination)}"
        for destination in sorted({*delivered, *accepted})
        if delivered.get(destination, b"") != accepted.get(destination, b"")
    ]


class Accepted:
    """What the broker accepted last, by destination: what each reader has to end up with.

    Attributes:
        values: bodies; empty where the value is gone.
        counts: SENDs that were accepted, by topic.
    """

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.counts: dict[Topic, int] = dict.fromkeys(Topic, 0)
        self._homes: dict[str, str] = {}

    def note(self, destination: str, body: bytes) -> None:
        """Take an accepted SEND down."""
        key = key_of(destination)
        former = self._homes.get(key, destination)
        if former != destination:
            # One key, one destination: under another letter the former is told that it is gone (D.30).
            self.values[former] = b""
        self._homes[key] = destination
        self.values[destination] = body
        self.counts[topic_of(destination)] += 1


def in_short(breaches: list[str]) -> str:
    """The breaches for a person to read: the first ones, and how many more there are."""
    more = len(breaches) - _SHOWN
    return "; ".join(breaches[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _total(groups: Mapping[str, Any], side: str) -> int:
    return sum(cents for group in groups.values() for cents in group.get(side, {}).values())


def _shown(values: Mapping[str, bytes], destination: str) -> str:
    body = values.get(destination, b"")
    return f"a value of {len(body)} bytes" if body else "nothing"
