"""`python -m tests.fuzz`: look for inputs that break what reads from peers, led by what code they reach."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from tests.compiled.twin import COMPILED_BUILD
from tests.fuzz import folders, seeds
from tests.fuzz.targets import COMPILED, TARGETS
from tests.fuzz.words import dictionary

# An input that takes longer or holds more is a finding: all that a peer may cause is bounded.
_MOST_SECONDS = 10
_MOST_MEGABYTES = 1_024
_MOST_OCTETS = 4_096
# Of the corpus in the repository: what a longer input reaches is mostly found again by chance.
_MOST_KEPT_OCTETS = 1_500
# What takes milliseconds for an input, and has the most to be found, gets more of the time than the others.
_SHARES = {"server": 5, "parser": 2}


def main(
    targets: Annotated[list[str] | None, typer.Argument(help="Of: " + ", ".join(TARGETS))] = None,
    seconds: Annotated[float, typer.Option(min=1, help="For all targets together.")] = 60.0,
    keep: Annotated[
        Path | None, typer.Option(help="A folder to begin with, and to keep in what reaches new code.")
    ] = None,
    compiled: Annotated[
        bool,
        typer.Option(
            "--compiled",
            help="Compare with the compiled build: " + ", ".join(COMPILED) + " (make build/compiled/.built).",
        ),
    ] = False,
    renew: Annotated[
        bool, typer.Option(help="Write the corpus anew: transcripts, corpus and --keep, made few.")
    ] = False,
) -> None:
    """Fuzz each target for its part of the time. Ends with 1 if anything was found.

    What is found is written to tests/fuzz/findings, where tests/fuzz/test_findings.py replays it from then
    on: mend it, then commit the file with the change.
    """
    if importlib.util.find_spec("atheris") is None:
        typer.echo("fuzzing needs atheris (Linux on x86-64): pip install --group torture", err=True)
        raise typer.Exit(2)
    chosen = targets or list(TARGETS)
    if unknown := set(chosen) - TARGETS.keys():
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not among {', '.join(TARGETS)}")
    if compiled and not (COMPILED_BUILD / ".built").exists():
        raise typer.BadParameter("there is no compiled build, run: make build/compiled/.built")
    with tempfile.TemporaryDirectory(prefix="nebula-fuzz-") as folder:
        scratch = Path(folder)
        (scratch / "words").write_text(dictionary())
        for name in chosen:
            folders.findings(name).mkdir(parents=True, exist_ok=True)
            folders.corpus(name).mkdir(parents=True, exist_ok=True)
        if renew:
            _renew(chosen, scratch, keep)
            return
        part = seconds / sum(_SHARES.get(name, 1) for name in chosen)
        passed = [
            _fuzz(name, part * _SHARES.get(name, 1), scratch, keep, is_compared=compiled) for name in chosen
        ]
    raise typer.Exit(not all(passed))


def _fuzz(name: str, seconds: float, scratch: Path, keep: Path | None, *, is_compared: bool) -> bool:
    """Fuzz one target; False: something was found."""
    grown = (keep or scratch) / name
    grown.mkdir(parents=True, exist_ok=True)
    before = set(folders.findings(name).iterdir())
    log = scratch / f"{name}.log"
    with log.open("wb") as output:
        options = [f"-max_total_time={max(1, round(seconds))}", f"-dict={scratch / 'words'}"]
        options += [str(grown), str(folders.corpus(name))]
        code = _run(name, options, output.fileno(), is_compared=is_compared)
    text = log.read_text(errors="replace")
    found = set(folders.findings(name).iterdir()) - before
    runs = re.search(r"number_of_executed_units: *(\d+)", text)
    typer.echo(f"{name}: {runs[1] if runs else '?'} inputs, {len(list(grown.iterdir()))} reached new code")
    if code or found:
        typer.echo("\n".join(text.splitlines()[-60:]), err=True)
        for file in sorted(found):
            typer.echo(f"{name}: FOUND {file.relative_to(folders.HERE.parents[1])}", err=True)
    return not (code or found)


def _run(name: str, options: list[str], output: int, *, is_compared: bool = False) -> int:
    command = [
        *(sys.executable, "-m", "tests.fuzz.instrumented", name, *["compiled"] * is_compared),
        *(f"-timeout={_MOST_SECONDS}", f"-rss_limit_mb={_MOST_MEGABYTES}", f"-max_len={_MOST_OCTETS}"),
        *(f"-artifact_prefix={folders.findings(name)}/", "-print_final_stats=1", *options),
    ]
    return subprocess.run(command, stdout=output, stderr=output, check=False).returncode


def _renew(chosen: list[str], scratch: Path, keep: Path | None) -> None:
    """The corpus: of all inputs at hand those few which together reach the same code."""
    made = seeds.make()
    for name in chosen:
        given, few, now = scratch / f"{name}.given", scratch / f"{name}.few", folders.corpus(name)
        given.mkdir()
        few.mkdir()
        old = [file.read_bytes() for where in (now, (keep or scratch) / name) for file in where.glob("*")]
        for each in made.get(name, set()).union(old):
            if len(each) <= _MOST_KEPT_OCTETS:
                (given / hashlib.sha1(each, usedforsecurity=False).hexdigest()).write_bytes(each)
        if code := _run(name, ["-merge=1", str(few), str(given)], subprocess.DEVNULL):
            raise RuntimeError(f"{name}: the fuzzer ended with {code}")
        shutil.rmtree(now)
        shutil.copytree(few, now)
        typer.echo(f"{name}: {len(list(given.iterdir()))} inputs, {len(list(few.iterdir()))} are enough")


if __name__ == "__main__":
    typer.run(main)
