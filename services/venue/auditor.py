"""The auditor: comes, leaves, comes back, and misses nothing that still matters."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from nebula.stomp.client import StompClient
from services.venue.bodies import Bodies
from services.venue.reader import Reader
from services.venue.topics import Topic

# Readings, and which games are found and desired.
_TOPICS = (Topic.METERS, Topic.GAME_DETECTED, Topic.GAME_DESIRED)


class Auditor:
    """A reader whose subscriptions are durable: they outlive its connections.

    While it is away the broker keeps, of each destination that changes, the latest value; an empty one of
    a destination that is deleted.

    Args:
        connect: makes a client. Its `client-id` names the session and is the same each time.
        bodies: reads them.

    Attributes:
        reader: what it has seen on all of its visits.
        visits: how often it came.
    """

    def __init__(self, connect: Callable[[], StompClient], bodies: Bodies) -> None:
        self.reader = Reader(bodies)
        self.visits = 0
        self._connect = connect

    async def visit(self, leave: anyio.Event) -> None:
        """Read until told to leave.

        Raises:
            ConnectFailed, ConnectionLost, ServerError: the broker is gone, or refuses.
        """
        self.visits += 1
        async with self._connect() as client, anyio.create_task_group() as tasks:
            for topic in _TOPICS:
                tasks.start_soon(self._follow, client, topic)
            await leave.wait()
            tasks.cancel_scope.cancel()

    async def _follow(self, client: StompClient, topic: Topic) -> None:
        # Eager on the first visit only: on later visits the auditor receives what changed, not everything.
        is_first = self.visits == 1
        await self.reader.follow(client, topic, durable=topic, is_eager=is_first)
