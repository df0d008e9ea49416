"""Layout of generated code, as the usual formatters have it: they find nothing to change.

Not by a formatter, which users of `nebula stubs` need not have; nor by `ast.unparse`, which breaks no lines
and has single quotes: a function of ten parameters would be one line. Python's tokenizer finds the brackets.
"""

from __future__ import annotations

import io
import json
import math
import tokenize
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

WIDTH: Final = 88

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


def quoted(text: str) -> str:
    """A string literal in double quotes, but where that would need more escapes."""
    # As formatters do: double quotes, unless that costs a backslash.
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
    # In this order, or the backslashes of the second replacement would be doubled.
    body = body.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    # 6 for both sets of quotes.
    if len(lines) == 1 and indent + len(body) + 6 <= WIDTH:
        # A quote before the closing ones would end the string too early.
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
    # The longest pair is broken first: what is inside may then fit as it is.
    marks = max(_brackets(code), key=lambda marks: marks[-1] - marks[0], default=None)
    if marks is None:
        return [f"{' ' * indent}{code}{suffix}"]
    items = (code[before + 1 : after].strip() for before, after in pairwise(marks))
    return bracketed(code[: marks[0] + 1], list(filter(None, items)), code[marks[-1] :] + suffix, indent)


def _brackets(code: str) -> Iterator[list[int]]:
    """The outermost pairs of brackets: where each begins, its own commas, and where it ends."""
    # With the tokenizer, because strings may contain brackets.
    depth, marks = 0, [0]
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.OP:
            continue
        place = token.start[1]
        if token.string in _OPENING:
            depth += 1
            marks = [place] if depth == 1 else marks
        elif token.string in _CLOSING:
            depth -= 1
            if depth == 0:
                yield [*marks, place]
        elif token.string == "," and depth == 1:
            marks.append(place)
