"""Kill a broker under load, start it again, and look what it has kept; again and again in one folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread

from tests.cli.programs import environment
from tests.recovery.broker import FAULT
from tests.recovery.inspection import inspect
from tests.recovery.marks import Marks, read_marks
from tests.recovery.traffic import run_all
from tests.recovery.world import World

# The kill comes after so many batches and a moment: whatever the machine's speed, some of the load is
# receipted by then.
_BATCHES: Final = (2, 30)
_MOST_SECONDS: Final = 0.05

# So many kills are followed by another one while the broker starts and reads what there is.
_ALSO_AT_START: Final = 0.1
_START_SECONDS: Final = (0.1, 0.8)

# With a loaded machine in mind: for one kill, and for one look at what there is after it.
_DEADLINE: Final = 60.0
_LOOK_SECONDS: Final = 30.0

# Of a full line most is on the disk alone.
_LIMITS: Final = {"NEBULA_SERVER_LIMITS__QUEUE_WINDOW_BYTES": "100000"}


@dataclass(frozen=True, slots=True)
class Kill:
    """What one kill came upon, and what was found after it.

    Attributes:
        owed: receipted messages that nobody had tried to settle, and values: all must survive.
        doubtful: messages with a RECEIPT under way, of their SEND, ACK or NACK.
        marks: what the store was at.
        starts_killed: kills of the broker that was to recover, before the one that could.
        differences: what was not as it must be, a line each.
    """

    owed: int
    doubtful: int
    marks: Marks
    starts_killed: int
    differences: list[str]

    def __str__(self) -> str:
        """All of it but the differences, as a line."""
        at = "a COMMIT" if self.marks.in_commit else "a batch" if self.marks.in_flight else "no batch"
        again = f"; {self.starts_killed} more at the start" if self.starts_killed else ""
        return (
            f"in {at:8}  held {self.owed:5} receipted, un-acked ones; {self.doubtful:5} in doubt;"
            f" batch {self.marks.begun}{again}"
        )


async def campaign(folder: Path, *, kills: int, seed: int, fault: str = "") -> AsyncGenerator[Kill, None]:
    """So many kills; it ends early after one with differences.

    The seed fixes what is sent and when the kills come: three of four wait for the next batch that is under
    way. It does not fix how far the broker was then.

    Args:
        folder: empty, or there is none.
        fault: of the store; see `tests.recovery.broker`.
    """
    chance, world = Random(seed), World()
    folder.mkdir(parents=True, exist_ok=True)
    broker = _Broker(folder, fault)
    try:
        port = await broker.start()
        # The durable subscriptions begin here.
        (await inspect(port, world, 0)).adopt(world)
        for turn in range(1, kills + 1):
            kill, port = await _kill_once(broker, port, world, chance, turn)
            yield kill
            if kill.differences:
                return
    finally:
        broker.kill()


async def _kill_once(broker: _Broker, port: int, world: World, chance: Random, turn: int) -> tuple[Kill, int]:
    troubles: list[str] = []
    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            await tasks.start(run_all, port, world, chance, troubles)
            batches, seconds = chance.randint(*_BATCHES), chance.uniform(0, _MOST_SECONDS)
            await broker.until(lambda marks: marks.ended >= batches)
            await anyio.sleep(seconds)
            if turn % 4:
                await broker.until(lambda marks: marks.in_flight)
            broker.kill()
        marks = broker.marks()
        owed, doubtful = world.owed, world.doubtful
        starts_killed = 0
        while chance.random() < _ALSO_AT_START:
            await broker.start_in_vain(chance.uniform(*_START_SECONDS))
            starts_killed += 1
        port = await broker.start()
    differences = troubles + await _differences(port, world, turn)
    return Kill(owed, doubtful, marks, starts_killed, differences), port


async def _differences(port: int, world: World, turn: int) -> list[str]:
    """What is not as it must be; where nothing is, what was found is owed from now on."""
    # What a bad store has lost may be the very message that the inspection waits for.
    with anyio.move_on_after(_LOOK_SECONDS):
        found = await inspect(port, world, turn)
        differences = found.differences(world)
        found.adopt(world)
        return differences
    return [f"the broker has not handed out all that it should within {_LOOK_SECONDS:g} s"]


class _Broker:
    """A broker of one folder, started again and again."""

    def __init__(self, folder: Path, fault: str) -> None:
        self._marks, self._log = folder / "marks", folder / "broker.log"
        words = ["broker", "--port", "0", "--data", str(folder / "data")]
        self._command = [sys.executable, "-m", "tests.recovery.broker", str(self._marks), *words]
        self._environment = environment({FAULT: fault, **_LIMITS})
        self._process: subprocess.Popen[str] | None = None

    async def start(self) -> int:
        """Run until it listens; on which port."""
        return await anyio.to_thread.run_sync(self._start)

    async def start_in_vain(self, seconds: float) -> None:
        """Run for so long, whatever it has reached then."""
        self._open()
        await anyio.sleep(seconds)
        self.kill()

    async def until(self, condition: Callable[[Marks], bool]) -> None:
        """Wait for a moment at which the store is so."""
        while not condition(read_marks(self._marks)):
            await anyio.sleep(0.001)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def marks(self) -> Marks:
        """What the last one left."""
        marks = read_marks(self._marks)
        assert marks.ended <= marks.commits <= marks.begun <= marks.ended + 1, marks
        return marks

    def _start(self) -> int:
        process = self._open()
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, f"the broker does not start: {self._log.read_text()[-2000:]}"
        return urlsplit(json.loads(line)["url"]).port or 0

    def _open(self) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        return self._process
