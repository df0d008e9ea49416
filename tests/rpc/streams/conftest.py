"""The service that the tests read streams from."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.rpc.conftest import Serving
from tests.rpc.streams.market import app, watch


@pytest.fixture(autouse=True)
def fresh_watch() -> None:
    """Reset the records of handlers before each test."""
    watch.reset()


@pytest.fixture
async def prices(serving: Serving) -> AsyncGenerator[str]:
    """The name of a service whose verbs yield."""
    async with serving(app):
        yield app.name
