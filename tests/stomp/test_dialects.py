"""The rows of the versions, and which of them two peers agree on (A.2, A.9)."""

from __future__ import annotations

import dataclasses

import pytest

from nebula.errors import RemoteProtocolError
from nebula.stomp.dialects import DIALECTS, OPENING, V1_0, V1_1, V1_2, Dialect, negotiate
from tests.stomp import ALL_DIALECTS, INVENTED

# A.2: what each escape is read as, in 1.0, 1.1 and 1.2. None: a fatal protocol error.
ESCAPES = [
    (r"\n", r"\n", "\n", "\n"),
    (r"\c", r"\c", ":", ":"),
    (r"\\", r"\\", "\\", "\\"),
    (r"\r", r"\r", None, "\r"),
    (r"\t", r"\t", None, None),
    (r"\N", r"\N", None, None),
    ("\\", "\\", None, None),
    (r"\\c", r"\\c", r"\c", r"\c"),
    (r"\\\c", r"\\\c", "\\:", "\\:"),
    (r"\\\\n", r"\\\\n", r"\\n", r"\\n"),
    ("\\\\\\", "\\\\\\", None, None),
    (r"a\nb\cc", r"a\nb\cc", "a\nb:c", "a\nb:c"),
    ("plain", "plain", "plain", "plain"),
    ("", "", "", ""),
]


@pytest.mark.parametrize(
    ("dialect", "wire", "text"),
    [
        (dialect, row[0], row[1 + column])
        for row in ESCAPES
        for column, dialect in enumerate((V1_0, V1_1, V1_2))
    ],
)
def test_escapes_are_read_as_the_version_says(dialect: Dialect, wire: str, text: str | None) -> None:
    if text is None:
        with pytest.raises(RemoteProtocolError, match=r"undefined escape|lone backslash"):
            dialect.unescape(wire)
    else:
        assert dialect.unescape(wire) == text


@pytest.mark.parametrize(
    ("dialect", "wire"),
    [
        (V1_0, " \\:  "),
        (V1_1, "\\n\\\\\\c  "),
        (V1_2, "\\n\\\\\\c\\r "),
        (OPENING, " \\:  "),
        (INVENTED, "\\n\\\\\\c  "),
    ],
    ids=lambda value: getattr(value, "version", ""),
)
def test_bytes_of_note_are_written_as_the_version_can(dialect: Dialect, wire: str) -> None:
    assert dialect.escape("\n\\:\r\0") == wire


def test_text_that_needs_no_escape_is_written_as_it_is() -> None:
    for dialect in (*ALL_DIALECTS, OPENING):
        for text in ("", "/queue/a", "a b", "Grüße", "\u00a0\u2028\x85\t🌌"):
            assert dialect.escape(text) == text or "\t" in dialect.escapes.values()
            assert dialect.unescape(dialect.escape(text)) == text


def test_header_block_escapes_names_and_values_and_keeps_their_order() -> None:
    pairs = [("z:", "1:2"), ("a", ""), ("ü", "\n")]

    assert V1_0.header_block(pairs) == "z :1:2\na:\nü: \n".encode()
    assert V1_2.header_block(pairs) == "z\\c:1\\c2\na:\nü:\\n\n".encode()
    assert V1_2.header_block([]) == b""


@pytest.mark.parametrize(
    ("accept_version", "version"),
    [
        (None, "1.0"),
        ("1.0", "1.0"),
        ("1.1", "1.1"),
        ("1.0,1.1,2.0", "1.1"),  # E23
        ("1.2,1.1", "1.2"),  # in any order
        (" 1.1 , 1.0", "1.1"),  # A.3: items of lists are trimmed
        ("2.0", None),  # E25
        ("", None),
        ("1", None),
        ("1.20", None),
        ("1.1;1.2", None),
    ],
)
def test_highest_version_in_common_is_negotiated(accept_version: str | None, version: str | None) -> None:
    dialect = negotiate(accept_version)

    assert (dialect and dialect.version) == version


def test_dialects_are_listed_by_version_lowest_first() -> None:
    assert list(DIALECTS) == ["1.0", "1.1", "1.2"]
    assert all(dialect.version == version for version, dialect in DIALECTS.items())


def test_invented_dialect_differs_from_each_version_so_that_no_test_confuses_them() -> None:
    names = [field.name for field in dataclasses.fields(Dialect) if field.init and field.name != "version"]
    rules = [[getattr(dialect, name) for name in names] for dialect in ALL_DIALECTS]

    assert all(rules.count(row) == 1 for row in rules)
