"""Runners whose engine hosts only pretend: `fake_host` says what they do."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nebula.spark import Spark, SparkRunner

_FAKE_HOST = Path(__file__).with_name("fake_host.py")


def fake_command(mode: str, folder: Path) -> list[str]:
    """What starts a host that is in such a mood."""
    return [sys.executable, str(_FAKE_HOST), mode, str(folder)]


def fake_runner(
    folder: Path,
    mode: str = "good",
    *,
    is_shared: bool = True,
    back_off: Sequence[float] | None = None,
    **declared: Any,
) -> SparkRunner:
    """A runner that starts a failed host again at once, and isolated jobs' engine is broken for a while."""
    return SparkRunner(
        Spark(**declared),
        folder,
        "reports",
        is_shared=is_shared,
        command=fake_command(mode, folder),
        back_off=back_off or (0.01, 0.02 if is_shared else 20.0),
    )
