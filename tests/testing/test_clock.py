"""Time that a test moves on: deadlines and delays pass at once, on asyncio's own loop and on trio."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
import trio.testing

import nebula
from nebula.errors import CallTimeout, CircuitOpen, NebulaError, NoResponder, RemoteError
from nebula.rpc.client.breaker import Breaker
from nebula.rpc.client.cache import Cache
from nebula.rpc.client.client import Client
from nebula.rpc.contract.retry import Retry
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.testing import Faults, TestClient, broker, fake, serving, virtual_clock
from nebula.waiter import runs_on_asyncio

pytestmark = pytest.mark.anyio

_HOUR = 3600.0


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """Those whose clock can be moved: asyncio's own loop, and trio with a clock for that."""
    if request.param == "asyncio":
        return "asyncio", {"use_uvloop": False}
    return "trio", {"clock": trio.testing.MockClock(rate=1)}


def test_all_of_clients_and_services_that_tells_time_is_there_when_the_clock_is_moved() -> None:
    package = Path(nebula.__file__).parent
    telling = [
        ".".join(file.relative_to(package.parent).with_suffix("").parts)
        for folder in ("rpc", "stomp")
        for file in (package / folder).rglob("*.py")
        if file.stem != "redis_access"  # waits for another program
        and re.search(r"^from time import .*monotonic", file.read_text(), re.MULTILINE)
    ]
    program = """if True:
        import sys, nebula.testing.clock
        print([name for name in sys.argv[1:] if name not in sys.modules])
    """

    missing = subprocess.run(
        [sys.executable, "-c", program, *telling], check=True, capture_output=True, text=True, timeout=60
    )

    assert len(telling) > 10
    assert missing.stdout == "[]\n"


app = Responder("slow")
entered: list[anyio.Event] = []


@app.verb
async def wait() -> None:
    entered.pop().set()
    await anyio.sleep_forever()


async def test_call_times_out_without_being_waited_for() -> None:
    errors: list[Exception] = []

    async def ask(client: Client) -> None:
        try:
            await client.call(wait)
        except CallTimeout as error:
            errors.append(error)

    entered.append(anyio.Event())
    begun = entered[0]
    async with (
        virtual_clock() as clock,
        TestClient(app, timeout=_HOUR) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(ask, client)
        await begun.wait()
        await clock.advance(_HOUR - 60)
        assert not errors
        await clock.advance(61)

    assert len(errors) == 1


async def test_delay_between_attempts_passes_at_once() -> None:
    busy = VerbError("busy", "try again")
    price = fake("prices", "quote", side_effect=[busy, busy, "9.99"])
    retry = Retry(attempts=3, first=_HOUR, longest=_HOUR, jitter=0)
    answers: list[Any] = []

    async def ask(client: Client) -> None:
        answers.append(await client.with_options(retry=retry).call("prices", "quote", timeout=10 * _HOUR))

    async with virtual_clock() as clock, TestClient(price) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, client)
        for calls in (1, 2):
            while len(price.calls) < calls or is_asking(client):
                await anyio.sleep(0.001)
            await clock.advance(_HOUR)

    assert answers == ["9.99"]
    assert len(price.calls) == 3


def is_asking(client: Client) -> bool:
    """Whether an answer is awaited; else a call waits for its next attempt."""
    inbox = client._calls.connection.inbox
    return inbox is not None and inbox.in_flight > 0


async def test_attempts_end_with_the_time_of_the_call() -> None:
    price = fake("prices", "quote", raises=VerbError("busy", "try again"))
    retry = Retry(attempts=1000, first=600, longest=600, jitter=0)
    errors: list[NebulaError] = []

    async def ask(client: Client) -> None:
        try:
            await client.with_options(retry=retry).call("prices", "quote", timeout=_HOUR)
        except (RemoteError, CallTimeout) as error:
            errors.append(error)

    async with virtual_clock() as clock, TestClient(price) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(ask, client)
        seen = 0
        while not errors:
            while not errors and (len(price.calls) == seen or is_asking(client)):
                await anyio.sleep(0.001)
            seen = len(price.calls)
            await clock.advance(600)

    assert 5 <= len(price.calls) <= 7


