"""The options of `Client.start`, as headers (G.job-request)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nebula import headers as names
from nebula.rpc.contract.start_options import StartOptions, start_headers
from nebula.rpc.wire.brokers import brand_of


def test_times_travel_as_whole_milliseconds() -> None:
    headers = start_headers(StartOptions(job_timeout=1.5, progress_every=0.1), brand_of("nebula/0.1.0"))

    assert headers == {names.JOB_TIMEOUT: "1500", names.JOB_PROGRESS_EVERY: "100"}


@pytest.mark.parametrize("moment", [datetime(2030, 1, 1, tzinfo=UTC), 1893456000.0])
def test_point_in_time_travels_as_milliseconds_since_the_epoch(moment: datetime | float) -> None:
    headers = start_headers(StartOptions(not_before=moment), brand_of("nebula/0.1.0"))

    assert headers == {names.JOB_NOT_BEFORE: "1893456000000"}


@pytest.mark.parametrize("option", ["expires_in", "job_timeout", "progress_every", "priority", "not_before"])
def test_negative_option_is_refused_by_its_name(option: str) -> None:
    with pytest.raises(ValueError, match=f"{option} is -1"):
        start_headers(StartOptions(**{option: -1}), brand_of("nebula/0.1.0"))  # type: ignore[misc]
