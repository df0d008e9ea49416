"""Parsing of points in time on the command line."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

from nebula.errors import SettingsError

__all__ = ["moment_of"]

_AGO: Final = re.compile(r"(?P<count>\d{1,9})(?P<unit>[smhdw])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def moment_of(text: str | None, now: float | None = None) -> float | None:
    """Seconds since the epoch of `90m` (ago; s, m, h, d, w), `2026-10-31` or `2026-10-31T12:30`.

    A date without a zone is one of this machine's. None stays None.

    Raises:
        SettingsError: it is neither.
    """
    if text is None:
        return None
    if (ago := _AGO.fullmatch(text)) is not None:
        return (time.time() if now is None else now) - int(ago["count"]) * _SECONDS[ago["unit"]]
    try:
        # Without a zone Python assumes the local one, as people do.
        return datetime.fromisoformat(text).timestamp()
    # OverflowError and OSError: years that the platform cannot convert.
    except (ValueError, OverflowError, OSError):
        raise SettingsError(
            f"{text!r} is no time: write 90m, 2h or 7d for a time ago, or a date such as 2026-10-31T12:30"
        ) from None
