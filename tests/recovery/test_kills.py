"""Kills of a broker under load: three in `make test`, a dozen in `make test-slow`, many in `make torture`."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest

from tests.depth import DEPTH
from tests.recovery.campaign import Kill, campaign

pytestmark = pytest.mark.timeout(600)

_SEED = 20
_KILLS = 3 * DEPTH


def _run(folder: Path, *, kills: int, fault: str = "") -> list[Kill]:
    done: list[Kill] = []

    async def run() -> None:
        async with aclosing(campaign(folder, kills=kills, seed=_SEED, fault=fault)) as running:
            async for kill in running:
                print(kill)
                done.append(kill)

    anyio.run(run)
    return done


@pytest.mark.deep
def test_nothing_receipted_is_lost_and_nothing_settled_comes_back_after_a_kill(tmp_path: Path) -> None:
    kills = _run(tmp_path, kills=_KILLS)

    assert [line for kill in kills for line in kill.differences] == []
    assert len(kills) == _KILLS
    assert sum(kill.owed for kill in kills) > 8 * _KILLS
    in_flight = sum(kill.marks.in_flight for kill in kills)
    assert in_flight >= _KILLS // 2, "too few kills came while a batch was being written"


# The test of the test: each of these breaks a promise, and the campaign must notice.
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["loses", "hastes", "never drops"])
def test_store_that_breaks_its_promise_is_found_out(tmp_path: Path, fault: str) -> None:
    kills = _run(tmp_path, kills=15, fault=fault)

    assert kills[-1].differences
