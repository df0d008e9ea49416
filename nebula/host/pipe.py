"""An in-memory byte stream between the broker's loop and another one, each in a thread of its own.

The broker's loop is asyncio's, the other one asyncio's or trio's. The stream behaves like a socket: ordered,
bounded, and a side that does not read slows the other down. Each direction has one writing and one reading
thread, and all that was written meanwhile costs the reader one wake-up. There are no locks: a deque carries
the bytes, and each of the two counters of bytes under way has one writer.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio.lowlevel

from nebula.broker.server.connection import Connection
from nebula.logs import get_logger
from nebula.waiter import runs_on_asyncio

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from nebula.broker.server.server import Server
    from nebula.stomp.client.link import Receiver

# What a side may have written that the other has not read: a socket's buffers hold about that.
HIGH_WATER_BYTES = 256 * 1024

# What one turn hands over, and what is written between two waits, so that a busy pipe leaves the
# loop to others.
_TURN_BYTES = 256 * 1024
_DRAIN_BYTES = 64 * 1024

_log = get_logger("nebula.host")


class _TrioLoop:
    """The run of trio that the calling task belongs to, as far as a pipe needs a loop."""

    # A pipe needs two methods of a loop. Both are trio's `run_sync_soon`, which any thread may call.
    def __init__(self) -> None:
        import trio

        self._token = trio.lowlevel.current_trio_token()

    def call_soon(self, callback: Callable[[], Any], /) -> None:
        self._token.run_sync_soon(_shielded, callback)

    def call_soon_threadsafe(
        self, callback: Callable[[], Any], /, *, context: contextvars.Context | None = None
    ) -> None:
        del context  # trio's own task calls, where libraries know that they are on trio
        self._token.run_sync_soon(_shielded, callback)


def _shielded(callback: Callable[[], Any]) -> None:
    # asyncio logs what a callback raises; trio would end everything.
    try:
        callback()
    except Exception:
        _log.exception("pipe callback failed")


Loop: TypeAlias = asyncio.AbstractEventLoop | _TrioLoop


def running_loop() -> Loop:
    """The loop of the calling task, on asyncio or trio."""
    return asyncio.get_running_loop() if runs_on_asyncio() else _TrioLoop()


# Theory. Two threads use each end: our own reads, the peer's writes. There are no locks, because three rules
# hold. A deque's `append` and `popleft` are atomic. Each counter is changed by one thread only. A side that
# sets a flag checks the other side's state afterwards: the writer sets `_is_writable` to False, then checks
# for room; the reader takes bytes, then checks whether the writer waits. So at least one of them sees the
# other's change, and no wake-up is lost.
class _End:
    """One end: reads on its own loop, and is woken there by the other end."""

    def __init__(self, loop: Loop, context: contextvars.Context) -> None:
        self.loop = loop
        self.context = context
        self.peer: _End = self
        self.high_water_bytes = HIGH_WATER_BYTES
        self._incoming: deque[bytes | None] = deque()  # None: the other end is closed
        # Two counters with one writer each, as `+=` on a shared one is not atomic between threads. Their
        # difference may be out of date; both sides look again after they have set their flags.
        self._given_bytes = 0  # written by the peer's thread only
        self._taken_bytes = 0  # written by ours only
        self._is_signalled = False
        self._is_reading = True
        self._is_writable = True
        self._is_closed = False

    @property
    def unread_bytes(self) -> int:
        """What the peer wrote and we have not taken yet."""
        return self._given_bytes - self._taken_bytes

    @property
    def _wants_more(self) -> bool:
        """The peer may go on if it had to stop; once we are closed, to find that out."""
        # A quarter, not just below the mark: else each piece that is taken would wake the writer.
        return self._is_closed or self.unread_bytes <= self.peer.high_water_bytes // 4

    def write(self, data: bytes) -> None:
        """Give bytes to the other end; they are lost once either end is closed."""
        peer = self.peer
        if self._is_closed or peer._is_closed or not data:
            return
        peer._given_bytes += len(data)
        peer._incoming.append(data)
        peer._signal()
        if self._is_writable and peer.unread_bytes > self.high_water_bytes:
            self._is_writable = False
            self._on_full()
            # The other thread may have emptied or closed it before it could see the flag. Soon, not
            # now: a writer does not expect to be called back before `write` returns.
            if peer._wants_more:
                self.loop.call_soon(self._resume_writing)

    def pause_reading(self) -> None:
        """Take nothing until `resume_reading`."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """Take again."""
        if not self._is_reading:
            self._is_reading = True
            self._signal()

    def close(self) -> None:
        """End both directions, after what was written. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self.peer._incoming.append(None)
        self.peer._signal()
        # It may be waiting for room and not be reading: then it would never come to the None.
        self._wake_writer()
        self.loop.call_soon(self._on_end)

    def _signal(self) -> None:
        """Wake the reading loop, once for all that comes until it looks."""
        # Two threads may both find it unset; the second `_receive` then finds nothing.
        if not self._is_signalled:
            self._is_signalled = True
            try:
                self.loop.call_soon_threadsafe(self._receive, context=self.context)
            except RuntimeError:
                # Our loop is closed and does not read any more: the same as if we had closed.
                self._is_closed = True
                self.peer._incoming.append(None)
                self.peer._signal()

    def _receive(self) -> None:
        # Cleared before the deque is looked at: what is appended after that signals again.
        self._is_signalled = False
        if not self._is_reading or self._is_closed:
            return
        chunks: list[bytes] = []
        size = 0
        # In portions, so that a busy peer does not keep this loop from other work.
        while self._incoming and size < _TURN_BYTES:
            chunk = self._incoming.popleft()
            if chunk is None:
                self._is_closed = True
                break
            chunks.append(chunk)
            size += len(chunk)
        # Once for all chunks, because a change may wake the writer.
        self._taken_bytes += size
        self._wake_writer()
        if self._incoming and not self._is_closed:
            self._signal()
        try:
            if chunks:
                self._on_data(b"".join(chunks))
        # Even if the protocol raises.
        finally:
            if self._is_closed:
                self._on_end()

    def _wake_writer(self) -> None:
        """Let the peer write again, if it had to stop and may."""
        peer = self.peer
        if not peer._is_writable and self._wants_more:
            # Its loop may be closed; what it wrote before that is still to be read.
            with contextlib.suppress(RuntimeError):
                peer.loop.call_soon_threadsafe(peer._resume_writing, context=peer.context)

    def _resume_writing(self) -> None:
        # What was written since may have filled it again: then the reader tells once more.
        if not self._is_writable and not self._is_closed and self.peer._wants_more:
            self._is_writable = True
            self._on_room()

    def _on_data(self, data: bytes) -> None:
        raise NotImplementedError

    def _on_end(self) -> None:
        raise NotImplementedError

    def _on_full(self) -> None:
        raise NotImplementedError

    def _on_room(self) -> None:
        raise NotImplementedError


