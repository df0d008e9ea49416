"""The client's table of states: every pair of state and command, in both directions."""

from __future__ import annotations

import itertools

import pytest

from nebula.errors import LocalProtocolError
from nebula.stomp.client_protocol import ClientProtocol
from nebula.stomp.client_states import CLOSED, TABLE, State, is_connected
from nebula.stomp.frames import CLIENT_COMMANDS, SERVER_COMMANDS

LEGAL = {(row.state, row.command): row for row in TABLE.rows}

# We send CONNECT, which every server takes for STOMP as well.
SENT = sorted(CLIENT_COMMANDS - {"STOMP"})
RECEIVED = {
    "CONNECTED": b"CONNECTED\nversion:1.2\n\n\0",
    "MESSAGE": b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:s\nack:1\n\nx\0",
    "RECEIPT": b"RECEIPT\nreceipt-id:1\n\n\0",
    "ERROR": b"ERROR\nmessage:no\n\n\0",
}


def protocol_in(state: State) -> ClientProtocol:
    protocol = ClientProtocol()
    if state is State.ENDED:
        protocol.end()
    elif state is not State.NEW:
        protocol.connect(host="h")
        if state is not State.CONNECTING:
            protocol.receive(RECEIVED["CONNECTED"], 0.0)
            if state is State.DISCONNECTING:
                protocol.disconnect("r")
    assert protocol.state is state
    return protocol


def send(protocol: ClientProtocol, command: str) -> bytes:
    """Write a frame by the method that its row names."""
    handler = next(row.handler for row in TABLE.rows if row.command == command)
    message = {"ack": "1"}
    arguments = {
        "send": ("/queue/a", b"", {}),
        "subscribe": ("s", "/queue/a", "auto", {}),
        "unsubscribe": ("s",),
        "ack": (message,),
        "nack": (message, {}),
        "disconnect": ("r",),
        "connect": (),
    }.get(handler, ("t",))
    written: bytes = getattr(protocol, handler)(*arguments, **({"host": "h"} if handler == "connect" else {}))
    return written


def test_table_names_each_state_and_each_command_and_has_one_row_for_each_pair() -> None:
    assert {row.state for row in TABLE.rows} | {row.next_state for row in TABLE.rows} == set(State)
    assert {row.command for row in TABLE.rows} == {*SENT, *SERVER_COMMANDS, CLOSED}
    assert len(LEGAL) == len(TABLE.rows)
    assert all(row.clause for row in TABLE.rows)
    assert all(hasattr(ClientProtocol, row.handler) for row in TABLE.rows if row.handler)


def test_one_state_is_the_last_one_and_each_other_can_end() -> None:
    assert [state for state in State if TABLE.is_final(state)] == [State.ENDED]
    assert {TABLE.after(state, CLOSED) for state in State} == {State.ENDED}
    assert [state for state in State if is_connected(state)] == [State.CONNECTED]


@pytest.mark.parametrize(("state", "command"), list(itertools.product(State, SENT)))
def test_frame_is_written_where_the_table_says_so_and_refused_elsewhere(state: State, command: str) -> None:
    protocol = protocol_in(state)
    row = LEGAL.get((state, command))

    if row is None:
        with pytest.raises(LocalProtocolError, match=f"{command} is not legal while {state.name.lower()}"):
            send(protocol, command)
        assert protocol.state is state
    else:
        assert send(protocol, command).startswith(f"{command}\n".encode())
        assert protocol.state is row.next_state


@pytest.mark.parametrize(("state", "command"), list(itertools.product(State, RECEIVED)))
def test_frame_is_taken_where_the_table_says_so_and_a_fault_elsewhere(state: State, command: str) -> None:
    protocol = protocol_in(state)
    row = LEGAL.get((state, command))
    frames = protocol.receive(RECEIVED[command], 1.0)

    if row is not None:
        assert [frame.command for frame in frames] == [command]
        assert protocol.failure is None
        assert protocol.state is row.next_state
    else:
        assert frames == []
        assert protocol.state is State.ENDED
        # A server's opening frame is read as such, and nothing behind it before its version is known.
        assert state is State.ENDED or command in str(protocol.failure)


@pytest.mark.parametrize("command", ["MESSAGE", "RECEIPT"])
def test_frame_without_a_header_that_its_row_names_is_a_fault(command: str) -> None:
    needed = [need.header for need in LEGAL[State.CONNECTED, command].needs]
    assert needed
    for missing in needed:
        protocol = protocol_in(State.CONNECTED)
        fields = "".join(f"{name}:1\n" for name in needed if name != missing)

        assert protocol.receive(f"{command}\n{fields}\n\0".encode(), 1.0) == []
        assert str(protocol.failure) == f"{command} needs the header {missing}"
