"""The one Spark session of an engine host: how it is started, asked and ended."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nebula.spark.java import Java, JavaNotFound, find_java
from nebula.spark.lines import Configure

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Spark's Java pools grow by a thread for each use, to a thousand each, and shrink a minute after the
# last one; a burst of small jobs makes two thousand. With 16 the rate is the same.
_POOLS = ("shuffleExchange", "resultQueryStage", "broadcastExchange", "subquery")
_POOL_THREADS = "16"

# What another Spark around us may have left in the environment, and would make ours join it.
_FOREIGN = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")

# Ten megabytes of Spark's log, and as much of what came before.
_LOG4J = """
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {folder}/engine.log
appender.file.filePattern = {folder}/engine.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd'T'HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 1
# It warns of every pool that no file configures: each of our jobs has one of its own.
logger.pools.name = org.apache.spark.scheduler.FairSchedulableBuilder
logger.pools.level = error
"""

_PROBE_SECONDS = 5.0


class CannotStart(Exception):
    """No session can be had until a person changes something; `str()` says what."""


class Session:
    """A running Spark and the processes behind it.

    Attributes:
        spark: the root session. Each job gets a new one of it.
        context: its SparkContext.
        java: the Java that runs it.
        jvm: the JVM's process; it is our child and ends when we do.
    """

    def __init__(self, config: Configure) -> None:
        """Start one; takes seconds. Not in the main thread, where Spark would take over SIGINT.

        Raises:
            CannotStart: no Java, no PySpark, or no master at the address.
            Exception: whatever else Spark fails with.
        """
        _check_packages()
        _probe_master(config.master)
        self.java = _java(Path(config.folder))
        _prepare_environment(config, self.java)

        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession

        # Defaults are the JVM's system properties, and there is no JVM yet.
        conf = SparkConf(loadDefaults=False)
        conf.setAll(list(spark_conf(config).items()))
        # The JVM's own output goes where ours goes, never to the protocol.
        gateway = launch_gateway(conf, {"stdout": 2, "stderr": 2})  # type: ignore[no-untyped-call]  # PySpark's
        self.jvm: subprocess.Popen[bytes] = gateway.proc
        self.context: SparkContext = SparkContext(conf=conf, gateway=gateway)
        self.spark: SparkSession = SparkSession(self.context)

    @property
    def is_alive(self) -> bool:
        """Whether the JVM answers and its context was not stopped. Asks it: a millisecond or two."""
        try:
            return not self.context._jsc.sc().isStopped()
        except Exception:  # in whatever way py4j says that nobody is there
            return False

    def stop(self) -> None:
        """Stop Spark cleanly and end the JVM. May hang where the JVM does; the caller has a deadline."""
        with suppress(Exception):  # a JVM that died meanwhile is stopped as well
            self.spark.stop()
        self.kill()

    def kill(self) -> None:
        """End the JVM at once."""
        with suppress(ProcessLookupError):
            self.jvm.kill()


def spark_conf(config: Configure) -> dict[str, str]:
    """The engine's Spark settings: ours for a service that shares one engine, then the user's over them."""
    folder = Path(config.folder)
    ours = {
        "spark.master": config.master,
        "spark.app.name": f"nebula-{config.name}",
        "spark.driver.memory": config.memory,
        # A quarter of the heap: one job that collects too much fails, and the others live.
        "spark.driver.maxResultSize": "256m",
        # The UI listens on all interfaces, without a password, and its links kill jobs.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The status store serves our progress too: write each event at once, keep few ended jobs.
        "spark.ui.liveUpdate.period": "0",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "400",
        "spark.sql.ui.retainedExecutions": "100",
        # FIFO lets one long job block every short one.
        "spark.scheduler.mode": "FAIR",
        # Else timestamps come out shifted by the zone of the machine.
        "spark.sql.session.timeZone": "UTC",
        # How long a cancelled task's Python code may clean up.
        "spark.python.task.killTimeout": "500ms",
        # Else these folders appear wherever the service was started.
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "scratch"),
        **{f"spark.sql.{pool}.maxThreadThreshold": _POOL_THREADS for pool in _POOLS},
    }
    if config.master.startswith("local"):
        # The default of 200 is for a cluster: here each partition more is overhead.
        ours["spark.sql.shuffle.partitions"] = str(2 * _local_cores(config.master))
        # Spark's ports would bind to the machine's outer address.
        ours["spark.driver.host"] = ours["spark.driver.bindAddress"] = "127.0.0.1"
    theirs = dict(config.conf)
    # A JVM that has run out of memory answers some calls and hangs in others: better none at all.
    options = (
        f'-XX:+ExitOnOutOfMemoryError "-XX:ErrorFile={folder / "jvm-crash.log"}" '
        f'"-Djava.io.tmpdir={folder / "scratch"}"'
    )
    theirs["spark.driver.extraJavaOptions"] = (
        f"{options} {theirs.get('spark.driver.extraJavaOptions', '')}".strip()
    )
    return ours | theirs


def _local_cores(master: str) -> int:
    inside = master.removeprefix("local").strip("[]").split(",")[0]
    return len(os.sched_getaffinity(0)) if inside == "*" else int(inside or 1)


def _check_packages() -> None:
    # Python UDFs need pyarrow as well: say so now, not when the first job uses one. Found is enough:
    # importing them takes the better part of a second, and many jobs need neither.
    missing = [name for name in ("pyspark", "pyarrow", "pandas") if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotStart(
            f"Spark's part is not installed ({', '.join(missing)} missing): pip install 'nebula-rpc[spark]'"
        )


def _probe_master(master: str) -> None:
    """Spark itself is silent for a minute before it says that no master answers."""
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host, int(port)), _PROBE_SECONDS):
            return
    raise CannotStart(f"no Spark master answers at {master}")


def _java(folder: Path) -> Java:
    try:
        return find_java(folder / "java")
    except JavaNotFound as error:
        raise CannotStart(str(error)) from error


def _prepare_environment(config: Configure, java: Java) -> None:
    for name in _FOREIGN:
        os.environ.pop(name, None)
    changes: dict[str, str | None] = dict(java.environment())
    # Spark's workers would run whatever `python3` is on PATH, without this one's packages.
    changes["PYSPARK_PYTHON"] = changes["PYSPARK_DRIVER_PYTHON"] = sys.executable
    changes["TMPDIR"] = str(Path(config.folder) / "scratch")
    if config.master.startswith("local"):
        # The only setting that narrows all of Spark's ports to the loopback.
        changes["SPARK_LOCAL_IP"] = "127.0.0.1"
    if "SPARK_CONF_DIR" not in os.environ:
        changes["SPARK_CONF_DIR"] = str(_write_log_settings(Path(config.folder)))
    _change_environment(changes)


def _change_environment(changes: Mapping[str, str | None]) -> None:
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _write_log_settings(folder: Path) -> Path:
    settings = folder / "conf"
    settings.mkdir(parents=True, exist_ok=True)
    (settings / "log4j2.properties").write_text(_LOG4J.format(folder=folder))
    return settings


def java_object(session: Session) -> Any:
    """Spark's own context in the JVM, for what PySpark has no call for."""
    return session.context._jsc.sc()
