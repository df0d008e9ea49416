"""Ports for programs that must know theirs before they start."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

# Below the ports that systems give for port 0, so that no other test gets it by chance before it is used.
_PORTS = range(10_000, 30_000)


def free_port() -> int:
    """A port of 127.0.0.1 on which no program listens."""
    for port in random.SystemRandom().sample(_PORTS, 100):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise AssertionError("a hundred ports, and somebody listens on each")
