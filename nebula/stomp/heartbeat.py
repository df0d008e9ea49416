"""Heart-beats: who beats how often, when the next beat is due, when silence means death.

STOMP 1.1 and 1.2, "Heart-beating"; the arithmetic is the same in both. Time is an argument, in
seconds on any clock that never goes back.
"""

from __future__ import annotations

import math

from nebula.errors import RemoteProtocolError

BEAT = b"\n"
"""What a peer with nothing to say sends: one EOL, between two frames."""

# The sender promises *something* within each interval. Half of it leaves the other half for a
# late timer and the network.
_SEND_AFTER = 0.5

# A peer that beats exactly on time still arrives late by the network's delay. STOMP asks for a
# margin and leaves its size to us; Artemis and stompjs take the same.
_DEAD_AFTER = 2.0

# Nineteen digits of milliseconds outlast every connection. `int` refuses very long numbers with
# an error of its own, and turning them into floats could overflow.
_MAX_DIGITS = 19


def parse_heart_beat(text: str | None) -> tuple[int, int]:
    """Read a `heart-beat` header.

    Args:
        text: `<out>,<in>` in milliseconds, or None where the header is missing, which means `0,0`.

    Returns:
        What the peer can guarantee and what it desires, in milliseconds; 0 is "not at all".

    Raises:
        RemoteProtocolError: it is not two decimal numbers.
    """
    if text is None:
        return 0, 0
    numbers = [part.strip(" ") for part in text.split(",")]
    if len(numbers) != 2 or not all(_is_number(number) for number in numbers):
        raise RemoteProtocolError(f"heart-beat {text[:40]!r} is not two numbers of milliseconds")
    return int(numbers[0]), int(numbers[1])


def _is_number(text: str) -> bool:
    # `int` would take signs, underscores and digits of other scripts too.
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def whole_milliseconds(seconds: float) -> int:
    """Seconds as a `heart-beat` header has them; 0 is "not at all"."""
    # What is wanted more often than each millisecond is still wanted.
    return max(1, round(seconds * 1000)) if seconds > 0 else 0


def negotiate_intervals(ours: tuple[int, int], theirs: tuple[int, int]) -> tuple[float, float]:
    """What two `heart-beat` headers agree on.

    Args:
        ours: the numbers that we sent, in milliseconds.
        theirs: the numbers that the peer sent, in milliseconds.

    Returns:
        The intervals for sending and for receiving in seconds; 0.0 means none in that direction.
    """
    return _interval(ours[0], theirs[1]), _interval(theirs[0], ours[1])


def _interval(offered: int, desired: int) -> float:
    return max(offered, desired) / 1000 if offered and desired else 0.0


class Heartbeat:
    """One connection's two timers.

    Both run from the moment that CONNECTED is written. Whoever carries the octets sets
    `last_sent` and `last_received` on every write and read: any octets count, also a part of a
    frame. Nothing else is done per message.

    Attributes:
        send_interval: seconds within which we owe the peer something; 0.0 is never.
        receive_interval: seconds within which the peer owes us something; 0.0 is never.
        last_sent: when octets were last written.
        last_received: when octets last came.
    """

    __slots__ = ("_is_paused", "last_received", "last_sent", "receive_interval", "send_interval")

    def __init__(self, send_interval: float, receive_interval: float, *, now: float) -> None:
        self.send_interval = send_interval
        self.receive_interval = receive_interval
        self.last_sent = now
        self.last_received = now
        self._is_paused = False

    def is_dead(self, now: float) -> bool:
        """The peer kept silent for too long. Never true of a peer that is not being read."""
        return now >= self._death()

    def beat_due(self, now: float) -> bool:
        """Something must be written now: `BEAT`, if there is nothing else to say."""
        return now >= self._next_beat()

    def next_deadline(self, now: float) -> float:
        """When to look at `is_dead` and `beat_due` next; infinity if neither can ever come true.

        Traffic, `pause` and `resume` only move it further away: a timer that was set for it may
        come early, never late.
        """
        # While paused: the earliest that a peer can be dead which is read again from now on.
        death = now + self._patience() if self._is_paused else self._death()
        return min(self._next_beat(), death)

    def pause(self) -> None:
        """We stop reading the peer: from now on its silence proves nothing."""
        self._is_paused = True

    def resume(self, now: float) -> None:
        """We read again: the peer's time starts anew."""
        if self._is_paused:
            self._is_paused = False
            self.last_received = now

    def _next_beat(self) -> float:
        return self.last_sent + self.send_interval * _SEND_AFTER if self.send_interval else math.inf

    def _death(self) -> float:
        return math.inf if self._is_paused else self.last_received + self._patience()

    def _patience(self) -> float:
        return self.receive_interval * _DEAD_AFTER if self.receive_interval else math.inf
