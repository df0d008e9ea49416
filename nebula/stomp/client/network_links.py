"""Links over TCP, with TLS or without: on asyncio, or on any byte stream of anyio.

`nebula.stomp.client.link` defines what a link is. All connections to brokers are made by `connect_link`, so a
block's confinement is checked there.
"""

# Why two links? On asyncio a `Protocol` gets bytes in a callback and writes without a task: a frame costs
# no switch between tasks. On trio there are only streams, so one task reads and one writes. Both are behind
# `nebula.stomp.client.link`, and one suite tests them.
#
# Writing gathers frames of one turn of the loop (`call_soon`), but flushes after 16 of them, so that the
# broker can begin while we still write (docs/decisions/0062). `drain` waits only beyond the high-water mark:
# publishers that never outrun the network never wait.
#
# Closing lingers for a second: bytes that were written before `close` are sent, but a peer that does not
# read cannot keep the socket.

from __future__ import annotations

import asyncio
import ssl
from typing import cast

import anyio
from anyio.abc import ByteStream, TaskGroup
from anyio.streams.tls import TLSAttribute

from nebula.stomp.client.addresses import Address
from nebula.stomp.client.confinement import check_confinement
from nebula.stomp.client.link import Link, Receiver
from nebula.stomp.client.memory_links import open_memory_link
from nebula.stomp.client.tls import ClientTls
from nebula.waiter import Waiter, new_waiter, runs_on_asyncio

# As asyncio's transports have it: beyond it `drain` waits.
_HIGH_WATER_BYTES = 64 * 1024
_READ_BYTES = 256 * 1024

# Measured with 64 calls in flight: fewer cost system calls, more leave a core idle.
_FRAMES_AT_ONCE = 16

_BROKEN = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)

# A peer that does not read its last bytes holds a socket for this long at most, in seconds.
_LINGER = 1.0


async def connect_link(address: Address, tls: ClientTls | None = None) -> Link:
    """Open a TCP connection with TCP_NODELAY, or a pipe in memory; on asyncio or trio, whichever runs.

    Args:
        address: only host, port and `is_memory` are used.
        tls: encrypt, and verify the broker's certificate; None: not encrypted.

    Raises:
        OSError: the host is unknown, or the connection is refused; `SSLError`: the certificate is not
        trusted. OutsideBroker: see `check_confinement`.
    """
    check_confinement(address)
    if address.is_memory:
        return await open_memory_link(address)
    connect = _connect_asyncio if runs_on_asyncio() else _connect_anyio
    try:
        return await connect(address, tls)
    except UnicodeError as error:
        # Not every text can be a name in the DNS. The loops raise the codec's error for it.
        raise OSError(f"no host can have this name: {error}") from error


async def _connect_asyncio(address: Address, tls: ClientTls | None) -> Link:
    loop = asyncio.get_running_loop()
    # asyncio and uvloop set TCP_NODELAY by themselves, `connect_tcp` as well.
    transport, link = await loop.create_connection(
        AsyncioLink, address.host, address.port, ssl=None if tls is None else tls.context
    )
    if tls is not None:
        try:
            tls.check_peer(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))
        except ssl.SSLError:
            transport.abort()
            raise
    return link


async def _connect_anyio(address: Address, tls: ClientTls | None) -> Link:
    if tls is None:
        return AnyioLink(await anyio.connect_tcp(address.host, address.port))
    try:
        stream = await anyio.connect_tcp(
            address.host,
            address.port,
            ssl_context=tls.context,
            # STOMP frames have an end, so a peer that leaves without a TLS close cannot cut one off
            # unnoticed.
            tls_standard_compatible=False,
        )
    except (anyio.EndOfStream, anyio.BrokenResourceError) as error:
        raise ConnectionResetError("the connection ended during the handshake") from error
    try:
        tls.check_peer(stream.extra(TLSAttribute.peer_certificate_binary))  # noqa: S610 - no Django
    except ssl.SSLError:
        await anyio.aclose_forcefully(stream)
        raise
    return AnyioLink(stream)


def _cause_of(error: Exception) -> Exception:
    # anyio's own errors have no text; the network's error is their cause.
    while not str(error) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


class _WriteRoom:
    """Room in a link's buffer, for which `drain` waits."""

    def __init__(self) -> None:
        self._is_free = True
        self._waiters: list[Waiter[None]] = []

    def take(self) -> None:
        self._is_free = False

    def free(self) -> None:
        self._is_free = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.set(None)

    async def wait(self) -> None:
        if not self._is_free:
            waiter: Waiter[None] = new_waiter()
            self._waiters.append(waiter)
            await waiter.wait()


