"""`make demo`: a broker, a service and a client, each in a process of its own, for some half a minute.

Exit status 0 when everything that was shown happened, 1 when something did not; nothing is left running.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from nebula.spark.java import JavaNotFound, find_java

_APP = "services.flights.app:app"

# A service that was asked to end takes its engine with it, and that takes a moment.
_STOP_SECONDS = 20.0


class DemoFailed(Exception):
    """A program of the demo did not do its part; `str()` says which, and what it said last."""


def main() -> int:
    """Run the demo; the result is the exit status."""
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="nebula-demo-") as name:
        folder = Path(name)
        try:
            console.print(f"[dim]Spark will run on {find_java(folder)}[/]")
            _play(console, folder)
        except (JavaNotFound, DemoFailed) as error:
            Console(stderr=True, highlight=False).print(str(error), style="red", markup=False)
            return 1
    return 0


def _play(console: Console, folder: Path) -> None:
    environment = {**os.environ, "NEBULA_STATE": str(folder / "state")}
    with _program("broker", ["broker", "--port", "0"], environment, folder) as broker:
        url = broker["url"]
        console.print(f"[dim]nebula broker[/] listens at {url}")
        environment["NEBULA_BROKER"] = url
        with _program("service", ["run", _APP], environment, folder) as service:
            console.print(f"[dim]nebula run {_APP}[/] serves {service['queues'][0]}")
            tour = [sys.executable, "-m", "services.flights.tour"]
            if subprocess.run(tour, env=environment, check=False).returncode != 0:  # noqa: S603  # our own
                raise DemoFailed(
                    f"the client failed. The service said last:\n{_tail(folder / 'service.log')}"
                )
    console.print("[dim]broker, service and engine have ended[/]")


@contextlib.contextmanager
def _program(
    name: str, arguments: list[str], environment: dict[str, str], folder: Path
) -> Iterator[dict[str, str]]:
    """Run a `nebula` command; the value is the first line that it says, which means that it is ready."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "nebula.cli", *arguments]
    with (
        log.open("w") as errors,
        subprocess.Popen(  # noqa: S603  # our own command
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise DemoFailed(f"the {name} ended before it was ready:\n{_tail(log)}")
            yield json.loads(line)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                raise DemoFailed(f"the {name} did not end when it was told to:\n{_tail(log)}") from None


def _tail(log: Path, lines: int = 12) -> str:
    return "\n".join(log.read_text().splitlines()[-lines:])


if __name__ == "__main__":
    sys.exit(main())
