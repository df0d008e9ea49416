"""stomp.py, in the three versions that it speaks, against `nebula broker`."""

from __future__ import annotations

import queue as queues
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

import pytest
import stomp  # type: ignore[import-untyped] # it has no types

from tests.interop.bodies import DEADLINE, EVERY_OCTET, HEADER_TEXT, MEBIBYTE
from tests.interop.conftest import TlsBroker

_CONNECTIONS = {
    "1.0": stomp.StompConnection10,
    "1.1": stomp.StompConnection11,
    "1.2": stomp.StompConnection12,
}
every_version = pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
since_1_1 = pytest.mark.parametrize("version", ["1.1", "1.2"])


class _Peer(stomp.ConnectionListener):  # type: ignore[misc] # it has no types
    """A connection and what it heard."""

    def __init__(self, connection: Any, version: str) -> None:
        self.connection = connection
        self.told = False
        self._version = version
        self.connected: queues.Queue[Any] = queues.Queue()
        self.messages: queues.Queue[Any] = queues.Queue()
        self.receipts: queues.Queue[Any] = queues.Queue()
        self.errors: queues.Queue[Any] = queues.Queue()
        self.beats: queues.Queue[None] = queues.Queue()

    def on_connected(self, frame: Any) -> None:
        self.connected.put(frame)

    def on_message(self, frame: Any) -> None:
        self.messages.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame)

    def on_error(self, frame: Any) -> None:
        self.told = True
        self.errors.put(frame)

    def on_heartbeat(self) -> None:
        self.beats.put(None)

    def take(self, count: int = 1) -> list[Any]:
        """The next messages; fails where they do not come."""
        return [self.messages.get(timeout=DEADLINE) for _ in range(count)]

    def settle(self, method: Callable[..., None], message: Any, **options: object) -> None:
        """ACK or NACK in the form of the version."""
        if self._version == "1.2":
            method(message.headers["ack"], **options)
        elif self._version == "1.1":
            method(message.headers["message-id"], message.headers["subscription"], **options)
        else:
            method(message.headers["message-id"], **options)

    def ack(self, message: Any, **options: object) -> None:
        self.settle(self.connection.ack, message, **options)

    def nack(self, message: Any, **options: object) -> None:
        self.settle(self.connection.nack, message, **options)


def _wait_for_connection(transport: Any) -> None:
    """As stomp.py's own wait, but it ends.

    stomp.py does not always notice that the broker has closed a connection before CONNECTED: if sending its
    CONNECT fails, its reading thread waits for ever.
    """
    ends_at = monotonic() + DEADLINE
    while not transport.is_connected():
        if not transport.running or transport.connection_error or monotonic() > ends_at:
            raise stomp.exception.ConnectFailedException
        sleep(0.01)


@contextmanager
def _connected(
    port: int, version: str, *, prepare: Callable[[Any], None] = lambda connection: None, **options: Any
) -> Iterator[_Peer]:
    connection = _CONNECTIONS[version]([("127.0.0.1", port)], auto_decode=False, **options)
    prepare(connection)
    peer = _Peer(connection, version)
    connection.set_listener("test", peer)
    connection.connect(wait=False)
    _wait_for_connection(connection.transport)
    try:
        yield peer
    finally:
        # After an ERROR the broker has closed the connection: there is no peer to send DISCONNECT to.
        if not peer.told:
            connection.disconnect("bye")
            peer.receipts.get(timeout=DEADLINE)


def _drain(port: int, queue: str, version: str) -> list[str]:
    """The bodies of what a queue holds: everything before a last message of our own."""
    with _connected(port, version) as peer:
        peer.connection.send(queue, "end")
        peer.connection.subscribe(queue, id="1")
        return list(iter(lambda: peer.take()[0].body.decode(), "end"))


@every_version
def test_stomp_py_connects(broker_port: int, version: str) -> None:
    with _connected(broker_port, version) as peer:
        headers = peer.connected.get(timeout=DEADLINE).headers

    assert headers["session"]
    # STOMP 1.0 knows no such header, and a client of it sends no `accept-version`.
    assert headers.get("version") == (None if version == "1.0" else version)


