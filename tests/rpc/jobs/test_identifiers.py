"""Job ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.rpc.jobs.model.identifiers import RANDOM_BYTES, is_ulid, new_ulid, qualified, unqualified

_TIMES = st.integers(0, (1 << 48) - 1)
_CHANCE = st.binary(min_size=RANDOM_BYTES, max_size=RANDOM_BYTES)


def test_ulid_of_a_known_time_begins_as_the_specification_says() -> None:
    # The example of the ULID specification: 1469918176385 is 01ARYZ6S41.
    assert new_ulid(1469918176385, bytes(10)) == "01ARYZ6S41" + "0" * 16


@given(_TIMES, _TIMES, _CHANCE, _CHANCE)
def test_later_ulid_sorts_after_the_earlier(early: int, late: int, one: bytes, other: bytes) -> None:
    if early < late:
        assert new_ulid(early, one) < new_ulid(late, other)


@given(_TIMES, _CHANCE)
def test_every_ulid_is_one(milliseconds: int, chance: bytes) -> None:
    assert is_ulid(new_ulid(milliseconds, chance))


@pytest.mark.parametrize("text", ["", "01ARYZ6S41", "8" + "0" * 25, "0" * 25 + "I", "0" * 25 + "a", "0" * 27])
def test_other_texts_are_invalid(text: str) -> None:
    assert not is_ulid(text)


def test_job_id_says_whom_to_ask() -> None:
    ulid = "0" * 26

    assert unqualified(qualified("reports", ulid)) == ("reports", ulid)
    assert unqualified(ulid) == (None, ulid)


@pytest.mark.parametrize("text", ["", "reports/", "/" + "0" * 26, "reports", "reports/1"])
def test_text_that_is_no_job_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no job's id"):
        unqualified(text)
