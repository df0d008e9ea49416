"""Subscriptions that read, over RabbitMQ and ActiveMQ: to topics, for these have no last values."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.foreign.suites import suites_of
from tests.rpc.client import test_values

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

globals().update(suites_of(test_values))


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
def url(broker_url: str) -> str:
    """It knows no schemas."""
    return broker_url


@pytest.fixture
def destination() -> str:
    """What each message that is published now is read from."""
    return f"/topic/reading-{uuid4().hex}"
