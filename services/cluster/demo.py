"""`make demo-cluster`: one service on this machine, on a Spark cluster and through a Connect server.

A master, two workers and a Connect server run on the loopback, from PySpark's own scripts. The answers
have to be equal everywhere; a worker is killed under a job, and another job is cancelled. Exit status 0
when everything that was shown happened, 1 when something did not; nothing is left running.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from nebula import JobState
from nebula.errors import NebulaError
from nebula.spark.java import JavaNotFound
from nebula.sync import Client, JobHandle
from services.cluster.machines import Cluster, cluster, connect_server
from services.cluster.readings import write_readings
from services.programs import DemoFailed, end_in_order, program

_APP = "services.cluster.app:app"


def main() -> int:
    """Run the demo; the result is the exit status."""
    end_in_order()
    console = Console(highlight=False)
    with tempfile.TemporaryDirectory(prefix="nebula-cluster-", ignore_cleanup_errors=True) as name:
        try:
            is_equal = Demo(console, Path(name)).play()
        except (JavaNotFound, DemoFailed, NebulaError) as error:
            Console(stderr=True, highlight=False).print(str(error), style="red", markup=False)
            return 1
    return 0 if is_equal else 1


class Demo:
    """The acts, and what they have found by now.

    Args:
        console: to print to.
        folder: an empty one, for everything that is written.
    """

    def __init__(self, console: Console, folder: Path) -> None:
        self._console, self._folder = console, folder
        self._answers: dict[str, dict[str, Any]] = {}
        self._seconds: dict[str, dict[str, float]] = {}
        self._url = ""
        self._began = time.perf_counter()

    def play(self) -> bool:
        """Run all acts; whether the answers were equal."""
        self._say("writing readings, starting a broker and a service with Spark on this machine")
        ledger = write_readings(self._folder / "readings")
        with program("broker", ["broker", "--port", "0"], dict(os.environ), self._folder) as [broker]:
            self._url = broker["url"]
            with self._service("local", "local[2]") as client:
                self._ask_all("this machine", client)
            self._play_on_cluster()
            self._play_through_connect()
        self._console.print("[dim]broker, services, cluster and Connect server have ended[/]")
        return self._show(ledger)

    def _say(self, text: str) -> None:
        """Print the next step, with the elapsed time."""
        self._console.print(f"[dim]{time.perf_counter() - self._began:3.0f} s[/] {text} …")

    def _play_on_cluster(self) -> None:
        self._say("starting a master and two workers, and the service on them")
        with cluster(self._made("machines")) as machines:
            self._console.print(f"[dim]a master and two workers:[/] {machines.master}")
            with self._service("cluster", machines.master, machines.conf) as client:
                self._ask_all("cluster", client)
                self._kill_a_worker(client, machines)

    def _play_through_connect(self) -> None:
        self._say("starting a Connect server, and the service at it")
        with connect_server(self._made("server")) as server:
            remote = f"sc://{server.address}"
            self._console.print(f"[dim]a Connect server:[/] {remote}")
            with self._service("connect", remote) as client:
                self._ask_all("Connect", client)
                self._cancel_one(client)

    def _made(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    @contextmanager
    def _service(self, name: str, at: str, conf: dict[str, str] | None = None) -> Iterator[Client]:
        environment = {
            **os.environ,
            "NEBULA_STATE": str(self._folder / f"state-{name}"),
            "NEBULA_RESULTS": str(self._folder / "results"),
            "NEBULA_BROKER": self._url,
            "NEBULA_SPARK": at,
        }
        if conf:
            # Spark's own place for what a cluster wants of its drivers.
            settings = self._made(f"conf-{name}") / "spark-defaults.conf"
            settings.write_text("".join(f"{key} {value}\n" for key, value in conf.items()))
            environment["SPARK_CONF_DIR"] = str(settings.parent)
        with (
            program(f"service-{name}", ["run", _APP], environment, self._folder),
            Client(self._url) as client,
        ):
            yield client

    def _ask_all(self, place: str, client: Client) -> None:
        jobs: dict[str, dict[str, Any]] = {
            "carrier_delays": {},
            "busy_hours": {},
            "hourly_turnover": {"path": str(self._folder / "readings")},
        }
        self._say(f"{place}: a first job, which waits until Spark is up")
        # The first job of an engine waits for its start, and for Java to warm up.
        client.start("cluster", "slow_sum", {"tasks": 2, "seconds": 0.0}).result()
        for verb, parameters in jobs.items():
            began = time.perf_counter()
            answer = client.start("cluster", verb, parameters).result()
            self._answers.setdefault(verb, {})[place] = answer
            self._seconds.setdefault(verb, {})[place] = time.perf_counter() - began
            self._console.print(f"  {place}: {verb} is done in {self._seconds[verb][place]:.1f} s")

    def _kill_a_worker(self, client: Client, machines: Cluster) -> None:
        self._say("a job of some seconds, during which a worker is killed")
        job = client.start("cluster", "slow_sum", progress_every=0.1)
        _watch_until(job, 0.2)
        machines.workers[-1].kill()
        answer = job.result()
        if answer != sum(range(16)):
            raise DemoFailed(f"the sum should be {sum(range(16))}, and is {answer}")
        self._console.print("a worker was killed under a job, and the job is [bold]done[/]")

    def _cancel_one(self, client: Client) -> None:
        self._say("a long job, which is cancelled")
        job = client.start("cluster", "slow_sum", {"tasks": 1000}, progress_every=0.1)
        _watch_until(job, 0.0)
        job.cancel()
        if job.wait().state != JobState.CANCELLED:
            raise DemoFailed(f"the job should have been cancelled, and is {job.status().state}")
        self._console.print("another job, through Connect, is [bold]cancelled[/]")

    def _show(self, ledger: dict[datetime, tuple[int, int]]) -> bool:
        places = ("this machine", "cluster", "Connect")
        table = Table("job", *places, "answers", box=None, header_style="bold")
        is_equal = True
        for verb, answers in self._answers.items():
            ours = {verb: list(answers.values())}
            same = all(answer == ours[verb][0] for answer in ours[verb])
            if verb == "hourly_turnover":
                same &= _by_hour(answers["this machine"]) == ledger
            is_equal &= same
            seconds = [f"{self._seconds[verb][place]:.1f} s" for place in places]
            table.add_row(verb, *seconds, "[green]equal[/]" if same else "[red]differ[/]")
        table.caption = "hourly_turnover is compared with the ledger of its readings, too"
        self._console.print(table)
        return is_equal


def _watch_until(job: JobHandle, progress: float) -> None:
    for status in job.watch():
        if status.state == JobState.RUNNING and (status.progress or 0.0) >= progress:
            return
    raise DemoFailed(f"job {job.id} ended too soon: {job.status().state}")


def _by_hour(answer: list[dict[str, Any]]) -> dict[datetime, tuple[int, int]]:
    return {datetime.fromisoformat(row["hour"]): (row["readings"], row["turnover"]) for row in answer}


if __name__ == "__main__":
    sys.exit(main())
