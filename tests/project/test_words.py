"""Names in the code use the words of the glossary, and none of those that it replaces."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"

ROWS = re.findall(r"^\| ([a-z][^|]*?) \| .+? \| ([^|]*?) ?\|$", GLOSSARY.read_text(), re.MULTILINE)
REPLACED = {
    word.strip(): term for term, words in ROWS if term != "word" for word in words.split(",") if word.strip()
}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def names() -> Iterator[tuple[str, str]]:
    """The names of modules, classes, functions and log events, each with its place."""
    for path in sorted((ROOT / "nebula").rglob("*.py")):
        place = str(path.relative_to(ROOT))
        yield place, path.stem
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield f"{place}:{node.lineno}", node.name
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=_),
                    args=[ast.Constant(value=str(event)), *_],
                ):
                    yield f"{place}:{node.lineno}", event


def words_of(name: str) -> str:
    """`EventLog.next_turn` as `event log next turn`."""
    return " ".join(word.lower() for word in WORD.findall(name))


def test_glossary_has_its_words() -> None:
    assert len(ROWS) > 30
    assert REPLACED["answer"] == "reply"


@functools.cache
def words_of_names() -> list[tuple[str, str, str]]:
    """All names, each with its place and its words. All modules are read once, for all words."""
    return [(place, name, words_of(name)) for place, name in names()]


@pytest.mark.parametrize("word", REPLACED)
def test_replaced_word_is_in_no_name(word: str) -> None:
    found = re.compile(rf"\b{word}(?:s|es|ing|ed|er|ers)?\b")
    places = [f"{place}: {name}" for place, name, words in words_of_names() if found.search(words)]

    assert places == [], f"the word is {REPLACED[word]}"
