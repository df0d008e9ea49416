"""`make demo`: a broker, a service and a client, each in a process of its own, for some half a minute.

Exit status 0 when everything that was shown happened, 1 when something did not; nothing is left running.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from nebula.spark.java import JavaNotFound, find_java
from services.programs import DemoFailed, end_in_order, program, tail

_APP = "services.flights.app:app"


def main() -> int:
    """Run the demo; the result is the exit status."""
    end_in_order()
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
    with program("broker", ["broker", "--port", "0"], environment, folder) as [broker]:
        url = broker["url"]
        console.print(f"[dim]nebula broker[/] listens at {url}")
        environment["NEBULA_BROKER"] = url
        with program("service", ["run", _APP], environment, folder) as [service]:
            console.print(f"[dim]nebula run {_APP}[/] serves {service['queues'][0]}")
            tour = [sys.executable, "-m", "services.flights.tour"]
            if subprocess.run(tour, env=environment, check=False).returncode != 0:  # noqa: S603  # our own
                raise DemoFailed(f"the client failed. The service said last:\n{tail(folder / 'service.log')}")
    console.print("[dim]broker, service and engine have ended[/]")


if __name__ == "__main__":
    sys.exit(main())
