"""Transactions: SENDs, ACKs and NACKs that take effect together or not at all (D.24)."""

from __future__ import annotations

from collections.abc import Mapping

from nebula.errors import LocalProtocolError, Rejected
from nebula.headers import ACCEPTED
from nebula.stomp.client.connection import ClientConnection
from nebula.stomp.client.messages import Message


class Transaction:
    """An open transaction; made by `StompClient.transaction`, which ends it.

    The broker holds everything until COMMIT. If the connection ends first, nothing of it takes effect
    (A.11.1).

    Attributes:
        id: unique on this connection.
    """

    def __init__(self, connection: ClientConnection, name: str) -> None:
        self.id = name
        self._connection = connection
        self._is_open = True
        connection.check_alive()
        connection.write(connection.protocol.begin(name))

    async def send(
        self, destination: str, body: bytes | str = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        """SEND at COMMIT. Waits only while the link is full."""
        self._check_open()
        connection = self._connection
        data, full_headers = encode_text(body, headers)
        connection.check_alive()
        connection.write(connection.protocol.send(destination, data, full_headers, transaction=self.id))
        await connection.drain()

    def ack(self, message: Message) -> None:
        """ACK at COMMIT. The message must not be acked outside of the transaction as well."""
        self._check_open()
        self._connection.ack(message, transaction=self.id)

    def nack(self, message: Message, **headers: str) -> None:
        """NACK at COMMIT; `headers` as for `Message.nack`."""
        self._check_open()
        self._connection.nack(message, headers, transaction=self.id)

    async def commit(self, timeout: float | None) -> None:
        """COMMIT and wait for its RECEIPT; called once, by the client."""
        self._is_open = False
        connection = self._connection
        connection.check_alive()
        receipt = connection.next_id()
        reply = await connection.ask(receipt, connection.protocol.commit(self.id, receipt=receipt), timeout)
        if reply.verdict != ACCEPTED:
            # D.24: nothing of it took effect.
            raise Rejected(reply.verdict, f"transaction {self.id}")

    def abort(self) -> None:
        """ABORT, unless the connection has ended; called once, by the client."""
        self._is_open = False
        # Not while another task disconnects either: nothing may follow DISCONNECT, which aborts it as well.
        if self._connection.protocol.is_connected:
            self._connection.write(self._connection.protocol.abort(self.id))

    def _check_open(self) -> None:
        if not self._is_open:
            raise LocalProtocolError(f"transaction {self.id} has ended")


def encode_text(body: bytes | str, headers: Mapping[str, str] | None) -> tuple[bytes, Mapping[str, str]]:
    """A body as bytes, with headers. A text gets a content type, unless the headers have one."""
    if isinstance(body, bytes):
        return body, headers or {}
    # STOMP 1.1, "content-type": `text/*` is UTF-8, and a body without a type is a blob.
    return body.encode(), {"content-type": "text/plain", **(headers or {})}
