"""Heart-beats: negotiated intervals, the next beat, and when silence means a dead peer (A.8).

STOMP 1.1 and 1.2, "Heart-beating"; the arithmetic is the same in both. Time is an argument, in seconds on any
clock that never goes back.

Theory. Each side names two numbers: what it can guarantee to send, and what it wants to receive. The two
directions are negotiated on their own. A number of 0 on either side turns a direction off; otherwise its
interval is the larger of the two numbers, because the sender cannot do more often, and the receiver wants no
more often:

    client  heart-beat:5000,20000        client to server: max(5000, 10000)   = 10 s
    server  heart-beat:10000,10000       server to client: max(10000, 20000)  = 20 s

An interval is a promise, so it is kept with a margin on both sides:

- The sender promises *something* within each interval. It writes a line end when nothing was written for
  *half* an interval. The other half is for late timers and the network. Beats come only if there is no other
  traffic.
- The receiver gives the peer up after *two* intervals of silence. A peer that beats exactly on time still
  arrives late. Any byte proves that the peer is alive, also the middle of a frame.
- Silence counts only while the peer is read. While reading is paused (flow control), its beats wait in the
  socket; after `resume` its time begins anew. A loop that was busy may find the time over with the beats
  unread: callers look a second time a moment later.

One timer is enough for a connection: `next_deadline` is the earlier of the next beat and the death. Traffic
only moves both further away. So a message costs an assignment of a time, and no timer is set again for it;
one that fires early finds nothing to do and is set anew.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

from nebula.errors import RemoteProtocolError
from nebula.milliseconds import Milliseconds, to_milliseconds, to_seconds

HeartBeat: TypeAlias = tuple[Milliseconds, Milliseconds]
"""The numbers of a `heart-beat` header: what its sender can guarantee, and what it wants."""

NO_HEART_BEAT: Final[HeartBeat] = (Milliseconds(0), Milliseconds(0))

BEAT = b"\n"
"""A beat: one line end between two frames (A.1.1)."""

_SEND_AFTER = 0.5
"""The fraction of an interval after which a beat is due."""

# STOMP asks for a margin and leaves its size open; Artemis and stompjs take the same.
_DEAD_AFTER = 2.0
"""The number of intervals of silence after which the peer is dead."""

# Nineteen digits of milliseconds outlast every connection. `int` refuses very long numbers with
# an error of its own, and turning them into floats could overflow.
_MAX_DIGITS = 19


def parse_heart_beat(text: str | None) -> HeartBeat:
    """Read a `heart-beat` header.

    Args:
        text: `<out>,<in>` in milliseconds, or None where the header is missing, which means `0,0`.

    Returns:
        What the peer can guarantee and what it wants; 0 is "not at all".

    Raises:
        RemoteProtocolError: it is not two decimal numbers.
    """
    if text is None:
        return NO_HEART_BEAT
    numbers = [part.strip(" ") for part in text.split(",")]
    if len(numbers) != 2 or not all(_is_number(number) for number in numbers):
        raise RemoteProtocolError(f"heart-beat {text[:40]!r} is not two numbers of milliseconds")
    return Milliseconds(int(numbers[0])), Milliseconds(int(numbers[1]))


def _is_number(text: str) -> bool:
    # `int` would take signs, underscores and digits of other scripts too.
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def heart_beat_of(guaranteed: float, wanted: float) -> HeartBeat:
    """The numbers for a `heart-beat` header, from seconds; 0 is "not at all"."""
    return to_milliseconds(guaranteed), to_milliseconds(wanted)


def negotiate_intervals(ours: HeartBeat, theirs: HeartBeat) -> tuple[float, float]:
    """The intervals that follow from two `heart-beat` headers.

    Args:
        ours: the numbers that we sent.
        theirs: the numbers that the peer sent.

    Returns:
        The intervals for sending and for receiving in seconds; 0.0 means none in that direction.
    """
    return _interval(ours[0], theirs[1]), _interval(theirs[0], ours[1])


def _interval(offered: Milliseconds, desired: Milliseconds) -> float:
    both = to_seconds(offered), to_seconds(desired)
    return max(both) if all(both) else 0.0


class Heartbeat:
    """One connection's two timers.

    Both run from the moment that CONNECTED is written. The caller sets `last_sent` and `last_received` on
    every write and read: any bytes count, also a part of a frame. Nothing else is done per message.

    Attributes:
        send_interval: seconds within which we must send something; 0.0 is never.
        receive_interval: seconds within which the peer must send something; 0.0 is never.
        last_sent: when bytes were last written.
        last_received: when bytes were last read.
    """

    __slots__ = ("_is_paused", "last_received", "last_sent", "receive_interval", "send_interval")

    def __init__(self, send_interval: float, receive_interval: float, *, now: float) -> None:
        self.send_interval = send_interval
        self.receive_interval = receive_interval
        self.last_sent = now
        self.last_received = now
        self._is_paused = False

    def is_dead(self, now: float) -> bool:
        """Whether the peer was silent for too long. Never true while reading is paused."""
        return now >= self._death()

    def beat_due(self, now: float) -> bool:
        """Whether something must be written now: `BEAT`, if there is nothing else."""
        return now >= self._next_beat()

    def next_deadline(self, now: float) -> float:
        """When to look at `is_dead` and `beat_due` next; infinity if neither can ever come true.

        Traffic, `pause` and `resume` only move it further away: a timer that was set for it may fire early,
        never late.
        """
        # While paused: the earliest time at which the peer can be dead if it is read again from now on.
        death = now + self._patience() if self._is_paused else self._death()
        return min(self._next_beat(), death)

    def pause(self) -> None:
        """Reading stops: from now on silence proves nothing."""
        self._is_paused = True

    def resume(self, now: float) -> None:
        """Reading goes on: the peer's time starts anew."""
        if self._is_paused:
            self._is_paused = False
            self.last_received = now

    def _next_beat(self) -> float:
        return self.last_sent + self.send_interval * _SEND_AFTER if self.send_interval else math.inf

    def _death(self) -> float:
        return math.inf if self._is_paused else self.last_received + self._patience()

    def _patience(self) -> float:
        return self.receive_interval * _DEAD_AFTER if self.receive_interval else math.inf
