"""`make demo-pipeline`: flights and meters from messages to answers, through broker, recorder and Spark.

Exit status 0 when every total is what it has to be, 1 when one is not; nothing is left running. What was
made, a picture among it, stays in the folder of results.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import anyio
from rich.console import Console

from nebula.avro import Schema
from nebula.errors import NebulaError
from nebula.spark.java import JavaNotFound, find_java
from nebula.sync import Client
from services.pipeline import flights, meters
from services.pipeline.app import (
    READINGS,
    Carriers,
    Turnover,
    Written,
    carriers,
    hourly,
    hourly_stream,
    turnover,
)
from services.pipeline.checks import carriers_check, carriers_table, count_check, turnover_check
from services.pipeline.plot import plot
from services.pipeline.publisher import Sent, is_refused, publish, register
from services.pipeline.recording import Recorded, recording
from services.pipeline.stages import Stage, Stages, folder_bytes
from services.programs import DemoFailed, end_in_order, program, tail
from services.venue.report import Check, show

_APP = "services.pipeline.app:app"
_FLIGHTS = "/queue/flights"
_ALL_FLIGHTS = 336_776
# So much of the readings is read in batch, the rest as it arrives.
_BATCH_PART = 0.75

_SETTINGS = """
data = "{folder}/data"
schemas = "{folder}/schemas"
[[destination]]
pattern = "{flights}"
avro = "{flight}"
[[destination]]
pattern = "{readings}"
avro = "{reading}"
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is to do.

    Attributes:
        flights, readings: how many.
        results: a folder for what is made.
    """

    flights: int
    readings: int
    results: Path


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the result is the exit status."""
    end_in_order()
    plan = _plan(arguments)
    console, complaints = Console(highlight=False), Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory(prefix="nebula-pipeline-") as name:
        try:
            console.print(f"[dim]Spark will run on {find_java(Path(name))}[/]")
            checks = _Run(plan, Path(name), console).play()
        except (JavaNotFound, DemoFailed, NebulaError) as error:
            complaints.print(str(error), style="red", markup=False)
            return 1
    return 0 if show(console, checks) else 1


