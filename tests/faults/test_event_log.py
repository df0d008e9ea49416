"""The operator's log: every event with its facts, few lines whatever peers do, and never what is private."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nebula.broker
from nebula.broker.core.account import Account, Refusal
from nebula.broker.core.limits import Limits
from nebula.broker.core.notes import MESSAGES_DEAD
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from nebula.broker.operations.event_log import ConnectionEnd, EventLog
from nebula.broker.operations.events import COUNTED, ENDINGS, ENDS, EVENTS, EndReason
from nebula.broker.server.identity import Proof
from tests.broker.script import octets
from tests.cli.programs import running
from tests.faults.served import Served, Wire, serve, wait_until
from tests.faults.sinks import Deaf, Sink, attach
from tests.own_logs import own_logs

LIMITS = Limits(
    max_body_bytes=100_000,
    max_outbox_bytes=300_000,
    max_deliveries=1,
    session_expiry_seconds=0.1,
    max_connections=5,
    principal_share=1.0,
    operator_reserve=1e-9,
)
POLICIES = [DestinationPolicy(pattern="/queue/short", max_messages=1, when_full=WhenFull.DROP_OLDEST)]
Line = dict[str, Any]


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    """What is logged."""
    with own_logs() as logged:
        yield logged


@pytest.fixture
def broker(lines: list[Line]) -> Iterator[Served]:
    """A broker with little room."""
    with serve(LIMITS, POLICIES) as served:
        yield served


def wait_for(broker: Served, lines: list[Line], event: str) -> Line:
    """The first line of an event, as soon as it is there."""
    wait_until(broker, lambda: any(line["event"] == event for line in lines))
    return next(line for line in lines if line["event"] == event)


def connected(broker: Served, client_id: str = "") -> tuple[Wire, str]:
    """A client that has connected, and its session."""
    wire = Wire(broker.port)
    wire.send(f"CONNECT\naccept-version:1.2\nhost:h\nclient-id:{client_id}\n\n\0".encode())
    frame = wire.next()
    assert frame is not None
    return wire, frame[1]["session"]


def test_connect_and_its_end(broker: Served, lines: list[Line]) -> None:
    wire = Wire(broker.port)
    said = [octets("CONNECT accept-version:1.2; host:h"), octets("DISCONNECT receipt:r")]
    host, port = wire.socket.getsockname()
    wire.send(said[0])
    frame = wire.next()
    assert frame is not None
    session = frame[1]["session"]
    wire.send(said[1])
    wire.rest()
    heard = broker.ask(lambda: broker.server.runtime.traffic.written_bytes)
    wire.close()

    opened = wait_for(broker, lines, "session opened")
    assert opened == {
        "event": "session opened", "log_level": "debug", "principal": "anonymous", "session": session,
        "version": "1.2", "address": f"{host}:{port}",
    }  # fmt: skip
    closed = wait_for(broker, lines, "connection closed")
    # Rounded to milliseconds: it may be 0.
    assert 0 <= closed.pop("duration_seconds") < 60
    assert closed == {
        "event": "connection closed", "log_level": "debug", "reason": "disconnected", "detail": "",
        "principal": "anonymous", "session": session, "address": f"{host}:{port}",
        "listener": f"stomp://127.0.0.1:{broker.port}", "version": "1.2", "read_frames": 2, "sent_frames": 2,
        "read_bytes": sum(map(len, said)), "written_bytes": heard, "unsent_bytes": 0,
    }  # fmt: skip
    assert [line["event"] for line in lines] == ["session opened", "connection closed"]


def test_end_by_an_error_is_told_louder_than_a_leave(broker: Served, lines: list[Line]) -> None:
    wire, session = connected(broker)
    wire.say("COMMIT transaction:none")
    wire.rest()
    wire.close()

    closed = wait_for(broker, lines, "connection closed")
    assert (closed["session"], closed["log_level"]) == (session, "info")
    assert (closed["reason"], closed["detail"]) == ("protocol error", "there is no transaction …")


def test_connection_too_many(broker: Served, lines: list[Line]) -> None:
    wires = [connected(broker)[0] for _ in range(5)]
    assert Wire(broker.port).rest()

    line = wait_for(broker, lines, "connection closed")
    assert (line["reason"], line["detail"]) == ("too many connections", "more than 5 connections")
    assert (line["log_level"], line["version"]) == ("warning", None)
    assert line["address"].startswith("127.0.0.1:")
    assert len(wires) == 5


def test_slow_reader(broker: Served, lines: list[Line]) -> None:
    slow = Deaf()

    def flood() -> None:
        attach(broker, slow, "SUBSCRIBE id:s; destination:/topic/t")
        attach(broker, Sink(), *["SEND destination:/topic/t | " + "x" * 90_000] * 10)

    broker.ask(flood)
    broker.ask(lambda: slow.connection.connection_lost(None))

    line = wait_for(broker, lines, "connection closed")
    assert line["principal"] == "anonymous"
    assert line["session"] == broker.ask(lambda: slow.connection._protocol.session.id)
    assert line["reason"] == "too slow"
    assert line["unsent_bytes"] > 300_000
    assert line["address"] == line["listener"] == "in process"
    assert broker.ask(lambda: broker.server.runtime.ended["too slow"]) == 1


def test_session_taken_over(broker: Served, lines: list[Line]) -> None:
    first, _ = connected(broker, "mine")
    second, _ = connected(broker, "mine")
    assert first.rest()
    assert second.is_in_order()

    line = wait_for(broker, lines, "connection closed")
    assert (line["reason"], line["session"]) == ("session taken over", "mine")


def test_stranger_that_never_connects_is_ordinary(broker: Served, lines: list[Line]) -> None:
    wire = Wire(broker.port)
    wire.send(b"GET / HTTP/1.1\n\n\0")
    wire.rest()
    wire.close()

    line = wait_for(broker, lines, "connection closed")
    assert (line["reason"], line["log_level"]) == ("protocol error", "debug")


def test_peers_that_are_connected_when_the_broker_stops(lines: list[Line]) -> None:
    with serve() as broker:
        wire, _ = connected(broker)
    wire.close()

    (line,) = [line for line in lines if line["event"] == "connection closed"]
    assert (line["reason"], line["log_level"]) == ("shutdown", "info")


def test_each_ending_of_the_core_has_a_reason() -> None:
    rooms = [Path(nebula.broker.__file__).parent / name for name in ("core", "operations")]
    texts = [file.read_text() for room in rooms for file in room.rglob("*.py")]
    endings = {
        ending.partition(":")[0] for text in texts for ending in re.findall(r"\.end\(\s*\"([^\"]+)\"", text)
    }

    assert endings <= ENDINGS.keys()
    assert {"too slow", "session taken over"} <= endings


def test_proof_that_can_expire_has_an_ending() -> None:
    told = {f"your {proof} has expired" for proof in (Proof.CERTIFICATE, Proof.TOKEN)}

    assert told <= ENDINGS.keys()


def test_each_reason_of_an_end_has_a_level_and_a_meaning() -> None:
    assert ENDS.keys() == set(EndReason)


def test_each_counted_event_is_declared() -> None:
    files = Path(nebula.broker.__file__).parent.rglob("*.py")
    counted = {
        name for file in files for name in re.findall(r"events\.count\(\"([^\"]+)\"\)", file.read_text())
    }

    assert {event.name for event in EVENTS if not event.levels} <= counted <= set(COUNTED)


PAGE = Path(nebula.broker.__file__).parents[2] / "docs/reference/running.md"


def tables() -> tuple[str, str]:
    """The tables of events and of reasons of docs/reference/running.md."""
    events = "".join(
        f"| `{event.name}` | {', '.join(event.levels)} | {event.fields} | {event.when} |\n"
        for event in EVENTS
        if event.levels
    )
    reasons = "".join(f"| `{reason}` | {end.level} | {end.when} |\n" for reason, end in ENDS.items())
    return (
        f"| event | level | fields | when |\n| --- | --- | --- | --- |\n{events}",
        f"| reason | level | when |\n| --- | --- | --- |\n{reasons}",
    )


def with_tables(page: str) -> str:
    """The page with its two tables as they are declared."""
    for table in tables():
        head = re.escape(table.partition("\n")[0])
        (old,) = re.findall(rf"^{head}\n(?:\|.*\n)+", page, re.MULTILINE)
        page = page.replace(old, table)
    return page


def test_page_lists_all_events_and_reasons() -> None:
    page = PAGE.read_text()

    assert page == with_tables(page), "run: python -m tests.faults.test_event_log"


def test_session_that_expires(broker: Served, lines: list[Line]) -> None:
    wire, _ = connected(broker, "mine")
    wire.say("SUBSCRIBE id:s; destination:/topic/t; durable:true")
    assert wire.is_in_order()
    wire.close()

    line = wait_for(broker, lines, "sessions expired")
    assert (line["session"], line["principal"], line["count"]) == ("mine", "anonymous", 1)


def test_message_that_is_dropped(broker: Served, lines: list[Line]) -> None:
    wire, _ = connected(broker)
    wire.say(*["SEND destination:/queue/short | secret"] * 3)
    assert wire.is_in_order()

    line = wait_for(broker, lines, "messages dropped")
    assert (line["destination"], line["principal"], line["count"]) == ("/queue/short", "anonymous", 2)


def test_message_that_has_no_room(broker: Served, lines: list[Line]) -> None:
    wire, session = connected(broker)
    wire.say("SEND destination:/queue/nebula.inbox.gone | secret")
    assert wire.is_in_order()

    line = wait_for(broker, lines, "messages dropped")
    assert line["reason"] == "rejected-no-consumer"
    assert (line["destination"], line["session"]) == ("/queue/nebula.inbox.gone", session)


def test_send_that_is_rejected_unheard(broker: Served, lines: list[Line]) -> None:
    wire, session = connected(broker)
    wire.say(*["SEND destination:/queue/a; persistent:yes | secret"] * 3)
    assert wire.is_in_order()

    line = wait_for(broker, lines, "send rejected without receipt")
    assert (line["principal"], line["session"]) == ("anonymous", session)
    assert (line["destination"], line["reason"]) == ("/queue/a", "rejected-invalid")
    assert [each["event"] for each in lines].count("send rejected without receipt") == 1


def test_message_that_is_dead(broker: Served, lines: list[Line]) -> None:
    wire, _ = connected(broker)
    wire.say("SUBSCRIBE id:s; destination:/queue/a; ack:client", "SEND destination:/queue/a | secret")
    frame = wire.next()
    assert frame is not None
    wire.say(f"NACK id:{frame[1]['ack']}")
    assert wire.is_in_order()

    line = wait_for(broker, lines, "messages dead-lettered")
    assert (line["destination"], line["principal"], line["count"]) == ("/queue/a", "anonymous", 1)


def test_message_that_expires(broker: Served, lines: list[Line]) -> None:
    wire, _ = connected(broker)
    wire.say("SEND destination:/queue/a; neb-timeout:1 | secret")
    assert wire.is_in_order()

    line = wait_for(broker, lines, "messages dropped")
    assert (line["reason"], line["destination"]) == ("expired", "/queue/a")


def test_flood_of_one_event_makes_few_lines(lines: list[Line]) -> None:
    account = Account(Limits())
    events = EventLog(account)
    for number in range(10_000):
        events.info("session opened", session=str(number))
        account.refuse(Refusal("p", "s", "SEND", "/queue/a", "rejected-unauthorised"))
        account.dropped["full"] += 1
        account.notes.add(MESSAGES_DEAD, "rejected", principal="p", destination="/queue/a")

    events.flush()

    assert len(lines) < 15
    further = next(line for line in lines if line["event"] == "further events")
    assert (further["what"], further["count"]) == ("session opened", 10_000 - 5)
    assert {line["count"] for line in lines if line["event"].startswith("messages")} == {10_000}


def test_next_second_has_lines_of_its_own(lines: list[Line]) -> None:
    events = EventLog(Account(Limits()))
    for now in range(3):
        for _ in range(7):
            events.info("session opened")
        events.advance(float(now) + 10)

    assert [line["event"] for line in lines] == (["session opened"] * 5 + ["further events"]) * 3


def test_clients_that_come_and_go_are_told_to_nobody_but_who_debugs(lines: list[Line]) -> None:
    events = EventLog(Account(Limits()))
    for _ in range(7):
        events.debug("session closed", reason="disconnected")
    events.info("session closed", reason="a bad frame")

    events.flush()

    assert [(line["event"], line["log_level"]) for line in lines] == [
        *[("session closed", "debug")] * 5,
        ("session closed", "info"),
        ("further events", "debug"),
    ]
    assert events.counts["session closed"] == 8


def test_flood_of_one_reason_hides_no_other(lines: list[Line]) -> None:
    events = EventLog(Account(Limits()))
    for reason in [EndReason.TOO_MANY] * 1_000 + [EndReason.TOO_SLOW]:
        end = ConnectionEnd(reason, "", "alice", "s", "192.0.2.1:1", "stomp://h:1", "1.2", 1.0, 1, 1, 1, 1, 0)
        events.connection_closed(end, is_open=True)

    events.flush()

    assert [line["reason"] for line in lines] == ["too many connections"] * 5 + ["too slow"] + [
        "too many connections"
    ]
    assert (lines[-1]["event"], lines[-1]["count"]) == ("further events", 995)


def test_name_of_a_peers_own_choice_is_cut(lines: list[Line]) -> None:
    account = Account(Limits())
    account.refuse(Refusal("p", "s", "SEND", "/queue/" + "x" * 10_000, "rejected-unauthorised"))

    EventLog(account).flush()

    assert len(lines[0]["destination"]) == 201


@pytest.mark.timeout(60)
def test_log_holds_no_body_and_no_passcode_whatever_comes(tmp_path: Path) -> None:
    (tmp_path / "nebula.toml").write_text(
        "[limits]\nmax_deliveries = 1\nmax_body_bytes = 1000\n"
        "[[destination]]\npattern = '/queue/short'\nmax_messages = 1\nwhen_full = 'drop-oldest'\n"
    )
    login = "login:alice\npasscode:Sesame-1"
    openings = [
        f"CONNECT\naccept-version:1.2\nhost:h\n{login}\n\n\0",
        f"CONNECT\naccept-version:9\nhost:h\n{login}\n\n\0",
        "CONNECT\nlogin:alice\npasscode Sesame-1\n\n\0",
        "Sesame-1\n\n\0",
    ]
    sends = [
        "SEND\ndestination:/queue/short\n\nSesame-2\0" * 3,
        "SEND\ndestination:/queue/a\n\nSesame-2\0SUBSCRIBE\nid:s\ndestination:/queue/a\nack:client\n\n\0",
        "SEND\ndestination:/queue/a\ncontent-length:3\n\nSesame-2\0",
        "SEND\ndestination:/queue/a\ncontent-length:Sesame-2\n\nx\0",
        "SEND\ndestination:/queue/nebula.broker\n\nSesame-2\0",
        "SEND\ndestination:/queue/nebula.inbox.x\n\nSesame-2\0",
        "SEND\ndestination:/queue/a\nSesame-2\n\nx\0",
        f"SEND\ndestination:/queue/a\n\n{'Sesame-2' * 1000}\0",
        "Sesame-2\n\nx\0",
        "COMMIT\ntransaction:Sesame-2\n\n\0",
    ]
    with running("broker", "--port", "0", "--log-level", "debug", cwd=tmp_path) as (process, line):
        port = int(line["url"].rpartition(":")[2])
        for opening in [*openings[1:], *(openings[0] + send + "DISCONNECT\n\n\0" for send in sends)]:
            wire = Wire(port)
            wire.send(opening.encode())
            wire.rest()
            wire.close()
        process.terminate()
        _, logged = process.communicate(timeout=20)

    assert len([json.loads(each) for each in logged.splitlines()]) > 10
    assert "Sesame" not in logged


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
