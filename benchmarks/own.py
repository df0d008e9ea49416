"""Our own broker, started as a user starts it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import nebula
from benchmarks.peers import Broker
from benchmarks.processes import Unavailable, running, wait_until
from nebula.compiled import build_name

PROGRAM = str(Path(sys.executable).with_name("nebula"))
APP = "benchmarks.rpc.with_nebula:app"
# Destinations that the rows use, for clients without a name: all rights that a row needs have to be looked
# up.
RIGHTS = """
[capability.Bench]
publish = ["/queue/bench-*", "/topic/bench-*"]
subscribe = ["/queue/bench-*", "/topic/bench-*"]

[identity]
anonymous = ["Bench"]
"""
# A slow reader of these topics stays, and misses what it has no room for.
DROPS_OLDEST = """
[[destination]]
pattern = "/topic/bench-*"
slow_subscriber = "drop-oldest"
"""

# By default a broker has room for a hundred thousand destinations and ten thousand globs, and one principal
# gets a part of them. Some rows need that many.
LARGE = {"NEBULA_SERVER_LIMITS__MAX_DESTINATIONS": "200000", "NEBULA_SERVER_LIMITS__MAX_GLOBS": "40000"}
# The environment of programs that leave the compiled modules alone.
INTERPRETED = {"NEBULA_COMPILED": "no"}

_ADDRESS = re.compile(r"127\.0\.0\.1:(\d+)")


@contextmanager
def nebula_broker(
    *,
    app: str | None = None,
    store: str = "memory",
    data: Path | None = None,
    rights: str | None = None,
    config: str | None = None,
    environment: Mapping[str, str] | None = None,
    interpreted: bool = False,
) -> Iterator[Broker]:
    """`nebula broker` on a free port.

    Args:
        app: verbs that it hosts itself.
        store: where it keeps messages.
        data: the folder of `sqlite`; None: one that goes with the broker.
        rights: the text of a file of rights.
        config: the text of its settings file; None: it has none.
        environment: more settings, as `NEBULA_SERVER_...`.
        interpreted: without its compiled modules, where this run has them.
    """
    if not Path(PROGRAM).exists():
        raise Unavailable(
            "the command `nebula` is not installed next to this Python: run `pip install -e '.[all]'`"
        )
    with TemporaryDirectory(prefix="nebula-") as folder:
        command = [*_command(Path(folder), store, data, rights, config), *(["--app", app] if app else [])]
        log = Path(folder, "broker.log")
        variables = {**(environment or {}), **(INTERPRETED if interpreted else {})}
        with running(command, log=log, environment=variables) as process:
            wait_until(lambda: _ADDRESS.search(log.read_text()) is not None, process, log=log)
            found = _ADDRESS.search(log.read_text())
            assert found is not None
            name = "Nebula, verbs in broker" if app else "Nebula"
            build = "interpreted" if interpreted else build_name()
            yield Broker(name, f"{nebula.__version__} ({build})", process.pid, int(found[1]))


def _command(
    folder: Path, store: str, data: Path | None, rights: str | None, config: str | None
) -> Sequence[str]:
    command = [PROGRAM, "broker", "--port", "0", "--store", store]
    if store != "memory":
        command += ["--data", str(data or folder / "data")]
    if rights is not None:
        (folder / "rights.toml").write_text(rights)
        command += ["--rights", str(folder / "rights.toml")]
    if config is not None:
        (folder / "nebula.toml").write_text(config)
        command += ["--config", str(folder / "nebula.toml")]
    return command
