"""The double of the gem NebulousStomp as a program, and a broker that only records what it says."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_SECONDS = 20.0

SESSION = "SESS-1"
"""The session of the recording broker."""


class Raised(Exception):
    """The gem has raised; `kind` is the name of the class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Gem:
    """The double, which does what it is told, one thing after the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def do(self, what: str, **words: Any) -> Any:
        """Have it do something, see `play.rb`.

        Raises:
            Raised: the gem has.
        """
        self.begin(what, **words)
        return self.end()

    def begin(self, what: str, **words: Any) -> None:
        """Have it begin; `end` waits for the result."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **words}) + "\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        """The result of what was begun first. Raises as `do`."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the gem's program has ended"
        result = json.loads(line)
        if "raised" in result:
            raise Raised(result["raised"], result["message"])
        return result["ok"]


@contextmanager
def playing() -> Iterator[Gem]:
    """Run the double for a block."""
    process = subprocess.Popen(
        ["ruby", str(_HERE / "play.rb")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield Gem(process)
    finally:
        process.kill()
        process.communicate()


class Recorder:
    """A broker for one connection: it answers by the book, and keeps the octets that come.

    Args:
        answer: from a frame's command and text to what is answered.
    """

    def __init__(self, answer: Callable[[str, str], str]) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_SECONDS)
        self.port: int = self._listener.getsockname()[1]
        self.octets = b""
        self._came = threading.Condition()
        self._connection: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self, *, hangs_up: bool = False) -> None:
        """Wait until the peer has gone, or end the connection."""
        if hangs_up and self._connection is not None:
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(_SECONDS)
        self._listener.close()

    def wait_for(self, count: int) -> None:
        """Wait until so many frames have come."""
        with self._came:
            assert self._came.wait_for(lambda: len(self.frames()) >= count, _SECONDS), self.octets

    def frames(self) -> list[str]:
        """What came, frame by frame."""
        return [f"{frame}\0" for frame in self.octets.decode().split("\0")[:-1]]

    def _serve(self) -> None:
        # A peer that is killed leaves without a word.
        with suppress(OSError):
            connection, _ = self._listener.accept()
            self._connection = connection
            with connection:
                connection.settimeout(_SECONDS)
                self._converse(connection)

    def _converse(self, connection: socket.socket) -> None:
        answered = 0
        while data := connection.recv(65536):
            with self._came:
                self.octets += data
                self._came.notify_all()
            frames = self.frames()
            for frame in frames[answered:]:
                connection.sendall(self._answer(frame.partition("\n")[0], frame).encode())
            answered = len(frames)


@contextmanager
def recording(answer: Callable[[str, str], str], *, hangs_up: bool = False) -> Iterator[Recorder]:
    """Record for a block, and until the peer has gone; `hangs_up`: it does not go by itself."""
    recorder = Recorder(answer)
    try:
        yield recorder
    finally:
        recorder.close(hangs_up=hangs_up)


def header(frame: str, name: str) -> str:
    """The value of a header of a frame."""
    found = re.search(rf"^{name}:(.*)$", frame, re.MULTILINE)
    assert found is not None, f"no {name} in {frame!r}"
    return found[1]