class BrokerEnd(_End):
    """What a broker's `Connection` takes for its transport."""

    def __init__(self, loop: Loop, context: contextvars.Context) -> None:
        super().__init__(loop, context)
        self.connection: Connection | None = None
        self._is_ended = False

    def set_write_buffer_limits(self, high: int) -> None:
        """How much may be under way to the app before the broker holds back."""
        # `Connection` sets its high-water mark here, as on a socket.
        self.high_water_bytes = high

    def get_write_buffer_size(self) -> int:
        """What the app has not taken yet."""
        return self.peer.unread_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ARG002
        """Nothing: there is no socket, and no address."""
        return default

    def can_write_eof(self) -> bool:
        """No: a pipe ends as a whole, by `close`."""
        # So the broker's lingering close waits for the app or its timer.
        return False

    def abort(self) -> None:
        """End the pipe."""
        self.close()

    def _on_data(self, data: bytes) -> None:
        assert self.connection is not None
        self.connection.data_received(data)

    def _on_end(self) -> None:
        if not self._is_ended and self.connection is not None:
            # Both ends may call `close`, but `connection_lost` must be called once.
            self._is_ended = True
            self.connection.connection_lost(None)

    def _on_full(self) -> None:
        assert self.connection is not None
        self.connection.pause_writing()

    def _on_room(self) -> None:
        assert self.connection is not None
        self.connection.resume_writing()


class AppEnd(_End):
    """The link of a `StompClient` that is served by the broker in this process."""

    def __init__(self, loop: Loop, context: contextvars.Context) -> None:
        super().__init__(loop, context)
        self._receiver: Receiver | None = None
        self._room = anyio.Event()
        self._is_ended = False
        # Bytes that come before `start` wait in the deque.
        self._is_reading = False  # until `start`
        self._drained_bytes = 0  # of all that was written, when `drain` last gave way

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:  # noqa: ARG002  # needs none
        """Begin to deliver."""
        self._receiver = receiver
        self.resume_reading()
        if self._is_closed:
            self.loop.call_soon(self._on_end)

    async def drain(self) -> None:
        """Wait until the broker takes more."""
        # The peer counts what it was given, which is what we have written.
        written_bytes = self.peer._given_bytes
        if written_bytes - self._drained_bytes > _DRAIN_BYTES:
            # A writer that never has to wait must not take the loop for itself.
            self._drained_bytes = written_bytes
            await anyio.lowlevel.checkpoint()
        while not self._is_writable and not self._is_closed:
            await self._room.wait()

    def _on_data(self, data: bytes) -> None:
        assert self._receiver is not None
        self._receiver.data_received(data)

    def _on_end(self) -> None:
        self._room.set()
        if not self._is_ended and self._receiver is not None:
            self._is_ended = True
            self._receiver.connection_lost(None)

    def _on_full(self) -> None:
        # A new event, because anyio's cannot be cleared.
        self._room = anyio.Event()

    def _on_room(self) -> None:
        self._room.set()


def make_pipe(broker_loop: Loop, app_loop: Loop) -> tuple[BrokerEnd, AppEnd]:
    """Two ends that are joined, called from the app. The broker's still needs its `connection`."""
    # Without it a wake-up would run in the context of the thread that wrote, where the reader's
    # libraries do not know which loop they are on. One each: two threads cannot be in the same.
    broker_end = BrokerEnd(broker_loop, contextvars.Context())
    app_end = AppEnd(app_loop, contextvars.copy_context())
    broker_end.peer, app_end.peer = app_end, broker_end
    return broker_end, app_end


def join(server: Server, principal: str | None) -> AppEnd:
    """Connect the calling task's loop with a broker of this process.

    Args:
        server: started.
        principal: who we are there; None: anonymous.

    Raises:
        RuntimeError: its loop is closed.
    """
    broker_end, app_end = make_pipe(server.runtime.loop, running_loop())

    def accept() -> None:
        broker_end.connection = Connection(server.runtime, principal)
        broker_end.connection.connection_made(broker_end)

    # On the broker's loop, where connections live; the first `_receive` is scheduled there later.
    server.runtime.loop.call_soon_threadsafe(accept)
    return app_end
