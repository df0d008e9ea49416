"""The ES module `nebula.js` does in Chromium what it says, with a broker and a service of ours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.processes import tail
from nebula.browser import MODULE
from tests.cli.programs import running
from tests.foreign.install import install_node_modules, install_program
from tests.foreign.judges.browser import showing
from tests.foreign.judges.page_server import PageServer
from tests.foreign.judges.trials import HERE as JUDGES
from tests.foreign.judges.trials import Result

# The first one waits for Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

_HERE = Path(__file__).parent
_DEADLINE = 60.0
_CHECKS = re.findall(r'^  "(.+)": async', (_HERE / "page.js").read_text(), re.MULTILINE)

_SHOP = '''
from collections.abc import AsyncIterator
from typing import Any

import anyio

from nebula import Job, JobError, Responder, VerbError

app = Responder("shop")
waiting = anyio.Event()
withdrawn = anyio.Event()


@app.verb
async def quote(symbol: str, qty: int = 1) -> float:
    return {"ABC": 1.25}[symbol] * qty


@app.verb
async def echo(value: Any) -> Any:
    return value


@app.verb
async def nothing() -> None: ...


@app.verb
async def refuse() -> None:
    raise VerbError("sold-out", "none left", details={"left": 0}, retryable=True)


@app.verb
async def wait() -> None:
    """Ends when it is withdrawn."""
    waiting.set()
    try:
        await anyio.sleep_forever()
    finally:
        withdrawn.set()


@app.verb
async def waits() -> None:
    """Returns when somebody waits, and forgets what was before."""
    global waiting, withdrawn
    await waiting.wait()
    waiting, withdrawn = anyio.Event(), anyio.Event()


@app.verb
async def was_withdrawn() -> bool:
    await withdrawn.wait()
    return True


streaming, left = anyio.Event(), anyio.Event()
yielded = 0


@app.verb
async def numbers(up_to: int) -> AsyncIterator[int]:
    global yielded, streaming, left
    yielded = 0
    streaming, left = anyio.Event(), anyio.Event()
    streaming.set()
    try:
        for number in range(up_to):
            yielded = number + 1
            yield number
    finally:
        left.set()


@app.verb
async def was_left() -> int:
    """How many were yielded, once the last stream is closed."""
    await left.wait()
    return yielded


@app.verb
async def so_far() -> int:
    return yielded


@app.verb
async def failing() -> AsyncIterator[int]:
    yield 1
    raise VerbError("sold-out", "none left", retryable=True)


@app.verb
async def silent() -> AsyncIterator[int]:
    try:
        yield 1
        await anyio.sleep_forever()
    finally:
        left.set()


@app.job(engine=None)
def count(ctx: Job, up_to: int) -> int:
    if up_to < 0:
        raise JobError("cannot count down", code="backwards")
    for number in range(up_to):
        ctx.progress(number, up_to, "counting")
        ctx.raise_if_cancelled()
    return up_to
'''

Told = dict[str, Result]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """What the page tells of each of its checks."""
    for program, package in {"node": "nodejs", "npm": "npm", "chromium": "chromium"}.items():
        install_program(program, package)
    install_node_modules(JUDGES / "js")
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(_SHOP)
    stompjs = JUDGES / "js/node_modules/@stomp/stompjs/esm6"
    pages = PageServer({"/stompjs/": stompjs, "/module/": MODULE.parent, "/": _HERE})
    words = ("broker", "--port", "0", "--http", "0", "--store", "memory", "--app", "shop:app")
    with pages.serving(), running(*words, cwd=folder) as (process, _):
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port
        url = f"http://127.0.0.1:{pages.port}/page.html?port={port}"
        with showing(url, tmp_path_factory.mktemp("chromium")) as log:
            results = pages.results("page", _DEADLINE)
            assert results, tail(log)
        yield {str(line["check"]): Result(bool(line["ok"]), str(line["detail"])) for line in results}


@pytest.mark.parametrize("check", _CHECKS)
def test_module(told: Told, check: str) -> None:
    assert check in told, f"the page came only to {list(told)[-1]!r}"
    assert told[check].ok, told[check].detail