@every_version
def test_stomp_py_receives_auto_messages_in_order(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1")
        for number in range(100):
            peer.connection.send(queue, str(number))
        messages = peer.take(100)

    assert [int(message.body) for message in messages] == list(range(100))


@every_version
def test_stomp_py_acks_cumulatively(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1", ack="client")
        for number in range(3):
            peer.connection.send(queue, str(number))
        peer.ack(peer.take(3)[1])
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1")
        (left,) = peer.take()

    assert left.body == b"2"
    assert left.headers["redelivered"] == "true"


@since_1_1
def test_stomp_py_acks_individually(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1", ack="client-individual")
        for number in range(3):
            peer.connection.send(queue, str(number))
        peer.ack(peer.take(3)[1])
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1")
        left = peer.take(2)

    assert [message.body for message in left] == [b"0", b"2"]


@since_1_1
def test_stomp_py_gets_a_nacked_message_again(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1", ack="client-individual")
        peer.connection.send(queue, "again")
        peer.nack(peer.take()[0])
        (second,) = peer.take()
        peer.ack(second)

    assert second.body == b"again"
    assert second.headers["redelivered"] == "true"


@since_1_1
def test_stomp_py_finds_what_it_rejected_in_the_dead_letter_queue(
    broker_port: int, queue: str, version: str
) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1", ack="client-individual")
        peer.connection.send(queue, "rejected")
        peer.nack(peer.take()[0], requeue="false")
        peer.connection.subscribe("/queue/DLQ", id="2", ack="client-individual")
        (dead,) = peer.take()
        peer.ack(dead)

    assert dead.body == b"rejected"
    assert (dead.headers["dead-letter-from"], dead.headers["dead-letter-reason"]) == (queue, "rejected")


@every_version
def test_stomp_py_writes_flags_as_python_does(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.send(queue, "kept", persistent=True, receipt="r1")
        verdict = peer.receipts.get(timeout=DEADLINE).headers["disposition"]
        peer.connection.subscribe(queue, id="1", exclusive=True)

        assert verdict == "accepted"
        assert peer.take()[0].body == b"kept"


@since_1_1
def test_stomp_py_rejects_with_a_flag_as_python_writes_it(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1", ack="client-individual")
        peer.connection.send(queue, "rejected")
        peer.nack(peer.take()[0], requeue=False)
        peer.connection.subscribe("/queue/DLQ", id="2", ack="client-individual")
        (dead,) = peer.take()
        peer.ack(dead)

    assert (dead.headers["dead-letter-from"], dead.headers["dead-letter-reason"]) == (queue, "rejected")


@every_version
def test_stomp_py_commits_what_it_sent_and_acked(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1", ack="client")
        peer.connection.send(queue, "acked")
        (message,) = peer.take()
        transaction = peer.connection.begin()
        peer.ack(message, transaction=transaction)
        peer.connection.send(queue, "first", transaction=transaction)
        peer.connection.send(queue, "second", transaction=transaction)
        peer.connection.commit(transaction)

    assert _drain(broker_port, queue, version) == ["first", "second"]


@every_version
@pytest.mark.parametrize("aborts", [True, False], ids=["aborted", "left open"])
def test_transaction_that_stomp_py_does_not_commit_never_was(
    broker_port: int, queue: str, version: str, aborts: bool
) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1", ack="client")
        peer.connection.send(queue, "acked")
        (message,) = peer.take()
        transaction = peer.connection.begin()
        peer.ack(message, transaction=transaction)
        peer.connection.send(queue, "never", transaction=transaction)
        if aborts:
            peer.connection.abort(transaction)

    assert _drain(broker_port, queue, version) == ["acked"]


@every_version
@pytest.mark.parametrize("body", [b"", EVERY_OCTET, MEBIBYTE], ids=["empty", "every octet", "1 MiB"])
def test_stomp_py_bodies_arrive_unchanged(broker_port: int, queue: str, version: str, body: bytes) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1")
        peer.connection.send(queue, body, content_type="application/octet-stream")

        # stomp.py's name for no body.
        assert (peer.take()[0].body or b"") == body


@since_1_1
def test_stomp_py_headers_arrive_unchanged(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.subscribe(queue, id="1")
        # stomp.py escapes values, but no names.
        peer.connection.send(queue, "", headers={"grüße": HEADER_TEXT})

        assert peer.take()[0].headers["grüße"] == HEADER_TEXT


@every_version
def test_stomp_py_receives_its_receipts_in_order(broker_port: int, queue: str, version: str) -> None:
    with _connected(broker_port, version) as peer:
        for number in range(50):
            peer.connection.send(queue, "", receipt=f"r{number}")
        answered = [peer.receipts.get(timeout=DEADLINE).headers["receipt-id"] for _ in range(50)]

    assert answered == [f"r{number}" for number in range(50)]


@every_version
def test_stomp_py_is_told_what_was_wrong(broker_port: int, version: str) -> None:
    with _connected(broker_port, version) as peer:
        peer.connection.send_frame("SUBSCRIBE", {"id": "1", "receipt": "r1"})
        error = peer.errors.get(timeout=DEADLINE)

    assert "destination" in error.headers["message"]
    assert error.headers["receipt-id"] == "r1"


@every_version
def test_stomp_py_is_known_by_its_certificate(tls_broker: TlsBroker, queue: str, version: str) -> None:
    def use_tls(connection: Any) -> None:
        connection.set_ssl(
            for_hosts=[("127.0.0.1", tls_broker.port)],
            ca_certs=str(tls_broker.ca),
            cert_file=str(tls_broker.client_cert),
            key_file=str(tls_broker.client_key),
        )

    with _connected(tls_broker.port, version, prepare=use_tls) as peer:
        peer.connection.subscribe(queue, id="1")
        peer.connection.send(queue, MEBIBYTE)
        (message,) = peer.take()

    assert message.body == MEBIBYTE
    assert message.headers["sender"] == tls_broker.client_fingerprint


@every_version
def test_stomp_py_without_a_certificate_is_kept_out(tls_broker: TlsBroker, version: str) -> None:
    def use_tls(connection: Any) -> None:
        connection.set_ssl(for_hosts=[("127.0.0.1", tls_broker.port)], ca_certs=str(tls_broker.ca))

    refused = pytest.raises(stomp.exception.StompException)
    with refused, _connected(tls_broker.port, version, prepare=use_tls, reconnect_attempts_max=1):
        pass


def test_idle_stomp_py_connections_live_by_their_heart_beats(broker_port: int, queue: str) -> None:
    with (
        _connected(broker_port, "1.1", heartbeats=(1000, 1000)) as older,
        _connected(broker_port, "1.2", heartbeats=(1000, 1000)) as newer,
    ):
        for peer in (older, newer):
            # They come twice a second, and the broker takes 2 s of our silence for death.
            for _ in range(6):
                peer.beats.get(timeout=DEADLINE)
            peer.connection.send(queue, "alive", receipt="r1")

            assert peer.receipts.get(timeout=DEADLINE).headers["receipt-id"] == "r1"
