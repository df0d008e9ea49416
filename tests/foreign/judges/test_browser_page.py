"""The page of `docs/how-to/browser.md` does in a browser what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from benchmarks.processes import tail
from nebula.browser import MODULE
from tests.cli.programs import running
from tests.foreign.judges.browser import showing
from tests.foreign.judges.page_server import PageServer
from tests.foreign.judges.trials import HERE

# The first one waits for Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

_PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "browser.md"
_FILE = re.compile(
    r"^```\w+\n(?:#|//|<!--) (?P<name>[\w.]+)(?: -->)?\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_DEADLINE = 30.0

# Tells us what the page shows once it no longer shows its first text.
_WATCH = """
<script>
  const price = document.querySelector("#price");
  new MutationObserver(() => {
    const told = { check: "price", ok: true, detail: price.textContent };
    fetch("/results/page", { method: "POST", body: JSON.stringify(told) })
      .then(() => fetch("/results/page", { method: "POST", body: '{"check": null}' }));
  }).observe(price, { childList: true });
</script>
"""


@pytest.fixture
def folder(installed: None, tmp_path: Path) -> Path:
    """The page's files, with ports of ours and our module beside them."""
    files = {file["name"]: file["body"] for file in _FILE.finditer(_PAGE.read_text(encoding="utf-8"))}
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    toml = re.sub(r"port = \d+", "port = 0", files["nebula.toml"])
    (tmp_path / "nebula.toml").write_text(toml)
    (tmp_path / MODULE.name).write_bytes(MODULE.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("apps", "shown"),
    [(["--app", "prices:app"], "2.5"), ([], "no-responder: no service prices is running")],
    ids=["with the service", "without it"],
)
def test_page_shows_what_the_service_answers(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, apps: list[str], shown: str
) -> None:
    modules = "node_modules/@stomp/stompjs/esm6"
    pages = PageServer({f"/{modules}/": HERE / "js" / modules, "/": folder})
    with pages.serving(), running("broker", "--store", "memory", *apps, cwd=folder) as (process, _):
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port
        index = folder / "index.html"
        index.write_text(index.read_text().replace("61680", str(port)) + _WATCH)
        with showing(f"http://127.0.0.1:{pages.port}/index.html", tmp_path_factory.mktemp("chromium")) as log:
            told = pages.results("page", _DEADLINE)

    assert [result["detail"] for result in told] == [shown], tail(log)
