"""Search depth: how long property machines, kill campaigns and crowds look for a fault.

``NEBULA_TEST_DEPTH`` is a whole number, 1 by default. ``make test`` searches at depth 1, ``make test-slow``
at 4 and ``make torture`` at 80; work and time grow in proportion. A test whose work depends on `DEPTH` is
marked ``deep``, so that ``make test-slow`` runs it again.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

DEPTH: Final = int(os.environ.get("NEBULA_TEST_DEPTH", "1"))

# Shrinking a failing example takes a while.
SECONDS: Final = 300 * DEPTH


def machine_settings(examples: int, steps: int) -> settings:
    """Return the settings of a property machine: at depth 1, this many examples of this many steps."""
    return settings(
        max_examples=examples * DEPTH,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
