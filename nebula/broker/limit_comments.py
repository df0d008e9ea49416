"""Documentation of limits: the comments above them, of settings and of fixed limits.

A limit's comment has two sentences: `[Unit: ]why this number.` and, on a line of its own, `At it: what
happens.` The settings page, the JSON Schema and the example file are made from them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

# Three parts in this order: comment lines up to `At it:`, that line and the comment lines after it, and
# `name: type = `. `why` is lazy, so that it ends before `At it:`.
_LIMIT = re.compile(
    r"(?P<why>(?:^ *# .*\n)+?) *# At it: (?P<at_it>.*\n(?: *# .*\n)*) *(?P<name>[A-Za-z]\w*): \w+ = ",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class LimitComment:
    """What the comment of a limit says.

    Attributes:
        why: what it counts, and why this number.
        at_it: what happens at it.
    """

    why: str
    at_it: str


def limit_comments(module: ModuleType) -> dict[str, LimitComment]:
    """The comments of all limits of a module, by name, in their order."""
    assert module.__file__ is not None
    source = Path(module.__file__).read_text(encoding="utf-8")
    return {
        found["name"]: LimitComment(_text(found["why"]), _text(found["at_it"]))
        for found in _LIMIT.finditer(source)
    }


def _text(comment: str) -> str:
    lines = (line.strip().removeprefix("#").strip() for line in comment.splitlines())
    # Callers add the full stop.
    return " ".join(lines).removesuffix(".")
