"""A service with one busy job, to be killed. It says in FOLDER/incarnation whom it started."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from nebula.spark import Spark
from tests.spark.engine import CONF
from tests.spark.told import Told, task


async def serve(folder: Path) -> None:
    runner, told = Spark(master="local[2]", memory="512m", conf=CONF).runner(folder, "tests"), Told()
    async with anyio.create_task_group() as group:
        group.start_soon(runner.run, told)
        runner.submit(task("A", "tests.spark.jobs:slow_udf"))
        while not told.all("A", "started"):
            await anyio.sleep(0.05)
        (folder / "unfinished").write_text(runner.status()["incarnation"])
        (folder / "unfinished").rename(folder / "incarnation")
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(serve, Path(sys.argv[1]))
