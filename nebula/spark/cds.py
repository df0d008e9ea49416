"""Archives of Java's classes (AppCDS): which one fits an engine, and what became of it.

Reading and checking Spark's ten thousand classes takes more than half of the time that a session needs.
Java can keep them, ready for use, in a file that it maps into memory. Such a file fits one Java, one set of
jars in one order and one set of flags, and Java itself refuses any other: it then starts as without.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nebula.environment import EngineEnvironment
from nebula.file_locks import LOCK_EX, LOCK_NB, flock
from nebula.spark.java import Java

# What of an engine's settings changes its classes or how they lie in memory.
_CONF = ("spark.driver.extraClassPath", "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
# What of its environment adds to the class path.
_ENVIRONMENT = (
    "spark_conf_dir",
    "hadoop_conf_dir",
    "yarn_conf_dir",
    "spark_dist_classpath",
    "java_tool_options",
)

# With a larger heap Java's pointers to objects are longer, and so is all that an archive holds of them.
_LONG_POINTERS_BYTES = 32 * 1024**3

# After this time what could not be made or used is tried again: its cause may be gone.
_ASIDE_SECONDS = 86400.0

_MOST_KEPT = 4


def archive_path(
    folder: Path, java: Java, jars: Path, version: str, conf: Mapping[str, str], heap_bytes: int | None
) -> Path:
    """Where the archive for such an engine is kept, or would be.

    Args:
        folder: of the archives.
        java: that will run.
        jars: Spark's folder of them.
        version: Spark's.
        conf: the user's settings of the engine.
        heap_bytes: of the driver, where that is known.
    """
    # Sorted, since `glob` promises no order.
    listed = sorted(jars.glob("*.jar"))
    environment = EngineEnvironment.read()
    facts = [
        java.version,
        str(java.home),
        _stamp(java.home / "release"),
        _stamp(java.home / "lib" / "server" / "libjvm.so"),
        str(jars),
        # Java compares times, too.
        [(jar.name, *_stamp(jar)) for jar in listed],
        [conf.get(name) for name in _CONF],
        [getattr(environment, name) or None for name in _ENVIRONMENT],
        (heap_bytes or 0) >= _LONG_POINTERS_BYTES,
    ]
    # 64 bits of the digest: it tells a few archives of one user apart.
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    return folder / f"spark-{version}-java-{java.version}-{key}.jsa"


def java_options(archive: Path) -> str:
    """Flags that have Java start from this archive, or as without where it does not fit or is damaged."""
    # A damaged one would end the JVM later, in the midst of something. The check takes tenths of a second.
    return f'"-XX:SharedArchiveFile={archive}" -XX:+VerifySharedSpaces -Xshare:auto'


def is_used_by(pid: int, archive: Path) -> bool:
    """Whether the JVM has mapped the archive. True where that is unknown (no /proc)."""
    try:
        # With `-Xshare:auto` Java does not report it, but a mapped file is in the process's memory map.
        return str(archive) in Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return not Path("/proc/self/maps").exists()


def why_distrusted(archive: Path) -> str | None:
    """Why this archive must be neither used nor made, as a sentence, or None.

    It is code: another user who could write it, or exchange it in its folder, would have engines run theirs.
    """
    files = (archive, base_of(archive))
    # The folder too: another user who may write there could replace a file that is in order.
    for path, is_kind in ((archive.parent, stat.S_ISDIR), *((file, stat.S_ISREG) for file in files)):
        try:
            # `lstat`: a link would be followed to a file that another user chose.
            found = path.lstat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{path} cannot be looked at: {error.strerror}"
        if not is_kind(found.st_mode):
            return f"{path} is a link, or not of its kind"
        if found.st_uid not in (0, os.geteuid()):
            return f"{path} belongs to another user"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return f"others can write to {path}: chmod go-w"
    return None


def set_aside(archive: Path, reason: str) -> None:
    """Keep engines from using or making this archive for a day. Blocks; does nothing without write access."""
    # Nothing is removed in a folder that others may write to: a name there may be a link.
    if why_distrusted(archive):
        return
    with suppress(OSError):
        archive.unlink(missing_ok=True)
        _mark(archive).write_text(f"{reason}\n")


def is_set_aside(archive: Path) -> bool:
    """Whether it was set aside less than a day ago."""
    # By the time of the mark's file, so that it outlives the process.
    try:
        return time.time() - _mark(archive).stat().st_mtime < _ASIDE_SECONDS
    except OSError:
        return False


def note_use(archive: Path) -> None:
    """Mark it as just used; see `forget_old`."""
    with suppress(OSError):
        os.utime(archive)


def forget_old(folder: Path) -> None:
    """Remove all archives except the few used last (150 MB or more each), and remains of killed makers."""
    with suppress(OSError):
        archives = sorted(folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        for archive in archives[_MOST_KEPT:]:
            archive.unlink(missing_ok=True)
            # An archive's base is of no use to another archive.
            base_of(archive).unlink(missing_ok=True)
        for lock in folder.glob("*.lock"):
            with suppress(OSError):
                _forget_remains(lock, lock.with_suffix(".jsa"))


def _forget_remains(lock: Path, archive: Path) -> None:
    if archive.exists() or is_set_aside(archive):
        return
    with lock.open("rb") as file:
        # Raises where another process makes it now.
        flock(file, LOCK_EX | LOCK_NB)
        shutil.rmtree(work_of(archive), ignore_errors=True)
        for remains in (base_of(archive), _mark(archive), lock):
            remains.unlink(missing_ok=True)


def work_of(archive: Path) -> Path:
    """The folder in which it is made, under the lock next to it."""
    return archive.with_suffix(".work")


def base_of(archive: Path) -> Path:
    """Where an archive of Java's own classes is kept for a Java that came without."""
    return archive.with_suffix(".base")


def _mark(archive: Path) -> Path:
    return archive.with_suffix(".unusable")


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns
