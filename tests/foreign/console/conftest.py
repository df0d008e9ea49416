"""A broker with an operator and a plain user, services, and Chromium to look at its console.

    def test_purge(site: Site, operator: Page) -> None:
        with site.client() as client: ...            # something to look at
        operator.goto(site.at("queues"))             # signed in as the operator
        operator.get_by_role("button", name="Purge").click()

A test fails when the page has logged an error, or has broken its Content-Security-Policy. Its report says
what the pages of a failed test showed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from benchmarks.processes import free_port
from nebula.broker.server.authenticator import users_line
from nebula.sync import Client
from tests.cli.programs import Program, running
from tests.foreign.install import install_node_modules, install_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

HERE = Path(__file__).parent

OPERATOR = ("operator", "operator-passcode")
"""May do everything."""

READER = ("reader", "reader-passcode")
"""May call services and read topics, and nothing of the broker's own."""

_RIGHTS = """
[capability.Everything]
publish = ["**"]
subscribe = ["**", "/queue/DLQ"]
call = ["*", "dlq.*"]

[capability.Reading]
publish = ["/queue/shop", "/queue/shop.*"]
subscribe = ["/topic/**", "X/**"]

[capability.Serving]
publish = ["**"]
subscribe = ["**"]

[identity]
"operator" = ["Everything"]
"reader" = ["Reading"]
"app:shop" = ["Serving"]
"""

_SETTINGS = """
rights = ["rights.toml"]
app = ["shop:app"]
console = true
http = {http}
data = "{data}"

[[listener]]
port = {stomp}
anonymous = false

[identity]
users = "users.toml"
"""

# The only Chromium is Debian's: no test downloads one.
_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

# Generous: many of these tests share two cores.
TIMEOUT_MS = 20_000


class Site:
    """A broker with a console, on the same ports after each start.

    Attributes:
        folder: with its settings and its data.
        url: of the console.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stomp_port, self.http_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http_port}/console/"
        self._running = ExitStack()
        self.process: Program | None = None
        (folder / "rights.toml").write_text(_RIGHTS)
        lines = ["[users]", *(users_line(*login) for login in (OPERATOR, READER))]
        (folder / "users.toml").write_text("\n".join(lines) + "\n")
        text = _SETTINGS.format(http=self.http_port, stomp=self.stomp_port, data=folder / "data")
        (folder / "nebula.toml").write_text(text)
        (folder / "shop.py").write_text((HERE / "shop.py").read_text())

    def start(self, *words: str) -> None:
        """Start the broker, and wait until it listens."""
        environment = {**os.environ, "NEBULA_STATE": str(self.folder / "state")}
        started = running("broker", *words, env=environment, cwd=self.folder)
        self.process, _ = self._running.enter_context(started)

    def stop(self) -> None:
        """End the broker; its messages stay for the next start."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)
            self.process = None
        self._running.close()

    def at(self, page: str) -> str:
        """The address of a page of the console: "queues", "services/shop"."""
        return f"{self.url}#/{page}"

    def address(self, login: tuple[str, str] = OPERATOR) -> str:
        """The broker's address for Python, with a login."""
        return f"stomp://{login[0]}:{login[1]}@127.0.0.1:{self.stomp_port}"

    def client(self, login: tuple[str, str] = OPERATOR) -> Client:
        """A client of Python, to set up what the page is to show; enter it by `with`."""
        return Client(self.address(login))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running broker of the module's own."""
    one = Site(tmp_path_factory.mktemp("console"))
    one.start()
    yield one
    one.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A Chromium without a window. It ends with the module, as its loop must not run beside others."""
    install_program("chromium", "chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(_FLAGS))
        yield browser
        browser.close()


OpenPage = Callable[..., "Page"]


_PAGES = pytest.StashKey[list["Page"]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a failure what its pages showed: the time limit alone does not say what came."""
    report = yield
    if call.when == "call" and report.failed:
        for page in item.stash.get(_PAGES, []):
            with suppress(Exception):  # it may have crashed
                report.sections.append((page.url, page.locator("body").aria_snapshot(timeout=5_000)))
    return report


@pytest.fixture
def open_page(chromium: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Opens pages; each has a profile of its own. At the end none may have complained.

    Called with a login (`OPERATOR`, `READER`), it signs in; without one it shows the sign-in form. Other
    arguments are those of a context: `viewport={"width": 390, "height": 844}`, `color_scheme="dark"`.
    """
    contexts: list[BrowserContext] = []
    complaints: list[str] = []
    pages = request.node.stash[_PAGES] = []

    def open_one(login: tuple[str, str] | None = None, at: str = "", **options: Any) -> Page:
        options.setdefault("viewport", {"width": 1280, "height": 860})
        context = chromium.new_context(**options)
        context.set_default_timeout(TIMEOUT_MS)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        contexts.append(context)
        page = context.new_page()
        pages.append(page)
        page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
        page.on("console", lambda said: _note(complaints, said.type, said.text))
        page.goto(site.at(at) if at else site.url)
        if login is not None:
            sign_in(page, *login)
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert complaints == []


def _note(complaints: list[str], kind: str, text: str) -> None:
    # A broker that is away is what some tests want.
    if kind == "error" and "WebSocket connection to" not in text and "ERR_CONNECTION" not in text:
        complaints.append(text)


@pytest.fixture
def operator(open_page: OpenPage) -> Page:
    """The console, signed in as the operator."""
    return open_page(OPERATOR)


@pytest.fixture
def reader(open_page: OpenPage) -> Page:
    """The console, signed in as a user without operator's rights."""
    return open_page(READER)


def apart(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a coroutine to its end, on a thread of its own: Playwright has a loop on this one."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(anyio.run, work).result()


def sign_in(page: Page, login: str, passcode: str) -> None:
    """Fill in the form, and wait for the shell."""
    page.get_by_label("Login").fill(login)
    page.get_by_label("Passcode", exact=True).last.fill(passcode)
    page.get_by_role("button", name="Sign in").click()
    # On a narrow screen it is behind a button.
    page.locator("#navigation").wait_for(state="attached")


@pytest.fixture(scope="module")
def axe() -> None:
    """What finds faults of accessibility, for `axe_findings`."""
    for program, package in {"node": "nodejs", "npm": "npm"}.items():
        install_program(program, package)
    install_node_modules(HERE.parents[2] / "console")


def axe_findings(page: Page) -> list[str]:
    """What axe-core finds on a page that is serious or critical."""
    # `add_script_tag` would be stopped by the Content-Security-Policy; an expression of the debugger is not.
    page.evaluate((HERE.parents[2] / "console/node_modules/axe-core/axe.min.js").read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {each['help']}: {json.dumps([node['html'][:160] for node in each['nodes'][:3]])}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]
