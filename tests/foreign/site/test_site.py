"""The site builds without a warning, and each of its pages can be read on a telephone and on a screen."""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import tail
from tests.foreign.install import install_node_modules, install_program
from tests.foreign.judges.browser import showing
from website.build import ROOT, build, install_mermaid

# The first one waits for npm and Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(900)]

HERE = Path(__file__).parent
# For one page; Chromium may have to share the machine.
DEADLINE = 60.0
# axe-core reads these for faults of accessibility; it takes too long to read all of them.
SEARCHED = ("/", "/how-to/jobs/", "/coming-from/celery/", "/explanation/architecture/", "/reference/headers/")
AXE = ROOT / "console" / "node_modules" / "axe-core" / "axe.min.js"

# A page may load what the site has, and nothing else: what it tries is told to /blocked.
POLICY = "default-src 'self' 'unsafe-inline' data: blob:; report-uri /blocked"
FRAME = """\
<!doctype html><meta charset="utf-8">
<iframe height="800"></iframe>
<script type="module" src="/look.js"></script>
"""


class SiteServer:
    """Serves a site and the page that looks at it; what that page tells comes into a queue."""

    def __init__(self, site: Path) -> None:
        self.told: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.blocked: list[str] = []
        folders = (path.relative_to(site).parent.as_posix() for path in site.rglob("index.html"))
        pages = sorted("/" if folder == "." else f"/{folder}/" for folder in folders)
        own = {
            "/look.html": ("text/html", FRAME),
            "/look.js": ("text/javascript", (HERE / "look.js").read_text(encoding="utf-8")),
            "/axe.js": ("text/javascript", AXE.read_text(encoding="utf-8")),
            "/pages": ("application/json", json.dumps({"pages": pages, "searched": SEARCHED})),
        }
        server = self

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args, directory=str(site))

            def do_GET(self) -> None:
                if self.path not in own:
                    super().do_GET()
                    return
                kind, text = own[self.path]
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                said = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/told":
                    server.told.put(json.loads(said))
                else:
                    server.blocked.append(said.decode())
                self.send_response(204)
                self.end_headers()

            def end_headers(self) -> None:
                self.send_header("Content-Security-Policy", POLICY)
                super().end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve for a block."""
        thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@pytest.fixture(scope="module")
def mermaid() -> None:
    install_program("npm", "npm")
    install_mermaid()


@pytest.fixture(scope="module")
def site(mermaid: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    assert build(folder) == []
    return folder


def test_each_page_can_be_read_at_each_width_and_in_each_colour_and_loads_nothing_from_elsewhere(
    site: Path, tmp_path: Path
) -> None:
    install_program("chromium", "chromium")
    install_node_modules(ROOT / "console")
    server = SiteServer(site)
    found: dict[str, dict[str, Any]] = {}
    with server.serving(), showing(f"{server.url}/look.html", tmp_path) as log:
        while True:
            try:
                told = server.told.get(timeout=DEADLINE)
            except queue.Empty:
                pytest.fail(f"Chromium says no more after {list(found)[-3:]}:\n{tail(log)}")
            if told is None:
                break
            found[told.pop("path")] = told
    hits = found.pop("search")["hits"]

    seen = [(path, look) for path, page in found.items() for look in page["seen"]]
    assert server.blocked == []
    assert {path: page["texts"] for path, page in found.items() if page["texts"]} == {}
    assert {look["look"] for _, look in seen} == {"390 light", "1280 light", "390 dark", "1280 dark"}
    assert [(path, look["look"]) for path, look in seen if not look["isShown"]] == []
    assert [(path, look["look"]) for path, look in seen if not look["fits"]] == []
    assert [(path, look["look"], look["faults"]) for path, look in seen if look["faults"]] == []
    assert len(found) == len(list(site.rglob("index.html")))
    assert set(SEARCHED) <= found.keys()
    for look in ("390 light", "1280 dark"):
        assert sum(each["drawn"] for _, each in seen if each["look"] == look) >= 18
    assert any("last-values" in hit for hit in hits)


def test_site_has_several_versions(mermaid: None, tmp_path: Path) -> None:
    """In a repository that is thrown away; the real one has a branch `gh-pages` for it."""
    for name in ("docs", "website"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (*ROOT.glob("*.md"), ROOT / "mkdocs.yml"):
        shutil.copy(path, tmp_path)
    for name in ("benchmarks/results.md", "tests/conformance/README.md", ".ci/deploy-docs"):
        (tmp_path / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, tmp_path / name)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "NO_MKDOCS_2_WARNING": "1",
        **{
            f"GIT_{who}_{what}": "a@example.org"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        },
    }

    def run(*words: str) -> str:
        return subprocess.run(
            words, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=300
        ).stdout

    run("git", "init", "--quiet")
    # Mike names the commit that it builds.
    run("git", "commit", "--quiet", "--allow-empty", "--message", "The pages")
    run("python", "-m", "website.build")
    run(".ci/deploy-docs", "main")
    assert re.search(r"url=dev/", run("git", "show", "gh-pages:index.html"))
    run(".ci/deploy-docs", "v0.2.0")

    files = run("git", "ls-tree", "-r", "--name-only", "gh-pages").splitlines()
    assert {"index.html", "dev/index.html", "0.2.0/assets/javascripts/mermaid.js"} <= set(files)
    versions = json.loads(run("git", "show", "gh-pages:versions.json"))
    assert [(one["version"], one["aliases"]) for one in versions] == [("dev", []), ("0.2.0", ["latest"])]
    assert re.search(r"url=latest/", run("git", "show", "gh-pages:index.html"))
