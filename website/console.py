"""`python -m website.console`: the pictures of the console in docs/how-to/pictures.

Each picture is the console in Debian's Chromium, over the broker and the services of `make demo-console` with
the warehouse of the terminal's pictures. Nothing compares the pictures with the code, so take them again
when the console changes. Needs Chromium and Java.
"""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from website.terminal import FOLDER, ROOT, running

if TYPE_CHECKING:
    from playwright.sync_api import Page

_WIDTH: Final = 1280
_COLOURS: Final = 128
_DEMO_SECONDS: Final = 600
_TIMEOUT_MS: Final = 120_000
_END_SECONDS: Final = 30.0

_FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def verb(page: Page) -> None:
    """Call a verb by its form."""
    _open(page, "Services")
    page.get_by_role("link", name="warehouse", exact=True).click()
    page.get_by_role("link", name="order", exact=True).click()
    page.get_by_role("button", name="Add", exact=False).first.click()
    page.get_by_label("item").first.fill("cup")
    page.get_by_label("pieces").first.fill("6")
    page.get_by_label("due").first.fill("2030-01-31")
    page.get_by_role("button", name="Call", exact=True).click()
    page.get_by_role("region", name="Reply").get_by_text("success").wait_for()


def job(page: Page) -> None:
    """Start a Spark job by its form, and follow it until a part of it is done."""
    _open(page, "Jobs")
    page.get_by_role("button", name="Start a job…").click()
    page.get_by_role("dialog").get_by_role("link", name="flights delays").click()
    page.get_by_role("button", name="Start the job").click()
    page.get_by_role("link", name="Follow the job").click()
    page.get_by_text(re.compile(r"[1-9]\d* of \d+ Spark tasks done")).wait_for()


def result(page: Page) -> None:
    """The plot of what the job has found."""
    page.get_by_role("region", name="Result", exact=True).get_by_text("Plot", exact=True).click()
    page.get_by_role("img", name="Result: flights by carrier").wait_for()


def queues(page: Page) -> None:
    """The queues with their rates, which need two looks."""
    _open(page, "Queues")
    page.get_by_role("row", name="/queue/new-orders").get_by_text(
        re.compile(r"[1-9][\d.]*/s")
    ).first.wait_for()


def dead_letters(page: Page) -> None:
    """A dead letter, and why it is one."""
    _open(page, "Dead letters")
    page.get_by_role("row").filter(has_text="unknown-item").first.get_by_role("link").first.click()
    page.get_by_text("unicorn").first.wait_for()


def last_values(page: Page) -> None:
    """A value in the tree of all values."""
    _open(page, "Last values")
    page.get_by_role("treeitem").filter(has_text='"state":"done"').first.click()
    page.get_by_role("region", name="Value of").wait_for()


def overview(page: Page) -> None:
    """Rates, charts and alarms."""
    _open(page, "Overview")
    page.get_by_text("5 minutes", exact=True).click()
    page.locator(".chart").first.wait_for()


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture: what is done on the page before it is taken, after those before it."""

    name: str
    act: Callable[[Page], None]
    height: int
    colours: Literal["light", "dark"] = "light"


SCENES: Final = (
    Scene("console-verb", verb, 860),
    Scene("console-job", job, 740),
    Scene("console-result", result, 860, "dark"),
    Scene("console-queues", queues, 640),
    Scene("console-dead-letters", dead_letters, 760),
    Scene("console-values", last_values, 760),
    Scene("console-overview", overview, 800),
)


def _open(page: Page, title: str) -> None:
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name=title).click()


@contextmanager
def demo() -> Iterator[str]:
    """The demo with the warehouse in addition: yields the console's address."""
    with tempfile.TemporaryDirectory(prefix="nebula-pictures-") as name:
        plain = {key: value for key, value in os.environ.items() if not key.startswith("NEBULA_")}
        environment = plain | {"PYTHONPATH": str(ROOT), "NEBULA_STATE": name, "COLUMNS": "200"}
        command = ["-m", "services.console.demo", "--no-browser", "--seconds", str(_DEMO_SECONDS)]
        with subprocess.Popen(
            [sys.executable, "-u", *command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                found = re.search(r"http://(\S+)/console/", process.stdout.readline())
                assert found is not None, "the demo has not begun"
                warehouse = environment | {"NEBULA_BROKER": f"ws://{found[1]}"}
                words = ["run", "website.scenes:app", "--log-level", "error"]
                with running(words, Path(name), warehouse):
                    yield found[0]
            finally:
                # As Ctrl-C does: the demo then ends its broker and its services.
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(_END_SECONDS)
                except subprocess.TimeoutExpired:  # a shell's background job ignores it
                    process.terminate()


def small(screenshot: bytes) -> bytes:
    """A screenshot as PNG with few colours, which is a third of the size."""
    from PIL import Image

    out = io.BytesIO()
    image = Image.open(io.BytesIO(screenshot)).convert("RGB")
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(out, "PNG", optimize=True)
    return out.getvalue()


def main() -> int:
    """Take all pictures; the result is the exit status."""
    from playwright.sync_api import sync_playwright

    FOLDER.mkdir(exist_ok=True)
    with demo() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=list(_FLAGS))
        page = browser.new_page(viewport={"width": _WIDTH, "height": SCENES[0].height})
        page.set_default_timeout(_TIMEOUT_MS)
        page.goto(url)
        for scene in SCENES:
            page.set_viewport_size({"width": _WIDTH, "height": scene.height})
            page.emulate_media(color_scheme=scene.colours)
            scene.act(page)
            # Charts are drawn, and flashes of what has changed end.
            page.wait_for_timeout(1000)
            page.mouse.move(0, 0)
            path = FOLDER / f"{scene.name}.png"
            path.write_bytes(small(page.screenshot()))
            print(path.relative_to(ROOT), f"{path.stat().st_size // 1024} kB")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
