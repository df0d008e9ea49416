"""Commands about jobs, as a shell runs them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import TypeAlias

Ask: TypeAlias = Callable[..., subprocess.CompletedProcess[str]]


def start(ask: Ask, *words: str) -> str:
    answer = json.loads(ask("call", "shop", *words).stdout)
    assert answer["state"] in ("queued", "starting", "running")
    return str(answer["job"])
