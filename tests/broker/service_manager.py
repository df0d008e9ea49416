"""A stand-in for systemd, over a socket like its own."""

from __future__ import annotations

import socket


class Manager:
    """Hears what it is told."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(10)
        self.socket.bind(address)

    def hear(self) -> str:
        return self.socket.recv(4096).decode()

    def hears(self, state: str) -> bool:
        while self.hear() != state:
            pass
        return True
