"""What has to hold at the end of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.table import Table

from services.pipeline.app import CarrierRow, Turnover, Written
from services.pipeline.flights import Carrier
from services.pipeline.meters import Ledger
from services.venue.report import Check


def carriers_table(expected: Mapping[str, Carrier], found: Sequence[CarrierRow]) -> Table:
    """Show the pipeline's figures for each carrier next to those of the CSV."""
    table = Table(box=None, header_style="bold", caption="mean delays in minutes")
    table.add_column("carrier")
    for column in ("flights", "departure", "arrival", "in the CSV", "departure", "arrival"):
        table.add_column(column, justify="right")
    by_code = {row.carrier: row for row in found}
    for code, carrier in sorted(expected.items(), key=lambda one: -one[1].flights):
        ours = _row(by_code[code]) if code in by_code else ("missing", "", "")
        table.add_row(code, *ours, *_cells(carrier.row))
    return table


def carriers_check(expected: Mapping[str, Carrier], found: Sequence[CarrierRow]) -> Check:
    """Both tables are equal, to the last digit of each number."""
    ours = {row.carrier: (row.flights, row.departure, row.arrival) for row in found}
    theirs = {code: carrier.row for code, carrier in expected.items()}
    breaches = [
        f"{code}: {ours.get(code)} is not {theirs.get(code)}"
        for code in sorted(ours.keys() | theirs.keys())
        if ours.get(code) != theirs.get(code)
    ]
    flights = sum(carrier.flights for carrier in expected.values())
    seen = f"{flights:,} flights of {len(expected)} carriers"
    return Check("the table by carrier is that of the CSV, to the last digit", seen, breaches)


def readings_check(ledger: Ledger, batch: Written, stream: Written) -> Check:
    """As many readings came out as went in, and tell the same in all."""
    found = batch.readings + stream.readings, batch.cents + stream.cents
    expected = ledger.readings, ledger.cents
    breaches = (
        [] if found == expected else [f"{found[0]:,} came out, with {found[1]:,} cents of {expected[1]:,}"]
    )
    seen = f"{ledger.readings:,}, with {ledger.cents:,} cents"
    return Check("readings: none is lost, none is there twice", seen, breaches)


def turnover_check(ledger: Ledger, found: Turnover) -> Check:
    """Each hour's turnover, and so the total, is the generator's."""
    ours = {round(hour.hour.timestamp() * 1000): hour.turnover for hour in found.hours}
    breaches = list(_differences(ledger.hours, ours))
    seen = f"{len(ours)} hours, {found.rows:,} rows, {ledger.total / 100:,.2f} in all"
    return Check("the turnover of each hour is that of the generator's ledger", seen, breaches)


def _differences(expected: Mapping[int, int], found: Mapping[int, int]) -> Iterator[str]:
    for hour in sorted(expected.keys() | found.keys()):
        if expected.get(hour, 0) != found.get(hour, 0):
            yield f"hour {hour}: {found.get(hour, 0)} cents are not {expected.get(hour, 0)}"


def _row(row: CarrierRow) -> tuple[str, str, str]:
    return _cells((row.flights, row.departure, row.arrival))


def _cells(row: tuple[int, float | None, float | None]) -> tuple[str, str, str]:
    flights, departure, arrival = row
    return f"{flights:,}", _minutes(departure), _minutes(arrival)


def _minutes(delay: float | None) -> str:
    return "" if delay is None else f"{delay:.6f}"
