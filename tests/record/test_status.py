"""How a recorder is, as files of its folder tell it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nebula.record.status import (
    Rate,
    RecorderState,
    RecorderStatus,
    metrics_of,
    read_statuses,
    write_status,
)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / ".recorder" / "one"
    folder.mkdir(parents=True)
    return folder


def test_who_holds_the_lock_is_running_and_who_does_not_has_stopped(tmp_path: Path, state: Path) -> None:
    write_status(state, RecorderStatus("one", state=RecorderState.RECORDING, rate=5.0))

    with (state / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        (running,) = read_statuses(tmp_path)
    (stopped,) = read_statuses(tmp_path)

    assert (running["state"], running["rate"]) == ("recording", 5.0)
    assert (stopped["state"], stopped["rate"]) == ("stopped", 0.0)


def test_what_cannot_be_read_is_left_out(tmp_path: Path, state: Path) -> None:
    (state / "status.json").write_text("{half")

    assert read_statuses(tmp_path) == []
    assert read_statuses(tmp_path / "nowhere") == []


def test_metrics_are_what_prometheus_reads(state: Path) -> None:
    status = RecorderStatus("one", state=RecorderState.FULL, messages=7, message_bytes=1400, waiting=2)
    write_status(state, status)

    families = text_string_to_metric_families((state / "metrics.prom").read_text())
    samples = {sample.name: sample.value for family in families for sample in family.samples}
    assert samples["nebula_recorder_messages_total"] == 7
    assert samples["nebula_recorder_waiting"] == 2
    assert samples["nebula_recorder_up"] == 0
    assert metrics_of(status).endswith("\n")


def test_rate_is_of_late_and_not_of_ever() -> None:
    seconds = 0.0
    rate = Rate(lambda: seconds)
    for count in range(0, 1000, 10):
        rate.tell(count)
        seconds += 1.0
    for _ in range(20):
        now = rate.tell(1000)
        seconds += 1.0

    assert now == 0.0
