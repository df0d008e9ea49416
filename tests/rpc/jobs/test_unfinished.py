"""Unfinished outputs of killed runs, removed at the next start and at intervals."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from nebula.rpc.contract.job_context import Job
from nebula.rpc.jobs.registry.unfinished import AttemptNote, notes_of
from nebula.rpc.jobs.service import housekeeping
from tests.rpc.jobs.harness import House

pytestmark = pytest.mark.anyio


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "state")


def _leave(state: Path, final: Path) -> Path:
    """Leave files like an attempt that was killed while it wrote."""
    unfinished = final.with_name(f"{final.name}.__J.1")
    unfinished.mkdir()
    note = AttemptNote(notes_of(state), "J.1")
    note.add(final, unfinished)
    note.close()
    return unfinished


async def test_leftover_output_goes_at_the_start(house: House, tmp_path: Path) -> None:
    ours, gone = (house.root / "counting" / name for name in ("i", "gone"))
    left = [_leave(ours, tmp_path / "a"), _leave(gone, tmp_path / "b")]

    async with house.living():
        assert [path.exists() for path in left] == [False, False]


async def test_leftover_output_goes_at_intervals(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(housekeeping, "_PRUNE_EVERY", 0.01)
    async with house.living():
        left = _leave(house.root / "counting" / "gone", tmp_path / "a")
        while left.exists():
            await anyio.sleep(0.01)


def write(ctx: Job, path: str) -> None:
    """A job that is killed with its service while it writes."""
    (Path(ctx.output(path)) / "part").parent.mkdir()
    os.kill(os.getpid(), signal.SIGKILL)


_SERVICE = """
import anyio, sys
from pathlib import Path
from tests.rpc.jobs.harness import House
from tests.rpc.jobs.test_unfinished import write

async def main() -> None:
    house = House(Path(sys.argv[1]), function=write, engine=None)
    async with house.living() as service:
        await house.accept(service, {"path": sys.argv[2]})
        await anyio.sleep(20)

anyio.run(main)
"""


async def test_output_of_a_job_in_a_service_that_is_killed_goes_at_its_next_start(tmp_path: Path) -> None:
    (slots := tmp_path / "places").mkdir()
    words = [sys.executable, "-c", _SERVICE, str(tmp_path / "state"), str(slots / "table")]
    with anyio.fail_after(30):
        killed = await anyio.run_process(words, check=False)
    left = list(slots.iterdir())
    async with House(tmp_path / "state", function=write, engine=None).living():
        pass

    assert (killed.returncode, len(left)) == (-signal.SIGKILL, 1)
    assert list(slots.iterdir()) == []
