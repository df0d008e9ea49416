"""`nebula broker` as a child process, for clients that are not ours."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from tests.cli.programs import running


@pytest.fixture(scope="session")
def broker_port() -> Iterator[int]:
    """The loopback port of a broker that all tests here share."""
    with running("broker", "--port", "0", "--store", "memory") as (_, listening):
        port = urlsplit(listening["url"]).port
        assert port is not None
        yield port


@pytest.fixture
def queue() -> str:
    """The destination of a queue that no other test uses."""
    return f"/queue/test-{uuid4().hex}"
