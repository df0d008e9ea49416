"""Warm standby, tried: a broker under load is copied again and again and killed; another starts on a copy."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

from nebula.errors import ConnectionLost, ServerError
from nebula.stomp.client import StompClient
from nebula.stomp.client.messages import AckMode, Receipt
from tests.cli.programs import NEBULA, environment, nebula, running

_ORDERS = "/queue/orders"
_PAYMENTS = "/queue/payments"
_EVENTS = "/topic/events"
_DESTINATIONS = (_ORDERS, _PAYMENTS, _EVENTS)
_RECORDER = "recorder"
# Sent to the standby behind everything that it had.
_LAST = 1_000_000_000
_AHEAD = 20
_PERSISTENT = {"persistent": "true"}


pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def anyio_backend() -> str:
    """The loop of the clients makes no difference: what is tried are brokers."""
    return "asyncio"


@dataclass(slots=True)
class Books:
    """What the clients of the first broker know for certain; numbers rise.

    Attributes:
        sent: to each destination, whether or not it was answered.
        receipted: to each destination, and answered.
        settled: payments whose ACK was answered.
        ids: of the payments, that the first broker gave.
    """

    sent: dict[str, set[int]] = field(default_factory=dict)
    receipted: dict[str, set[int]] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)

    def has_grown_since(self, before: Books) -> bool:
        """Everything has gone on."""
        return len(self.settled) > len(before.settled) and all(
            len(self.receipted.get(name, ())) > len(before.receipted.get(name, ())) for name in _DESTINATIONS
        )

    def copy(self) -> Books:
        receipted = {name: set(numbers) for name, numbers in self.receipted.items()}
        return Books(receipted=receipted, settled=set(self.settled))


async def _publish(url: str, destination: str, books: Books) -> None:
    """Send numbers, a few RECEIPTs ahead, until the connection ends."""
    sent = books.sent.setdefault(destination, set())
    receipted = books.receipted.setdefault(destination, set())
    try:
        async with StompClient(url) as client:
            while True:
                number = len(sent)
                sent.add(number)
                if number % _AHEAD:
                    answered = partial(_note, receipted, number)
                    client.post_with_receipt(destination, b"%d" % number, _PERSISTENT, answered)
                else:
                    await client.send(destination, str(number), _PERSISTENT, receipt=True)
                    receipted.add(number)
    except* (ConnectionLost, ServerError):
        pass


def _note(receipted: set[int], number: int, _receipt: Receipt) -> None:
    receipted.add(number)


async def _pay(url: str, books: Books) -> None:
    """Consume payments; a transaction's RECEIPT says that its ACK is on disk."""
    try:
        async with (
            StompClient(url) as client,
            client.subscribe(_PAYMENTS, ack=AckMode.CLIENT_INDIVIDUAL) as payments,
        ):
            async for payment in payments:
                books.ids.add(payment.id)
                async with client.transaction() as transaction:
                    transaction.ack(payment)
                books.settled.add(int(payment.body))
    except* (ConnectionLost, ServerError):
        pass


async def _subscribe_durably(url: str) -> None:
    async with (
        StompClient(url, client_id=_RECORDER) as client,
        client.subscribe(_EVENTS, durable="events", ack=AckMode.CLIENT_INDIVIDUAL),
    ):
        pass


async def _take_all(url: str, destination: str, *, durable: str | None = None) -> list[tuple[int, str]]:
    """Numbers and ids of all that a broker has for us there, in order."""
    found: list[tuple[int, str]] = []
    async with (
        StompClient(url, client_id=_RECORDER if durable else None) as client,
        client.subscribe(destination, durable=durable, ack=AckMode.CLIENT_INDIVIDUAL) as messages,
    ):
        await client.send(destination, str(_LAST), receipt=True)
        async for message in messages:
            if int(message.body) == _LAST:
                break
            found.append((int(message.body), message.id))
            message.ack()
    return found


async def _copy_again_and_again(data: Path, copy: Path, books: Books) -> Books:
    """Back up three times under load; returns what was known when the last time began."""
    known = books.copy()
    for _ in range(3):
        while not books.has_grown_since(known):
            await anyio.sleep(0.01)
        known = books.copy()
        done = await to_thread.run_sync(lambda: nebula("store", "backup", "--data", str(data), str(copy)))
        assert done.returncode == 0, done.stderr
    while not books.has_grown_since(known):
        await anyio.sleep(0.01)
    return known


async def _run_until_killed(data: Path, copy: Path, books: Books) -> Books:
    """The first machine: a broker under load that is copied, and killed while it is copied once more."""
    with running("broker", "--port", "0", "--data", str(data)) as (broker, line):
        url = line["url"]
        await _subscribe_durably(url)
        async with anyio.create_task_group() as clients:
            for destination in _DESTINATIONS:
                clients.start_soon(_publish, url, destination, books)
            clients.start_soon(_pay, url, books)
            known = await _copy_again_and_again(data, copy, books)
            words = [*NEBULA, "store", "backup", "--data", str(data), str(copy)]
            with subprocess.Popen(words, env=environment(), stdout=subprocess.DEVNULL) as unfinished:
                broker.kill()
                unfinished.kill()
    return known


async def test_standby_has_all_that_was_receipted_before_the_last_copy(tmp_path: Path) -> None:
    books = Books()
    (tmp_path / "copies").mkdir()
    copy = tmp_path / "copies" / "nebula.db"
    standby = tmp_path / "standby"
    with anyio.fail_after(150):
        known = await _run_until_killed(tmp_path / "data", copy, books)
        standby.mkdir()
        shutil.copy(copy, standby / "nebula.db")
        with running("broker", "--port", "0", "--data", str(standby)) as (_, line):
            orders = await _take_all(line["url"], _ORDERS)
            events = await _take_all(line["url"], _EVENTS, durable="events")
            payments = await _take_all(line["url"], _PAYMENTS)

    for destination, found in ((_ORDERS, orders), (_EVENTS, events)):
        numbers = [number for number, _ in found]
        assert known.receipted[destination] <= set(numbers) <= books.sent[destination]
        assert numbers == sorted(set(numbers))
    # What was consumed after the copy comes once more, with another id; nothing else does.
    assert {number for number, _ in payments} <= books.sent[_PAYMENTS] - known.settled
    assert not books.ids & {name for _, name in payments}
