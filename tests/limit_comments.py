"""The comments of fixed limits, from which the settings page is made."""

from __future__ import annotations

from nebula import globs
from nebula.broker.core import fixed_limits as core_limits
from nebula.broker.limit_comments import LimitComment, limit_comments


def fixed_limits() -> dict[str, tuple[float, LimitComment]]:
    """The value and the comment of each limit that no setting changes, by name."""
    return {
        name: (getattr(module, name), comment)
        for module in (core_limits, globs)
        for name, comment in limit_comments(module).items()
    }
