"""The server's table of states: every pair of state and command, and every header that a row names."""

from __future__ import annotations

import itertools

import pytest

from nebula.broker.core.profiles import PROFILES
from nebula.broker.protocol.handlers import Handlers
from nebula.broker.protocol.server_protocol import ServerProtocol
from nebula.broker.protocol.states import ADMITTED, ENDED, TABLE, State, is_open, rules
from nebula.stomp.dialects import DIALECTS, V1_2
from nebula.stomp.frames import CLIENT_COMMANDS
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import octets

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


# What creates a queue.
EFFECTS = {(State.OPEN, "SEND"), (State.OPEN, "SUBSCRIBE")}

PAIRS = list(itertools.product(State, sorted(CLIENT_COMMANDS)))
LEGAL = {(row.state, row.command): row for row in TABLE.rows}


def peer_in(state: State, broker: BrokerHarness) -> Peer:
    peer = broker.accept() if state is State.OPENING else broker.connect()
    if state is State.CLOSED:
        peer.disconnect()
    return peer


def test_table_names_each_state_and_only_commands_of_clients_and_events() -> None:
    assert {row.state for row in TABLE.rows} | {row.next_state for row in TABLE.rows} == set(State)
    commands = {row.command for row in TABLE.rows}
    assert commands == {*CLIENT_COMMANDS, ADMITTED, ENDED}
    assert set(LINES) == CLIENT_COMMANDS


def test_each_pair_has_one_row_a_handler_and_a_clause() -> None:
    assert len(LEGAL) == len(TABLE.rows)
    for row in TABLE.rows:
        assert row.clause
        assert row.command == ENDED or callable(getattr(Handlers, row.handler))


def test_one_state_is_the_last_one_and_each_other_can_end() -> None:
    assert [state for state in State if TABLE.is_final(state)] == [State.CLOSED]
    assert [state for state in State if TABLE.after(state, ENDED) is State.CLOSED] == list(State)
    assert [state for state in State if is_open(state)] == [State.OPEN]


@pytest.mark.parametrize(
    ("state", "command"), [pair for pair in PAIRS if pair[0] is not State.AUTHENTICATING]
)
def test_command_is_taken_where_the_table_says_so_and_refused_elsewhere(
    broker: BrokerHarness, state: State, command: str
) -> None:
    peer = peer_in(state, broker)
    peer.say(LINES[command])

    replies = peer.received()
    if state is State.CLOSED:
        assert replies == []
    elif (state, command) in LEGAL and command not in REFUSED_BY_NAME:
        assert [frame[0] for frame in replies] == ["CONNECTED" if state is State.OPENING else "RECEIPT"]
    else:
        assert [frame[0] for frame in replies] == ["ERROR"]
        assert peer.is_closed
        if (state, command) not in LEGAL:
            assert replies[0][1]["message"] == TABLE.refusal(state, command)
            assert command in TABLE.refusal(state, command)
    assert len(broker.destinations) == ((state, command) in EFFECTS)
    assert peer.is_closed == (state is State.CLOSED or command == "DISCONNECT" or replies[0][0] == "ERROR")


@pytest.mark.parametrize("command", sorted(CLIENT_COMMANDS))
def test_command_behind_a_connect_waits_until_it_is_known_who_the_peer_is(
    broker: BrokerHarness, command: str
) -> None:
    session = broker.broker.open_session("s", "anonymous")
    protocol = ServerProtocol(broker.broker, session, server="test", now=0.0, authenticates=True)
    protocol.receive_data(octets(LINES["CONNECT"]) + octets(LINES[command]), 0.0)

    assert (protocol.credentials, protocol.version) == ((None, None), None)
    assert session.outbox == []
    assert not any(state is State.AUTHENTICATING for state, _ in LEGAL if _ in CLIENT_COMMANDS)

    protocol.admit("ada", 0.0)
    assert (protocol.credentials, protocol.version) == (None, "1.2")
    is_fault = (State.OPEN, command) not in LEGAL or command in REFUSED_BY_NAME
    assert (protocol.fault is not None) is is_fault


@pytest.mark.parametrize("version", DIALECTS)
@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("command", sorted({row.command for row in TABLE.rows if row.needs}))
def test_frame_without_a_header_that_its_row_names_is_a_fault(
    version: str, profile: str, command: str
) -> None:
    dialect = DIALECTS[version]
    lenient = PROFILES[profile].acks_by_message_id
    rule = rules(State.OPEN, dialect, acks_by_message_id=lenient)[command]
    for missing in rule.required:
        broker = BrokerHarness()
        peer = broker.connect(version)
        if lenient is not peer.session.profile.acks_by_message_id:
            continue
        lines = [f"{name}:1" for name in rule.required if name != missing]
        peer.say(f"{command} " + "; ".join(["receipt:r", *lines]))

        (reply,) = peer.received()
        assert reply[0] == "ERROR"
        assert reply[1]["message"] == f"{command} needs the header {missing}"


def test_versions_name_messages_by_the_headers_of_their_text() -> None:
    required = {
        version: rules(State.OPEN, dialect, acks_by_message_id=False)["ACK"].required
        for version, dialect in DIALECTS.items()
    }

    assert required == {"1.0": ("message-id",), "1.1": ("message-id", "subscription"), "1.2": ("id",)}
    lenient = rules(State.OPEN, DIALECTS["1.1"], acks_by_message_id=True)["ACK"]
    assert (lenient.required, lenient.instead) == (("message-id",), "id")


def test_rules_are_made_once_for_all_connections() -> None:
    first, second = (rules(State.OPEN, V1_2, acks_by_message_id=True) for _ in range(2))

    assert first is second
