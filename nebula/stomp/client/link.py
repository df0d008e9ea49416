"""The interface of links, which carry the bytes of a connection, and of their receivers.

A link knows nothing about STOMP. Writing is synchronous and never blocks; `drain` is where a writer waits for
a slow peer.
"""

from __future__ import annotations

from typing import Protocol

from anyio.abc import TaskGroup


class Receiver(Protocol):
    """Receives what a link delivers. Called on the loop's thread, one call at a time."""

    def data_received(self, data: bytes) -> None:
        """Bytes have arrived, in order, at least one."""

    def connection_lost(self, error: Exception | None) -> None:
        """The last call, exactly one: the stream has ended; None if neither side failed."""


class Link(Protocol):
    """Carries bytes in both directions, in order, until one side closes or the network fails."""

    def start(self, receiver: Receiver, tasks: TaskGroup) -> None:
        """Begin to deliver to `receiver`; nothing is delivered before, and nothing is lost.

        Args:
            receiver: receives everything that arrives.
            tasks: for a link that needs tasks; they end soon after `close` or when cancelled.
        """

    def write(self, data: bytes) -> None:
        """Send bytes in this turn of the loop, or as soon as the peer takes them. Lost after `close`."""

    async def drain(self) -> None:
        """Wait while more is unsent than a link should hold; also returns when the link has ended."""

    def pause_reading(self) -> None:
        """Deliver nothing until `resume_reading`, so that the peer is slowed down."""

    def resume_reading(self) -> None:
        """Deliver again."""

    def close(self) -> None:
        """End the stream. Bytes that were written are still sent, for a second at most. Idempotent."""
