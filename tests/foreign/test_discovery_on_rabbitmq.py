"""Who is there, and asking them all, against RabbitMQ: the same tests, by asking instead of last values."""

from __future__ import annotations

import pytest

from tests.foreign.suites import suite_of
from tests.rpc.discovery import test_presence, test_scatter

# The first one waits for RabbitMQ to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

_SUITES = (test_presence, test_scatter)

_NO_LAST_VALUES = "RabbitMQ keeps no last values: nobody can be told there in another's name"
_ONLY_OURS = {
    "test_service_whose_connection_is_cut_is_gone": _NO_LAST_VALUES,
    "test_what_no_instance_would_say_of_itself_is_nobody": _NO_LAST_VALUES,
    "test_instance_without_a_queue_of_its_own_is_missing": _NO_LAST_VALUES,
    "test_instance_that_is_known_but_gone_is_missing_at_once": _NO_LAST_VALUES,
    "test_instance_that_dies_is_not_waited_for": "RabbitMQ's RECEIPTs do not say whether anybody listens",
}

for _suite in _SUITES:
    globals().update(suite_of(_suite, without=_ONLY_OURS))


def test_every_exception_is_a_test_of_the_suite() -> None:
    unknown = [name for name in _ONLY_OURS if not any(hasattr(suite, name) for suite in _SUITES)]

    assert not unknown
