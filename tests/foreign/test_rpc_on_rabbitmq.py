"""The RPC suite against RabbitMQ: the same tests, another broker."""

from __future__ import annotations

import pytest

from tests.foreign.suites import suite_of
from tests.rpc import test_client, test_responder, test_rules

# The first one waits for RabbitMQ to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

_SUITES = (test_client, test_responder, test_rules)

_NO_CONSUMERS = "RabbitMQ's RECEIPTs do not say whether anybody listens"
_NO_SENDER = "RabbitMQ does not say who sent a message"
_ONLY_OURS = {
    "test_call_fails_at_once_when_nobody_listens": _NO_CONSUMERS,
    "test_request_that_nobody_took_is_not_kept": _NO_CONSUMERS,
    "test_stopped_service_finishes_what_it_began": _NO_CONSUMERS,
    "test_send_that_the_broker_refuses_is_rejected": "RabbitMQ accepts what has nowhere to go, and drops it",
    "test_handler_may_see_its_request": _NO_SENDER,
    "test_verb_is_open_to_the_principals_on_its_list_only": _NO_SENDER,
    "test_request_delivered_too_often_is_not_run_again": "RabbitMQ does not count deliveries",
}

for _suite in _SUITES:
    globals().update(suite_of(_suite, without=_ONLY_OURS))


def test_every_exception_is_a_test_of_the_suite() -> None:
    unknown = [name for name in _ONLY_OURS if not any(hasattr(suite, name) for suite in _SUITES)]

    assert not unknown
