"""A whole session in each dialect, and in a fourth one: another version of STOMP would be one row."""

from __future__ import annotations

import dataclasses

import pytest

from nebula.broker.core.profiles import STANDARD
from nebula.stomp import client_protocol
from nebula.stomp.client_protocol import ClientProtocol
from nebula.stomp.dialects import Dialect
from nebula.stomp.frames import Frame
from tests.broker.harness import BrokerHarness, Peer
from tests.stomp import INVENTED

# A fourth version. All that it takes is this row: no other code names versions.
FOURTH = dataclasses.replace(INVENTED, ack_on_message=True)
PROFILE = dataclasses.replace(STANDARD, dialects=(*STANDARD.dialects, FOURTH))

NOTE = "a:b\\c\nd\re\tf"


class Both:
    """A client and the broker's end of its connection; bytes are all that passes between them."""

    def __init__(self, broker: BrokerHarness, dialect: Dialect) -> None:
        self.client = ClientProtocol(versions=[dialect.version])
        self._peer: Peer = broker.accept(profile=PROFILE)
        self._read_bytes = 0

    def exchange(self, data: bytes) -> list[Frame]:
        """Hand the client's bytes to the broker, and its reply to the client."""
        self._peer.feed(data)
        reply = bytes(self._peer.octets[self._read_bytes :])
        self._read_bytes += len(reply)
        frames = self.client.receive(reply, 0.0)
        assert self.client.failure is None
        return frames


@pytest.mark.parametrize("dialect", PROFILE.dialects, ids=lambda dialect: dialect.version)
def test_session_works_in_each_dialect_also_in_one_that_is_only_a_row(
    broker: BrokerHarness, dialect: Dialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_protocol, "DIALECTS", {each.version: each for each in PROFILE.dialects})
    both = Both(broker, dialect)
    client = both.client

    (connected,) = both.exchange(client.connect(host="h"))
    assert client.dialect is dialect
    assert connected.headers.get("version") == (dialect.version if dialect.announces_version else None)

    assert both.exchange(client.subscribe("s:1", "/queue/a", "client-individual", {})) == []
    (message,) = both.exchange(client.send("/queue/a", b"x", {"note": NOTE}))
    assert message.headers["note"] == dialect.unescape(dialect.escape(NOTE))
    assert ("ack" in message.headers) is dialect.ack_on_message

    if dialect.has_nack:
        (message,) = both.exchange(client.nack(message.headers, {}))
        assert message.headers["redelivered"] == "true"
    (receipt,) = both.exchange(client.ack(message.headers, receipt="r:1"))
    assert receipt == Frame("RECEIPT", {"receipt-id": "r:1"})  # without `result`: it was known

    (receipt,) = both.exchange(client.disconnect("r:2"))
    assert receipt.headers["receipt-id"] == "r:2"
