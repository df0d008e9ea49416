"""A broker's side that says what a test's script tells it, in raw bytes, over TCP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

# Each test is over long before, or hangs.
DEADLINE = 10.0


class Peer:
    """One accepted connection."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._held = b""

    async def say(self, octets: str | bytes) -> None:
        """Send bytes; `^@` in a text is the NUL."""
        await self._stream.send(octets.replace("^@", "\0").encode() if isinstance(octets, str) else octets)

    async def hear(self) -> str:
        """The next frame as text, without its NUL and the beats before it."""
        while b"\0" not in self._held:
            self._held += await self._stream.receive()
        frame, _, self._held = self._held.partition(b"\0")
        return frame.decode().lstrip("\n")

    async def hear_beat(self) -> None:
        """Wait for bytes that are a heart-beat and nothing else."""
        assert await self._stream.receive(1) == b"\n"

    async def is_closed(self) -> bool:
        """True if the next thing that comes is the end of the stream, however it ends.

        But for beats: a client that waits for its last RECEIPT may owe us one.
        """
        heard = bytes(self._held)
        try:
            while not heard.strip(b"\n"):
                heard = await self._stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return True
        return False

    async def accept(self, version: str = "1.2", headers: str = "") -> str:
        """Answer CONNECT; returns it."""
        connect = await self.hear()
        line = "" if version == "1.0" else f"version:{version}\n"
        await self.say(f"CONNECTED\n{line}{headers}\n^@")
        return connect

    async def confirm(self, headers: str = "") -> str:
        """Answer the next frame, which asks for a receipt; returns it."""
        frame = await self.hear()
        await self.say(f"RECEIPT\nreceipt-id:{receipt_of(frame)}\n{headers}\n^@")
        return frame

    async def part(self) -> None:
        """The client's good-bye."""
        assert (await self.confirm()).startswith("DISCONNECT\n")
        assert await self.is_closed()


Script = Callable[[Peer], Awaitable[None]]


def receipt_of(frame: str) -> str:
    """The value of a frame's receipt header."""
    found = re.search("^receipt:(.*)$", frame, re.MULTILINE)
    assert found, frame
    return found[1]


@asynccontextmanager
async def broker(script: Script) -> AsyncIterator[str]:
    """Play `script` for the one connection that comes; gives the address.

    The block is left when the script has ended too: what a script asserts fails the test.
    """
    with anyio.fail_after(DEADLINE):
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as tasks,
        ):
            played = anyio.Event()

            async def play(stream: SocketStream) -> None:
                async with stream:
                    await script(Peer(stream))
                played.set()

            tasks.start_soon(listener.serve, play)
            yield f"stomp://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            await played.wait()
            tasks.cancel_scope.cancel()
