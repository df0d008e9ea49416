"""The client's states: which frame may be sent, and which may come, in each of them.

A connection takes one path: NEW until CONNECT is sent, CONNECTING until CONNECTED arrives, CONNECTED while
the session lasts, DISCONNECTING once DISCONNECT is sent, ENDED for good. `TABLE` has a row for each frame
that is legal on that path, in either direction. Sending a frame without a row is a bug on our side
(`LocalProtocolError`, and nothing is written); receiving one is a fault of the server and ends the
connection.

The rules are those of the server's side, `nebula.broker.protocol.states`: everything about states lives here,
no other module compares them, and this one knows frames by their commands and headers' names alone.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from nebula.stomp.state_table import Need, Row, StateTable, every


class State(Enum):
    """The state of a connection. The value says what is wrong with a frame that has no row there."""

    NEW = "is not legal while new"
    CONNECTING = "is not legal while connecting"
    CONNECTED = "is not legal while connected"
    DISCONNECTING = "is not legal while disconnecting"
    ENDED = "is not legal while ended"


CLOSED: Final = "closed"
"""The bytes stopped, or the server broke the protocol."""

# STOMP 1.0, "MESSAGE": `subscription` comes only if SUBSCRIBE had an id, and not every 1.0 server knows that.
OF_MESSAGE = (
    Need("message-id"),
    Need("destination"),
    Need("subscription", when=lambda version: version.needs_subscription_id),
)
OF_RECEIPT = (Need("receipt-id"),)

_ALIVE: Final = (State.NEW, State.CONNECTING, State.CONNECTED, State.DISCONNECTING)

# Frames of a session that need nothing and leave the state as it is. The method has the frame's name.
_SESSION: Final = ("SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT")

TABLE: Final = StateTable(
    [
        # state, command or event, handler, next state, needs, clause
        Row(State.NEW, "CONNECT", "connect", State.CONNECTING, (), 'STOMP 1.2, "Connecting"'),
        Row(State.CONNECTING, "CONNECTED", "begin_session", State.CONNECTED, (), 'STOMP 1.2, "Connecting"'),
        *(
            Row(State.CONNECTED, command, command.lower(), State.CONNECTED, (), f'STOMP 1.2, "{command}"')
            for command in _SESSION
        ),
        Row(State.CONNECTED, "MESSAGE", "", State.CONNECTED, OF_MESSAGE, 'STOMP 1.2, "MESSAGE"'),
        Row(State.CONNECTED, "RECEIPT", "", State.CONNECTED, OF_RECEIPT, 'STOMP 1.2, "RECEIPT"'),
        # Nothing may follow it (A.11.6); frames that the server sent before still arrive.
        Row(State.CONNECTED, "DISCONNECT", "disconnect", State.DISCONNECTING, (), 'STOMP 1.2, "DISCONNECT"'),
        Row(State.DISCONNECTING, "MESSAGE", "", State.DISCONNECTING, OF_MESSAGE, 'STOMP 1.2, "MESSAGE"'),
        Row(State.DISCONNECTING, "RECEIPT", "", State.DISCONNECTING, OF_RECEIPT, 'STOMP 1.2, "RECEIPT"'),
        # A server that refuses the connection sends ERROR even before our CONNECT.
        *every(_ALIVE, "ERROR", State.ENDED, 'STOMP 1.2, "ERROR"'),
        *every(_ALIVE, CLOSED, State.ENDED, 'STOMP 1.2, "Connection Lingering"'),
    ]
)


def is_connected(state: State) -> bool:
    """Whether the session has begun, and DISCONNECT was not sent."""
    return state is State.CONNECTED
