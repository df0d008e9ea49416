"""Globs over destination names (D.31): one matcher, whose time no pattern and no name can blow up.

`*` is a run of characters but `/`, `?` is one of them, `[…]` is one of a class and `[!…]` one outside
it, `**` is a run of anything. Dots are ordinary, so `X/EGM.*` is every EGM topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeAlias

Matcher: TypeAlias = Callable[[str], object]

# Characters: a name of 8 KiB against the worst glob within these takes some milliseconds.
# At it: ERROR and close.
MAX_GLOB_CHARACTERS: Final = 512

# Stars: the time of a match grows with them: as for `MAX_GLOB_CHARACTERS`, some milliseconds.
# At it: ERROR and close.
MAX_GLOB_STARS: Final = 32

GLOB_CHARACTERS: Final = frozenset("*?[]")


# Globs: that are kept compiled; one costs some 2 to 20 KB, and any subscriber may name new ones.
# At it: the one that was used longest ago is compiled anew.
MAX_COMPILED_GLOBS: Final = 1024

_STAR = "[^/]*?"
_FOLDERS = "(?:[^/]*+/)*?"
_RUN = "[^/]*+"
_REST = "(?s:.*+)"
_SPECIAL = re.compile(r"[*?\[\]]")
_STARS = re.compile(r"\*+")
_NOT_PLAIN = re.compile(r"\*+|\?|\[!?.[^\]]*\]", re.DOTALL)
_MEMBER = re.compile("(.)-(.)|(.)", re.DOTALL)


def is_glob(text: str) -> bool:
    """Whether `text` has a character that is special in globs, so that it is no plain name."""
    return not GLOB_CHARACTERS.isdisjoint(text)


def literal_prefix(pattern: str) -> str:
    """The part of `pattern` before its first special character: every name that it matches begins with it."""
    found = _SPECIAL.search(pattern)
    return pattern if found is None else pattern[: found.start()]


def escape_glob(text: str) -> str:
    """The pattern that matches `text` and nothing else, fit to stand within a longer one."""
    return _SPECIAL.sub(r"[\g<0>]", text)


def plain_runs(pattern: str) -> list[str]:
    """The runs of plain characters in a well-formed pattern; each name that it matches contains all of
    them."""
    return [run for run in _NOT_PLAIN.split(pattern) if run]


def compile_glob(pattern: str) -> Matcher:
    """A function that is truthy for the names which `pattern` matches as a whole.

    It takes time in proportion to the name (at worst, times the pattern). The same pattern mostly
    gives the same function: the latest ones are kept.

    Raises:
        ValueError: a bad pattern. The text goes on from the pattern: `has a "[" that …`.
    """
    return _compile(pattern)


@lru_cache(maxsize=MAX_COMPILED_GLOBS)
def _compile(pattern: str) -> Matcher:
    if not is_glob(pattern):
        return pattern.__eq__
    if len(pattern) > MAX_GLOB_CHARACTERS:
        raise ValueError(f"has {len(pattern)} characters: a glob has at most {MAX_GLOB_CHARACTERS}")
    stars = len(_STARS.findall(pattern))
    if stars > MAX_GLOB_STARS:
        raise ValueError(f"has {stars} stars: a glob has at most {MAX_GLOB_STARS}")
    return re.compile(_regex(_groups(pattern))).fullmatch


def _regex(groups: list[list[str]]) -> str:
    """A regex that never goes back far, so that it is linear in the name.

    A chunk after `*` is taken where it first fits and kept (an atomic group): the next star reaches
    whatever a later fit would leave to it. That does not hold where `**` comes before the chunk and
    `*` after it, as `**a*b` on `a/ab` shows: `*` cannot follow across the slash. So `**` is written as
    whole folders followed by `*`, and what is retried is the folder, not each place in it. A chunk with
    a slash in it fits in one place only, as no star before it passes that slash.
    """
    *leading, last = groups
    # docs/decisions/0009: atomic groups, because backtracking takes exponential time for some patterns.
    written = "".join(
        f"(?>{_FOLDERS if number else ''}{_chunks(group, follows_star=number > 0)})"
        for number, group in enumerate(leading)
    )
    if leading and last == [""]:
        return written + _REST
    *kept, end = last
    written += (_FOLDERS if leading else "") + _chunks(kept, follows_star=bool(leading))
    if not (leading or kept):
        return end
    # The end stands at the end of the name: it must not settle for a place before that.
    return f"{written}{_STAR}{end}\\Z" if end else written + _RUN


def _chunks(chunks: list[str], *, follows_star: bool) -> str:
    return "".join(
        f"(?>{_STAR}{chunk})" if follows_star or number else chunk for number, chunk in enumerate(chunks)
    )


def _groups(pattern: str) -> list[list[str]]:
    """What stands between `**`s, each as what stands between `*`s, as regexes of a fixed length."""
    groups = [[""]]
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if run := _STARS.match(pattern, position):
            # `*` next to `**` adds nothing to it.
            if len(run[0]) > 1:
                groups.append([""])
            else:
                groups[-1].append("")
            position = run.end()
            continue
        position += 1
        if character == "[":
            written, position = _class(pattern, position)
        elif character == "]":
            raise ValueError('has a "]" without its "[": write "[]]" for the character itself')
        else:
            written = "[^/]" if character == "?" else re.escape(character)
        groups[-1][-1] += written
    return groups


def _class(pattern: str, start: int) -> tuple[str, int]:
    """The class whose inside begins at `start`, and where the pattern goes on after it."""
    is_negated = pattern.startswith("!", start)
    start += is_negated
    # A `]` that comes first is one of the characters: there is no empty class.
    end = pattern.find("]", start + 1)
    if end < 0:
        raise ValueError('has a "[" without its "]": write "[[]" for the character itself')
    members = pattern[start:end]
    if "/" in members:
        raise ValueError(f'has "/" in [{members}], and a class never matches it: take it out')
    written = ""
    for low, high, alone in _MEMBER.findall(members):
        if low > high:
            raise ValueError(f'has the range "{low}-{high}", which runs backwards: write "{high}-{low}"')
        written += re.escape(alone) if alone else f"{re.escape(low)}-{re.escape(high)}"
    # A range such as `+-9` has the slash in it.
    return (f"[^/{written}]" if is_negated else f"(?!/)[{written}]"), end + 1
