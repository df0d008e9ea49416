"""The ledger: ids and lengths that outlive the process, and are forgotten in time."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.record.ledger import Ledger, LedgerDamaged, Mark


def test_what_was_committed_is_known_by_the_next_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    ledger.commit(["a", "b"], {"x": Mark(100, 2)})
    ledger.commit(["c"], {"y": Mark(50, 1)})
    ledger.close()

    again = Ledger(tmp_path / "ledger")
    assert "a" in again
    assert "c" in again
    assert "d" not in again
    assert again.files == {"x": Mark(100, 2), "y": Mark(50, 1)}
    assert again.position == 3
    assert (ledger.is_new, again.is_new) == (True, False)


def test_confirmed_ids_are_forgotten_now_and_by_the_next_one(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    first = ledger.commit(["a", "b"], {})
    ledger.confirm(first)
    assert ledger.in_doubt == 0
    ledger.commit(["c"], {})
    ledger.close()

    again = Ledger(tmp_path / "ledger")
    assert "a" not in again
    assert again.in_doubt == 1


def test_an_id_that_came_again_is_kept_until_that_is_confirmed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    first = ledger.commit(["a", "b"], {})
    second = ledger.commit(["c"], {}, again=["b"])

    ledger.confirm(first)
    assert "a" not in ledger
    assert "b" in ledger

    ledger.confirm(second)
    assert ledger.in_doubt == 0


def test_a_line_that_was_cut_is_no_line_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.commit(["a"], {"x": Mark(1, 1)})
    whole = ledger.size_bytes
    ledger.commit(["b"], {"x": Mark(2, 2)})
    ledger.close()
    octets = path.read_bytes()

    for size in range(whole, len(octets)):
        path.write_bytes(octets[:size])
        cut = Ledger(path)

        assert "b" not in cut
        assert cut.files == {"x": Mark(1, 1)}
        cut.commit(["c"], {})
        cut.close()
        assert "c" in Ledger(path)


def test_a_line_that_was_changed_is_damage_and_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(path)
    ledger.commit(["a"], {})
    ledger.commit(["b"], {})
    ledger.close()
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"z"'))

    with pytest.raises(LedgerDamaged, match=str(path)):
        Ledger(path)


def test_a_ledger_that_was_written_anew_says_the_same(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    groups = [
        ledger.commit([f"{number}", f"x{number}"], {"x": Mark(number, number)}) for number in range(100)
    ]
    for group in groups[:90]:
        ledger.confirm(group)
    ledger.drop("x")
    ledger.commit([], {"y": Mark(7, 7)})
    before = ledger.size_bytes

    ledger.rewrite()
    last = ledger.commit(["last"], {})
    ledger.close()

    again = Ledger(tmp_path / "ledger")
    assert again.size_bytes < before / 5
    assert again.in_doubt == 21
    assert again.files == {"y": Mark(7, 7)}
    assert again.position == 201
    assert again.commit([], {}) > last


def test_the_oldest_ids_are_forgotten_when_too_many_were_never_confirmed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", max_in_doubt=10)
    for number in range(20):
        ledger.commit([f"{number}"], {})

    assert "9" not in ledger
    assert "10" in ledger
