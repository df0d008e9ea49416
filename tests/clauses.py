"""The rules of the protocol, the code that implements each, and the tests that prove it.

    python -m tests.clauses             writes docs/reference/clauses.md
    python -m tests.clauses D.24        prints where a rule stands: files and lines

A rule is an identifier of docs/reference/protocol.md, such as D.24 or G.snapshot. Code names it in a
comment or a docstring; a transcript in its title; other tests in elsewhere.toml, a comment or a docstring.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PROTOCOL: Final = ROOT / "docs" / "reference" / "protocol.md"
PAGE: Final = ROOT / "docs" / "reference" / "clauses.md"
TRANSCRIPTS: Final = ROOT / "tests" / "conformance"

# A.1, A.9 and A.11 are nothing but their parts; cases of E are tests by themselves; F tells of an example.
_NO_RULES: Final = frozenset({"A.1", "A.9", "A.11"})
_RULE: Final = re.compile(r"\b(?:[A-E]\.\d+(?:\.\d+)?|G\.[a-z][a-z-]*[a-z])\b")
_DEFINED: Final = re.compile(r"^(?:### |\| |- \*\*)([A-EG]\.[\w.-]*\w)\b", re.MULTILINE)
_RANGE: Final = re.compile(r"^\| E\.(\d+) to E\.(\d+) \|", re.MULTILINE)
_TITLE: Final = re.compile(r"^## (.+?): ", re.MULTILINE)

_OPENING: Final = """\
# Clauses

Each rule of the [protocol](protocol.md), the code that implements it, and the tests that prove it. Names
ending in `.txt` are transcripts in `tests/conformance/`. `python -m tests.clauses D.24` prints the lines;
without an argument it writes this page. A rule without code or without a test fails `make test`, and so does
a rule that code or tests name and the page does not have.

| rule | code | tests |
| --- | --- | --- |
"""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line that names a rule.

    Attributes:
        path: relative to the repository.
        line: from 1.
        symbol: the class and function around it, such as `Handlers.commit`; empty: the module.
    """

    path: str
    line: int
    symbol: str = ""


def rules() -> list[str]:
    """The identifiers that the page of the protocol defines, in its order."""
    text = PROTOCOL.read_text(encoding="utf-8")
    cases = [
        f"E.{number}" for first, last in _RANGE.findall(text) for number in range(int(first), int(last) + 1)
    ]
    defined = [rule for rule in _DEFINED.findall(text) if not rule.startswith("E.")]
    return [*(rule for rule in defined if rule not in _NO_RULES), *cases]


@functools.cache
def code() -> Mapping[str, list[Place]]:
    """The lines of the package that name each rule."""
    found: dict[str, list[Place]] = defaultdict(list)
    for path in sorted((ROOT / "nebula").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        symbols = _symbols(text)
        for number, rule in _named(text):
            found[rule].append(Place(str(path.relative_to(ROOT)), number, symbols.get(number, "")))
    return found


@functools.cache
def tests() -> Mapping[str, list[Place]]:
    """The transcripts and tests that name each rule."""
    found: dict[str, list[Place]] = defaultdict(list)
    for path in sorted(TRANSCRIPTS.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        for title in _TITLE.finditer(text):
            number = text.count("\n", 0, title.start()) + 1
            for rule in rules_of(title[1]):
                found[rule].append(Place(path.name, number))
    elsewhere = tomllib.loads((TRANSCRIPTS / "elsewhere.toml").read_text(encoding="utf-8"))
    for subject, names in elsewhere.items():
        for rule in rules_of(subject):
            found[rule] += [Place(name.partition("::")[0], 0, name.partition("::")[2]) for name in names]
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        if path.name not in ("test_clauses.py", "test_complete.py"):
            for number, rule in _named(path.read_text(encoding="utf-8")):
                found[rule].append(Place(str(path.relative_to(ROOT)), number))
    return found


def rules_of(title: str) -> list[str]:
    """The rules that a transcript's title names: `A.6 SEND, D 24, G snapshot`."""
    spelled = (re.sub(r"^([A-EG]) ", r"\1.", each.strip()) for each in title.split(","))
    return [each.partition(" ")[0] for each in spelled if re.match(r"[A-EG]\.", each)]


def page() -> str:
    """The page, from the present code and tests."""
    by_code, by_tests = code(), tests()
    rows = (
        (rule, _shown(_symbols_of(by_code.get(rule, []))), _shown(_files(by_tests.get(rule, []))))
        for rule in rules()
    )
    return _OPENING + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _symbols(text: str) -> dict[int, str]:
    """The innermost class and function around each line."""
    around: dict[int, str] = {}

    def walk(node: ast.AST, name: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inner = f"{name}.{child.name}".lstrip(".")
                around.update(
                    dict.fromkeys(range(child.lineno, (child.end_lineno or child.lineno) + 1), inner)
                )
                walk(child, inner)

    walk(ast.parse(text), "")
    return around


def _named(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        for rule in _RULE.findall(line):
            yield number, rule


def _symbols_of(places: Iterable[Place]) -> list[str]:
    return list(
        dict.fromkeys(f"{place.path.removeprefix('nebula/')} {place.symbol}".strip() for place in places)
    )


def _files(places: Iterable[Place]) -> list[str]:
    return list(dict.fromkeys(place.path.removeprefix("tests/") for place in places))


def _shown(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _print(rule: str) -> None:
    for title, places in (("code", code()), ("tests", tests())):
        print(title)
        for place in sorted(places.get(rule, [])):
            print(f"  {place.path}:{place.line} {place.symbol}".rstrip())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _print(sys.argv[1])
    else:
        PAGE.write_text(page(), encoding="utf-8")
