"""A service in a folder, and a broker that hosts it, in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.cli.programs import nebula, running

SHOP = '''
import time
from decimal import Decimal

from nebula import Responder, VerbError

app = Responder("shop")


@app.verb
async def price(item: str, qty: int = 1) -> Decimal:
    """Price of `qty` pieces.

    Not shown in tables.
    """
    if item == "ghost":
        raise VerbError("sold-out", "no ghosts left")
    return Decimal("1.25") * qty


@app.verb
def nap(seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "slept"


@app.verb
def close() -> None:
    """Nothing to report."""
'''


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `shop:app` can be found."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    return folder


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    """A broker that hosts the shop."""
    with running("broker", "--port", "0", "--app", "shop:app", cwd=folder) as (_, line):
        yield line["url"]


@pytest.fixture
def ask(url: str) -> Callable[..., CompletedProcess[str]]:
    """Run one command against that broker."""
    return lambda *words: nebula(*words, env={"NEBULA_BROKER": url})
