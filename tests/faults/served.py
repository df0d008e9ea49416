"""A broker on a port of its own, in a thread with a loop of its own; and blocking sockets to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, cast

import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.server.connection import Connection
from nebula.broker.server.server import Listener, Server
from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import SERVER_COMMANDS
from tests.broker.script import Received, octets, shown

_TIMEOUT = 10.0
_PROBE = "UNSUBSCRIBE id:nobody; destination:nothing; receipt:probe"


class Served:
    """A running broker, and a way to look into it from a test's thread."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.port = int(server.urls[0].rpartition(":")[2])
        self._loop = loop

    def ask(self, question: Callable[[], Any]) -> Any:
        """Call `question` on the broker's loop and return what it returns."""

        async def answer() -> Any:
            return question()

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result(_TIMEOUT)

    @property
    def connections(self) -> list[Connection]:
        """All that there are. Ask on the broker's loop."""
        return cast("list[Connection]", [*self.server.runtime.connections])

    def limit(self, **limits: float) -> None:
        """Change limits for who comes from now on: innocents of a busy machine come before."""
        for name, value in limits.items():
            object.__setattr__(self.server.limits, name, value)

    def stop(self) -> None:
        """Stop the server as its program would."""
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(_TIMEOUT)

    def connect(self, version: str = "1.2", **settings: Any) -> Wire:
        """A client that has connected."""
        wire = Wire(self.port, **settings)
        wire.connect(version)
        return wire


@contextlib.contextmanager
def serve(
    limits: Limits | None = None,
    policies: Sequence[DestinationPolicy] = (),
    *,
    run_loop: Callable[[Coroutine[Any, Any, None]], None] = uvloop.run,
    listeners: Sequence[Listener] = (Listener("127.0.0.1", 0),),
    **more: Any,
) -> Iterator[Served]:
    """Run a broker for as long as the context lasts; `more` is for `Server`."""
    started: list[Served] = []
    is_started, is_over = threading.Event(), threading.Event()

    async def run() -> None:
        server = Server(listeners, limits=limits, policies=policies, **more)
        await server.start()
        started.append(Served(server, asyncio.get_running_loop()))
        is_started.set()
        await asyncio.to_thread(is_over.wait)
        await server.stop()

    thread = threading.Thread(target=lambda: run_loop(run()), daemon=True)
    thread.start()
    try:
        assert is_started.wait(_TIMEOUT)
        yield started[0]
    finally:
        is_over.set()
        thread.join(_TIMEOUT)
        assert not thread.is_alive()


class Wire:
    """A STOMP client without any cleverness: a blocking socket with a time limit."""

    def __init__(self, port: int, *, receive_buffer_bytes: int | None = None, source: str = "") -> None:
        self.socket = socket.socket()
        self.socket.settimeout(_TIMEOUT)
        if source:
            self.socket.bind((source, 0))
        if receive_buffer_bytes is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.connect(("127.0.0.1", port))
        self._parser = FrameParser(SERVER_COMMANDS)
        self._frames: list[Received] = []

    def connect(self, version: str, *, heart_beat: str = "0,0") -> Received:
        """CONNECT and take the CONNECTED."""
        offer = "" if version == "1.0" else f"accept-version:{version}\nhost:h\nheart-beat:{heart_beat}\n"
        self.send(f"CONNECT\n{offer}\n\0".encode())
        frame = self.next()
        assert frame is not None
        assert frame[0] == "CONNECTED"
        return frame

    def send(self, data: bytes) -> None:
        """Octets as they are."""
        self.socket.sendall(data)

    def say(self, *lines: str) -> None:
        """Frames, each written as a line."""
        self.send(b"".join(octets(line) for line in lines))

    def next(self) -> Received | None:
        """The next frame; None when the broker has closed the connection."""
        while not self._frames:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self._read(data)
        return self._frames.pop(0)

    def rest(self) -> list[Received]:
        """All frames until the broker closes the connection."""
        frames = []
        while (frame := self.next()) is not None:
            frames.append(frame)
        return frames

    def is_in_order(self) -> bool:
        """Whether the broker has processed all that was sent, and answers. Drops what came before."""
        self.say(_PROBE)
        while (frame := self.next()) is not None:
            if frame[1].get("receipt-id") == "probe":
                return True
        return False

    def probe(self) -> list[Received]:
        """What came until the broker had processed all that was sent. It is kept for `next`."""
        with contextlib.suppress(ConnectionError):
            self.say(_PROBE)
        frames: list[Received] = []
        while (frame := self.next()) is not None and frame[1].get("receipt-id") != "probe":
            frames.append(frame)
        self._frames = frames + self._frames
        return frames

    def close(self) -> None:
        """Go without a word."""
        self.socket.close()

    def _read(self, data: bytes) -> None:
        while frames := self._parser.feed(data):
            for frame in frames:
                if frame.command == "CONNECTED":
                    self._parser.begin(DIALECTS[frame.headers.get("version", "1.0")])
                self._frames.append(shown(frame))
            data = b""


def wait_until(served: Served, condition: Any) -> None:
    """Ask the broker's loop again and again; the test's own time limit ends what never comes."""
    for _ in range(2000):
        if served.ask(condition):
            return
        time.sleep(0.005)
    raise AssertionError("it never came true")
