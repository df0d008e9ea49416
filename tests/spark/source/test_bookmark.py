"""A spool keeps its identity, whatever becomes of the position that was committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.errors import SettingsError
from nebula.spark.source.bookmark import Bookmark
from tests.own_logs import own_logs
from tests.record.full_disk import files_of_at_most


def test_spool_is_known_again_with_what_was_committed(tmp_path: Path) -> None:
    first = Bookmark(tmp_path)
    first.commit(12)
    first.commit(7)
    again = Bookmark(tmp_path)

    assert (again.spool, again.committed) == (first.spool, 12)


@pytest.mark.parametrize("left", ["", "\0\0\0", "1"])
def test_committed_position_that_a_power_cut_spoils_is_an_earlier_one(tmp_path: Path, left: str) -> None:
    first = Bookmark(tmp_path)
    first.commit(12)
    (tmp_path / "committed").write_text(left)
    again = Bookmark(tmp_path)

    assert again.spool == first.spool
    assert again.committed in (0, 1)


def test_full_disk_costs_the_committed_position_and_no_more(tmp_path: Path) -> None:
    bookmark = Bookmark(tmp_path)
    with own_logs() as logs, files_of_at_most(0):
        bookmark.commit(12)

    assert [entry["event"] for entry in logs] == ["committed position not written"]
    assert bookmark.committed == 12
    assert Bookmark(tmp_path).committed == 0


def test_identity_that_is_not_what_was_written_is_said(tmp_path: Path) -> None:
    Bookmark(tmp_path)
    (tmp_path / "identity").write_text("")

    with pytest.raises(SettingsError, match="identity is not what was written there"):
        Bookmark(tmp_path)
