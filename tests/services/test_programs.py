"""What demos do when they are told to end."""

from __future__ import annotations

import subprocess
import sys

_WAITING = """
import anyio, os, signal
from services.programs import end_in_order, run_async

async def ended() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    while True:
        await anyio.sleep(0)

async def run() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ended)

end_in_order()
run_async(run)
"""


def test_demo_whose_tasks_are_told_to_end_exits_without_a_trace() -> None:
    ended = subprocess.run([sys.executable, "-c", _WAITING], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (143, "")
