"""How long the machines look for something: briefly by default, longer where the environment says so."""

from __future__ import annotations

import os
from typing import Final

from hypothesis import HealthCheck, settings

# `NEBULA_PROPERTY_EXAMPLES=20`: twenty times as many examples of each machine.
TIMES: Final = int(os.environ.get("NEBULA_PROPERTY_EXAMPLES", "1"))

# What is found takes a while to be made small.
SECONDS: Final = 600 * TIMES


def many(examples: int, steps: int) -> settings:
    """The settings of a machine: so many examples of so many steps, times what the environment says."""
    return settings(
        max_examples=examples * TIMES,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
