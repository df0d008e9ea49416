"""The site controller on the wire: publishes the venue, and obeys those who desire games."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial

import anyio

from nebula.errors import Rejected
from nebula.headers import ACCEPTED
from nebula.stomp.client import AckMode, Receipt, StompClient
from services.venue.bodies import AVRO, Bodies
from services.venue.controller import SiteController, Update
from services.venue.invariants import Accepted
from services.venue.topics import Topic, game_of, gmid_of, pattern_of


class Simulator:
    """Publishes for one site controller, over one connection.

    Args:
        client: connected, as an identity that has the capability MAX-EGMMonitoring.
        bodies: writes and reads them.
        controller: what there is to publish.

    Attributes:
        accepted: what the broker has taken.
    """

    def __init__(self, client: StompClient, bodies: Bodies, controller: SiteController) -> None:
        self.accepted = Accepted()
        self._client = client
        self._bodies = bodies
        self._controller = controller
        self._unanswered = 0
        self._all_answered = anyio.Event()
        self._refused: Rejected | None = None

    async def open(self) -> None:
        """Publish everything there is, once."""
        await self.publish(self._controller.open(now()))

    async def run(self, *, seconds: float, tick: float) -> None:
        """Poll the machines every `tick` seconds, for `seconds` seconds."""
        end = anyio.current_time() + seconds
        turn = anyio.current_time()
        while turn < end:
            await self.publish(self._controller.poll(now()))
            turn += tick
            await anyio.sleep_until(turn)

    async def obey(self) -> None:
        """Do what others desire of the games, until cancelled."""
        pattern = pattern_of(Topic.GAME_DESIRED)
        async with self._client.subscribe(pattern, ack=AckMode.CLIENT, eager=True) as desires:
            async for message in desires:
                # Desired no longer is desired off: nothing is left of the configuration then.
                is_desired = self._bodies.decode(message.body) is not None
                gmid, game = gmid_of(message.destination), game_of(message.destination)
                await self.publish(self._controller.follow(gmid, game, is_desired=is_desired, now=now()))
                message.ack()

    async def publish(self, updates: Iterable[Update]) -> None:
        """Publish in this order, and return when the broker has taken them all.

        If the connection is lost, `obey`, which runs at the same time, raises the error.

        Raises:
            Rejected: it did not take one.
        """
        # One after the other, but without waiting for each: a round trip for each would be a slow round.
        for update in updates:
            body = self._bodies.encode(update, now())
            self._unanswered += 1
            answered = partial(self._note, update.destination, body)
            self._client.post_with_receipt(update.destination, body, AVRO, answered)
        while self._unanswered:
            await self._all_answered.wait()
        if self._refused is not None:
            raise self._refused

    def _note(self, destination: str, body: bytes, receipt: Receipt) -> None:
        if receipt.verdict == ACCEPTED:
            self.accepted.note(destination, body)
        else:
            self._refused = Rejected(receipt.verdict, destination)
        self._unanswered -= 1
        if not self._unanswered:
            self._all_answered.set()
            self._all_answered = anyio.Event()


def now() -> int:
    """Milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
