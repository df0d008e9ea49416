"""Escaping of control, invisible and bidirectional characters in foreign text.

Text from a peer, a file or a service passes through here before it reaches a terminal. A terminal obeys
escape sequences: they can repaint the screen, set the clipboard or the title, or send input as if keys were
pressed. Bidirectional controls and invisible characters make a text look like another one.

Characters that Unicode calls printable, and the space, are shown as they are. All others are escaped, and
never dropped, so that a reader sees that something is there.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["encodable_json", "visible", "visible_json"]

# JSON has only UTF-16 escapes, and allows layout only between its values.
_LAYOUT: Final = " \n"
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def visible(text: str, *, keep: str = "") -> str:
    r"""A text with each character that is not printable as `\x1b`, `\u202e` or `\U000e0041`.

    Args:
        text: any text.
        keep: characters that stay as they are, such as newline and tab for a text of several lines.
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
    # JSON escapes are UTF-16 code units: a character beyond U+FFFF takes two.
    encoded = each.encode("utf-16-be", "surrogatepass")
    units = (encoded[start : start + 2] for start in range(0, len(encoded), 2))
    return "".join(rf"\u{int.from_bytes(unit):04x}" for unit in units)
