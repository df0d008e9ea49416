"""A standalone Spark cluster and a Connect server on the loopback, from PySpark's own scripts.

They are for demos and tests: small heaps, ports that the system picks, and everything ends with the
block that started it.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from nebula.spark.java import find_java
from services.programs import DemoFailed, tail

_START_SECONDS = 90.0
_LOOK_SECONDS = 0.05

_MASTER = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER = re.compile(r"Successfully registered with master (\S+)")
_CONNECT = re.compile(r"Spark Connect server started at: (\S+)")


@dataclass(slots=True)
class Machine:
    """One program of Spark's, standing for a machine. It leads a process group: executors are in it."""

    process: subprocess.Popen[bytes]
    log: Path
    address: str = ""

    def kill(self) -> None:
        """Pull its plug."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def await_registered(self) -> None:
        """Wait until a master has taken this worker. See `await_ready`."""
        self.await_ready(_WORKER)

    def await_ready(self, said: re.Pattern[str]) -> None:
        """Wait until its log says so; the first group is its address.

        Raises:
            DemoFailed: it has ended, or says nothing for too long.
        """
        deadline = time.monotonic() + _START_SECONDS
        while not (match := said.search(self.log.read_text(errors="replace"))):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise DemoFailed(f"{self.log.stem} did not start:\n{tail(self.log)}")
            time.sleep(_LOOK_SECONDS)
        self.address = match[1]


@dataclass(slots=True)
class Cluster:
    """A master and its workers.

    Attributes:
        workers: those that were started, dead ones too.
    """

    folder: Path
    head: Machine
    started: list[Machine]
    workers: list[Machine] = field(default_factory=list)

    @property
    def master(self) -> str:
        """The master's URL."""
        return self.head.address

    @property
    def conf(self) -> dict[str, str]:
        """Spark settings for a driver on this host: it binds to the loopback and needs little memory."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.sql.shuffle.partitions": "4",
        }

    def add_worker(self) -> Machine:
        """One more machine of one core. It takes work as soon as its `await_registered` returns."""
        name = f"worker-{len(self.workers)}"
        words = ("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / name), self.master)
        self.workers.append(
            _start(self.started, self.folder, name, "org.apache.spark.deploy.worker.Worker", *words)
        )
        return self.workers[-1]


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A master and workers of one core each, ready to take applications.

    Raises:
        DemoFailed: one of them does not start, with the end of its log.
    """
    started: list[Machine] = []
    try:
        head = _start(started, folder, "master", "org.apache.spark.deploy.master.Master", "--port", "0")
        head.await_ready(_MASTER)
        running = Cluster(folder, head, started)
        for _ in range(workers):
            running.add_worker()
        for worker in running.workers:
            worker.await_registered()
        yield running
    finally:
        for machine in reversed(started):
            machine.kill()


@contextmanager
def connect_server(folder: Path, *arguments: str) -> Iterator[Machine]:
    """A Spark Connect server with two slots; its `address` is `host:port`.

    Args:
        folder: for its log and what it writes.
        arguments: more of `spark-submit`'s.

    Raises:
        DemoFailed: it does not start.
    """
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    command = [
        "bin/spark-submit",
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
        *("--master", "local[2]", "--driver-memory", "512m"),
        *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
        *arguments,
        "spark-internal",
    ]
    started: list[Machine] = []
    try:
        server = _launch(started, folder, "connect-server", command)
        server.await_ready(_CONNECT)
        yield server
    finally:
        for machine in started:
            machine.kill()


def _start(started: list[Machine], folder: Path, name: str, *words: str) -> Machine:
    # The package has no start-master.sh; this is what it would run.
    command = ["bin/spark-class", words[0], "--host", "127.0.0.1", "--webui-port", "0", *words[1:]]
    return _launch(started, folder, name, command, SPARK_DAEMON_MEMORY="256m")


def _launch(
    started: list[Machine], folder: Path, name: str, command: Sequence[str], **environment: str
) -> Machine:
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  # Spark's own scripts
            [str(_home() / command[0]), *command[1:]],
            cwd=folder,
            env={**_environment(folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    machine = Machine(process, log)
    started.append(machine)
    return machine


def _home() -> Path:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DemoFailed("Spark's part is not installed: pip install 'nebula-rpc[spark,connect]'")
    return Path(spec.origin).parent


def _environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    java = {name: value for name, value in find_java(folder / "java").environment().items() if value}
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    # Killed processes leave files, which are removed with this folder. Java does not read TMPDIR.
    options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={scratch} -XX:-UsePerfData"
    return {
        **inherited,
        **java,
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "JAVA_TOOL_OPTIONS": options.strip(),
        "SPARK_HOME": str(_home()),
        # Web pages and all other ports would listen on every interface.
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Python's workers import the same modules as the service: on real machines they are installed.
        "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry),
        "PYSPARK_PYTHON": sys.executable,
    }
