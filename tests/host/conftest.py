"""What tests of calls by HTTP share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.host.http_house import House, running_house


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A broker with listeners of all kinds; each test calls verbs of its own."""
    with running_house(tmp_path_factory.mktemp("house")) as one:
        yield one
