"""The page of headers has what `nebula.headers` has, and both are extensions that the protocol knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nebula import headers

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "headers.md"
PROTOCOL = ROOT.parent / "shared" / "PROTOCOL.md"

CONSTANTS = {name: value for name, value in vars(headers).items() if name.isupper()}

# The Nebulous Protocol's own headers are not extensions: they stand in the protocol's own section.
NEBULOUS = {headers.REPLY_TO, headers.REPLY_ID, headers.IN_REPLY_TO}


def rows() -> list[str]:
    """The first cell of each row of each table; of a destination, what comes before its variable part."""
    cells = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [cell.partition("<")[0] for cell in cells]


def test_each_constant_has_its_row_and_each_row_its_constant() -> None:
    assert sorted(rows()) == sorted(CONSTANTS.values())


def test_no_header_of_ours_is_written_out_elsewhere_in_the_code() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / "nebula").rglob("*.py")
        for name in re.findall(r"""["']neb-[a-z-]+["']""", path.read_text(encoding="utf-8"))
        if path != Path(headers.__file__)
    }

    assert found == set()


@pytest.mark.skipif(not PROTOCOL.exists(), reason="PROTOCOL.md is not beside this checkout")
@pytest.mark.parametrize("name", CONSTANTS)
def test_name_stands_in_the_protocol(name: str) -> None:
    text = PROTOCOL.read_text(encoding="utf-8")
    section = "## C.2 " if CONSTANTS[name] in NEBULOUS else "# G. "
    _, _, begun = text.partition(f"\n{section}")
    extensions = begun.partition("\n## C.3 ")[0] if CONSTANTS[name] in NEBULOUS else begun

    assert re.search(f"`{re.escape(CONSTANTS[name])}[`<*]", extensions)
