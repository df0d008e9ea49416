"""Whether anybody listens where Spark shall be: asked first, since Spark itself is silent for a minute."""

from __future__ import annotations

import socket
from contextlib import suppress
from urllib.parse import urlsplit

from nebula.spark.host.session import CannotStart

_PROBE_SECONDS = 5.0


def answers(host: str, port: int, seconds: float = _PROBE_SECONDS) -> bool:
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
    if addresses and not any(answers(host, port) for host, port in addresses):
        what = "Kubernetes API" if master.startswith("k8s://") else "Spark master"
        raise CannotStart(f"no {what} answers at {master}")


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
