"""How a recorder is, as files of its folder tell it."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nebula.record.disk import lock_folder
from nebula.record.status import (
    Rate,
    RecorderState,
    RecorderStatus,
    metrics_of,
    read_statuses,
    write_status,
)
from tests.record.full_disk import files_of_at_most

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "recorder-metrics.md"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / ".recorder" / "one"
    folder.mkdir(parents=True)
    return folder


def test_who_holds_the_lock_is_running_and_who_does_not_has_stopped_or_is_gone(
    tmp_path: Path, state: Path
) -> None:
    write_status(state, RecorderStatus("one", state=RecorderState.RECORDING, rate=5.0))

    lock = lock_folder(state, "the folder")
    (running,) = read_statuses(tmp_path)
    os.close(lock)
    (gone,) = read_statuses(tmp_path)
    write_status(state, RecorderStatus("one", state=RecorderState.STOPPED, rate=5.0))
    (stopped,) = read_statuses(tmp_path)

    assert (running["state"], running["rate"]) == ("recording", 5.0)
    assert (gone["state"], gone["rate"]) == ("gone", 0.0)
    assert (stopped["state"], stopped["rate"]) == ("stopped", 0.0)


def test_recorder_whose_lock_may_not_be_looked_at_is_as_it_has_told(tmp_path: Path, state: Path) -> None:
    write_status(state, RecorderStatus("one", state=RecorderState.RECORDING, rate=5.0))
    # Nobody can open this, be he root: as another user cannot open the lock of a recorder.
    (state / "lock").symlink_to("lock")

    (running,) = read_statuses(tmp_path)
    assert (running["state"], running["rate"]) == ("recording", 5.0)


def test_who_looks_whether_a_recorder_runs_does_not_keep_one_from_starting(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (state / "lock").open("w") as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        monkeypatch.setattr("nebula.record.disk.sleep", lambda _: fcntl.flock(looking, fcntl.LOCK_UN))

        os.close(lock_folder(state, "the folder"))


def test_a_disk_without_any_room_is_told_all_the_same(tmp_path: Path, state: Path) -> None:
    status = RecorderStatus("one", state=RecorderState.RECORDING, messages=7, rate=5.0)
    lock = lock_folder(state, "the folder")
    write_status(state, status)
    for _ in range(2):
        with files_of_at_most(0), pytest.raises(OSError, match="too large"):
            write_status(state, status)
        (full,) = read_statuses(tmp_path)
        assert (full["state"], full["messages"], full["rate"]) == ("full", 7, 0.0)
        assert "no room" in full["failure"]
        assert metric(state, "up") == 0
    write_status(state, status)
    (again,) = read_statuses(tmp_path)
    os.close(lock)

    assert (again["state"], metric(state, "up")) == ("recording", 1)


def test_it_is_said_how_old_a_status_is(tmp_path: Path, state: Path) -> None:
    write_status(state, RecorderStatus("one"))
    file = state / "status.json"
    told = json.loads(file.read_text())
    file.write_text(json.dumps({**told, "told": told["told"] - 100}))

    (old,) = read_statuses(tmp_path)
    assert 100 <= old["age"] < 200
    assert metric(state, "told_seconds") == pytest.approx(told["told"])


@pytest.mark.parametrize("text", ["{half", "null", "[]", "{}", '{"state": "recording"}', None])
def test_what_cannot_be_read_is_left_out(tmp_path: Path, state: Path, text: str | None) -> None:
    if text is None:
        text = json.dumps({**RecorderStatus("one").as_dict(), "told": "lately"})
    (state / "status.json").write_text(text)

    assert read_statuses(tmp_path) == []
    assert read_statuses(tmp_path / "nowhere") == []


def test_metrics_are_what_prometheus_reads(state: Path) -> None:
    status = RecorderStatus("one", state=RecorderState.FULL, messages=7, message_bytes=1400, waiting=2)
    write_status(state, status)

    assert [metric(state, name) for name in ("messages_total", "waiting", "up")] == [7, 2, 0]
    assert metrics_of(status).endswith("\n")


def test_page_of_the_recorders_metrics_lists_what_is_written() -> None:
    rows = ""
    for family in text_string_to_metric_families(metrics_of(RecorderStatus("one"))):
        (sample,) = family.samples
        rows += f"| `{sample.name}` | {family.type} | {family.documentation} |\n"
        assert sample.labels == {"instance_name": "one"}

    assert PAGE.read_text().endswith(f"| --- | --- | --- |\n{rows}")


def metric(state: Path, name: str) -> float:
    families = text_string_to_metric_families((state / "metrics.prom").read_text())
    samples = {sample.name: sample.value for family in families for sample in family.samples}
    return samples[f"nebula_recorder_{name}"]


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
