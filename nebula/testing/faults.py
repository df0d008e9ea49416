"""Faults of a connection to the broker that a test injects: cut, slow, twice, out of order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

import anyio

from nebula.headers import DISPOSITION, IN_REPLY_TO
from nebula.stomp.client.addresses import parse_address
from nebula.stomp.client.link import Link, Receiver
from nebula.stomp.client.network_links import connect_link
from nebula.stomp.client.tls import ClientTls, TlsOptions
from nebula.testing.frames import FrameSplitter, command_of, header_of
from nebula.waiter import Waiter, new_waiter

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


class Faults:
    """Faults between a client, or a service, and the broker. Pass it as `link`:

        faults = Faults(url)
        async with Client(url, link=faults) as client:
            faults.drop_connection()

    Unless told otherwise, it lets everything through. It does only what the protocol allows to happen: a
    connection may end at any byte, be slow, and repeat messages after a loss; but STOMP keeps the order of a
    connection, so only messages without an order are reordered.

    Args:
        url: the broker's address: in memory, TCP or TLS.
        tls: see `TlsOptions`.

    Raises:
        ValueError: a WebSocket address, because its bytes are not STOMP frames.
    """

    def __init__(self, url: str, *, tls: TlsOptions | None = None) -> None:
        self._address = parse_address(url)
        if self._address.path is not None:
            raise ValueError(
                f"{self._address.place}: faults are not for WebSockets; use the listener of STOMP"
            )
        self._tls = ClientTls(tls or TlsOptions.from_environment()) if self._address.is_tls else None
        self._links: list[_FaultyLink] = []
        self._refusals = 0
        # All links share a plan: a fault that has not happened before a cut happens on the next link.
        self._plan = _Plan()

    async def __call__(self) -> Link:
        """Open a link. Raises OSError as opening does."""
        if self._refusals:
            self._refusals -= 1
            raise ConnectionRefusedError("refused by a test")
        link = _FaultyLink(await connect_link(self._address, self._tls), self._plan)
        # Without ended links, of which a long test may have thousands.
        self._links = [*(each for each in self._links if not each.has_ended), link]
        return link

    def drop_connection(self, *, within_frame: bool = False) -> None:
        """End the connection as a network failure does: no ERROR, no DISCONNECT, no more bytes in either
        direction.

        Args:
            within_frame: not now, but in the middle of the next frame from the broker.
        """
        for link in self._links:
            if within_frame:
                link.drop_within_frame()
            else:
                link.drop()

    def refuse_connections(self, times: int) -> None:
        """Let the next `times` attempts to connect fail, as if no broker listened."""
        self._refusals = times

    def delay(self, seconds: float) -> None:
        """From now on, delay everything by this time, in each direction and in order; 0 ends the delay.

        A delay longer than the heart-beat allows looks like a silent broker; in memory there are no
        heart-beats.
        """
        self._plan.delay = seconds

    def duplicate(self, *, times: int = 1, destination: str | None = None) -> None:
        """Send the next messages twice, like a client that got no answer and tries again.

        The broker then has two messages, and a service two requests. Messages from the broker are not
        duplicated: it repeats none on one connection without the header `redelivered`.

        Args:
            times: how many messages.
            destination: only those that go there.
        """
        self._plan.duplicates = times
        self._plan.duplicates_to = destination

    def reorder(self, *, times: int = 1) -> None:
        """Let the next message from the broker be overtaken by one that may overtake it: of another
        subscription, or the reply to another call. It is held until such a message comes, so the test has to
        cause one. Messages with an order (a queue, a stream's items, a job's events) keep it: nothing happens
        to them.

        Args:
            times: how many messages, one after the other.
        """
        self._plan.overtakings = times


class _Plan:
    """What is to happen next, on whichever link it happens first."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.duplicates = 0
        self.duplicates_to: str | None = None
        self.overtakings = 0

    def doubles(self, piece: bytes) -> bool:
        if not self.duplicates or command_of(piece) != "SEND":
            return False
        if self.duplicates_to not in (None, header_of(piece, "destination")):
            return False
        self.duplicates -= 1
        return True

    def holds_back(self, piece: bytes) -> bool:
        if not self.overtakings or command_of(piece) != "MESSAGE":
            return False
        self.overtakings -= 1
        return True


def _may_overtake(late: bytes, early: bytes) -> bool:
    """Whether `late` may come before `early`, which the broker sent first."""
    if command_of(late) != "MESSAGE":
        return False
    if header_of(late, "subscription") != header_of(early, "subscription"):
        return True
    answers = header_of(late, IN_REPLY_TO), header_of(early, IN_REPLY_TO)
    # Replies to two calls have no order, although they come by one subscription, the caller's inbox.
    return None not in answers and answers[0] != answers[1]


