"""A day's meter readings of a venue, and the ledger that its hourly turnover has to meet."""

from __future__ import annotations

import csv
import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

SCHEMA = "machine INT, at TIMESTAMP, turnover BIGINT"

_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_MACHINES = 50


def write_readings(folder: Path, each: int = 2000, parts: int = 4) -> dict[datetime, tuple[int, int]]:
    """Write readings of fifty machines as CSV files.

    Args:
        folder: made for them.
        each: readings of each machine.
        parts: files.

    Returns:
        The ledger: how many readings and how many cents there are in each hour.
    """
    folder.mkdir()
    chance = random.Random(6)  # noqa: S311  # the same day each time
    ledger: dict[datetime, list[int]] = defaultdict(list)
    for part in range(parts):
        with (folder / f"part-{part}.csv").open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["machine", "at", "turnover"])
            for machine in range(part, _MACHINES, parts):
                for _ in range(each):
                    at = _DAY + timedelta(seconds=chance.randrange(86400))
                    turnover = chance.randrange(10, 50_000)
                    ledger[at.replace(minute=0, second=0)].append(turnover)
                    lines.writerow([machine, at.isoformat(), turnover])
    return {hour: (len(turnovers), sum(turnovers)) for hour, turnovers in ledger.items()}
