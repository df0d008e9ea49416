"""The page of headers has its tables from headers.toml; `python -m tests.docs.test_headers` writes them.

headers.toml has a row for each extension of the protocol, implemented or not. An implemented one has a
constant in `nebula.headers`, a use in the code and a test.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from benchmarks.pages import Table, renewed
from nebula import headers

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reference" / "headers.md"
ROWS_FILE = PAGE.with_suffix(".toml")

CONSTANTS = {
    name: value for name, value in vars(headers).items() if name.isupper() and isinstance(value, str)
}

NO_EQUIVALENT: Final = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Row:
    """A header, a value of one, or a destination."""

    name: str
    meaning: str = ""
    on: str = ""
    values: str = ""
    profile: str = "both"
    rabbitmq: str = NO_EQUIVALENT
    activemq: str = NO_EQUIVALENT
    plain_peer: str = ""
    built: bool = True

    @property
    def constant(self) -> str:
        """The value of its constant. The name of a destination ends where its variable part begins."""
        return self.name.partition("<")[0]

    def cells(self, fields: list[str]) -> list[str]:
        """The texts of some fields, as they stand in a table."""
        texts = {"name": f"`{self.name}`", "built": "yes" if self.built else "no"}
        return [texts.get(field) or " ".join(getattr(self, field).split()) for field in fields]


HEADER: Final = {"header": "name", "on": "on", "values": "values"}
PEERS: Final = {
    "profile": "profile",
    "RabbitMQ": "rabbitmq",
    "ActiveMQ": "activemq",
    "plain peer": "plain_peer",
}
BUILT: Final = {"built": "built"}
OURS: Final = HEADER | PEERS | BUILT
OF_OTHERS: Final = HEADER | BUILT

# The tables of the page: by name the fields of a row by the headings of their columns.
COLUMNS: Final = {
    "queues": OURS,
    "delayed-redelivery": OURS,
    "sending": OURS,
    "last-values": OURS,
    "verdicts": {"verdict": "name", "meaning": "meaning"} | BUILT,
    "results": {"result": "name", "meaning": "meaning"} | BUILT,
    "requests": OURS,
    "on-behalf": OURS,
    "jobs": OURS,
    "nebulous-protocol": OF_OTHERS,
    "maxam": OF_OTHERS,
    "destinations": {"destination": "name", "what": "meaning"} | BUILT,
    "reserved-names": {"reserved": "name", "": "meaning"} | BUILT,
}


def read_rows() -> dict[str, list[Row]]:
    """The rows by table. A field that `Row` does not have is an error."""
    tables = tomllib.loads(ROWS_FILE.read_text(encoding="utf-8"))
    return {table: [Row(**row) for row in rows] for table, rows in tables.items()}


ROWS = read_rows()
IMPLEMENTED = {row.constant for rows in ROWS.values() for row in rows if row.built}
PLANNED = {row.constant for rows in ROWS.values() for row in rows if not row.built}


def tables() -> dict[str, str]:
    """The tables of the page by name, as Markdown."""
    made: dict[str, str] = {}
    for name, columns in COLUMNS.items():
        fields = list(columns.values())
        made[name] = markdown([list(columns), *(row.cells(fields) for row in ROWS[name])])
    return made


def markdown(table: Table) -> str:
    heading, *rows = table
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in lines)


def page() -> str:
    """The page with its tables as headers.toml has them, and the rest of it as it is."""
    return renewed(PAGE.read_text(encoding="utf-8"), tables())


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


def test_tables_of_the_page_are_those_of_the_rows() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.test_headers"


def test_rows_and_page_have_the_same_tables() -> None:
    marked = re.findall(r"^<!-- (.+) -->$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert ROWS.keys() == COLUMNS.keys()
    assert [name for name in marked if name != "end"] == list(COLUMNS)


@pytest.mark.parametrize("table", COLUMNS)
def test_row_fills_the_columns_of_its_table_and_no_others(table: str) -> None:
    columns = set(COLUMNS[table].values())
    others = {field for field in Row.__slots__ if field not in columns}
    plain = Row("")

    for row in ROWS[table]:
        assert [field for field in columns if getattr(row, field) == ""] == [], row.name
        assert [field for field in others if getattr(row, field) != getattr(plain, field)] == [], row.name


def test_each_name_has_one_row_for_each_frame() -> None:
    rows = Counter((row.name, row.on) for rows in ROWS.values() for row in rows)

    assert [row for row, times in rows.items() if times > 1] == []


def test_each_constant_has_a_row_and_each_implemented_row_a_constant() -> None:
    assert sorted(set(CONSTANTS.values()) - IMPLEMENTED) == []
    assert sorted(IMPLEMENTED - set(CONSTANTS.values())) == []


def test_row_that_is_not_implemented_has_no_constant() -> None:
    assert sorted(PLANNED & set(CONSTANTS.values())) == []


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


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