def _is_verdict(piece: bytes) -> bool:
    """Whether it is the RECEIPT of a SEND, which has no place among messages."""
    # A SEND's verdict may come before or after any MESSAGE; a RECEIPT of SUBSCRIBE comes before its first one
    # (D.43), and keeps its place.
    return command_of(piece) == "RECEIPT" and header_of(piece, DISPOSITION) is not None


class _Line:
    """Things to do in order, each some time after it was put in. At once where there is no time to pass."""

    def __init__(self) -> None:
        self._due: deque[tuple[float, Callable[[], None]]] = deque()
        self._waiter: Waiter[None] | None = None

    def put(self, seconds: float, act: Callable[[], None]) -> None:
        # Also queued without a delay if something waits, so that bytes keep their order when a delay is
        # switched off.
        if seconds or self._due:
            self._due.append((monotonic() + seconds, act))
            if self._waiter is not None:
                self._waiter.set(None)
        else:
            act()

    async def run(self) -> None:
        while True:
            self._waiter = new_waiter()
            if not self._due:
                await self._waiter.wait()
            while self._due:
                await anyio.sleep(max(self._due[0][0] - monotonic(), 0))
                # Taken out only afterwards: what comes meanwhile must not pass it.
                self._due[0][1]()
                self._due.popleft()


class _FaultyLink:
    """A link, and the receiver of another one: everything goes through it in whole frames."""

    def __init__(self, link: Link, plan: _Plan) -> None:
        self._link = link
        self._plan = plan
        self._receiver: Receiver | None = None
        self._coming, self._going = FrameSplitter(), FrameSplitter()
        self._coming_line, self._going_line = _Line(), _Line()
        self._held_back = b""
        self._drops_within_frame = False
        self.has_ended = False

    def drop(self) -> None:
        self._end(ConnectionResetError("dropped by a test"))

    def drop_within_frame(self) -> None:
        self._drops_within_frame = True

    # --- the link ---

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:
        self._receiver = receiver
        tasks.start_soon(self._coming_line.run, name="what comes late")
        tasks.start_soon(self._going_line.run, name="what goes late")
        self._link.start(self, tasks)

    def write(self, data: bytes) -> None:
        for piece in self._going.feed(data):
            # The same bytes twice, in one write: two frames, two messages for the broker.
            twice = self._plan.doubles(piece)
            self._going_line.put(self._plan.delay, partial(self._send, piece * 2 if twice else piece))

    async def drain(self) -> None:
        await self._link.drain()

    def pause_reading(self) -> None:
        self._link.pause_reading()

    def resume_reading(self) -> None:
        self._link.resume_reading()

    def close(self) -> None:
        # In the line, because a close must not overtake the last frame.
        self._going_line.put(self._plan.delay, self._link.close)

    def _send(self, piece: bytes) -> None:
        if not self.has_ended:
            self._link.write(piece)

    # --- the receiver of what it goes over ---

    def data_received(self, data: bytes) -> None:
        for piece in self._coming.feed(data):
            for each in self._reordered(piece):
                self._coming_line.put(self._plan.delay, partial(self._deliver, each))

    def connection_lost(self, error: Exception | None) -> None:
        self._coming_line.put(self._plan.delay, partial(self._end, error))

    def _reordered(self, piece: bytes) -> list[bytes]:
        held, self._held_back = self._held_back, b""
        if not held:
            if self._plan.holds_back(piece):
                self._held_back = piece
                return []
            return [piece]
        # Heart-beats and verdicts pass, and the message is still held.
        if not command_of(piece) or _is_verdict(piece):
            self._held_back = held
            return [piece]
        # A piece that must not overtake releases the held message, and may be held itself.
        return [piece, held] if _may_overtake(piece, held) else [held, *self._reordered(piece)]

    def _deliver(self, piece: bytes) -> None:
        if self.has_ended:
            return
        assert self._receiver is not None
        if self._drops_within_frame and command_of(piece):
            # Half of the bytes, so that the codec's buffer has an unfinished frame when the connection ends.
            self._receiver.data_received(piece[: len(piece) // 2])
            self.drop()
        else:
            self._receiver.data_received(piece)

    def _end(self, error: Exception | None) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        self._link.close()
        assert self._receiver is not None
        self._receiver.connection_lost(error)
