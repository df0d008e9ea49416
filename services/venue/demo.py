"""`make demo-venue`: a venue of fifty gaming machines for a minute, on a broker with MaXaM's rules.

Exit status 0 when everything that has to hold held, 1 when something did not; nothing is left running.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from nebula.errors import NebulaError
from services.programs import DemoFailed, end_in_order, program, run_async, tail
from services.venue.acts import Pace, Play
from services.venue.report import Check, show
from services.venue.site import Doors, Login, Site, make_site

_APP = "services.venue.app:app"


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the result is the exit status."""
    end_in_order()
    pace = _pace(arguments)
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="nebula-venue-") as name:
        site = make_site(Path(name))
        try:
            checks = _play(site, pace, console)
        except DemoFailed as error:
            Console(stderr=True, highlight=False).print(str(error), style="red", markup=False)
            return 1
    return 0 if show(console, checks) else 1


def _play(site: Site, pace: Pace, console: Console) -> list[Check]:
    environment = {**os.environ, "NEBULA_STATE": str(site.folder / "state")}
    broker_arguments = ["broker", "--config", str(site.settings)]
    with program("broker", broker_arguments, environment, site.folder, lines=2) as lines:
        doors = Doors.of(site, [line["url"] for line in lines])
        console.print(f"[dim]nebula broker[/] listens at {doors.maxam} (maxam) and {doors.standard}")
        environment["NEBULA_BROKER"] = doors.url_of(Login.SERVICE)
        with program("service", ["run", _APP], environment, site.folder) as [service]:
            console.print(f"[dim]nebula run {_APP}[/] serves {service['queues'][0]}")
            try:
                return run_async(Play(doors, pace, console).run)
            except* NebulaError as errors:
                failure = DemoFailed(_story(errors, site.folder))
            raise failure


def _story(errors: BaseExceptionGroup[NebulaError], folder: Path) -> str:
    said = "; ".join(sorted({str(error) for error in _single(errors)}))
    return f"the run ended early: {said}\nThe broker said last:\n{tail(folder / 'broker.log')}"


def _single(errors: BaseExceptionGroup[NebulaError]) -> Iterator[NebulaError]:
    for error in errors.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _single(error)
        else:
            yield error


def _pace(arguments: list[str] | None) -> Pace:
    parser = argparse.ArgumentParser(prog="python -m services.venue.demo", description=__doc__)
    usual = Pace()
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="how long the floor is at play")
    parser.add_argument("--tick", type=float, default=usual.tick, help="seconds between two polls")
    return Pace(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(main())
