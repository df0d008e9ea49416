"""Streams over RabbitMQ and ActiveMQ: the same tests, other brokers. Over ours: `tests/rpc/streams`."""

from __future__ import annotations

import pytest

from tests.foreign.suites import suite_of
from tests.rpc.streams import test_leaving, test_streaming
from tests.rpc.streams.conftest import fresh_watch, prices

__all__ = ["fresh_watch", "prices"]  # fixtures of the suite

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

_ONLY_OURS = {"test_nobody_to_ask_is_told_at_once": "their RECEIPTs do not say whether anybody listens"}

globals().update(suite_of(test_leaving, without={}) | suite_of(test_streaming, without=_ONLY_OURS))


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def test_what_is_left_out_is_a_test_of_the_suite() -> None:
    assert [name for name in _ONLY_OURS if not hasattr(test_streaming, name)] == []
