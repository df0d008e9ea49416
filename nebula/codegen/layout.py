"""Code as text, laid out as the usual formatters would: they find nothing to change."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

WIDTH: Final = 88

_PAIRS: Final = {"(": ")", "[": "]", "{": "}"}


def quoted(text: str) -> str:
    """A string literal in double quotes, but where that would need more escapes."""
    if '"' in text and "'" not in text:
        return repr(text)
    # What cannot be seen, such as a sign that turns the direction of writing, is not to hide in code.
    code = json.dumps(text, ensure_ascii=False)
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in code)


def plain(value: Any) -> str:
    """A value of JSON as an expression."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, list):
        return f"[{', '.join(map(plain, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{quoted(key)}: {plain(one)}' for key, one in value.items())}}}"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def bytes_literal(value: bytes) -> str:
    """A literal of bytes."""
    text = repr(value)
    return f'b"{text[2:-1]}"' if '"' not in text and "\\'" not in text else text


def docstring(text: str, indent: int) -> list[str]:
    """The lines of a docstring. Its text is a stranger's: nothing in it ends the string or escapes."""
    pad = " " * indent
    text = "".join(sign for sign in text.expandtabs(4) if sign.isprintable() or sign == "\n")
    lines = [line.rstrip() for line in text.strip().split("\n")]
    body = "\n".join(f"{pad}{line}" if line else "" for line in lines).strip()
    body = body.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if len(lines) == 1 and indent + len(body) + 6 <= WIDTH:
        closing = '"""' if not body.endswith('"') else ' """'
        return [f'{pad}"""{body}{closing}']
    return [f'{pad}"""{body}', f'{pad}"""']


def bracketed(head: str, items: Sequence[str], tail: str, indent: int = 0) -> list[str]:
    """`head`, items and `tail` on one line where they fit, else an item a line.

    Args:
        head: ends with the opening bracket; `tail` begins with the closing one.
        items: what stands between, without commas.
        indent: columns.
    """
    pad = " " * indent
    line = f"{pad}{head}{', '.join(items)}{tail}"
    if not items or len(line) <= WIDTH:
        return [line]
    inner = [each for item in items for each in broken(item, indent + 4, ",")]
    return [f"{pad}{head}", *inner, f"{pad}{tail}"]


def broken(code: str, indent: int, suffix: str = "") -> list[str]:
    """One piece of code, broken inside its longest pair of brackets if it is too long for a line."""
    if indent + len(code) + len(suffix) <= WIDTH:
        return [f"{' ' * indent}{code}{suffix}"]
    spans = list(_brackets(code))
    if not spans:
        return [f"{' ' * indent}{code}{suffix}"]
    start, end = max(spans, key=lambda span: span[1] - span[0])
    head, inside, tail = code[: start + 1], code[start + 1 : end], code[end:]
    return bracketed(head, list(_items(inside)), tail + suffix, indent)


def _brackets(code: str) -> Iterable[tuple[int, int]]:
    """Where the outermost pairs of brackets begin and end."""
    open_at: list[int] = []
    for place, sign in _outside_strings(code):
        if sign in _PAIRS:
            open_at.append(place)
        elif sign in ")]}":
            start = open_at.pop()
            if not open_at:
                yield start, place


def _items(inside: str) -> Iterable[str]:
    """What commas part, but for those inside brackets of its own."""
    depth = start = 0
    for place, sign in _outside_strings(inside):
        if sign in _PAIRS:
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and depth == 0:
            yield inside[start:place].strip()
            start = place + 1
    if last := inside[start:].strip():
        yield last


def _outside_strings(code: str) -> Iterable[tuple[int, str]]:
    quote = ""
    is_escaped = False
    for place, sign in enumerate(code):
        if quote:
            if is_escaped:
                is_escaped = False
            elif sign == "\\":
                is_escaped = True
            elif sign == quote:
                quote = ""
        elif sign in "\"'":
            quote = sign
        else:
            yield place, sign
