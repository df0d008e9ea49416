"""The server's states: which frame of a client is legal when, and what follows from it.

How to think about it. A connection is on one path: OPENING until its CONNECT, AUTHENTICATING until the peer
is identified (no time at all if it is identified beforehand), OPEN while its session lasts, CLOSED for good.
`TABLE` has a row for each frame that is legal on that path. A frame without a row is refused, and refusing
ends the connection: there are no other checks of states.

Two rules keep it so:

- Everything about states lives here. Other modules know that the state has changed because this table said
  so; none compares one state with another (a test searches for it). "Is it open", "is it over" are asked
  here.
- This module knows frames by their commands and headers' names alone: no session, no broker, no parser. What
  a frame does is its handler's business; whether it may do it now, and what it needs, is the table's.

The rows are the frames of A.6; a frame without one is an ERROR (A.11.4).

A handler may refuse a frame that has a row (policy, limits, a name that is taken). It never decides that a
frame is legal, nor which state is next. Events are spelled in lower case: they are no frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from nebula.stomp.dialects import Dialect
from nebula.stomp.state_table import Need, Row, Rule, StateTable, every


class State(Enum):
    """Where a connection is. The value says what is wrong with a frame that has no row there."""

    OPENING = "came before CONNECT"
    AUTHENTICATING = "came before CONNECT was replied to"
    OPEN = "is not legal in an open session"
    CLOSED = "came after the end"

    # Enum's own hash is a Python function, and each connection looks its state up several times.
    __hash__ = object.__hash__


ADMITTED: Final = "admitted"
"""The peer is identified."""

ENDED: Final = "ended"
"""A fault, the end of the bytes, or the broker's own reason: an ERROR if the peer can still read it."""

DESTINATION = Need("destination")
TRANSACTION = Need("transaction")
SUBSCRIPTION_ID = Need("id", when=lambda version: version.needs_subscription_id)
# STOMP 1.0, "UNSUBSCRIBE": by the id of the SUBSCRIBE if it had one, else by the destination.
ID_OR_DESTINATION = Need("destination", when=lambda version: not version.needs_subscription_id, instead="id")

# The three versions name a message differently. 1.1 may use the form of 1.2 as well (D.20, D.21).
ACKED = (
    Need("id", when=lambda version: version.ack_by_id),
    Need("message-id", when=lambda version: not version.ack_by_id and not version.ack_on_message),
    Need("message-id", when=lambda version: not version.ack_by_id and version.ack_on_message, instead="id"),
    Need("subscription", when=lambda version: not version.ack_by_id and version.needs_subscription_id),
)


def _stays(command: str, needs: tuple[Need, ...], clause: str) -> Row[State]:
    """A frame of an open session; its handler has its name."""
    return Row(State.OPEN, command, command.lower(), State.OPEN, needs, f'STOMP 1.2, "{clause}')


TABLE: Final = StateTable(
    [
        # state, command or event, handler, next state, needs, clause
        Row(State.OPENING, "CONNECT", "connect", State.AUTHENTICATING, (), 'STOMP 1.2, "Connecting"'),
        Row(State.OPENING, "STOMP", "connect", State.AUTHENTICATING, (), 'STOMP 1.2, "Connecting"'),
        Row(State.AUTHENTICATING, ADMITTED, "enter", State.OPEN, (), 'STOMP 1.2, "Connecting"'),
        _stays("SEND", (DESTINATION,), 'SEND"'),
        _stays("SUBSCRIBE", (DESTINATION, SUBSCRIPTION_ID), 'SUBSCRIBE"'),
        _stays("UNSUBSCRIBE", (SUBSCRIPTION_ID, ID_OR_DESTINATION), 'UNSUBSCRIBE"'),
        _stays("ACK", ACKED, 'ACK"; D.20'),
        _stays("NACK", ACKED, 'NACK"; D.20'),
        _stays("BEGIN", (TRANSACTION,), 'BEGIN"; D.24'),
        _stays("COMMIT", (TRANSACTION,), 'COMMIT"; D.24'),
        _stays("ABORT", (TRANSACTION,), 'ABORT"; D.24'),
        Row(State.OPEN, "DISCONNECT", "disconnect", State.CLOSED, (), 'STOMP 1.2, "DISCONNECT"; D.25'),
        *every([State.OPENING, State.AUTHENTICATING, State.OPEN], ENDED, State.CLOSED, 'STOMP 1.2, "ERROR"'),
    ]
)


def rules(state: State, dialect: Dialect, *, acks_by_message_id: bool) -> Mapping[str, Rule[State]]:
    """The frames that are legal, by command.

    Args:
        dialect: what was negotiated.
        acks_by_message_id: STOMP 1.1's ACK and NACK may leave `subscription` out, as the profile says.
    """
    exempt = frozenset({"subscription"}) if acks_by_message_id else frozenset()
    return TABLE.rules(state, dialect, exempt)


def is_open(state: State) -> bool:
    """The session has begun and lasts."""
    return state is State.OPEN
