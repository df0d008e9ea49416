"""RateLimiter at what costs much: their rate, their order, and who waits no longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import anyio
import pytest

from nebula.broker.server.rate_limit import RateLimiter, TooManyWaiting

pytestmark = pytest.mark.anyio
DEADLINE = 10.0
FAST = 10_000.0  # so that order is all that a test waits for


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Guests:
    """Tasks that want turns, and the order in which they had them."""

    def __init__(self, turns: RateLimiter) -> None:
        self.turns = turns
        self.served: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []

    def come(self, *names: str) -> Sequence[asyncio.Task[None]]:
        """Each is of the place that its name begins with."""
        tasks = [asyncio.create_task(self._wait(name)) for name in names]
        self.tasks += tasks
        return tasks

    async def _wait(self, name: str) -> None:
        async with self.turns.take(name[0]):
            self.served.append(name)

    async def all(self) -> list[str]:
        """Who was refused, when all are done."""
        with anyio.fail_after(DEADLINE):
            results = await asyncio.gather(*self.tasks, return_exceptions=True)
        return [type(each).__name__ for each in results if each is not None]


async def test_places_have_their_turns_in_rotation() -> None:
    guests = Guests(RateLimiter(FAST, at_once=1, longest_wait=1.0))

    guests.come("a1", "a2", "a3", "b1", "c1", "b2")

    assert await guests.all() == []
    assert guests.served == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_place_with_most_in_the_line_makes_room_for_others() -> None:
    guests = Guests(RateLimiter(FAST, at_once=1, longest_wait=4 / FAST))

    guests.come("a1", "a2", "a3", "a4", "b1", "a5")

    assert await guests.all() == ["TooManyWaiting", "TooManyWaiting"]
    assert guests.served == ["a1", "b1", "a2", "a3"]


async def test_nobody_makes_room_for_one_whose_place_has_as_many() -> None:
    guests = Guests(RateLimiter(FAST, at_once=1, longest_wait=4 / FAST))

    guests.come("a1", "b1", "a2", "b2", "a3", "b3", "c1")

    assert await guests.all() == ["TooManyWaiting", "TooManyWaiting", "TooManyWaiting"]
    assert sorted(guests.served) in (["a1", "a2", "b1", "c1"], ["a1", "b1", "b2", "c1"])


async def test_who_has_gone_takes_nobodys_room() -> None:
    turns = RateLimiter(0.1, at_once=1, longest_wait=20.0)
    async with turns.take():
        guests = Guests(turns)
        first = guests.come("a1", "a2")
        await asyncio.sleep(0)
        for task in first:
            task.cancel()
        await asyncio.wait(first)
        second = guests.come("a3", "a4")
        await asyncio.sleep(0)
        third = guests.come("a5")
        with anyio.fail_after(DEADLINE):
            await asyncio.wait(third)

        assert isinstance(third[0].exception(), TooManyWaiting)
        assert not any(task.done() for task in second)
        for task in second:
            task.cancel()


async def test_no_more_than_so_many_have_a_turn_at_the_same_time() -> None:
    turns = RateLimiter(FAST, at_once=2, longest_wait=1.0)
    inside, most = 0, 0

    async def stay() -> None:
        nonlocal inside, most
        async with turns.take():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.01)
            inside -= 1

    with anyio.fail_after(DEADLINE):
        await asyncio.gather(*(stay() for _ in range(6)))

    assert most == 2


async def test_who_is_cancelled_at_its_turn_gives_it_back() -> None:
    turns = RateLimiter(FAST, at_once=1, longest_wait=1.0)
    guests = Guests(turns)
    async with turns.take():
        (first,) = guests.come("a1")
        await asyncio.sleep(0)
    # The turn is given, and its owner has not run since.
    while turns._lines:
        await asyncio.sleep(0)
    first.cancel()
    guests.come("a2")

    await guests.all()
    assert guests.served[-1] == "a2"
