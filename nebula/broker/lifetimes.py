"""How long connections may live: their certificate or token, their user, and a greatest age.

A peer proves once who it is, when it comes in. The proof may end while the peer stays: a certificate or token
expires, a reload takes a user away or denies a certificate. Here each connection is kept with its proof, and
ended when that no longer counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, Protocol

from nebula.broker.listeners import Identity, Listener

NOT_ADMITTED: Final = "not admitted"
"""What a peer is told that may not be here. The log says why."""

TOO_OLD: Final = "the connection has reached its greatest age"

# Connections that began together, as after a restart, must not all come back together.
_SPREAD: Final = 0.1


class Mortal(Protocol):
    """What is connected, and can be ended."""

    def end_for(self, reason: str) -> None:
        """End it, and tell the peer why."""


@dataclass(slots=True)
class _Life:
    listener: Listener
    identity: Identity
    too_old_at: float = inf
    unknown_since: float = inf


class Lifetimes:
    """Those who are connected, and when each has to end.

    Args:
        grace_seconds: that a connection goes on when its proof has expired, or its user is gone.
        max_seconds: greatest age of a connection; None: any.
        wall_clock: seconds since 1970. Certificates and tokens end by the calendar; the loop's clock stands
            still while the machine sleeps.
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
        self._lives: dict[Mortal, _Life] = {}
        # No life ends before these; one may be over that had them. So most looks cost nothing.
        self._next_expiry = inf
        self._next_age = inf

    def __len__(self) -> int:
        """Those who are kept: not who has nothing that could end."""
        return len(self._lives)

    def begin(self, mortal: Mortal, listener: Listener, identity: Identity, now: float | None = None) -> None:
        """It is known who it is.

        Args:
            listener: by whose rules.
            now: the loop's time; None: its age does not count.
        """
        life = _Life(listener, identity)
        if self._max_seconds is not None and now is not None:
            life.too_old_at = now + self._max_seconds * (1 - _SPREAD * self._chance())
        if identity.is_proved or life.too_old_at < inf:
            self._lives[mortal] = life
            self._note(life)

    def end(self, mortal: Mortal) -> None:
        """It has gone."""
        self._lives.pop(mortal, None)

    def review(self, now: float) -> None:
        """Files were read again: end who is denied, and who is no longer known when the grace is over."""
        wall = self.wall_clock()
        for mortal, life in list(self._lives.items()):
            if life.listener.denies(life.identity):
                self._end(mortal, NOT_ADMITTED)
            elif life.listener.still_knows(life.identity):
                life.unknown_since = inf
            else:
                life.unknown_since = min(life.unknown_since, wall)
                self._note(life)
        self.advance(now)

    def advance(self, now: float) -> None:
        """Let time pass: end those whose time is over. Call it some times a second."""
        wall = self.wall_clock()
        if wall < self._next_expiry and now < self._next_age:
            return
        self._next_expiry = self._next_age = inf
        for mortal, life in list(self._lives.items()):
            reason = self._reason_to_end(life, wall, now)
            if reason is None:
                self._note(life)
            else:
                self._end(mortal, reason)

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

    def _end(self, mortal: Mortal, reason: str) -> None:
        self._lives.pop(mortal, None)
        mortal.end_for(reason)
