"""The jobs' code without Nebula. `python -m benchmarks.spark.alone classic|connect|submit SECONDS`.

Prints what a measurement needs as a line of JSON. `submit` is what spark-submit is given: one run, cold.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyspark
from pyspark.sql import SparkSession

from benchmarks.processes import free_port, running, wait_until
from benchmarks.spark.work import CONF, MASTER, MEMORY, small, timed

_WARM_UP_SECONDS = 3.0
# This Python has one next to it only if Spark was installed for it alone.
SUBMIT = str(Path(pyspark.__file__).with_name("bin") / "spark-submit")
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def _session(kind: str) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    if kind == "connect":
        with _server() as address:
            yield SparkSession.builder.remote(address).getOrCreate()
    else:
        builder = SparkSession.builder.master(MASTER).config("spark.driver.memory", MEMORY)
        for name, value in CONF.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
        yield session
        session.stop()


@contextmanager
def _server() -> Iterator[str]:
    port = free_port()
    conf = {
        **CONF,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    command = [SUBMIT, "--master", MASTER]
    command += ["--driver-memory", MEMORY, "--class", _SERVER]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    with TemporaryDirectory(prefix="nebula-") as folder:
        log = Path(folder, "connect.log")
        with running([*command, "spark-internal"], log=log) as process:
            wait_until(lambda: _answers(port), process, log=log)
            yield f"sc://127.0.0.1:{port}"


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main(kind: str, seconds: float) -> None:
    """Measure, and say so."""
    with _session(kind) as spark:
        if kind == "submit":
            small(spark)
        else:
            timed(spark, _WARM_UP_SECONDS)
            print(json.dumps(timed(spark, seconds)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
    # A session of Connect would say good-bye for minutes to its server, which has ended.
    os._exit(0)
