"""A subscriber's view of the venue: what came, what came last, and whether it can be true."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from nebula.stomp.client import AckMode, Message, StompClient
from services.venue.bodies import Bodies
from services.venue.invariants import Reading, RisingMeters
from services.venue.topics import Topic, gmid_of, pattern_of, topic_of


class Reader:
    """Keeps the last value of each destination, and counts.

    Args:
        bodies: reads them.

    Attributes:
        values: the body that came last, by destination; empty for one that is gone.
        received: messages.
        rising: the readings, watched.
        gone: destinations that were told to be gone, in order.
        topics: what it reads.
    """

    def __init__(self, bodies: Bodies) -> None:
        self.values: dict[str, bytes] = {}
        self.received = 0
        self.rising = RisingMeters()
        self.gone: list[str] = []
        self.topics: set[Topic] = set()
        self._bodies = bodies
        self._readings: dict[str, Reading] = {}
        self._news = anyio.Event()

    def take(self, message: Message) -> None:
        """Look at one message."""
        destination = message.destination
        self.received += 1
        record = self._bodies.decode(message.body)
        if record is None:
            self.gone.append(destination)
        elif topic_of(destination) is Topic.METERS:
            reading = Reading.of(gmid_of(destination), record)
            self._readings[reading.gmid] = reading
            self.rising.see(reading)
        self.values[destination] = b"" if record is None else message.body
        self._news.set()
        self._news = anyio.Event()

    @property
    def readings(self) -> dict[str, Reading]:
        """The last reading of each machine, by GMID."""
        return self._readings

    async def follow(
        self,
        client: StompClient,
        topic: Topic,
        *,
        pause: Callable[[], float] = lambda: 0.0,
        durable: str | None = None,
        is_eager: bool = True,
    ) -> None:
        """Read all destinations of a topic until cancelled.

        Each message is acked when it was looked at, and not before: until then the broker keeps the
        destination's further values, and gives the latest of them.

        Args:
            client: connected.
            topic: what to read.
            pause: how many seconds to take over each message.
            durable: a name under which the broker keeps what changes while we are away.
            is_eager: begin with the present values; otherwise with what changes from now on.
        """
        self.topics.add(topic)
        subscription = client.subscribe(
            pattern_of(topic), ack=AckMode.CLIENT, eager=is_eager, durable=durable
        )
        async with subscription as messages:
            async for message in messages:
                self.take(message)
                await anyio.sleep(pause())
                message.ack()

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for messages until something is so. Put a scope around it: it may never be."""
        while not is_so():
            await self._news.wait()
