"""The page about Avro lists the keys and bounds that the code has."""

from __future__ import annotations

import re
from pathlib import Path

from nebula.avro import Item
from nebula.avro.envelope import MAX_ITEMS
from nebula.avro.prescan import MAX_DEPTH, MAX_VALUES
from nebula.avro.programs import MAX_DECIMAL_BYTES, MAX_FIXED_BYTES
from nebula.avro.registry import MAX_SCHEMAS
from nebula.avro.schema import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH

PAGE = (Path(__file__).parents[2] / "docs/reference/avro.md").read_text()


def test_each_key_of_the_envelope_has_its_row() -> None:
    rows = re.findall(r"^\| (\d) \| (\w+)", PAGE, re.MULTILINE)

    assert rows == [(str(item.value), item.name.lower()) for item in Item]


def test_bounds_are_those_of_the_code() -> None:
    table = PAGE.partition("| limit | of |")[2].partition("\n\n")[0]

    assert re.findall(r"^\| (.*?) \| ", table, re.MULTILINE)[1:] == [
        f"{MAX_DEPTH}",
        f"{MAX_VALUES:,}",
        f"{MAX_DECIMAL_BYTES} bytes",
        f"{MAX_FIXED_BYTES >> 20} MiB",
        f"{MAX_SCHEMA_BYTES >> 10} KiB, {MAX_SCHEMA_DEPTH} levels of JSON",
        f"{MAX_SCHEMAS:,}",
    ]
    assert f"An envelope\nhas at most {MAX_ITEMS} items" in PAGE