class _Run:
    """One run of the demo: each method is a stage."""

    def __init__(self, plan: Plan, folder: Path, console: Console) -> None:
        self._plan = plan
        self._folder = folder
        self._console = console
        self._stages = Stages(console)
        self._ledger = meters.Ledger()
        self._checks: list[Check] = []
        self._broker = ""
        self._environment = {**os.environ, "NEBULA_STATE": str(folder / "state")}

    def play(self) -> list[Check]:
        """All of it; the result is what was checked."""
        (self._folder / "schemas").mkdir()
        settings = self._folder / "nebula.toml"
        settings.write_text(
            _SETTINGS.format(
                folder=self._folder, flights=_FLIGHTS, flight=flights.FLIGHT.name,
                readings=READINGS, reading=meters.READING.name,
            )
        )  # fmt: skip
        started = ["broker", "--port", "0", "--config", str(settings)]
        with program("broker", started, self._environment, self._folder) as [broker]:
            self._broker = self._environment["NEBULA_BROKER"] = broker["url"]
            self._console.print(f"[dim]nebula broker[/] listens at {self._broker}")
            self._register()
            readings = meters.readings(self._plan.readings, self._ledger)
            batch = int(self._plan.readings * _BATCH_PART)
            recorded_flights = self._record_flights()
            recorded_readings = self._record_readings(islice(readings, batch), batch)
            with program("service", ["run", _APP], self._environment, self._folder) as [service]:
                self._console.print(f"[dim]nebula run {_APP}[/] serves {service['queues'][0]}")
                try:
                    with Client(self._broker) as client:
                        self._by_carrier(client, recorded_flights)
                        self._turnover(client, recorded_readings, readings, self._plan.readings - batch)
                except NebulaError as error:
                    said = tail(self._folder / "service.log")
                    raise DemoFailed(f"{error}\nThe service said last:\n{said}") from error
        self._stages.show()
        return self._checks

    def _register(self) -> None:
        for schema in (flights.FLIGHT, meters.READING):
            fingerprint = anyio.run(register, self._broker, schema)
            self._console.print(f"[dim]schema.register[/] {schema.name} is {fingerprint}")
        refused = anyio.run(is_refused, self._broker, _FLIGHTS, b"no flight")
        breaches = [] if refused else ["it took what is no flight"]
        self._checks.append(Check("the broker checks bodies by their schema", "one refused", breaches))

    def _record_flights(self) -> Path:
        count = self._plan.flights
        with self._recording(_FLIGHTS) as recorded:
            sent = self._publish("flights", _FLIGHTS, flights.FLIGHT, flights.data(count), count)
            self._recorded("flights", recorded, flights.FLIGHT, sent)
        return recorded.folder_of(flights.FLIGHT)

    def _record_readings(self, readings: Iterator[bytes], count: int) -> Path:
        with self._recording(READINGS) as recorded:
            sent = self._publish("readings", READINGS, meters.READING, readings, count)
            self._recorded("readings", recorded, meters.READING, sent)
        return recorded.folder_of(meters.READING)

    def _recording(self, queue: str) -> AbstractContextManager[Recorded]:
        return recording(queue, self._folder / "recorded", self._environment, self._folder)

    def _publish(self, what: str, queue: str, schema: Schema, data: Iterable[bytes], count: int) -> Sent:
        name = f"{what} published"
        with self._stages.bar(name, count) as on_sent:
            sent = anyio.run(publish, self._broker, queue, schema, data, on_sent)
        self._stages.add(Stage(name, sent.messages, sent.seconds, sent.size_bytes))
        return sent

    def _recorded(self, what: str, recorded: Recorded, schema: Schema, sent: Sent) -> None:
        name = f"{what} recorded"
        with self._stages.bar(name, sent.messages) as on_recorded:
            recorded.wait(sent.messages, on_recorded)
        size_bytes = folder_bytes(recorded.folder_of(schema))
        self._stages.add(Stage(name, sent.messages, recorded.seconds, size_bytes))

    def _by_carrier(self, client: Client, recorded: Path) -> None:
        found = client.start(carriers, recorded=str(recorded)).result(Carriers)
        self._stages.add(Stage("flights by carrier", found.flights, found.seconds, folder_bytes(recorded)))
        expected = flights.by_carrier(self._plan.flights)
        self._console.print(carriers_table(expected, found.rows))
        self._checks.append(carriers_check(expected, found.rows))

    def _turnover(self, client: Client, recorded: Path, arriving: Iterator[bytes], count: int) -> None:
        results = self._plan.results
        batch, stream, target = (
            results / name for name in ("batch.parquet", "stream.parquet", "turnover.parquet")
        )
        first = client.start(hourly, recorded=str(recorded), target=str(batch)).result(Written)
        self._stages.add(Stage("readings to hours", first.readings, first.seconds, folder_bytes(batch)))
        work = str(self._folder / "stream")
        job = client.start(hourly_stream, target=str(stream), work=work)
        self._publish("arriving readings", READINGS, meters.READING, arriving, count)
        then = job.result(Written)
        size_bytes = folder_bytes(stream)
        self._stages.add(Stage("readings to hours, stream", then.readings, then.seconds, size_bytes))
        read = first.readings + then.readings
        self._checks.append(count_check("readings", self._ledger.readings, read))
        both = client.start(turnover, batch=str(batch), stream=str(stream), target=str(target))
        self._show_turnover(both.result(Turnover))

    def _show_turnover(self, found: Turnover) -> None:
        self._checks.append(turnover_check(self._ledger, found))
        batch = int(self._plan.readings * _BATCH_PART) // meters.MACHINES
        border = datetime.fromtimestamp((meters.BEGIN_MS + batch * meters.MINUTE_MS) / 1000, UTC)
        picture = self._plan.results / "turnover.png"
        plot([(hour.hour, hour.turnover) for hour in found.hours], border, picture)
        self._console.print(f"hourly turnover: {picture}, and per machine in turnover.parquet beside it")


def _plan(arguments: list[str] | None) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m services.pipeline.demo", description=__doc__)
    parser.add_argument("--flights", type=int, default=_ALL_FLIGHTS, help="how many, from the first on")
    parser.add_argument("--readings", type=int, default=2_000_000, help="how many of the venue's meters")
    parser.add_argument("--results", type=Path, default=Path("pipeline-results"), help="where they go")
    plan = Plan(**vars(parser.parse_args(arguments)))
    plan.results.mkdir(parents=True, exist_ok=True)
    return Plan(plan.flights, plan.readings, plan.results.resolve())


if __name__ == "__main__":
    sys.exit(main())
