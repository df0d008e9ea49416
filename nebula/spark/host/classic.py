"""Spark with a driver of our own: a JVM that is our child, on this machine or as the head of a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from nebula.environment import EngineEnvironment
from nebula.spark.crash_report import JVM_REPORT, stage_of, starved_thread
from nebula.spark.host.launch import Archive, launch, settle_home
from nebula.spark.host.pools import POOLS_FILE, Pools
from nebula.spark.host.probe import probe_master, registering
from nebula.spark.host.progress import Counted
from nebula.spark.host.session import FOREIGN, CannotStart, change_environment, check_packages
from nebula.spark.host.status_store import TaskCounter, active_tasks, cancel_group, settle, tag_of
from nebula.spark.java import Java, JavaNotFound, find_java
from nebula.spark.lines import Configure
from nebula.spark.paths import spark_path
from nebula.spark.reading.session import session_of_thread, use_in_thread

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

# Spark's Java pools grow by a thread for each use, to a thousand each, and shrink a minute after the
# last one; a burst of small jobs makes two thousand. With 16 the rate is the same.
_POOLS = ("shuffleExchange", "resultQueryStage", "broadcastExchange", "subquery")
_POOL_THREADS = "16"

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

# How long an ended job waits for the status store to know that its tasks have ended, and how often it looks.
_LATE_SECONDS = 2.0
_LATE_PAUSE = 0.05

# Exit status of a JVM with ExitOnOutOfMemoryError.
_STATUS_NO_MEMORY = 3

# It does not exist, by an old convention.
_NO_FOLDER = "/nonexistent/nebula"

_NO_EXECUTORS = "waits for executors: the cluster has given this engine none yet"


class ClassicSession:
    """A running driver and the processes behind it. See `Session`.

    Attributes:
        spark: the root session. Each job gets a new one of it.
        context: its SparkContext.
        jvm: the JVM's process; it is our child and ends when we do.
    """

    def __init__(self, config: Configure) -> None:
        """Start one; takes seconds. See `host.start`."""
        check_packages("spark", "pyspark", "pyarrow", "pandas")
        probe_master(config.master)
        java = _java(Path(config.folder))
        _prepare_environment(config, java)
        settle_home()
        archive = Archive.of(config, java)
        options = f"{_log_options(Path(config.folder))} {archive.options()}".strip()

        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        self._pools = Pools()
        self._places = WeakSet[ClassicPlace]()
        self._report = Path(config.folder) / JVM_REPORT
        if self._report.exists():  # the report of an earlier JVM
            self._report.replace(self._report.with_name(f"{JVM_REPORT}.1"))
        # Of each thread, the session that was made for what it will do.
        # py4j pairs each Python thread with a thread of the JVM, and a session is active in one such thread.
        self._prepared = threading.local()
        (Path(config.folder) / POOLS_FILE).write_text(self._pools.as_xml())
        # Defaults are the JVM's system properties, and there is no JVM yet.
        conf = SparkConf(loadDefaults=False)
        settings = spark_conf(config, options)
        conf.setAll(list(settings.items()))
        gateway = launch(settings, Path(config.folder))
        self.jvm: subprocess.Popen[bytes] = gateway.proc
        with registering(config.master):
            self.context: SparkContext = SparkContext(conf=conf, gateway=gateway)
            self.spark: SparkSession = SparkSession(self.context)
        _have_rdds_use_the_threads_session(self.spark)
        self.version, self.java, self.jvm_pid = self.context.version, str(java), self.jvm.pid
        self.ui = _ui(self.context)
        self.archive = None if archive.path is None else str(archive.path)
        self.archive_state = archive.state(self.jvm.pid)

    @property
    def is_alive(self) -> bool:
        """Whether the JVM answers and its context was not stopped: a millisecond or two."""
        try:
            return not self.context._jsc.sc().isStopped()
        except Exception:  # in whatever way py4j says that the JVM is gone
            return False

    def await_death(self, seconds: float | None = None) -> str | None:
        """See `Session`: the end of the JVM's process."""
        try:
            status = self.jvm.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        why = "it ran out of memory" if self._has_starved(status) else f"exit status {status}"
        return f"Spark's JVM died ({why})"

    def _has_starved(self, status: int | None) -> bool:
        # If the user has set ExitOnOutOfMemoryError, there is no report.
        return status == _STATUS_NO_MEMORY or starved_thread(self._report) is not None

    def starved(self, groups: Collection[str]) -> str | None:
        """See `Session`: the only job, or the one in whose thread or task an allocation failed."""
        if not self._has_starved(self.jvm.poll()):
            return None
        if len(groups) == 1:
            return next(iter(groups))
        thread = starved_thread(self._report) or ""
        places = [place for place in list(self._places) if place.group in groups]
        return next((place.group for place in places if place.has_thread(thread)), None)

    def prepare(self) -> None:
        """See `Session`: a session, and with it the thread's connection to the JVM."""
        # Whatever it is, the job that comes meets it too, and can tell.
        with suppress(Exception):
            self._prepared.spark = self._new_session()

    def take_session(self) -> SparkSession:
        """A session of this thread alone."""
        prepared: SparkSession | None = self._prepared.__dict__.pop("spark", None)
        return prepared or self._new_session()

    def _new_session(self) -> SparkSession:
        session = self.spark.newSession()
        use_in_thread(session)
        return session

    def name_thread(self, name: str) -> None:
        """Note the name of the JVM thread for the calling thread: PySpark has one for each."""
        jvm = self.context._jvm
        assert jvm is not None  # our contexts have one
        jvm.java.lang.Thread.currentThread().setName(name)

    def place(self, group: str, priority: int) -> ClassicPlace:
        """See `Session`."""
        place = ClassicPlace(self, group, self._pools.take(priority) or group, self._pools.give_back)
        self._places.add(place)
        return place

    def stop(self) -> None:
        """Stop Spark cleanly and end the JVM. May hang where the JVM does."""
        with suppress(Exception):  # a JVM that died meanwhile is stopped as well
            self.spark.stop()
        self.kill()

    def kill(self) -> None:
        """End the JVM at once."""
        # No shutdown hooks run; the files that they would remove are in our scratch folder.
        with suppress(ProcessLookupError):
            self.jvm.kill()


