"""Intake: messages that have come from a broker and are not yet recorded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, time

import anyio

from nebula.stomp.client import StompClient
from nebula.stomp.client.messages import Message

__all__ = ["Batch", "Intake"]

# In addition to its body a message costs its headers: a dict of about ten short strings.
_MESSAGE_BYTES = 1024

# The connection is told in steps, as telling it costs more than a message does.
_STEP_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages that are recorded together.

    Attributes:
        stomp: the connection that they came by.
        messages: with their times of receipt, ms since 1970.
        cost_bytes: approximately what they hold in memory.
    """

    stomp: StompClient
    messages: list[tuple[Message, int]]
    cost_bytes: int


class Intake:
    """Collects messages, and has the connection read no further when too much waits.

    Args:
        enough: the number of messages that are recorded without waiting for more.
        now: seconds since 1970.
    """

    def __init__(self, enough: int, *, now: Callable[[], float] = time) -> None:
        self._enough_messages = enough
        self._now = now
        self._stomp: StompClient | None = None
        self._messages: list[tuple[Message, int]] = []
        # The connection stops reading above a limit of bytes that wait here. So a slow disk slows the
        # broker down, and does not fill the memory.
        self._cost = 0  # of what waits
        self._told = 0  # of what the connection knows of, taken batches that are not done among it
        self._first = 0.0  # when the first of them came
        self._some, self._enough = anyio.Event(), anyio.Event()
        self._is_awake = False

    def __len__(self) -> int:
        return len(self._messages)

    def attach(self, stomp: StompClient) -> None:
        """Messages come by this connection from now on."""
        self._stomp = stomp

    def detach(self) -> None:
        """The connection has ended. What came by it and was not taken comes again."""
        self._stomp = None
        self._take()

    def on_message(self, message: Message) -> None:
        """A message came."""
        messages = self._messages
        messages.append((message, int(self._now() * 1000)))
        self._cost += len(message.body) + _MESSAGE_BYTES
        # Not for each message: to tell the connection costs more than to append, and a step of 256 KiB is
        # small next to the bytes that may wait.
        if self._cost - self._told >= _STEP_BYTES:
            self._tell()
        if len(messages) == 1:
            self._first = monotonic()
            self._some.set()
        # Equality sets the event once for each batch.
        if len(messages) == self._enough_messages:
            self._enough.set()

    async def wait(self, patience: float, delay: float) -> bool:
        """Wait at most `patience` seconds until messages are due: there are enough of them, or the first one
        came `delay` seconds ago. Returns whether they are due."""
        # First for a message, which may take long, and then for others that are synced with it.
        with anyio.move_on_after(patience):
            await self._some.wait()
            with anyio.move_on_after(self._first + delay - monotonic()):
                await self._enough.wait()
            return True
        return False

    def take(self) -> Batch | None:
        """Take all; its bytes still count until `done`. None: there is nothing."""
        stomp = self._stomp
        if not self._messages or stomp is None:
            # Messages can only be ACKed on the connection that they came by.
            return None
        self._tell()
        return Batch(stomp, *self._take())

    def is_current(self, batch: Batch) -> bool:
        """Whether the connection that a batch came by is there still."""
        return batch.stomp is self._stomp

    def done(self, batch: Batch) -> None:
        """A batch is recorded."""
        # The batch's own connection counted these bytes; the current one may be another.
        batch.stomp.connection.count_buffered(-batch.cost_bytes)

    def wake(self) -> None:
        """Have `wait` return at once from now on. Idempotent."""
        self._is_awake = True
        self._some.set()
        self._enough.set()

    def _take(self) -> tuple[list[tuple[Message, int]], int]:
        taken = self._messages, self._cost
        self._messages, self._cost, self._told = [], 0, 0
        # After `wake` the events stay set, so that `wait` returns at once until the end.
        if not self._is_awake:
            self._some, self._enough = anyio.Event(), anyio.Event()
        return taken

    def _tell(self) -> None:
        if self._stomp is not None:
            self._stomp.connection.count_buffered(self._cost - self._told)
            self._told = self._cost
