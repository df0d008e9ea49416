"""Streams over RabbitMQ and ActiveMQ: the same tests, other brokers. Over ours: `tests/rpc/streams`."""

from __future__ import annotations

import pytest

from tests.foreign.suites import suites_of
from tests.rpc.streams import test_leaving, test_streaming
from tests.rpc.streams.conftest import fresh_watch, prices

__all__ = ["fresh_watch", "prices"]  # fixtures of the suite

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

globals().update(suites_of(test_leaving, test_streaming))


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