class ClassicPlace:
    """See `Place`: a job group, a tag for each step, a scheduler pool of its own."""

    def __init__(
        self, session: ClassicSession, group: str, pool: str, give_back: Callable[[str], None]
    ) -> None:
        self._session, self.group, self._pool, self._give_back = session, group, pool, give_back
        self._steps = 0
        self._stages = set[int]()  # of the steps before the present one
        self._tag = tag_of(group, 0)
        self._counter = TaskCounter(self._tag)
        self._rows = (0, 0)  # of the steps before the present one
        self._spark: SparkSession | None = None

    @property
    def spark(self) -> SparkSession:
        """See `Place`."""
        assert self._spark is not None  # the job's thread opens it first
        return self._spark

    def open(self, verb: str) -> None:
        """See `Place`. Threads of the job's own are not marked, unless they are `InheritableThread`s."""
        self._spark = self._session.take_session()
        context = self._session.context
        self._session.name_thread(_thread_of(self.group))
        context.setJobGroup(self.group, verb)
        context.setLocalProperty("spark.scheduler.pool", self._pool)
        context.addJobTag(self._tag)

    def begin_step(self) -> None:
        """See `Place`. A tag for each step: Spark's counts for it start at nothing."""
        self._steps += 1
        context = self._session.context
        context.removeJobTag(self._tag)
        settle(self._java)
        # Counted once more under the old tag, now that Spark's store has all of it.
        self._counter.count(self._java)
        self._rows = self._all_rows()
        self._stages |= self._counter.stages
        self._tag = tag_of(self.group, self._steps)
        context.addJobTag(self._tag)
        self._counter = TaskCounter(self._tag)

    def settle(self) -> None:
        """See `Place`. On a busy machine the store may know two seconds later that all tasks have ended."""
        settle(self._java)
        until = monotonic() + _LATE_SECONDS
        while (tasks := self._counter.count(self._java)).done < tasks.known and monotonic() < until:
            sleep(_LATE_PAUSE)

    def count(self) -> Counted:
        """See `Place`: some milliseconds of asking."""
        tasks = self._counter.count(self._java)
        counters = zip(("rows_read", "rows_written"), self._all_rows(), strict=True)
        # Tasks wait and there is no executor: the cluster has not granted one.
        waits = tasks.known > tasks.done and not tasks.active and self._has_no_executors()
        return Counted(
            tasks,
            {name: rows for name, rows in counters if rows},
            _NO_EXECUTORS if waits else "",
            self._counter.newest,
        )

    def _has_no_executors(self) -> bool:
        # The driver is among those that hold blocks; on one machine it is the executor, too.
        return not self._java.isLocal() and bool(self._java.getExecutorMemoryStatus().size() < 2)

    def _all_rows(self) -> tuple[int, int]:
        read, written = self._counter.rows
        return self._rows[0] + read, self._rows[1] + written

    def has_thread(self, name: str) -> bool:
        """Whether a JVM thread belongs to this attempt: its own, or one of a task of a known stage."""
        stage = stage_of(name)
        return name == _thread_of(self.group) or stage in self._stages or stage in self._counter.stages

    def active(self) -> int:
        """See `Place`."""
        return active_tasks(self._java, self.group)

    def cancel(self) -> None:
        """See `Place`."""
        cancel_group(self._java, self.group)

    def close(self) -> None:
        """See `Place`: another job may have the pool."""
        self._give_back(self._pool)

    @property
    def _java(self) -> Any:
        # Spark's own context in the JVM, for what PySpark has no call for.
        return self._session.context._jsc.sc()