class AsyncioLink(asyncio.Protocol):
    """A link on an asyncio transport: no task, stream or lock stands between it and the socket.

    Frames that are written in one turn of the loop are sent in a few pieces. A system call for each frame
    would cost more than everything else that is done for it, here and at the broker. In one piece, it would
    leave the broker idle while we work, and us while it works.

    After a turn with a single frame, the next turn most likely has a single one, too: it is sent at once.
    """

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        # What arrives between the connection and `start`.
        self._early = bytearray()
        self._outgoing: list[bytes] = []
        self._frames_of_turn = 0
        # The last turn in which something was written had a single frame.
        self._is_sparse = False
        self._room = _WriteRoom()
        self._undrained_bytes = 0
        self._abort_timer: asyncio.TimerHandle | None = None
        self._is_lost = False
        self._loss: Exception | None = None

    # --- the link ---

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:  # noqa: ARG002 - needs none
        self._receiver = receiver
        if self._early:
            early, self._early = bytes(self._early), bytearray()
            receiver.data_received(early)
        if self._is_lost:
            receiver.connection_lost(self._loss)

    def write(self, data: bytes) -> None:
        is_first = not self._frames_of_turn
        if is_first:
            self._loop.call_soon(self._end_turn)
        self._frames_of_turn += 1
        self._outgoing.append(data)
        self._undrained_bytes += len(data)
        if (is_first and self._is_sparse) or len(self._outgoing) == _FRAMES_AT_ONCE:
            self._flush()

    def _end_turn(self) -> None:
        self._is_sparse = self._frames_of_turn == 1
        self._frames_of_turn = 0
        self._flush()

    def _flush(self) -> None:
        if self._outgoing:
            assert self._transport is not None
            data = b"".join(self._outgoing)
            self._outgoing.clear()
            # The peer may have closed meanwhile. asyncio logs each write to a transport that is closing, and
            # uvloop's raises once it is closed.
            if not self._transport.is_closing():
                self._transport.write(data)

    async def drain(self) -> None:
        if self._undrained_bytes > _HIGH_WATER_BYTES:
            # uvloop sends, and notices that it cannot, in the loop's next turn. Giving up this turn also
            # keeps a writer that never has to wait from occupying the loop.
            self._undrained_bytes = 0
            self._flush()
            await asyncio.sleep(0)
        await self._room.wait()

    def pause_reading(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is None or self._abort_timer is not None or self._is_lost:
            return
        self._flush()
        self._transport.close()
        self._abort_timer = self._loop.call_later(_LINGER, self._transport.abort)

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Send at once: uvloop would wait for the end of the turn, while the peer could already work.
        self._transport.set_write_buffer_limits(high=0)
        self._loop = asyncio.get_running_loop()

    def data_received(self, data: bytes) -> None:
        if self._receiver is not None:
            self._receiver.data_received(data)
        else:
            self._early += data

    def pause_writing(self) -> None:
        self._room.take()

    def resume_writing(self) -> None:
        self._room.free()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._loss = exc
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._room.free()
        if self._receiver is not None:
            self._receiver.connection_lost(exc)


class AnyioLink:
    """A link on a byte stream of anyio: a task that reads and one that writes.

    Frames that are written while the writer is busy are sent in one piece afterwards.
    """

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._receiver: Receiver | None = None
        self._outgoing: list[bytes] = []
        self._unsent_bytes = 0
        self._room = _WriteRoom()
        self._writer_scope = anyio.CancelScope()
        self._wake_writer = anyio.Event()
        self._may_read = anyio.Event()
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:
        self._receiver = receiver
        tasks.start_soon(self._read, name="stomp link reader")
        tasks.start_soon(self._write, name="stomp link writer")

    def write(self, data: bytes) -> None:
        if self._is_closing or self._is_lost:
            return
        self._outgoing.append(data)
        self._unsent_bytes += len(data)
        if self._unsent_bytes > _HIGH_WATER_BYTES:
            self._room.take()
        self._wake_writer.set()

    async def drain(self) -> None:
        await self._room.wait()

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._may_read.set()

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._writer_scope.deadline = anyio.current_time() + _LINGER
        self._wake_writer.set()
        # The reader ends when the writer has closed the stream, if it looks.
        self.resume_reading()

    async def _read(self) -> None:
        assert self._receiver is not None
        error: Exception | None = None
        try:
            while True:
                self._receiver.data_received(await self._stream.receive(_READ_BYTES))
                while self._is_paused:
                    self._may_read = anyio.Event()
                    await self._may_read.wait()
        except anyio.EndOfStream:
            pass
        except _BROKEN as failure:
            error = None if self._is_closing else _cause_of(failure)
        finally:
            self._lose(error)

    async def _write(self) -> None:
        try:
            with self._writer_scope:
                while not self._is_lost and (self._outgoing or not self._is_closing):
                    if self._outgoing:
                        await self._send_outgoing()
                    else:
                        self._wake_writer = anyio.Event()
                        await self._wake_writer.wait()
        except _BROKEN as failure:
            self._lose(_cause_of(failure))
        finally:
            # Ends the reader too.
            await anyio.aclose_forcefully(self._stream)

    async def _send_outgoing(self) -> None:
        data = b"".join(self._outgoing)
        self._outgoing.clear()
        await self._stream.send(data)
        self._unsent_bytes -= len(data)
        if self._unsent_bytes <= _HIGH_WATER_BYTES:
            self._room.free()

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        self._room.free()
        self._wake_writer.set()
        self.resume_reading()
        assert self._receiver is not None
        self._receiver.connection_lost(error)
