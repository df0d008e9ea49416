"""Lifetimes of connections: expiry of certificates and tokens, removed users, a maximum age.

A peer proves its identity once, when it connects. The proof may become invalid while the peer is connected: a
certificate or token expires, or a reload removes a user or denies a certificate. This module keeps each
connection with its proof, and ends it when the proof is no longer valid.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from nebula.broker.operations.events import NOT_ADMITTED, TOO_OLD
from nebula.broker.server.identity import Identity
from nebula.broker.server.listener import Listener

# Connections that began together, as after a restart, must not all come back together.
_SPREAD: Final = 0.1


class Expiring(Protocol):
    """A connection that can be ended."""

    def end_for(self, reason: str) -> None:
        """End it, and tell the peer why."""


@dataclass(slots=True)
class _Life:
    listener: Listener
    identity: Identity
    too_old_at: float = inf
    unknown_since: float = inf


class Lifetimes:
    """All authenticated connections, and when each has to end.

    Args:
        grace_seconds: for which a connection goes on after its proof has expired or its user was removed.
        max_seconds: maximum age of a connection; None: no maximum.
        wall_clock: seconds since 1970. Certificates and tokens expire at a date, and the loop's clock stops
            while the machine sleeps.
        chance: a number from 0 to 1, to spread what would end together.
    """

    def __init__(
        self,
        *,
        grace_seconds: float = 0.0,
        max_seconds: float | None = None,
        wall_clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._grace_seconds = grace_seconds
        self._max_seconds = max_seconds
        self._chance = chance
        self.wall_clock = wall_clock
        self._lives: dict[Expiring, _Life] = {}
        # Lower bounds: no connection ends before these. So most calls of `advance` cost nothing.
        self._next_expiry = inf
        self._next_age = inf

    def __len__(self) -> int:
        """The number of connections that are kept here; one that never has to end is not."""
        return len(self._lives)

    def begin(
        self, connection: Expiring, listener: Listener, identity: Identity, now: float | None = None
    ) -> None:
        """A connection has authenticated.

        Args:
            listener: where it came in.
            now: the loop's time; None: its age does not count.
        """
        life = _Life(listener, identity)
        if self._max_seconds is not None and now is not None:
            # The spread only shortens: the maximum age is a promise to the operator.
            life.too_old_at = now + self._max_seconds * (1 - _SPREAD * self._chance())
        if identity.is_proved or life.too_old_at < inf:
            self._lives[connection] = life
            self._note(life)

    def end(self, connection: Expiring) -> None:
        """The connection is closed."""
        self._lives.pop(connection, None)

    def review(self, now: float) -> None:
        """Files were read again: end denied connections now, and those of removed users after the grace."""
        wall = self.wall_clock()
        for connection, life in list(self._lives.items()):
            # At once, without the grace: a certificate is denied because another person may have its key.
            if life.listener.denies(life.identity):
                self._end(connection, NOT_ADMITTED)
            elif life.listener.still_knows(life.identity):
                # A later reload may bring a removed user back, which ends its grace.
                life.unknown_since = inf
            else:
                # `min`, so that a second reload does not prolong the grace of the first.
                life.unknown_since = min(life.unknown_since, wall)
                self._note(life)
        self.advance(now)

    def advance(self, now: float) -> None:
        """End connections whose time is over. Call it a few times a second."""
        wall = self.wall_clock()
        # Two numbers instead of a heap: all connections are visited only after a reload or an expiry, and
        # every other call costs two comparisons.
        if wall < self._next_expiry and now < self._next_age:
            return
        # Rebuilt below from the connections that stay.
        self._next_expiry = self._next_age = inf
        for connection, life in list(self._lives.items()):
            reason = self._reason_to_end(life, wall, now)
            if reason is None:
                self._note(life)
            else:
                self._end(connection, reason)

    def _reason_to_end(self, life: _Life, wall: float, now: float) -> str | None:
        before = wall - self._grace_seconds
        if life.identity.expires_at <= before:
            return f"your {life.identity.proof} has expired"
        if life.unknown_since <= before:
            return NOT_ADMITTED
        return TOO_OLD if life.too_old_at <= now else None

    def _note(self, life: _Life) -> None:
        expiry = min(life.identity.expires_at, life.unknown_since) + self._grace_seconds
        self._next_expiry = min(self._next_expiry, expiry)
        self._next_age = min(self._next_age, life.too_old_at)

    def _end(self, connection: Expiring, reason: str) -> None:
        # Removed first: `end_for` may lead to `end` for the same connection.
        self._lives.pop(connection, None)
        connection.end_for(reason)
