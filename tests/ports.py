"""Ports for those who must know theirs beforehand."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below what systems hand out for port 0: no test that runs beside gets it by chance before it is used.
_PORTS = range(10_000, 30_000)


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("a hundred ports, and somebody listens on each")
