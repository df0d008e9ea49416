"""`nebula broker` as a child process, for clients that are not ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from nebula.broker.operations.certificates import make_authority
from tests.cli.programs import running


@dataclass(frozen=True, slots=True)
class TlsBroker:
    """A broker that takes TLS with client certificates alone, and the certificate of a client."""

    port: int
    ca: Path
    client_cert: Path
    client_key: Path
    client_fingerprint: str


_TLS_CONFIG = """\
[[listener]]
port = 0
tls_cert = "{server_cert}"
tls_key = "{server_key}"
client_ca = "{ca}"
"""


@pytest.fixture(scope="session")
def broker_port() -> Iterator[int]:
    """The loopback port of a broker that all tests here share."""
    with running("broker", "--port", "0", "--store", "memory") as (_, listening):
        port = urlsplit(listening["url"]).port
        assert port is not None
        yield port


@pytest.fixture(scope="session")
def tls_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """A broker with certificates that were made for this run."""
    folder = tmp_path_factory.mktemp("tls")
    authority = make_authority("Tests", 1)
    client = authority.issue_client("judge", 1)
    ca, _ = authority.certificate.write(folder, "ca")
    server_cert, server_key = authority.issue_server(["127.0.0.1"], 1).write(folder, "server")
    client_cert, client_key = client.write(folder, "client")
    config = folder / "nebula.toml"
    config.write_text(_TLS_CONFIG.format(server_cert=server_cert, server_key=server_key, ca=ca))
    with running("broker", "--config", str(config), "--store", "memory") as (_, listening):
        port = urlsplit(listening["url"]).port
        assert port is not None
        yield TlsBroker(port, ca, client_cert, client_key, client.fingerprint)


@pytest.fixture
def queue() -> str:
    """The destination of a queue that no other test uses."""
    return f"/queue/test-{uuid4().hex}"
