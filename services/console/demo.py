"""`make demo-console`: the console over a venue, flights and orders, with something happening.

Ends by Ctrl-C, or after the time that `--seconds` says; nothing is left running.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import random
import sys
import tempfile
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import anyio
from rich.console import Console

from nebula import Client, NebulaError
from nebula.spark.java import JavaNotFound, find_java
from services.console.orders import STOCK
from services.flights.app import airline, busiest_hours
from services.programs import DemoFailed, end_in_order, program, run_async
from services.venue.acts import Pace, Play
from services.venue.app import Machines, turnover
from services.venue.site import Doors, Login, make_site

_FLIGHTS: Final = "services.flights.app:app"
_VENUE: Final = "services.venue.app:app"
_ORDERS: Final = "services.console.orders:app"

# For the console and the demo's own clients, which are anonymous on this machine, and for the hosted service.
_RIGHTS: Final = """\
[capability.Everything]
publish = ["**"]
subscribe = ["**", "/queue/DLQ"]
call = ["*", "dlq.*"]

[identity]
"anonymous" = ["Everything"]
"app:orders" = ["Everything"]
"""

# For the console, the flights and other clients on this machine. The venue has its own listeners.
_LISTENERS: Final = """\
[[listener]]
port = {port}
http = true
console = true
calls = true
anonymous = true
"""

_ALL_CARRIERS: Final = ("UA", "DL", "AA", "B6", "WN", "US", "MQ", "XX")
_JOB_SECONDS: Final = 90.0


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the result is the exit status."""
    parser = argparse.ArgumentParser(prog="python -m services.console.demo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0, help="how long it runs")
    parser.add_argument("--port", type=int, default=0, help="of the console; 0 takes a free one")
    parser.add_argument("--no-browser", action="store_true", help="only show the address")
    options = parser.parse_args(arguments)
    end_in_order()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="nebula-console-") as name:
        try:
            find_java(Path(name))
            _play(console, Path(name), options)
        except (JavaNotFound, DemoFailed) as error:
            Console(stderr=True, highlight=False).print(str(error), style="red", markup=False)
            return 1
        except KeyboardInterrupt:
            console.print()
    console.print("[dim]the broker and the services have ended[/]")
    return 0


def _play(console: Console, folder: Path, options: argparse.Namespace) -> None:
    site = make_site(folder)
    rights = folder / "demo.toml"
    rights.write_text(_RIGHTS)
    with site.settings.open("a") as settings:
        settings.write(_LISTENERS.format(port=options.port))
    environment = {**os.environ, "NEBULA_STATE": str(folder / "state")}
    capabilities = Path(__file__).parents[1] / "venue" / "capabilities.toml"
    files = [capabilities, folder / "identities.toml", rights]
    granted = [word for file in files for word in ("--rights", str(file))]
    arguments = ["broker", "--config", str(site.settings), "--app", _ORDERS, *granted]
    with contextlib.ExitStack() as stack:
        lines = stack.enter_context(program("broker", arguments, environment, folder, lines=4))
        urls = [line["url"] for line in lines]
        doors = Doors.of(site, [url for url in urls if url.startswith("stomp")])
        own = next(url for url in urls if url.startswith("ws:"))
        page = next(url for url in urls if url.startswith("http:"))
        for name, app, url in (("venue", _VENUE, doors.url_of(Login.SERVICE)), ("flights", _FLIGHTS, own)):
            there = {**environment, "NEBULA_BROKER": url}
            stack.enter_context(program(name, ["run", app], there, folder))
        console.print(f"The console is at [bold]{page}[/]. Ctrl-C ends it.")
        console.print(
            "Try a verb: Services, flights, airline. Start a job: Services, flights, delays; then see Jobs."
        )
        if not options.no_browser and _has_screen():
            webbrowser.open(page)
        run_async(_happen, doors, own, options.seconds)


def _has_screen() -> bool:
    # Without one `webbrowser` would open a browser of text in this terminal.
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


async def _happen(doors: Doors, url: str, seconds: float) -> None:
    """Have something happen for some seconds."""
    # The venue draws its floor on a terminal, which is not wanted here.
    quiet = Console(file=io.StringIO(), quiet=True)
    with anyio.move_on_after(seconds):
        async with Client(url) as client, anyio.create_task_group() as tasks:
            for act in (_ask_for_airlines, _order, _run_jobs):
                tasks.start_soon(act, client)
            tasks.start_soon(_ask_the_venue, client)
            while True:
                # A day of the venue after the other.
                await Play(doors, Pace(seconds=240.0, tick=1.0), quiet).run()


async def _ask_for_airlines(client: Client) -> None:
    for code in itertools.cycle(_ALL_CARRIERS):
        # The last one does not exist.
        await _tried(lambda code=code: client.call(airline, code))  # type: ignore[misc]
        await anyio.sleep(random.uniform(0.1, 0.5))  # noqa: S311  # traffic, no secret


async def _ask_the_venue(client: Client) -> None:
    while True:
        await _tried(lambda: client.call(turnover, Machines()))
        await anyio.sleep(1.0)


async def _order(client: Client) -> None:
    for number in itertools.count(1):
        # Now and then something that is not sold: a dead letter.
        item = "unicorn" if number % 60 == 7 else random.choice(STOCK)  # noqa: S311
        order = {"number": number, "item": item, "amount": random.randint(1, 9)}  # noqa: S311
        await client.publish("/queue/new-orders", order)
        # Slower and quicker than they are taken, so that the backlog comes and goes.
        await anyio.sleep(0.12 if number // 100 % 2 == 0 else 0.4)


async def _run_jobs(client: Client) -> None:
    while True:
        await _tried(lambda: client.start(busiest_hours))
        await anyio.sleep(_JOB_SECONDS)


async def _tried(call: Callable[[], Any]) -> None:
    # What fails is shown in the console, too.
    with contextlib.suppress(NebulaError):
        await call()


if __name__ == "__main__":
    sys.exit(main())
