"""A thousand kills, and what each of them left: `python -m tests.recovery --kills 1000`.

Exit status: 0 everything was as it must be, and at least half of the kills came upon a batch under way; 1 not
so. Then the folder stays, and what differs is printed with the seed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path

import anyio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tests.recovery.campaign import Kill, campaign

_COLUMNS = (TextColumn("kills"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())


def main() -> int:
    """Run the campaign that the command line describes; its exit status."""
    words = argparse.ArgumentParser(prog="python -m tests.recovery", description=__doc__)
    words.add_argument("--kills", type=int, default=1000)
    words.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    chosen = words.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nebula-torture-"))
    console = Console(highlight=False)
    console.print(f"seed {chosen.seed}, {folder}")
    kills: list[Kill] = []
    with Progress(*_COLUMNS, console=console) as progress:
        anyio.run(_watch, folder, chosen.kills, chosen.seed, kills, progress)
    status = _sum_up(kills, console)
    if status == 0:
        shutil.rmtree(folder)
    else:
        console.print(f"seed {chosen.seed}; the store of the broker and its log are in {folder}")
    return status


async def _watch(folder: Path, count: int, seed: int, kills: list[Kill], progress: Progress) -> None:
    task = progress.add_task("kills", total=count)
    async with aclosing(campaign(folder, kills=count, seed=seed)) as running:
        async for kill in running:
            kills.append(kill)
            progress.console.print(f"{len(kills):5} {kill}", soft_wrap=True)
            progress.advance(task)


def _sum_up(kills: list[Kill], console: Console) -> int:
    differences = [line for kill in kills for line in kill.differences]
    in_flight = sum(kill.marks.in_flight for kill in kills)
    in_commit = sum(kill.marks.in_commit for kill in kills)
    owed = sorted(kill.owed for kill in kills)
    console.print(
        f"{len(kills)} kills: {in_flight} came upon a batch under way, {in_commit} of them upon its COMMIT;"
        f" {sum(kill.starts_killed for kill in kills)} more came at a start.",
        soft_wrap=True,
    )
    console.print(f"Held each time, receipted and un-acked: {owed[0]} to {owed[-1]}, {sum(owed)} in all.")
    for line in differences:
        console.print(line, style="red")
    if 2 * in_flight < len(kills):
        console.print("Fewer than half of the kills came upon a batch under way: they show too little.")
    return int(bool(differences) or 2 * in_flight < len(kills))


if __name__ == "__main__":
    sys.exit(main())
