"""The console of `make demo-console` in Chromium: a venue, real flights on Spark, and orders."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nebula.sync import Client
from tests.cli.programs import running
from tests.foreign.console.conftest import OpenPage
from tests.services.demos import ROOT, command, environment

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.spark, pytest.mark.timeout(600)]

# An engine starts, and Spark reads a year of flights on two cores that others use.
_JOB_MS = 120_000

_SHOWN = '''
import time

from nebula import Job, Responder, Spark

app = Responder("shown", spark=Spark(ui=True, master="local[1]", memory="512m"))


@app.job
def numbers(ctx: Job) -> int:
    """Count some numbers, again and again."""
    found = 0
    for number in range(600):
        ctx.progress(number, 600)
        found = ctx.spark.range(10).count()
        time.sleep(0.2)
    return found
'''


@dataclass(frozen=True, slots=True)
class Demo:
    """The demo in place of a `Site`: anonymous clients may do everything."""

    url: str

    def at(self, page: str) -> str:
        """The address of a page of the console."""
        return f"{self.url}#/{page}"

    def client(self) -> Client:
        """A client of Python."""
        return Client(self.url.replace("http", "ws", 1).removesuffix("/console/"))


@pytest.fixture(scope="module")
def site() -> Iterator[Demo]:
    """The demo, which ends with the module."""
    with subprocess.Popen(
        command("services.console.demo", "--no-browser", "--seconds", "900"),
        cwd=ROOT,
        env=environment(f"nebula-demo-in-chromium-{os.getpid()}"),
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        try:
            assert demo.stdout is not None
            yield Demo(demo.stdout.readline().split("at ")[1].split(". Ctrl-C")[0])
        finally:
            demo.send_signal(signal.SIGINT)
            demo.wait(60)


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The console. Its services, two engines of Spark and other tests share the machine."""
    page = open_page()
    page.set_default_timeout(_JOB_MS)
    return page


def _state(page: Page, state: str) -> None:
    page.get_by_role("heading", level=1).get_by_text(state, exact=True).wait_for(timeout=_JOB_MS)


def test_verb_is_tried_and_its_curl_command_does_the_same(page: Page, site: Demo) -> None:
    page.goto(site.at("services/flights/airline"))
    page.get_by_role("textbox", name="code").fill("UA")
    page.get_by_role("button", name="Call", exact=True).click()
    page.get_by_role("region", name="Reply").get_by_text("United Air Lines Inc.").wait_for()

    page.get_by_text("curl", exact=True).click()
    written = page.get_by_label("The call as code").inner_text()
    told = subprocess.run(["bash", "-c", written], capture_output=True, text=True, check=True)
    assert "United Air Lines Inc." in told.stdout


def test_spark_job_is_followed_by_its_stages_to_its_result(page: Page, site: Demo) -> None:
    page.goto(site.at("services/flights/delays"))
    page.get_by_role("button", name="Start the job").click()
    page.get_by_role("link", name="Follow the job").click()

    stages = page.get_by_role("list", name="Spark stages").get_by_role("listitem")
    stages.filter(has_text=re.compile(r"Stage \d+.* of \d+ tasks")).first.wait_for(timeout=_JOB_MS)
    _state(page, "done")
    stages.filter(has_text=re.compile(r"(\d+) of \1 tasks")).first.wait_for()
    page.get_by_role("region", name="Result", exact=True).get_by_text("United Air Lines Inc.").wait_for()


def test_spark_ui_is_opened_from_a_job_and_from_its_engine(page: Page, site: Demo, tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(_SHOWN)
    broker = site.url.replace("http", "ws", 1).removesuffix("/console/")
    environment = os.environ | {"NEBULA_BROKER": broker, "NEBULA_STATE": str(tmp_path / "jobs")}
    with running("run", "shown:app", env=environment, cwd=tmp_path):
        with site.client() as client:
            job = client.start("shown", "numbers", {}).id
        # Before the engine is up: the link comes when it is.
        page.goto(site.at(f"jobs/{job}"))
        with page.expect_popup(timeout=_JOB_MS) as opened:
            page.get_by_role("link", name="Spark UI of engine default").click(timeout=_JOB_MS)
        opened.value.wait_for_url(re.compile("/jobs/$"))
        page.goto(site.at("services/shown"))
        link = page.get_by_role("link", name="Spark UI", exact=False)
        link.wait_for()

        assert "Spark Jobs" in opened.value.title()
        assert opened.value.url == f"{link.get_attribute('href')}/jobs/"
        assert page.get_by_role("button", name="Restart").count() == 1


def test_spark_job_is_cancelled(page: Page, site: Demo) -> None:
    with site.client() as client:
        job = client.start("flights", "busiest_hours", {}).id
    page.goto(site.at(f"jobs/{job}"))
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()

    _state(page, "cancelled")


def test_dead_letter_of_an_order_is_replayed(page: Page, site: Demo) -> None:
    page.goto(site.at("dead-letters"))
    page.get_by_role("row").filter(has_text="unknown-item").first.get_by_role("link").first.click()
    page.get_by_role("button", name="Replay").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Replay").click()
    dialog.get_by_text("1 dead letter replayed.").wait_for()
    dialog.get_by_role("button", name="Close").last.click()


def test_queue_is_purged(page: Page, site: Demo) -> None:
    with site.client() as client:
        client.publish("/queue/forgotten", "old")
    page.goto(site.at("queues/%2Fqueue%2Fforgotten"))
    page.get_by_role("button", name="Purge").click()
    page.get_by_role("dialog").get_by_role("button", name="Purge").click()

    page.get_by_text("1 message purged from /queue/forgotten").wait_for()


def test_values_of_the_venue_are_a_tree(page: Page, site: Demo) -> None:
    page.goto(site.at("values"))
    page.get_by_role("treeitem").first.wait_for()
    page.goto(site.at("services/venue"))
    page.get_by_role("link", name="turnover").wait_for()
