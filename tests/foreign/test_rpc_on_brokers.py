"""The RPC suite against RabbitMQ and ActiveMQ: the same tests, other brokers. Over ours it is `tests/rpc`."""

from __future__ import annotations

import pytest

from tests.foreign.suites import suite_of, suites_of
from tests.rpc.client import test_calls_given_up, test_client, test_lost_connections
from tests.rpc.contract import test_types
from tests.rpc.idempotency import test_replays
from tests.rpc.service import test_overload, test_responder, test_rules, test_stopping, test_subscribers
from tests.rpc.wire import test_avro_bodies, test_cancel, test_deadlines

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.slow, pytest.mark.timeout(300)]

_NOTHING_NEW = {"test_value_comes_back_through_a_stub": "a stub sends what calls by function send"}
_TOO_LONG = {
    "test_messages_of_a_queue_go_to_the_other_instance_while_one_stops": "it fails when the grace is over"
}

globals().update(
    suites_of(
        test_client,
        test_responder,
        test_rules,
        test_deadlines,
        test_cancel,
        test_calls_given_up,
        test_overload,
        test_replays,
        test_avro_bodies,
        test_lost_connections,
        test_subscribers,
    )
    | suite_of(test_stopping, without=_TOO_LONG)
    | suite_of(test_types, without=_NOTHING_NEW)
)


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
