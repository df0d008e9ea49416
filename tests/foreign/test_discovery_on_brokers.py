"""Who is there, and asking them all, over RabbitMQ and ActiveMQ: by asking, instead of last values."""

from __future__ import annotations

import pytest

from nebula.rpc.discovery import presence
from tests.foreign.suites import suite_of
from tests.rpc.discovery import test_presence, test_scatter

# The first one waits for the broker to be installed.
pytestmark = [pytest.mark.anyio, pytest.mark.foreign, pytest.mark.timeout(300)]

# Nobody can speak in another's name where there are no last values.
_ONLY_OURS = {
    "test_instance_that_left_is_asked_for_nothing_while_it_may_be_answering": "it forges last values",
    "test_impossible_entry_of_an_instance_is_ignored": "it forges a last value",
    "test_instances_are_up_to_date_and_little_is_kept_without_a_reader_of_changes": "it forges last values",
    "test_instance_that_went_and_came_back_between_two_looks_has_gone_and_is_there": "it forges last values",
}

globals().update(suite_of(test_presence, without=_ONLY_OURS) | suite_of(test_scatter, without=_ONLY_OURS))


@pytest.fixture(autouse=True)
def all_are_asked_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes is seen by asking again, every two seconds otherwise."""
    monkeypatch.setattr(presence, "_ASK_EVERY", 0.1)


@pytest.fixture(scope="session", params=["rabbitmq", "activemq"])
def broker_url(request: pytest.FixtureRequest) -> str:
    """A foreign broker, in place of ours."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url
