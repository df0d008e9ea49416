"""Globs: any pattern against any name, beside a matcher that is plainly right."""

from __future__ import annotations

from nebula.globs import MAX_GLOB_STARS, compile_glob

# The other matcher takes time in proportion to both lengths multiplied.
_MOST_CHARACTERS = 400


def match(data: bytes) -> None:
    """A pattern and a name with a line end between."""
    pattern, _, name = data.decode(errors="replace")[: 2 * _MOST_CHARACTERS].partition("\n")
    try:
        matches = compile_glob(pattern)
    except ValueError:
        return
    assert bool(matches(name)) == _matches(_tokens(pattern), name)


_Class = tuple[bool, list[tuple[str, str]]]
_Token = str | _Class


def _tokens(pattern: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(pattern):
        if pattern[at] == "[":
            at = _class(pattern, at + 1, tokens)
        elif pattern[at] == "*":
            end = at
            while pattern[end : end + 1] == "*":
                end += 1
            tokens.append("*" if end - at == 1 else "**")
            at = end
        else:
            # A plain character is a class of one; a plain slash too, which no real class matches.
            character = pattern[at]
            tokens.append("?" if character == "?" else f"={character}")
            at += 1
    return tokens


def _class(pattern: str, at: int, tokens: list[_Token]) -> int:
    is_negated = pattern[at] == "!"
    at += is_negated
    ranges: list[tuple[str, str]] = []
    first = at
    while at == first or pattern[at] != "]":
        # `a-]` is two characters and the end: a range needs its upper bound inside.
        if pattern[at + 1] == "-" and (at + 2 < pattern.index("]", first + 1)):
            ranges.append((pattern[at], pattern[at + 2]))
            at += 3
        else:
            ranges.append((pattern[at], pattern[at]))
            at += 1
    tokens.append((is_negated, ranges))
    return at + 1


def _matches(tokens: list[_Token], name: str) -> bool:
    """All places of the name that can be reached, token by token."""
    places = {0}
    stars = 0
    for token in tokens:
        if token in ("*", "**"):
            stars += 1
            places = _after_star(places, name, crosses=token == "**")
        else:
            places = {at + 1 for at in places if at < len(name) and _fits(token, name[at])}
    assert stars <= MAX_GLOB_STARS
    return len(name) in places


def _after_star(places: set[int], name: str, *, crosses: bool) -> set[int]:
    reached = set()
    is_open = False
    for at in range(len(name) + 1):
        is_open = at in places or (is_open and (crosses or name[at - 1] != "/"))
        if is_open:
            reached.add(at)
    return reached


def _fits(token: _Token, character: str) -> bool:
    if isinstance(token, str):
        return character != "/" if token == "?" else token[1:] == character
    is_negated, ranges = token
    is_in = any(low <= character <= high for low, high in ranges)
    return character != "/" and is_in != is_negated
