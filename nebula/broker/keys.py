"""Keys of last values: the part of a destination that its value is kept under (B.6, D.30)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

# The name in angle brackets is only for readers of the settings.
_DROPPED = re.compile(r"<[\w-]+>")


def key_function(prefixes: Sequence[str], patterns: Sequence[str]) -> Callable[[str], str] | None:
    """What makes the key of a destination; None where each destination is its own key.

    A pattern is written over the parts of a subject between dots, `EGM.<protocol>.**`: `<name>` is a
    part that the key leaves out, `*` any other one, `**` at the end whatever follows; the rest
    stands for itself. The first pattern that matches counts.

    Raises:
        ValueError: a pattern that means nothing; the text goes on from it.
    """
    compiled = [_compile(pattern) for pattern in patterns]
    if not compiled:
        return None

    def key_of(destination: str) -> str:
        prefix = next((each for each in prefixes if destination.startswith(each)), "")
        subject = destination[len(prefix) :]
        for pattern in compiled:
            match = pattern.fullmatch(subject)
            if match is not None:
                # Subjects that differ only in the parts left out get the same key (D.30).
                return prefix + "".join(part for part in match.groups() if part is not None)
        return destination

    return key_of


def check_key_pattern(pattern: str) -> str:
    """The pattern, if it means something.

    Raises:
        ValueError: it does not; the text goes on from it.
    """
    _compile(pattern)
    return pattern


def _compile(pattern: str) -> re.Pattern[str]:
    """Groups are what the key keeps, dots with the parts that they follow."""
    parts = pattern.split(".")
    # A pattern that leaves nothing out would change no key, so it must be a mistake.
    if not any(_DROPPED.fullmatch(part) for part in parts):
        raise ValueError("leaves nothing out: write <name> for the part that is not of the key")
    # A `**` in the middle could match in several ways.
    if "**" in parts[:-1]:
        raise ValueError("has a ** that is not its last part")
    expression = ""
    for part in parts:
        dot = r"\." if expression else ""
        if _DROPPED.fullmatch(part):
            # No group, so that the key leaves it out.
            expression += rf"{dot}[^.]+"
        elif part == "**":
            expression += rf"({dot}.*)"
        else:
            # `[^.]+`, so that `*` matches a single part.
            expression += rf"({dot}{'[^.]+' if part == '*' else re.escape(part)})"
    return re.compile(expression)
