"""The size of the compact core, which can be read in a day: sans-I/O STOMP, the core and its protocol.

And of a store that was added for its interface alone.
"""

from __future__ import annotations

from pathlib import Path

from tests.project.code_lines import lines_of_code

ROOT = Path(__file__).parents[2]

# 7,000, and what is too much since heads have patterns that learn (docs/decisions/0059), one ACK names
# several messages (0064) and usages are compiled (0060). Most of it is `nebula/stomp/head_patterns.py`.
LIMIT = 7_250


def core() -> list[Path]:
    """Its modules. `nebula/stomp/*.py` is sans-I/O; the client that does I/O is a folder of its own."""
    rooms = ("nebula/stomp/*.py", "nebula/broker/core/**/*.py", "nebula/broker/protocol/**/*.py")
    return sorted(path for room in rooms for path in ROOT.glob(room))


def test_lines_of_code_are_those_that_hold_code() -> None:
    source = '"""Says\nwhat."""\n\n# Why.\nX = (\n    1,\n)\n\n\ndef f() -> None:\n    """Does it."""\n'

    assert lines_of_code(source) == 4


def test_core_stays_small_enough_to_be_read_in_a_day() -> None:
    sizes = {str(path.relative_to(ROOT)): lines_of_code(path.read_text(encoding="utf-8")) for path in core()}

    assert sum(sizes.values()) <= LIMIT, sorted(sizes.items(), key=lambda item: -item[1])[:10]


def test_another_store_takes_less_than_eighty_lines() -> None:
    source = (ROOT / "tests/broker/log_store.py").read_text(encoding="utf-8")

    assert lines_of_code(source) < 80