async def test_timers_of_the_test_itself_are_moved_too() -> None:
    async with virtual_clock() as clock, anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep, _HOUR)
        await clock.advance(_HOUR)


async def test_delay_on_the_way_passes_at_once() -> None:
    async def answer(_: object) -> str:
        faults.delay(0)  # for the answer
        return "9.99"

    price = fake("prices", "quote", side_effect=answer)
    answers: list[Any] = []

    async def ask(client: Client) -> None:
        answers.append(await client.call("prices", "quote"))

    async with (
        virtual_clock() as clock,
        broker() as url,
        serving(url, price),
        Client(url, link=(faults := Faults(url)), timeout=1000 * _HOUR) as client,
        anyio.create_task_group() as tasks,
    ):
        faults.delay(_HOUR)
        tasks.start_soon(ask, client)
        await clock.advance(_HOUR - 60)
        assert not price.calls
        await clock.advance(60)

    assert answers == ["9.99"]


async def test_request_that_waited_too_long_is_not_handled() -> None:
    handled = anyio.Event()
    price = fake("prices", "quote", side_effect=lambda _: handled.set())
    async with virtual_clock() as clock, TestClient() as client:
        await client.send("prices", "quote", expires_in=60)
        await client.send("prices", "quote", {"kept": True})
        await clock.advance(61)
        async with serving(client.url, price):
            await handled.wait()

    assert [call.parameters for call in price.calls] == [{"kept": True}]


async def test_kept_answers_grow_old_too() -> None:
    price = fake("prices", "quote", side_effect=[1, 2])
    async with virtual_clock() as clock, TestClient(price, cache=Cache({"prices.quote": _HOUR})) as client:
        assert await client.call("prices", "quote") == 1
        await clock.advance(_HOUR - 60)
        assert await client.call("prices", "quote") == 1
        await clock.advance(61)
        assert await client.call("prices", "quote") == 2


async def test_circuit_is_open_no_longer_than_its_seconds() -> None:
    once = Breaker(failures=1, seconds=60)
    async with virtual_clock() as clock, TestClient(breaker=once) as client:
        with pytest.raises(NoResponder):
            await client.call("nobody", "quote")
        with pytest.raises(CircuitOpen):
            await client.call("nobody", "quote")
        await clock.advance(61)
        with pytest.raises(NoResponder):
            await client.call("nobody", "quote")


# Made before any clock is moved, as the services of programs are.
shop = Responder("shop", idempotency_window=600)
taken: list[str] = []


@shop.verb
async def take(item: str) -> int:
    taken.append(item)
    return len(taken)


async def test_answer_to_a_key_is_kept_no_longer_than_its_window(anyio_backend_name: str) -> None:
    taken.clear()
    async with virtual_clock() as clock, TestClient(shop) as client:
        keyed = client.with_options(idempotency_key=anyio_backend_name)
        assert await keyed.call(take, "cup") == 1
        await clock.advance(540)
        assert await keyed.call(take, "cup") == 1
        await clock.advance(61)
        assert await keyed.call(take, "cup") == 2


async def test_clock_is_taken_back_at_the_end() -> None:
    before = anyio.current_time()
    async with virtual_clock() as clock:
        await clock.advance(_HOUR)
        assert anyio.current_time() >= before + _HOUR
    # trio's own clock has jumped for good.
    if runs_on_asyncio():
        assert anyio.current_time() < before + _HOUR


async def test_time_does_not_run_backwards() -> None:
    async with virtual_clock() as clock:
        with pytest.raises(ValueError, match="backwards"):
            await clock.advance(-1)


async def test_there_is_one_clock_at_a_time() -> None:
    async with virtual_clock():
        with pytest.raises(RuntimeError, match="already"):
            async with virtual_clock():
                pass


@pytest.mark.parametrize(
    ("anyio_backend", "advice"),
    [(("asyncio", {"use_uvloop": True}), "use_uvloop"), (("trio", {}), "MockClock")],
)
async def test_loop_whose_clock_cannot_be_moved_says_what_to_do(advice: str) -> None:
    with pytest.raises(RuntimeError, match=advice):
        async with virtual_clock():
            pass
