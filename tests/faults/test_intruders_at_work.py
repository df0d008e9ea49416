"""Intruders try to use up all of something, while somebody works and operators watch.

What is asserted is what anybody would notice: nothing of the worker's is refused or lost, operators get in
and are answered, and they can put an end to it without a restart. `tests/broker/core/test_shares.py` looks at
the shares themselves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.store import disk as disks
from nebula.sync import Client
from tests.faults.intruders import (
    ATTACKS,
    NEVER_REFUSED,
    Attack,
    Broker,
    Intruder,
    Worker,
    press,
    watched_broker,
)

# Rounds of work that have to follow when everything is used up.
_ROUNDS = 5


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    # A disk that small is looked at more often: it fills within a second.
    monkeypatch.setattr(disks, "_LOOK_SECONDS", 0.0)
    with watched_broker(tmp_path) as broker:
        yield broker


class Operator:
    """Looks at the broker, and puts an end to what others do there."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __call__(self, verb: str, **parameters: Any) -> Any:
        return self._client.call("nebula.broker", verb, parameters, timeout=20)

    def watch(self) -> None:
        """All that is looked at is answered."""
        assert self("broker.status")["not_ready"] is None
        assert "operator" in {row["principal"] for row in self("principals.list")["rows"]}
        assert self("connections.list", principal="worker")["rows"]
        assert self("queues.list", pattern="/queue/work.*")["rows"]

    def turn_out(self, principal: str) -> None:
        """End all that a principal has."""
        for row in self("connections.list", principal=principal, limit=1000)["rows"]:
            self("connection.end", session=row["session"])
        for row in self("sessions.list", limit=1000)["rows"]:
            if row["principal"] == principal:
                self("session.purge", session=row["session"])
                self("session.end", session=row["session"])
        self("delayed.purge", principal=principal)
        for row in self("queues.list", pattern="/queue/intruder.*", limit=1000)["rows"]:
            self("queue.purge", queue=row["queue"])
        self("dlq.purge")
        for row in self("topics.list", pattern="X/intruder.*", kind="last-value", limit=1000)["rows"]:
            self._client.publish(row["topic"], b"")

    def uses(self, principal: str) -> dict[str, Any]:
        """What a principal still uses. Ids of messages are kept for their window, whoever has sent them."""
        rows = self("principals.list", pattern=principal)["rows"]
        told = ["principal", "used_fraction", "refusals", "is_operator", "dedup_ids"]
        if any(row["dedup_ids"] for row in rows):
            told.append("memory_bytes")
        return {name: used for row in rows for name, used in row.items() if used and name not in told}


@pytest.mark.parametrize(
    ("principal", "attack"), [pytest.param(*each, id=each[1].__name__) for each in ATTACKS]
)
def test_who_works_notices_nothing_and_operators_put_an_end_to_it(
    broker: Broker, principal: str, attack: Attack
) -> None:
    worker, me = Worker(broker), Intruder(broker, principal)
    with broker.client("operator") as client:
        operator = Operator(client)
        operator.watch()
        worker.start()
        refused: list[int] = []
        pressing = threading.Thread(target=lambda: refused.append(press(me, attack)), daemon=True)
        pressing.start()
        while pressing.is_alive():
            operator.watch()
            worker.check()
            # The threads of this process share its time: one who only looked would hold up the intruder.
            pressing.join(0.02)
        assert refused, "the intruder itself came to an end"
        assert (refused[0] > 0) == (attack not in NEVER_REFUSED)

        # Everything is used up by now: who was there goes on, and who was not comes in.
        _wait_for(lambda: worker.rounds, worker.rounds + _ROUNDS, worker)
        with broker.client("auditor") as another:
            Operator(another).watch()

        operator.turn_out(principal)
        for wire in me.wires:
            wire.close()
        while operator.uses(principal):
            worker.check()
        operator.watch()
        worker.end()

    # It may do what it may, as before.
    wire, inbox = Intruder(broker, principal).enter_with_inbox()
    wire.say(f"SEND destination:{inbox} | good morning")
    frame = wire.next()
    assert frame is not None
    assert frame[2:] == ("good morning",)


def _wait_for(count: Any, enough: int, worker: Worker) -> None:
    while count() < enough:
        worker.check()
        time.sleep(0.005)
