"""A dozen kills of a broker under load; a thousand are `make torture`."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from tests.recovery.campaign import Kill, campaign

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_SEED = 20


def _run(folder: Path, *, kills: int, fault: str = "") -> list[Kill]:
    done: list[Kill] = []

    async def run() -> None:
        async with aclosing(campaign(folder, kills=kills, seed=_SEED, fault=fault)) as running:
            async for kill in running:
                print(kill)
                done.append(kill)

    anyio.run(run)
    return done


def test_nothing_receipted_is_lost_and_nothing_settled_comes_back_after_a_kill(tmp_path: Path) -> None:
    kills = _run(tmp_path, kills=12)

    assert [line for kill in kills for line in kill.differences] == []
    assert len(kills) == 12
    assert sum(kill.owed for kill in kills) > 100
    assert sum(kill.marks.in_flight for kill in kills) >= 6, "too few kills came upon a batch under way"


# The test of the test: each of these breaks a promise, and must be found out.
@pytest.mark.parametrize("fault", ["loses", "hastes", "never drops"])
def test_store_that_breaks_its_promise_is_found_out(tmp_path: Path, fault: str) -> None:
    kills = _run(tmp_path, kills=15, fault=fault)

    assert kills[-1].differences
