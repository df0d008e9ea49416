"""What the tests of all services share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases, records and jobs of a test are its own."""
    monkeypatch.setenv("SHOP_STOCK", str(tmp_path / "stock.sqlite"))
    monkeypatch.setenv("SHOP_RECORDED", str(tmp_path / "recorded"))
    monkeypatch.setenv("NEBULA_STATE", str(tmp_path / "state"))
