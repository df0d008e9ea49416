"""The flights as Avro, and the table by carrier as plain Python computes it from the CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import islice
from typing import Any, Final

import fastavro

from nebula.avro import Schema
from services.flights.data import MISSING, SCHEMA, flights_csv

_AVRO: Final = {
    "INT": "int",
    "DOUBLE": "double",
    "STRING": "string",
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-millis"},
}
_PARSERS: Final[dict[str, Callable[[str], object]]] = {
    "INT": int,
    "DOUBLE": float,
    "STRING": str,
    # One hour has many flights.
    "TIMESTAMP": lru_cache(datetime.fromisoformat),
}
_COLUMNS: Final = dict(column.split() for column in SCHEMA.split(", "))

FLIGHT: Final = Schema({
    "type": "record",
    "name": "flights.Flight_v1",
    "doc": "One departure from New York. A flight that was cancelled has no times.",
    "fields": [
        {"name": name, "type": ["null", _AVRO[kind]], "default": None} for name, kind in _COLUMNS.items()
    ],
})  # fmt: skip
"""A row of the CSV: each column may be missing."""


@dataclass(slots=True)
class Carrier:
    """What one carrier did: sums of whole minutes, which are exact in any order."""

    flights: int = 0
    departures: int = 0
    departure_delay: float = 0.0
    arrivals: int = 0
    arrival_delay: float = 0.0

    @property
    def row(self) -> tuple[int, float | None, float | None]:
        """Flights and mean delays in minutes, as the table shows them."""
        departure = self.departure_delay / self.departures if self.departures else None
        return self.flights, departure, self.arrival_delay / self.arrivals if self.arrivals else None


def by_carrier(most: int) -> dict[str, Carrier]:
    """Compute the table by carrier from the first `most` flights of the CSV."""
    found: dict[str, Carrier] = {}
    for row in _rows(most):
        one = found.setdefault(row["carrier"], Carrier())
        one.flights += 1
        if row["dep_delay"] != MISSING:
            one.departures += 1
            one.departure_delay += float(row["dep_delay"])
        if row["arr_delay"] != MISSING:
            one.arrivals += 1
            one.arrival_delay += float(row["arr_delay"])
    return found


def data(most: int) -> Iterator[bytes]:
    """Yield the first `most` flights as Avro data."""
    for row in _rows(most):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, FLIGHT.parsed, _value(row))
        yield out.getvalue()


def _value(row: dict[str, str]) -> dict[str, Any]:
    return {
        name: None if row[name] == MISSING else _PARSERS[kind](row[name]) for name, kind in _COLUMNS.items()
    }


def _rows(most: int) -> Iterator[dict[str, str]]:
    with flights_csv().open(newline="") as file:
        yield from islice(csv.DictReader(file), most)
