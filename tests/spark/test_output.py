"""The file that an engine's processes print to is bounded, and stays theirs."""

from __future__ import annotations

import os
from pathlib import Path

from nebula.spark.host.log_capture import bound_output

MIB = 1024 * 1024


def test_of_output_that_has_grown_large_the_end_is_left_and_whoever_holds_it_writes_on(
    tmp_path: Path,
) -> None:
    path = tmp_path / "engine.err"
    # Opened once each, as by processes that do not share a position.
    with path.open("a+b", 0) as ours, path.open("ab", 0) as a_workers:
        a_workers.write(b"first\n" + b"x" * 9 * MIB + b"\nlast\n")
        bound_output(ours.fileno())
        a_workers.write(b"and on\n")

    said = path.read_bytes()
    assert said.startswith(b"[... %d bytes are left out]\nx" % (8 * MIB + 12))
    assert said.endswith(b"x\nlast\nand on\n")
    assert len(said) < MIB + 100


def test_output_that_is_not_large_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "engine.err"
    with path.open("a+b", 0) as file:
        file.write(b"x" * 8 * MIB)
        bound_output(file.fileno())

    assert path.stat().st_size == 8 * MIB


def test_file_that_is_not_appended_to_and_a_pipe_are_left_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "elsewhere"
    with path.open("w+b", 0) as file:
        file.write(b"x" * 9 * MIB)
        bound_output(file.fileno())
    reading, writing = os.pipe()
    bound_output(writing)
    os.close(reading)
    os.close(writing)

    assert path.stat().st_size == 9 * MIB
