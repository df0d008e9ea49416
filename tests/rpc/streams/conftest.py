"""The service that the tests read streams from."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.rpc.conftest import Serving
from tests.rpc.streams.market import app, watch


@pytest.fixture(autouse=True)
def fresh_watch() -> None:
    """What handlers told of themselves in the test before is forgotten."""
    watch.reset()


@pytest.fixture
async def prices(serving: Serving) -> AsyncGenerator[str]:
    """The name of a service whose verbs yield."""
    async with serving(app):
        yield app.name
