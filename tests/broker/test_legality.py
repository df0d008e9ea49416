"""What is legal when: every pair of state and command, from the one table that says so."""

from __future__ import annotations

import itertools

import pytest

from nebula.broker.protocol.server_protocol import _LEGAL, State
from nebula.stomp.frames import CLIENT_COMMANDS
from tests.broker.harness import BrokerHarness, Peer

# A frame of each command that has what it needs.
LINES = {
    "CONNECT": "CONNECT accept-version:1.2; host:h",
    "STOMP": "STOMP accept-version:1.2; host:h",
    "SEND": "SEND destination:/queue/a; receipt:r | x",
    "SUBSCRIBE": "SUBSCRIBE id:1; destination:/queue/a; receipt:r",
    "UNSUBSCRIBE": "UNSUBSCRIBE id:1; receipt:r",
    "ACK": "ACK id:1; receipt:r",
    "NACK": "NACK id:1; receipt:r",
    "BEGIN": "BEGIN transaction:t; receipt:r",
    "COMMIT": "COMMIT transaction:t; receipt:r",
    "ABORT": "ABORT transaction:t; receipt:r",
    "DISCONNECT": "DISCONNECT receipt:r",
}
# There is no transaction of that name.
REFUSED_BY_NAME = {"COMMIT", "ABORT"}


def peer_in(state: State, broker: BrokerHarness) -> Peer:
    peer = broker.accept() if state is State.OPENING else broker.connect()
    if state is State.CLOSED:
        peer.disconnect()
    return peer


def test_table_names_each_state_and_only_commands_of_clients() -> None:
    assert set(_LEGAL) == set(State)
    assert {command for row in _LEGAL.values() for command in row} == CLIENT_COMMANDS == set(LINES)


@pytest.mark.parametrize(("state", "command"), list(itertools.product(State, sorted(CLIENT_COMMANDS))))
def test_command_is_taken_where_the_table_says_so_and_refused_elsewhere(
    broker: BrokerHarness, state: State, command: str
) -> None:
    peer = peer_in(state, broker)
    peer.say(LINES[command])

    answers = [frame[0] for frame in peer.received()]
    if state is State.CLOSED:
        assert answers == []
    elif command in _LEGAL[state] and command not in REFUSED_BY_NAME:
        assert answers == ["CONNECTED" if state is State.OPENING else "RECEIPT"]
    else:
        assert answers == ["ERROR"]
        assert peer.is_closed
    assert len(broker.broker.destinations) == ((state, command) in EFFECTS)


EFFECTS = {(State.OPEN, "SEND"), (State.OPEN, "SUBSCRIBE")}
