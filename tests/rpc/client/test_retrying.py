"""Retries: which failures, how often, and after which delays; without the loop's clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nebula.errors import (
    CallTimeout,
    CircuitOpen,
    ConnectionLost,
    NebulaError,
    NoResponder,
    Rejected,
    RemoteError,
    ServerError,
)
from nebula.rpc.client.retry import PLAIN, CallRules, ClientClosed, persist
from nebula.rpc.contract.retry import Retry

pytestmark = pytest.mark.anyio


class Trial:
    """Work that fails with these errors in turn, and a clock that only sleeping moves."""

    def __init__(self, *errors: NebulaError) -> None:
        self.errors = list(errors)
        self.left: list[float] = []
        self.slept: list[float] = []
        self.time = 100.0

    async def attempt(self, seconds: float) -> str:
        self.left.append(seconds)
        if self.errors:
            raise self.errors.pop(0)
        return "done"

    async def sleep(self, seconds: float, /) -> None:
        self.slept.append(seconds)
        self.time += seconds

    async def run(self, rules: CallRules, seconds: float = 30.0) -> str:
        return await persist(self.attempt, rules, seconds, sleep=self.sleep, now=lambda: self.time)


BUSY = RemoteError("busy", "later", retryable=True)
BROKEN = RemoteError("engine-lost", "died", retryable=True)
FULL = Rejected("rejected-full", "/queue/shop")
NOBODY = NoResponder("rejected-no-consumer", "/queue/shop")
LOST = ConnectionLost("gone")
ENDED = ServerError("stopping")

TWICE = CallRules(Retry(attempts=2), is_idempotent=True)
KEYED = CallRules(Retry(attempts=2), idempotency_key="k")
ONCE = CallRules(Retry(attempts=2))


def most(_least: float, most: float) -> float:
    return most


def least(least: float, _most: float) -> float:
    return least


@pytest.mark.parametrize(("uniform", "share"), [(most, 1.5), (least, 1.0)])
def test_delay_doubles_to_the_longest_and_is_jittered_to_half_of_it_more(
    uniform: Callable[[float, float], float], share: float
) -> None:
    retry = Retry(first=0.1, longest=1.0)

    assert [retry.delay(failures, uniform) for failures in (1, 2, 3, 4, 5, 5000)] == [
        pytest.approx(seconds * share) for seconds in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0)
    ]


@pytest.mark.parametrize("options", [{"attempts": 0}, {"first": -1.0}, {"first": 2.0, "longest": 1.0}])
def test_policy_of_no_sense_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="attempts are 1 or more"):
        Retry(**options)  # type: ignore[arg-type]  # a table of single fields


async def test_plain_call_is_tried_once() -> None:
    for error in (BUSY, FULL, NOBODY, LOST, ENDED):
        trial = Trial(error)
        with pytest.raises(type(error)):
            await trial.run(PLAIN)

        assert (len(trial.left), trial.slept) == (1, [])


@pytest.mark.parametrize("rules", [TWICE, KEYED])
@pytest.mark.parametrize("error", [BUSY, BROKEN, FULL, NOBODY, LOST, ENDED])
async def test_call_that_may_run_twice_is_tried_again_after_what_may_pass(
    rules: CallRules, error: NebulaError
) -> None:
    assert await Trial(error).run(rules) == "done"


@pytest.mark.parametrize("error", [BUSY, FULL, NOBODY])
async def test_other_call_is_tried_again_where_nothing_was_begun(error: NebulaError) -> None:
    assert await Trial(error).run(ONCE) == "done"


@pytest.mark.parametrize("error", [BROKEN, LOST, ENDED])
async def test_other_call_is_not_tried_again_where_it_may_have_been_run(error: NebulaError) -> None:
    with pytest.raises(type(error)):
        await Trial(error).run(ONCE)


@pytest.mark.parametrize(
    "error",
    [
        CallTimeout("late"),
        ClientClosed("left"),
        CircuitOpen("/queue/shop", 5, 1.0),
        Rejected("rejected-unauthorised", "/queue/shop"),
        RemoteError("not-allowed", "no"),
    ],
)
async def test_permanent_failure_is_not_tried_again(error: NebulaError) -> None:
    with pytest.raises(type(error)):
        await Trial(error).run(TWICE)


async def test_number_of_attempts_is_kept_and_the_last_error_raised() -> None:
    trial = Trial(BUSY, NOBODY, FULL, LOST)

    with pytest.raises(Rejected, match="rejected-full"):
        await trial.run(CallRules(Retry(attempts=3), is_idempotent=True))

    assert len(trial.left) == 3


async def test_all_attempts_and_delays_share_the_time_of_the_call() -> None:
    trial = Trial(*[BUSY] * 100)

    with pytest.raises(RemoteError):
        await trial.run(CallRules(Retry(attempts=100, first=1.0, longest=1.0)), seconds=5.0)

    assert sum(trial.slept) < 5.0
    assert trial.left == [pytest.approx(5.0 - sum(trial.slept[:count])) for count in range(len(trial.left))]
    assert trial.left[-1] < 1.5


async def test_lost_call_that_may_run_twice_is_sent_again_without_a_policy_and_not_for_ever() -> None:
    trial = Trial(LOST, ENDED, LOST)

    with pytest.raises(ConnectionLost):
        await trial.run(CallRules(idempotency_key="k"))

    assert (len(trial.left), trial.slept) == (3, [0.0, 0.0])


async def test_responder_is_waited_for_as_long_as_the_call_says() -> None:
    trial = Trial(*[NOBODY] * 1000)

    with pytest.raises(NoResponder):
        await trial.run(CallRules(wait_for_responder=10.0))

    assert len(trial.left) > 20
    assert sum(trial.slept[:-1]) < 10.0 <= sum(trial.slept)


async def test_responder_that_comes_in_time_is_called() -> None:
    assert await Trial(*[NOBODY] * 10).run(CallRules(wait_for_responder=30.0)) == "done"


async def test_looking_for_a_responder_is_no_attempt() -> None:
    trial = Trial(*[NOBODY] * 10, BUSY)

    assert await trial.run(CallRules(Retry(attempts=2), wait_for_responder=30.0)) == "done"
