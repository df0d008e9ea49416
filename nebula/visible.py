"""Text of others made visible: control, invisible and bidirectional characters as escapes.

Whatever a peer, a file or a service chose passes through here before it reaches a terminal. A terminal obeys
escape sequences: they can repaint what was shown, set the clipboard or the title, or answer as if a key was
pressed. Bidirectional controls and invisible characters make a text read as another one.

Shown as they are: what Unicode calls printable, and the space. All else is escaped and never dropped, so
that a reader sees that something is there.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["encodable_json", "visible", "visible_json"]

# JSON has no escapes but those of UTF-16, and lets layout stand only between its values.
_LAYOUT: Final = " \n"
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def visible(text: str, *, keep: str = "") -> str:
    r"""A text with each character that is not printable as `\x1b`, `\u202e` or `\U000e0041`.

    Args:
        text: of anybody.
        keep: characters that stay as they are: a newline and a tab where the text may have several lines.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode()
        for each in text
    )


def visible_json(text: str) -> str:
    r"""JSON with each character that is not printable as `\u001b`: the same value, and nothing to obey."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in _LAYOUT else _json_escape(each) for each in text)


def encodable_json(text: str) -> str:
    r"""JSON with lone surrogates as `\udc80`: no encoding of a file can write them as they are."""
    return _LONE_SURROGATE.sub(lambda found: _json_escape(found[0]), text)


def _json_escape(each: str) -> str:
    octets = each.encode("utf-16-be", "surrogatepass")
    units = (octets[start : start + 2] for start in range(0, len(octets), 2))
    return "".join(rf"\u{int.from_bytes(unit):04x}" for unit in units)
