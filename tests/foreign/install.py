"""What the foreign judges run on: taken from Debian, npm and PyPI where it is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks import peers
from benchmarks.processes import Unavailable, alone


def install_package(package: str) -> None:
    """Install a Debian package unless it is there.

    Raises:
        Unavailable: it is missing and cannot be had here.
    """
    peers.install(package)


def install_program(program: str, package: str) -> None:
    """Install the Debian package of a program, unless there is such a program, wherever it came from.

    Raises:
        Unavailable: it is missing and cannot be had here.
    """
    if shutil.which(program) is None:
        peers.install(package)


def install_node_modules(folder: Path) -> None:
    """Install what the folder's `package-lock.json` names, with npm, unless that has been done.

    Raises:
        Unavailable: npm cannot fetch it.
    """
    with alone():
        lock = folder / "package-lock.json"
        # npm writes it last; it is older than a lock that has changed since.
        installed = folder / "node_modules" / ".package-lock.json"
        if installed.exists() and installed.stat().st_mtime >= lock.stat().st_mtime:
            return
        command = ["npm", "ci", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()[-600:]}")


def install_python(folder: Path, requirements: Path) -> Path:
    """Make an environment of Python with these packages: the folder of its programs.

    Raises:
        Unavailable: pip cannot fetch them.
    """
    with alone():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        programs = folder / "bin"
        command = [str(programs / "pip"), "install", "--quiet", "--requirement", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Unavailable(f"pip install -r {requirements.name} failed: {done.stderr.strip()[-600:]}")
        return programs


def install_python_packages(folder: Path, *requirements: str) -> None:
    """Install packages of Python into a folder of their own, as `coming_from.txt` pins them.

    Raises:
        Unavailable: they cannot be fetched.
    """
    uv = shutil.which("uv")
    pip = (
        [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    )
    pins = ["--constraint", str(Path(__file__).with_name("coming_from.txt"))]
    command = [*pip, "--quiet", "--target", str(folder), *pins, *requirements]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)} failed: {done.stderr.strip()[-600:]}")