def spark_conf(config: Configure, java_options: str = "") -> dict[str, str]:
    """The engine's Spark settings: ours for a service that shares one engine, then the user's over them.

    Args:
        config: of the engine.
        java_options: more flags for the JVM; the user's win over them.
    """
    folder = Path(config.folder)
    ours = {
        "spark.master": config.master,
        # Else the machine's own defaults may have a cluster start it, as for submitted programs.
        "spark.submit.deployMode": "client",
        "spark.app.name": f"nebula-{config.name}",
        "spark.driver.memory": config.memory,
        # A quarter of the heap: one job that collects too much fails, and the others live.
        "spark.driver.maxResultSize": "256m",
        # Its pages have no password, and links that kill jobs.
        "spark.ui.enabled": str(config.ui).lower(),
        "spark.ui.killEnabled": "false",
        "spark.ui.port": "0",
        "spark.ui.showConsoleProgress": "false",
        # The status store serves our progress too: write each event at once, keep few ended jobs.
        "spark.ui.liveUpdate.period": "0",
        "spark.ui.retainedJobs": "200",
        "spark.ui.retainedStages": "400",
        "spark.sql.ui.retainedExecutions": "100",
        # FIFO lets one long job block every short one.
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": spark_path(folder / POOLS_FILE),
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
    # A JVM without memory answers some calls and hangs in others, so it has to end. It crashes instead of
    # exiting because the crash report names the thread.
    options = (
        f'-XX:+CrashOnOutOfMemoryError -XX:-CreateCoredumpOnCrash "-XX:ErrorFile={folder / JVM_REPORT}" '
        # Where the user gives an engine Hive, its Derby would leave a log wherever the service was started.
        f'"-Djava.io.tmpdir={folder / "scratch"}" "-Dderby.system.home={folder / "scratch"}" '
        f"{java_options}".strip()
    )
    theirs["spark.driver.extraJavaOptions"] = (
        f"{options} {theirs.get('spark.driver.extraJavaOptions', '')}".strip()
    )
    return ours | theirs


def _thread_of(group: str) -> str:
    """The name of a job's thread in the JVM."""
    return f"nebula job {group}"


def _have_rdds_use_the_threads_session(root: SparkSession) -> None:
    # PySpark has `toDF` of all RDDs use the session that was made last: here that is the next job's.
    from pyspark import RDD
    from pyspark.sql import session

    def to_df(rdd: RDD[Any], schema: Any = None, sampleRatio: float | None = None) -> DataFrame:  # noqa: N803
        """As PySpark's, in the session of the calling thread."""
        return session_of_thread(root).createDataFrame(rdd, schema, sampleRatio)

    vars(session)["_monkey_patch_RDD"] = lambda _session: None
    RDD.toDF = to_df  # type: ignore[assignment,method-assign]


def _local_cores(master: str) -> int:
    kind, _, inside = master.rstrip("]").partition("[")
    numbers = inside.split(",")
    if kind == "local-cluster":  # workers, cores of each, megabytes of each
        return int(numbers[0]) * int(numbers[1])
    # `cpu_count` would ignore the set of CPUs to which a container is restricted.
    return len(os.sched_getaffinity(0)) if numbers[0] == "*" else int(numbers[0] or 1)


def _ui(context: SparkContext) -> str | None:
    # Spark tells it under the name that a driver has for its workers; it listens on the loopback.
    url = context.uiWebUrl
    return url and f"http://127.0.0.1:{url.rpartition(':')[2]}"


def _java(folder: Path) -> Java:
    try:
        return find_java(folder / "java")
    except JavaNotFound as error:
        raise CannotStart(str(error)) from error


def _prepare_environment(config: Configure, java: Java) -> None:
    changes: dict[str, str | None] = {**dict.fromkeys(FOREIGN), **java.environment()}
    # Spark's workers would run whatever `python3` is on PATH, without this one's packages.
    changes["PYSPARK_DRIVER_PYTHON"] = sys.executable
    changes["PYSPARK_PYTHON"] = _workers_python(config)
    changes["TMPDIR"] = str(Path(config.folder) / "scratch")
    if config.ui or config.master.startswith("local"):
        # The only setting that narrows all of Spark's ports to the loopback, and the one for its pages.
        changes["SPARK_LOCAL_IP"] = "127.0.0.1"
    # It stands in the class path, and where there is a folder with files in it Java archives no classes.
    changes["SPARK_CONF_DIR"] = EngineEnvironment.read().spark_conf_dir or _NO_FOLDER
    change_environment(changes)


def _workers_python(config: Configure) -> str:
    # On other machines Python may live elsewhere.
    elsewhere = None if config.master.startswith("local") else EngineEnvironment.read().pyspark_python
    return config.conf.get("spark.pyspark.python") or elsewhere or sys.executable


def _log_options(folder: Path) -> str:
    if EngineEnvironment.read().spark_conf_dir != _NO_FOLDER:
        return ""  # the user's own settings are there
    settings = folder / "log4j2.properties"
    settings.write_text(_LOG4J.format(folder=folder))
    return f'"-Dlog4j2.configurationFile={settings.as_uri()}"'
