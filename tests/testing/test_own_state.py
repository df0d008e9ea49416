"""Jobs of services in tests are kept apart from those of live services."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from nebula import Client, Responder, embedded
from nebula.errors import RemoteError
from nebula.testing import Serve, TestClient

pytestmark = pytest.mark.anyio

_DEADLINE = 10.0


@pytest.fixture(autouse=True)
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where live services of this user keep their jobs, as the environment says; nothing is there."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("NEBULA_STATE", str(tmp_path / "live"))
    monkeypatch.setenv("NEBULA_JOBS", "postgresql://nobody:nothing@127.0.0.1:1/live")
    monkeypatch.setattr("tempfile.tempdir", str(_made(tmp_path / "temporary")))
    return tmp_path


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _reports(state: Path | None = None) -> Responder:
    reports = Responder("reports", state=state)

    @reports.job(engine=None)
    def add(a: int, b: int) -> int:
        return a + b

    return reports


async def _add(client: Client) -> str:
    job = await client.start("reports", "add", {"a": 1, "b": 2})
    assert await job.result() == 3
    return job.id


async def test_jobs_of_a_test_are_gone_after_it(live: Path) -> None:
    with anyio.fail_after(_DEADLINE):
        async with TestClient(_reports()) as client:
            await _add(client)
            assert list((live / "temporary").iterdir())

    assert not list((live / "temporary").iterdir())
    assert not (live / "live").exists()
    assert not (live / "home").exists()


async def test_jobs_of_a_plain_test_are_gone_after_it(live: Path) -> None:
    with TestClient(_reports()) as client:
        assert client.start("reports", "add", {"a": 1, "b": 2}).result() == 3

    assert not list((live / "temporary").iterdir())
    assert not (live / "live").exists()


@pytest.mark.parametrize("is_named", [True, False], ids=["NEBULA_STATE", "home"])
async def test_service_in_a_test_takes_over_no_live_jobs(
    live: Path, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    monkeypatch.delenv("NEBULA_JOBS")
    root = live / "live" if is_named else live / "home" / ".local" / "state" / "nebula"
    if not is_named:
        monkeypatch.delenv("NEBULA_STATE")
    with anyio.fail_after(_DEADLINE):
        async with TestClient(_reports(state=root)) as client:
            before = await _add(client)
        async with TestClient(_reports()) as client:
            with pytest.raises(RemoteError, match="not-found"):
                await client.job(before).status()


async def test_place_that_the_service_names_counts(live: Path) -> None:
    named = live / "named"
    with anyio.fail_after(_DEADLINE):
        async with TestClient(_reports(state=named)) as client:
            before = await _add(client)
        async with TestClient(_reports(state=named)) as client:
            assert await client.job(before).result() == 3

    assert list(named.iterdir())


async def test_service_that_is_served_again_in_one_test_finds_its_jobs(
    nebula_serve: Serve, nebula_client: Client
) -> None:
    with anyio.fail_after(_DEADLINE):
        async with nebula_serve(_reports()):
            before = await _add(nebula_client)
        async with nebula_serve(_reports()):
            assert await nebula_client.job(before).result() == 3


async def test_embedded_service_keeps_no_jobs(live: Path) -> None:
    with anyio.fail_after(_DEADLINE):
        async with embedded(_reports()), Client() as client:
            await _add(client)

    assert not list((live / "temporary").iterdir())
    assert not (live / "live").exists()
