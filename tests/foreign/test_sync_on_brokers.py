"""The client without `await` over RabbitMQ and ActiveMQ: the same tests, other brokers."""

from __future__ import annotations

import pytest

from tests.foreign.suites import suite_of
from tests.rpc.client import test_sync

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]

_ONLY_OURS = {
    "test_errors_are_those_of_the_async_client": "it asks for nobody, which lasts its whole time elsewhere",
    "test_options_are_those_of_the_async_client": "it asks for nobody, which lasts its whole time elsewhere",
    "test_subscription_gives_its_snapshot_and_what_changes": "last values, and a snapshot that never ends",
    "test_durable_subscription_is_paused_and_removed": "last values",
    "test_instances_are_seen_to_come_and_go": "last values",
    "test_last_value_is_followed_until_the_reader_leaves": "last values",
}

globals().update(suite_of(test_sync, without=_ONLY_OURS))


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
