"""stompest's synchronous client against `nebula broker`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from stompest.config import StompConfig  # type: ignore[import-untyped] # it has no types
from stompest.protocol import StompSpec  # type: ignore[import-untyped] # it has no types
from stompest.sync import Stomp  # type: ignore[import-untyped] # it has no types

from tests.interop.bodies import DEADLINE, EVERY_OCTET, HEADERS, MEBIBYTE

every_version = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
since_1_1 = pytest.mark.parametrize("version", ["1.1", "1.2"])


@contextmanager
def _connected(port: int, version: str, **options: Any) -> Iterator[Any]:
    client = Stomp(StompConfig(f"tcp://127.0.0.1:{port}", version=version))
    client.connect(versions=[version], connectedTimeout=DEADLINE, **options)
    try:
        yield client
    finally:
        client.close()


def _next(client: Any) -> Any:
    assert client.canRead(DEADLINE), "no frame came"
    return client.receiveFrame()


def _subscribe(client: Any, queue: str, ack: str = "auto") -> None:
    client.subscribe(queue, {StompSpec.ID_HEADER: "1", StompSpec.ACK_HEADER: ack})


@every_version
def test_stompest_connects(broker_port: int, version: str) -> None:
    with _connected(broker_port, version) as client:
        assert client.session.version == version
        assert client.session.id


@every_version
def test_stompest_receives_auto_messages_in_order(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as client:
        _subscribe(client, queue)
        for number in range(100):
            client.send(queue, str(number).encode())

        assert [int(_next(client).body) for _ in range(100)] == list(range(100))


@every_version
def test_stompest_acks_cumulatively(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as client:
        _subscribe(client, queue, "client")
        for number in range(3):
            client.send(queue, str(number).encode())
        taken = [_next(client) for _ in range(3)]
        client.ack(taken[1])
    with _connected(broker_port, version) as client:
        _subscribe(client, queue)

        assert _next(client).body == b"2"


@since_1_1
def test_stompest_nacks_and_acks_individually(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as client:
        _subscribe(client, queue, "client-individual")
        client.send(queue, b"again")
        client.nack(_next(client))
        second = _next(client)
        client.ack(second)

        assert second.body == b"again"
        assert second.headers["redelivered"] == "true"


@every_version
def test_stompest_commits_and_aborts(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as client:
        with suppress(LookupError), client.transaction() as transaction:
            client.send(queue, b"never", {StompSpec.TRANSACTION_HEADER: transaction})
            raise LookupError
        with client.transaction() as transaction:
            client.send(queue, b"first", {StompSpec.TRANSACTION_HEADER: transaction})
            client.send(queue, b"second", {StompSpec.TRANSACTION_HEADER: transaction})
        client.send(queue, b"third")
        _subscribe(client, queue)

        assert [_next(client).body for _ in range(3)] == [b"first", b"second", b"third"]


@every_version
def test_stompest_finds_the_receipts_of_a_transaction_plain(
    broker_port: int, queue: str, version: str
) -> None:
    with _connected(broker_port, version) as client:
        transaction = {StompSpec.TRANSACTION_HEADER: "t"}
        client.begin("t", receipt="begun")
        client.send(queue, b"x", transaction)
        client.commit("t", receipt="committed")
        client.begin("t")
        client.abort("t", receipt="aborted")

        # stompest's own tests compare whole frames.
        told = [_next(client) for _ in range(3)]
        assert [(frame.command, frame.headers) for frame in told] == [
            ("RECEIPT", {"receipt-id": name}) for name in ("begun", "committed", "aborted")
        ]


@every_version
@pytest.mark.parametrize("body", [EVERY_OCTET, MEBIBYTE], ids=["every octet", "1 MiB"])
def test_stompest_bodies_arrive_unchanged(broker_port: int, queue: str, version: str, body: bytes) -> None:
    with _connected(broker_port, version) as client:
        _subscribe(client, queue)
        # stompest leaves the length to its caller.
        client.send(queue, body, {StompSpec.CONTENT_LENGTH_HEADER: str(len(body))})

        assert _next(client).body == body


@since_1_1
def test_stompest_headers_arrive_unchanged(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as client:
        _subscribe(client, queue)
        client.send(queue, b"", HEADERS)
        received = _next(client).headers

        assert {name: received[name] for name in HEADERS} == HEADERS


@every_version
def test_stompest_receives_its_receipt(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as client:
        client.send(queue, b"", receipt="r1")
        receipt = _next(client)

        assert receipt.command == "RECEIPT"
        assert receipt.headers["receipt-id"] == "r1"


@every_version
def test_stompest_is_told_what_was_wrong(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as client:
        client.subscribe(queue, {StompSpec.ID_HEADER: "1", "selector": "colour = 'red'"}, receipt="r1")
        error = _next(client)

        assert error.command == "ERROR"
        assert "selector" in error.headers["message"]
        assert error.headers["receipt-id"] == "r1"


@every_version
def test_stompest_leaves_gracefully(broker_port: int, version: str) -> None:
    with _connected(broker_port, version) as client:
        client.disconnect(receipt="bye")

        assert _next(client).headers["receipt-id"] == "bye"


def test_idle_stompest_lives_by_its_heart_beats(broker_port: int, queue: str) -> None:
    with _connected(broker_port, "1.2", heartBeats=(1000, 1000)) as client:
        begun = time.time()
        # stompest beats only when told to. The broker takes 2 s of silence for death.
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            assert not client.canRead(0.5)
            client.beat()
        client.send(queue, b"alive", receipt="r1")

        assert _next(client).headers["receipt-id"] == "r1"
        assert client.lastReceived > begun
