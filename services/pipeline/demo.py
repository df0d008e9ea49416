"""`make demo-pipeline`: flights and meters from messages to answers, through broker, recorder and Spark.

Exit status 0 when every total is what it has to be, 1 when one is not; nothing is left running. What was
made, a picture among it, stays in the folder of results.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TypeVar

import anyio
from rich.console import Console

from nebula.avro import Schema
from nebula.errors import NebulaError
from nebula.spark.java import JavaNotFound, find_java
from nebula.sync import Client, JobHandle
from services.pipeline import flights, meters
from services.pipeline.app import (
    READINGS,
    Turnover,
    Written,
    carriers,
    hourly,
    hourly_stream,
    turnover,
)
from services.pipeline.checks import carriers_check, carriers_table, readings_check, turnover_check
from services.pipeline.plot import plot
from services.pipeline.publisher import Sent, is_refused, publish, register
from services.pipeline.recording import Recorded, recording
from services.pipeline.stages import Stage, Stages, folder_bytes
from services.programs import DemoFailed, end_in_order, program, tail
from services.venue.report import Check, show

_APP = "services.pipeline.app:app"
_FLIGHTS = "/queue/flights"
_ALL_FLIGHTS = 336_776
# The share of the readings that is read in batch. The rest is read as it arrives.
_BATCH_PART = 0.75

# What is made: of the recorded readings, of those that arrived, of both.
_TABLES = ("batch.parquet", "stream.parquet", "turnover.parquet")
_LEAST_READINGS = 4 * meters.MACHINES

_T = TypeVar("_T")

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
        started = ["broker", "--port", "0", "--config", str(self._prepared())]
        with program("broker", started, self._environment, self._folder) as [broker]:
            self._broker = self._environment["NEBULA_BROKER"] = broker["url"]
            self._console.print(f"[dim]nebula broker[/] listens at {self._broker}")
            self._register()
            readings = meters.readings(self._plan.readings, self._ledger)
            batch = int(self._plan.readings * _BATCH_PART)
            recorded_flights = self._record_flights()
            recorded_readings = self._record_readings(islice(readings, batch), batch)
            with self._service() as client:
                self._by_carrier(client, recorded_flights)
                self._turnover(client, recorded_readings, readings, self._plan.readings - batch)
        self._stages.show()
        return self._checks

    def _prepared(self) -> Path:
        """Write the broker's settings, make a folder for its schemas, and remove earlier results."""
        self._plan.results.mkdir(parents=True, exist_ok=True)
        for name in _TABLES:
            # An earlier run may have left a table. This run must not append to it.
            shutil.rmtree(self._plan.results / name, ignore_errors=True)
        (self._folder / "schemas").mkdir()
        settings = self._folder / "nebula.toml"
        names = {"flights": _FLIGHTS, "flight": flights.FLIGHT.name}
        names |= {"readings": READINGS, "reading": meters.READING.name}
        settings.write_text(_SETTINGS.format(folder=self._folder, **names))
        return settings

    @contextmanager
    def _service(self) -> Iterator[Client]:
        with program("service", ["run", _APP], self._environment, self._folder) as [service]:
            self._console.print(f"[dim]nebula run {_APP}[/] serves {service['queues'][0]}")
            try:
                with Client(self._broker) as client:
                    yield client
            except NebulaError as error:
                raise self._failure("service", str(error)) from error

    def _failure(self, name: str, problem: str) -> DemoFailed:
        return DemoFailed(f"{problem}\nThe {name} said last:\n{tail(self._folder / f'{name}.log')}")

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
            try:
                sent = anyio.run(publish, self._broker, queue, schema, data, on_sent)
            except TimeoutError as error:
                raise self._failure("broker", "the broker did not answer in time") from error
        self._stages.add(Stage(name, sent.messages, sent.seconds, sent.size_bytes))
        return sent

    def _recorded(self, what: str, recorded: Recorded, schema: Schema, sent: Sent) -> None:
        name = f"{what} recorded"
        with self._stages.bar(name, sent.messages) as on_recorded:
            recorded.wait(sent.messages, on_recorded)
        size_bytes = folder_bytes(recorded.folder_of(schema))
        self._stages.add(Stage(name, sent.messages, recorded.seconds, size_bytes))

    def _by_carrier(self, client: Client, recorded: Path) -> None:
        name = "flights by carrier"
        found = self._result(name, client.start(carriers, recorded=str(recorded)))
        self._stages.add(Stage(name, found.flights, found.seconds, folder_bytes(recorded)))
        expected = flights.by_carrier(self._plan.flights)
        self._console.print(carriers_table(expected, found.rows))
        self._checks.append(carriers_check(expected, found.rows))

    def _turnover(self, client: Client, recorded: Path, arriving: Iterator[bytes], count: int) -> None:
        batch, stream, table = (str(self._plan.results / name) for name in _TABLES)
        self._console.print("[dim]three quarters of the readings as a batch, the rest as they arrive[/]")
        job = client.start(hourly, recorded=str(recorded), target=batch)
        first = self._hours("readings to hours", job, folder_bytes(recorded))
        job = client.start(hourly_stream, target=stream, work=str(self._folder / "stream"))
        sent = self._publish("arriving readings", READINGS, meters.READING, arriving, count)
        then = self._hours("readings to hours, stream", job, sent.size_bytes)
        self._checks.append(readings_check(self._ledger, first, then))
        began = time.perf_counter()
        summing = client.start(turnover, batch=batch, stream=stream, target=table)
        found = self._result("hours to turnover", summing)
        taken = time.perf_counter() - began
        self._stages.add(Stage("hours to turnover", found.rows, taken, folder_bytes(Path(table))))
        self._show_turnover(found)

    def _hours(self, name: str, job: JobHandle[Written], size_bytes: int) -> Written:
        written = self._result(name, job)
        self._stages.add(Stage(name, written.readings, written.seconds, size_bytes))
        return written

    def _result(self, name: str, job: JobHandle[_T]) -> _T:
        self._stages.follow(name, job)
        return job.result()

    def _show_turnover(self, found: Turnover) -> None:
        self._checks.append(turnover_check(self._ledger, found))
        batch = int(self._plan.readings * _BATCH_PART) // meters.MACHINES
        border = datetime.fromtimestamp((meters.BEGIN_MS + batch * meters.MINUTE_MS) / 1000, UTC)
        picture = self._plan.results / "turnover.png"
        plot([(hour.hour, hour.turnover) for hour in found.hours], border, picture)
        self._console.print(f"hourly turnover: {picture}, and per machine in turnover.parquet next to it")


def _plan(arguments: list[str] | None) -> Plan:
    parser = argparse.ArgumentParser(prog="python -m services.pipeline.demo", description=__doc__)
    parser.add_argument("--flights", type=int, default=_ALL_FLIGHTS, help="how many, from the first on")
    parser.add_argument("--readings", type=int, default=2_000_000, help="how many of the venue's meters")
    parser.add_argument("--results", type=Path, default=Path("pipeline-results"), help="where they go")
    plan = Plan(**vars(parser.parse_args(arguments)))
    if plan.flights < 1 or plan.readings < _LEAST_READINGS:
        parser.error(f"at least one flight and {_LEAST_READINGS:,} readings, please")
    return replace(plan, results=plan.results.resolve())


if __name__ == "__main__":
    sys.exit(main())
