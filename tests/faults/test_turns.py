"""Peers that send without a pause leave the loop to the others, to the clock and to signals."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from nebula.broker.server import fairness as turns
from nebula.broker.server.server import Server
from tests.faults.served import Wire, serve
from tests.faults.transports import connected

LONG_READ = b"SEND\ndestination:/topic/t\n\n" + b"x" * 200_000 + b"\0"


def test_peers_with_much_to_say_are_read_some_at_a_time_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    # By number alone: a machine that is busy with others would end a turn sooner.
    monkeypatch.setattr(turns, "TURN_SECONDS", 60.0)

    async def run() -> list[list[bool]]:
        server = Server([])
        await server.start()
        peers = [connected(server) for _ in range(6)]
        for connection, _ in peers:
            connection.data_received(LONG_READ)
        seen = [[transport.is_read for _, transport in peers]]
        for _ in range(2):
            await asyncio.sleep(0)
            seen.append([transport.is_read for _, transport in peers])
        await server.stop()
        return seen

    assert asyncio.run(run()) == [[False] * 6, [True] * 4 + [False] * 2, [True] * 6]


def test_peer_that_is_held_back_does_not_get_a_turn() -> None:
    async def run() -> bool:
        server = Server([])
        await server.start()
        connection, transport = connected(server)
        connection.data_received(LONG_READ)
        connection._protocol.is_held_back = True
        await asyncio.sleep(0)
        is_read = transport.is_read
        connection._protocol.is_held_back = False
        await server.stop()
        return is_read

    assert not asyncio.run(run())


def test_peer_whose_beats_lie_unread_is_not_taken_for_dead() -> None:
    ours, theirs = socket.socketpair()
    is_busy = threading.Event()

    def be_busy() -> None:
        theirs.recv(1)
        is_busy.set()
        time.sleep(2.2)

    with ours, theirs, serve() as broker:
        alice = Wire(broker.port)
        alice.connect("1.2", heart_beat="1000,0")
        # The loop reads somebody else for longer than the peer's margin; meanwhile the peer beats.
        broker.ask(lambda: broker.server.runtime.loop.add_reader(theirs, be_busy))
        ours.send(b"!")
        is_busy.wait()
        alice.send(b"\n")

        assert alice.is_in_order()
        broker.ask(lambda: broker.server.runtime.loop.remove_reader(theirs))
