"""Circuit breaker: closed, open, half-open; on a clock that the test moves."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

from nebula.errors import CallTimeout, CircuitOpen, NebulaError, NoResponder, RemoteError
from nebula.rpc.client.breaker import Breaker, Circuits
from nebula.rpc.client.client import Client
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.service.responder import Responder
from tests.rpc.conftest import Serving
from tests.rpc.scripted import answer_to, brokers, request, welcome
from tests.stomp.peer import Peer, receipt_of

NOBODY = NoResponder("rejected-no-consumer", "shop")


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def circuits(clock: Clock) -> Circuits:
    return Circuits(Breaker(failures=3, seconds=10.0), clock)


def fail(circuits: Circuits, error: BaseException = NOBODY, target: str = "shop") -> None:
    with suppress(type(error)), circuits.through(target):
        raise error


def succeed(circuits: Circuits, target: str = "shop") -> None:
    with circuits.through(target):
        pass


def is_open(circuits: Circuits, target: str = "shop") -> bool:
    try:
        succeed(circuits, target)
    except CircuitOpen:
        return True
    return False


def test_row_of_failures_opens_it(circuits: Circuits) -> None:
    for _ in range(3):
        fail(circuits)

    with pytest.raises(CircuitOpen, match="shop failed 3 times: the circuit is open for 10") as caught:
        succeed(circuits)
    assert (caught.value.destination, caught.value.failures, caught.value.retry_after) == ("shop", 3, 10.0)


def test_success_between_them_resets_the_count(circuits: Circuits) -> None:
    for _ in range(5):
        fail(circuits)
        fail(circuits)
        succeed(circuits)

    assert not is_open(circuits)


def test_each_target_has_a_circuit_of_its_own(circuits: Circuits) -> None:
    for _ in range(3):
        fail(circuits)

    assert not is_open(circuits, "other")


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (CallTimeout("late"), True),
        (RemoteError("busy", "later", retryable=True), True),
        (RemoteError("not-found", "no"), False),
        (UnexpectedReply("a text, no number"), False),
    ],
)
def test_answer_that_is_final_is_no_failure(circuits: Circuits, error: NebulaError, counts: bool) -> None:
    for _ in range(3):
        fail(circuits, error)

    assert is_open(circuits) is counts


def test_one_call_probes_it_and_closes_it(circuits: Circuits, clock: Clock) -> None:
    for _ in range(3):
        fail(circuits)
    clock.time = 10.0

    with circuits.through("shop"), pytest.raises(CircuitOpen, match="until the call that tries it is back"):
        succeed(circuits)
    assert not is_open(circuits)


def test_probe_that_fails_opens_it_again(circuits: Circuits, clock: Clock) -> None:
    for _ in range(3):
        fail(circuits)
    clock.time = 10.0
    fail(circuits)

    clock.time = 19.9
    assert is_open(circuits)
    clock.time = 20.0
    assert not is_open(circuits)


def test_probe_that_is_given_up_leaves_the_next_one_to_probe(circuits: Circuits, clock: Clock) -> None:
    for _ in range(3):
        fail(circuits)
    clock.time = 10.0
    fail(circuits, KeyboardInterrupt())

    assert not is_open(circuits)


@pytest.mark.parametrize("numbers", [(0, 1.0), (1, 0.0)])
def test_breaker_of_no_sense_is_refused(numbers: tuple[int, float]) -> None:
    with pytest.raises(ValueError, match="failures are 1 or more"):
        Breaker(*numbers)


@pytest.mark.anyio
async def test_client_leaves_a_service_alone_that_is_not_there_and_finds_it_again(
    broker_url: str, serving: Serving, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nebula.rpc.client.breaker.monotonic", clock)
    app = Responder("comes-back")
    with anyio.fail_after(5):
        async with Client(broker_url, breaker=Breaker(failures=2, seconds=10)) as client:
            for _ in range(2):
                with pytest.raises(NoResponder):
                    await client.call("comes-back", "ping")
            with pytest.raises(CircuitOpen, match="/queue/comes-back"):
                await client.call("comes-back", "ping")
            with pytest.raises(NoResponder):
                await client.call("somebody-else", "ping")
            async with serving(app):
                with pytest.raises(CircuitOpen):
                    await client.call("comes-back", "ping")
                clock.time += 10
                await client.call("comes-back", "ping")


def test_probe_that_is_given_up_after_another_call_closed_the_circuit_ends_as_it_would(
    circuits: Circuits, clock: Clock
) -> None:
    class GivenUp(BaseException):
        pass

    with circuits.through("shop"):  # under way since before it opened
        for _ in range(3):
            fail(circuits)
        clock.time += 10.0
        probe = circuits.through("shop")
        probe.__enter__()

    assert probe.__exit__(GivenUp, GivenUp(), None) in (False, None)
    assert not is_open(circuits)


def test_error_that_tells_nothing_leaves_the_next_one_to_probe(circuits: Circuits, clock: Clock) -> None:
    for _ in range(3):
        fail(circuits)
    clock.time = 10.0
    with pytest.raises(NoResponder), circuits.through("shop", lambda error: error is not NOBODY):
        raise NOBODY

    assert not is_open(circuits)


def test_probe_that_is_given_up_leaves_the_circuit_of_later_failures_alone(
    circuits: Circuits, clock: Clock
) -> None:
    class GivenUp(BaseException):
        pass

    for _ in range(3):
        fail(circuits)
    clock.time = 10.0
    old = circuits.through("shop")
    old.__enter__()
    circuits._note("shop", has_failed=False)
    for _ in range(3):
        fail(circuits)
    clock.time = 20.0

    with circuits.through("shop"):
        old.__exit__(GivenUp, GivenUp(), None)
        assert is_open(circuits)


def test_target_that_failed_longest_ago_of_a_thousand_is_forgotten(
    circuits: Circuits,
) -> None:
    for target in ("shop", "bank", "shop"):
        fail(circuits, target=target)
    for number in range(999):
        fail(circuits, target=f"shop.{number}")
    for target in ("shop", "bank", "bank"):
        fail(circuits, target=target)

    assert (is_open(circuits), is_open(circuits, "bank")) == (True, False)


@pytest.mark.anyio
async def test_looking_for_a_service_that_may_be_waited_for_opens_no_circuit() -> None:
    async def late(peer: Peer) -> None:
        await welcome(peer)
        for _ in range(2):
            receipt = receipt_of(await peer.hear())
            await peer.say(f"RECEIPT\nreceipt-id:{receipt}\ndisposition:rejected-no-consumer\n\n^@")
        await peer.say(answer_to(await request(peer), 5))
        await peer.part()

    async with brokers(late) as url, Client(url, breaker=Breaker(failures=1, seconds=60)) as client:
        assert await client.call("shop", "price", wait_for_responder=9) == 5
