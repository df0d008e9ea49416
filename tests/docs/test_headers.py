"""The page of headers lists every extension of the protocol, and which of them are implemented.

An implemented header has a constant in `nebula.headers`, a use in the code and a test.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nebula import headers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "headers.md"

CONSTANTS = {
    name: value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)
}


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page. The name of a destination ends where its variable part begins."""

    name: str
    built: str


def read_rows() -> Iterator[Row]:
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        for line in re.findall(r"^\| `.+\|$", section, re.MULTILINE):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            yield Row(cells[0].strip("`").partition("<")[0], cells[-1])


ROWS = list(read_rows())
BUILT = {row.name for row in ROWS if row.built != "no"}
UNBUILT = {row.name for row in ROWS if row.built == "no"}


@functools.cache
def texts(folder: str) -> dict[str, str]:
    """The code of a folder by path, and transcripts; without the module of the names, and this one."""
    paths = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".txt")]
    left_out = {Path(headers.__file__), Path(__file__)}
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in paths
        if path not in left_out
    }


def as_written(value: str) -> re.Pattern[str]:
    """What finds a name in a frame, a quoted string or a transcript, and not in prose."""
    text = re.escape(value)
    if "/" in value:
        return re.compile(text)
    begins = r"(?:(?<![\w-])|\\n)"
    return re.compile(rf"{begins}{text}:|:{text}(?![\w-])|([\"']){text}\1|[\"']{text}=")


def users_of(name: str) -> set[str]:
    """The modules that use a constant."""
    return {
        path
        for path, text in texts("nebula").items()
        # The first is quick, and holds of a few modules.
        if name in text and re.search(rf"\b{name}\b", text)
    }


def is_tested(name: str) -> bool:
    constant = re.compile(rf"\b(?:names|headers)\.{name}\b")
    literal = as_written(CONSTANTS[name])
    value = CONSTANTS[name]
    return any(
        (name in text and constant.search(text)) or (value in text and literal.search(text))
        for text in texts("tests").values()
    )


def test_each_row_says_whether_it_is_built() -> None:
    assert {row.built for row in ROWS} <= {"yes", "no"}


def test_each_constant_has_a_built_row_and_each_built_row_a_constant() -> None:
    assert sorted(set(CONSTANTS.values()) - BUILT) == []
    assert sorted(BUILT - set(CONSTANTS.values())) == []


def test_no_row_that_is_not_built_has_a_constant() -> None:
    assert sorted(UNBUILT & set(CONSTANTS.values())) == []


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_is_built_is_used_and_tested(name: str) -> None:
    assert users_of(name)
    assert is_tested(name), f"no file under tests/ has {name} or {CONSTANTS[name]!r}"


def test_search_for_a_test_is_not_content_with_prose() -> None:
    assert as_written("result").search('alice.say("UNSUBSCRIBE\\nresult:ignored")')
    assert as_written("ignored").search("alice< RECEIPT receipt-id:1; result:ignored")
    assert as_written("requeue").search('{"requeue": "false"}')
    assert not as_written("result").search("the result of a job: its content")
    assert not as_written("durable").search("not-durable:true")


def test_no_name_of_ours_is_written_out_elsewhere_in_the_code() -> None:
    ours = re.compile(r"""["'](?:neb-[a-z-]+["']|/(?:queue|topic)/(?:nebula|jobs)\.|X/(?:nebula|jobs)\.)""")
    found = {path: match[0] for path, text in texts("nebula").items() for match in ours.finditer(text)}

    assert found == {}
