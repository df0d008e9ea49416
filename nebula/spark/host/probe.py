"""Probe of a Spark master's or server's address: Spark itself is silent for a minute if no one listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from nebula.spark.host.failures import describe
from nebula.spark.host.session import CannotStart

_PROBE_SECONDS = 5.0

# A driver that no master has registered ends itself, and whatever its start was at meets that.
_GAVE_UP = ("stopped SparkContext", "stopped while waiting for backend")


def accepts(host: str, port: int, seconds: float = _PROBE_SECONDS) -> bool:
    """Whether a connection to this address can be opened."""
    with suppress(OSError, OverflowError), socket.create_connection((host, port), seconds):
        return True
    return False


def probe_master(master: str) -> None:
    """Check the addresses in a master's URL, of those that have any; one that answers is enough.

    Raises:
        CannotStart: none does.
    """
    addresses = master_addresses(master)
    if addresses and not any(accepts(host, port) for host, port in addresses):
        what = "Kubernetes API" if master.startswith("k8s://") else "Spark master"
        raise CannotStart(f"no {what} answers at {master}")


@contextmanager
def registering(master: str) -> Iterator[None]:
    """Start a driver inside: a master that does not let it register is told by its URL.

    Spark tries for a minute, and then says nothing of the master.

    Raises:
        CannotStart: what answered the probe is no living master, or none for this driver.
        Exception: whatever else the block raises.
    """
    try:
        yield
    except Exception as error:
        said = describe(error).message
        if master.startswith("spark://") and any(sign in said for sign in _GAVE_UP):
            raise CannotStart(
                f"what listens at {master} has not let this engine register within a minute: is it a Spark "
                "master of PySpark's version, does it live, and have both the same spark.authenticate.secret?"
            ) from error
        raise


def master_addresses(master: str) -> list[tuple[str, int]]:
    """The addresses that a master's URL names: none for local and YARN, several for standby masters.

    Raises:
        CannotStart: a port is not a number.
    """
    try:
        if master.startswith("spark://"):
            listed = (urlsplit(f"//{address}") for address in master.removeprefix("spark://").split(","))
            return [(url.hostname or "", url.port or 7077) for url in listed]
        if master.startswith("k8s://"):
            inside = master.removeprefix("k8s://")
            # Spark takes https where no scheme is given.
            url = urlsplit(inside if "://" in inside else f"https://{inside}")
            return [(url.hostname or "", url.port or (80 if url.scheme == "http" else 443))]
    except ValueError as error:
        raise CannotStart(f"{master} is not the URL of a master: {error}") from error
    return []
