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
from pathlib import Path

from nebula import Job, JobError, Responder, VerbError

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
def nap(seconds: float, begun: str | None = None) -> str:
    """Sleep; a file of that name says that it has begun."""
    if begun:
        Path(begun).touch()
    time.sleep(seconds)
    return "slept"


@app.verb
def close() -> None:
    """Nothing to report."""


@app.job(engine=None)
def stock(ctx: Job, items: int) -> list[dict[str, int]]:
    """Take stock."""
    for item in range(items):
        ctx.progress(item + 1, items, f"item {item + 1}")
    if not items:
        raise JobError("nothing in stock", code="empty")
    return [{"item": item} for item in range(items)]


@app.job(engine=None)
def count(ctx: Job, items: int) -> int:
    """Count, and say so."""
    with ctx.step(1, 2, "look"):
        pass
    with ctx.step(2, 2, "count"):
        for item in range(items):
            ctx.log(f"item {item + 1}")
    return items


@app.job(engine=None)
def forever(ctx: Job) -> None:
    """Run until cancelled."""
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.01)
'''


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `shop:app` can be found."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    return folder


def state(folder: Path) -> dict[str, str]:
    """Jobs are recorded in the test's own folder."""
    return {"NEBULA_STATE": str(folder / "state")}


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    """A broker that hosts the shop."""
    with running("broker", "--port", "0", "--app", "shop:app", cwd=folder, env=state(folder)) as (_, line):
        yield line["url"]


@pytest.fixture
def ask(url: str) -> Callable[..., CompletedProcess[str]]:
    """Run one command against that broker."""
    return lambda *words: nebula(*words, env={"NEBULA_BROKER": url})
