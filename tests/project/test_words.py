"""Names in the code use the words of the glossary, and none of those that it replaces."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nebula import headers

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"

ROWS = re.findall(r"^\| ([a-z][^|]*?) \| .+? \| ([^|]*?) ?\|$", GLOSSARY.read_text(), re.MULTILINE)
REPLACED = {
    word.strip(): term for term, words in ROWS if term != "word" for word in words.split(",") if word.strip()
}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


# Names that keep a word that the glossary avoids: `place: name`, with the reason.
KEPT = {
    "broker/core/limits.py: max_transit_bytes": "a published setting",
    "rpc/discovery/scatter.py: answers": "a public attribute of `ScatterResult`",
    "broker/operations/certificates.py: subject": "the field of an X.509 certificate, not a topic",
    "rpc/middleware/logs.py: request answered": "a log event that users search for",
    "rpc/middleware/logs.py: call answered": "a log event that users search for",
    "extras/postgres_tables.py: CHANNEL": "what PostgreSQL calls it in LISTEN and NOTIFY",
}

LOGGERS = {"log", "_log"}
METRIC = re.compile(r"nebula_[a-z_]+")


def names_in(node: ast.AST) -> Iterator[str]:
    """The names that one node gives to something."""
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            yield node.name
        # A setting, or an attribute of a dataclass.
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name
        case ast.Attribute(attr=name, ctx=ast.Store()) if not name.startswith("_"):
            yield name
        case ast.Call(func=ast.Attribute(value=logger), args=[ast.Constant(value=str(event)), *_]) if (
            ast.unparse(logger).rpartition(".")[2] in LOGGERS
        ):
            yield event
            yield from (field.arg for field in node.keywords if field.arg)
        case ast.Constant(value=str(text)) if METRIC.fullmatch(text):
            yield text


def names() -> Iterator[tuple[str, str]]:
    """All names that are compared with the glossary, each with its module."""
    for path in sorted((ROOT / "nebula").rglob("*.py")):
        place = str(path.relative_to(ROOT / "nebula"))
        yield place, path.stem
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            yield from ((place, name) for name in names_in(node))
    yield from (("headers.py", text) for text in vars(headers).values() if isinstance(text, str))


def words_of(name: str) -> str:
    """`EventLog.next_turn` as `event log next turn`."""
    return " ".join(word.lower() for word in WORD.findall(name))


def forms_of(word: str) -> re.Pattern[str]:
    """The word, its plural and its verb forms: `acknowledge` also as `acknowledged` and `acknowledging`."""
    stem, endings = (word[:-1], "e|ing") if word.endswith("e") else (word, "|s|ing")
    return re.compile(rf"\b{stem}(?:{endings}|es|ed|ers?|e?ments?)\b")


def test_glossary_has_its_words() -> None:
    assert len(ROWS) > 30
    assert REPLACED["answer"] == "reply"
    assert REPLACED["subject"] == "topic"
    assert REPLACED["acknowledge"] == "ack"


@functools.cache
def words_of_names() -> list[tuple[str, str]]:
    """All names with their places, and the words of each. All modules are read once, for all words."""
    return [(f"{place}: {name}", words_of(name)) for place, name in names()]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("class Board: ...", ["Board"]),
        ("async def answer() -> None: ...", ["answer"]),
        ("class A:\n    max_transit_bytes: int = 1", ["A", "max_transit_bytes"]),
        ("self.answers = self._turns = 1", ["answers"]),
        ("self._log.info('lane closed', subject=name)", ["lane closed", "subject"]),
        ("_log.warning('job lost', standing=1)", ["job lost", "standing"]),
        ("Gauge('nebula_lanes_busy', 'Lanes.')", ["nebula_lanes_busy"]),
    ],
)
def test_names_of_every_kind_are_found(source: str, found: list[str]) -> None:
    assert [name for node in ast.walk(ast.parse(source)) for name in names_in(node)] == found


@pytest.mark.parametrize(
    "name",
    ["headers.py: neb-reply-to", "broker/core/limits.py: max_outbox_bytes", "cli/watching.py: watching"],
)
def test_names_of_the_package_are_found(name: str) -> None:
    assert name in dict(words_of_names())


@pytest.mark.parametrize("word", REPLACED)
def test_replaced_word_is_in_no_name(word: str) -> None:
    found = forms_of(word)
    places = [place for place, words in words_of_names() if found.search(words) and place not in KEPT]

    assert places == [], f"the word is {REPLACED[word]}"


def test_names_that_keep_a_replaced_word_exist_and_have_one() -> None:
    words = dict(words_of_names())

    assert [
        name for name in KEPT if not any(forms_of(word).search(words.get(name, "")) for word in REPLACED)
    ] == []


def test_only_queues_have_consumers() -> None:
    others = re.compile(r"\b(topics?|values?)\b")
    found = [
        place
        for place, words in words_of_names()
        if "consumer" in words and others.search(words_of(place.partition(":")[0]))
    ]

    assert found == [], "a consumer is a subscriber of a queue"
