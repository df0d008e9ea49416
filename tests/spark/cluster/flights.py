"""The flights' answers, found without Spark."""

from __future__ import annotations

import csv
from collections import defaultdict
from typing import Any

from services.flights.data import MISSING, carriers, flights_csv
from tests.spark.engine import Engine
from tests.spark.told import task


def expected_delays() -> list[dict[str, Any]]:
    """What the verb `delays` answers for the whole year."""
    delays: dict[str, tuple[list[int], list[int], list[None]]] = defaultdict(lambda: ([], [], []))
    with flights_csv().open(newline="") as file:
        for row in csv.DictReader(file):
            departure, arrival, all_of_them = delays[row["carrier"]]
            all_of_them.append(None)
            departure += [int(row["dep_delay"])] if row["dep_delay"] != MISSING else []
            arrival += [int(row["arr_delay"])] if row["arr_delay"] != MISSING else []
    ordered = sorted(delays.items(), key=lambda item: (-len(item[1][2]), item[0]))
    return [
        {
            "carrier": code,
            "name": carriers()[code],
            "flights": len(all_of_them),
            "mean_departure_delay": sum(departure) / len(departure),
            "mean_arrival_delay": sum(arrival) / len(arrival),
        }
        for code, (departure, arrival, all_of_them) in ordered
    ]


def ask_delays(engine: Engine, job: str) -> Any:
    """The same from the service's own job, on this engine."""
    engine.submit(task(job, "services.flights.app:delays"))
    return engine.told.wait(job, "done", "failed")
