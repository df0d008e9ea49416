"""Our own broker, started as a user starts it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nebula
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable, running, wait_until

PROGRAM = str(Path(sys.executable).with_name("nebula"))
APP = "benchmarks.rpc.with_nebula:app"

_ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")


@contextmanager
def nebula_broker(*, app: str | None = None) -> Iterator[Broker]:
    """`nebula broker` on a free port, messages in memory; with `app` it hosts those verbs itself."""
    if not Path(PROGRAM).exists():
        raise Unavailable("the command `nebula` is not installed beside this Python: run `pip install -e .`")
    command = [PROGRAM, "broker", "--port", "0", "--store", "memory", *(["--app", app] if app else [])]
    with TemporaryDirectory(prefix="nebula-") as folder:
        log = Path(folder, "broker.log")
        with running(command, log=log) as process:
            wait_until(lambda: _ADDRESS.search(log.read_text()) is not None, process, log=log)
            found = _ADDRESS.search(log.read_text())
            assert found is not None
            name = "Nebula, verbs in broker" if app else "Nebula"
            yield Broker(name, nebula.__version__, process.pid, int(found[1]))
