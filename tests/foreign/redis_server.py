"""A Redis server for tests."""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress

import redis

from tests.foreign.install import install_program
from tests.ports import free_port

DEADLINE = 20.0


class RedisServer:
    """A Redis of its own, which keeps nothing."""

    def __init__(self) -> None:
        install_program("redis-server", "redis-server")
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def start(self) -> None:
        options = ["--port", str(self._port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        self._process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
        until = time.monotonic() + DEADLINE
        with redis.Redis.from_url(self.url) as client:
            while True:
                with suppress(redis.ConnectionError):
                    client.ping()
                    return
                assert time.monotonic() < until, "Redis does not start"
                time.sleep(0.02)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(DEADLINE)
