"""A STOMP client that hides nothing: octets out, frames in, over a plain socket."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio.abc import SocketStream

from nebula.stomp.codec import FrameParser
from nebula.stomp.dialects import DIALECTS
from nebula.stomp.frames import SERVER_COMMANDS, Frame

_MOST_OCTETS = 1 << 16


class Peer:
    """One connection, with what its RECEIPTs mean.

    Attributes:
        troubles: what the broker said that it should not have, in words.
    """

    def __init__(self, stream: SocketStream) -> None:
        self._stream = stream
        self._parser = FrameParser(SERVER_COMMANDS)
        self._parser.begin(DIALECTS["1.2"])
        self._receipts: dict[str, Callable[[], None]] = {}
        self._count = 0
        self.troubles: list[str] = []

    @classmethod
    async def connect(cls, port: int, *, client_id: str = "") -> Peer:
        """CONNECT, and wait for the CONNECTED."""
        stream = await anyio.connect_tcp("127.0.0.1", port)
        name = f"client-id:{client_id}\n" if client_id else ""
        await stream.send(f"CONNECT\naccept-version:1.2\nhost:h\nheart-beat:0,0\n{name}\n\0".encode())
        answer = b""
        while b"\0" not in answer:
            answer += await stream.receive()
        assert answer.startswith(b"CONNECTED\n"), answer
        return cls(stream)

    @property
    def awaited(self) -> int:
        """RECEIPTs that have not come yet."""
        return len(self._receipts)

    def expect(self, then: Callable[[], None]) -> str:
        """A `receipt` header for a frame that is about to be written, and what to do when it is answered."""
        self._count += 1
        self._receipts[str(self._count)] = then
        return f"receipt:{self._count}\n"

    async def say(self, octets: bytes) -> bool:
        """Write. False: the connection is over (what came before that can still be heard)."""
        try:
            await self._stream.send(octets)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return False
        return True

    async def hear(self) -> list[Frame] | None:
        """The MESSAGEs that come next, at least a frame of any kind; None: the connection is over.

        RECEIPTs have been seen to when it returns.
        """
        frames: list[Frame] = []
        while not frames:
            try:
                frames = self._parser.feed(await self._stream.receive(_MOST_OCTETS))
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                return None
        for frame in frames:
            if frame.command == "RECEIPT":
                self._receive_receipt(frame)
            elif frame.command == "ERROR":
                self.troubles.append(f"ERROR: {frame.headers.get('message')}")
        return [frame for frame in frames if frame.command == "MESSAGE"]

    async def hear_all_receipts(self) -> None:
        """Wait until nothing is awaited any more."""
        while self._receipts:
            assert await self.hear() is not None, "the connection ended too early"

    async def leave(self) -> None:
        """DISCONNECT: what is un-ACKed is given back, and does not count as an attempt."""
        await self.say(f"DISCONNECT\n{self.expect(lambda: None)}\n\0".encode())
        await self.hear_all_receipts()
        await self.close()

    async def close(self) -> None:
        """Go without a word."""
        await self._stream.aclose()

    def _receive_receipt(self, frame: Frame) -> None:
        then = self._receipts.pop(frame.headers["receipt-id"])
        verdict = frame.headers.get("disposition", "accepted")
        is_kept = "durable" not in frame.headers or "duplicate" in frame.headers
        if verdict != "accepted" or "result" in frame.headers or not is_kept:
            self.troubles.append(f"RECEIPT: {dict(frame.headers)}")
        else:
            then()
