"""`nebula bench`, as a shell sees it. The speed itself is not tested."""

from __future__ import annotations

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

Ask = Callable[..., CompletedProcess[str]]

SHORT = ("--seconds", "0.2")


def facts(done: CompletedProcess[str], status: int = 0) -> dict[str, Any]:
    assert done.returncode == status, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("in_flight", ["1", "8"])
def test_calls_are_counted_and_timed(ask: Ask, in_flight: str) -> None:
    found = facts(ask("bench", "call", "shop", "price", "item=cup", "--in-flight", in_flight, *SHORT))

    assert found["calls"] >= int(in_flight)
    assert found["errors"] == {}
    assert found["seconds"] >= 0.2
    assert found["calls_per_second"] == pytest.approx(found["calls"] / found["seconds"], rel=0.01, abs=0.06)
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"] <= found["longest_ms"]


def test_errors_are_counted_apart_and_without_any_success_they_are_the_status(ask: Ask) -> None:
    found = facts(ask("bench", "call", "shop", "price", "item=ghost", *SHORT), status=1)

    assert found["calls"] == 0
    assert list(found["errors"]) == ["sold-out"]
    assert "p50_ms" not in found


def test_service_that_is_not_there_is_an_error_too(ask: Ask) -> None:
    found = facts(ask("bench", "call", "nobody", "price", *SHORT), status=3)

    assert list(found["errors"]) == ["rejected-no-consumer"]


def test_messages_go_through_a_queue_of_its_own(ask: Ask) -> None:
    found = facts(ask("bench", "pub", "--size", "10", *SHORT))

    assert found["sent"] >= 256
    assert found["sent"] % 256 == 0
    assert 0 < found["received"] <= found["sent"]
    assert found["destination"].startswith("/queue/bench.")


def test_messages_stay_in_a_queue_that_is_named(ask: Ask) -> None:
    found = facts(ask("bench", "pub", "/queue/bench-kept", "--persistent", *SHORT))

    assert "received" not in found
    assert facts(ask("queues", "/queue/bench-kept"))["summary"]["depth"] == found["sent"]
