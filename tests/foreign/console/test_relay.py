"""The console by `nebula console`, next to a broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.programs import running
from tests.foreign.console.conftest import OPERATOR, OpenPage, Site, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A broker that serves calls over HTTP too."""
    one = Site(tmp_path_factory.mktemp("relayed"))
    one.start("--http-calls")
    yield one
    one.stop()


@contextmanager
def relayed(open_page: OpenPage, broker: str) -> Iterator[tuple[Page, str]]:
    """A page of `nebula console`, signed in as the operator, and its address."""
    with running("console", "--broker", broker) as (_, line):
        page: Page = open_page()
        page.goto(line["url"])
        sign_in(page, *OPERATOR)
        yield page, line["url"]


def test_page_of_the_relay_signs_in_and_shows_the_broker(open_page: OpenPage, site: Site) -> None:
    with relayed(open_page, f"stomp://127.0.0.1:{site.stomp_port}") as (page, url):
        page.goto(f"{url}#/connections")

        page.get_by_role("cell", name="operator").first.wait_for()


def _run(text: str, language: str) -> str:
    """What a copied text writes, with the passcode where its note asks for it."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PASSCODE": OPERATOR[1], "PATH": programs, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", text] if language == "Python" else ["bash", "-c", text]
    # A session without a terminal, so that curl reads the passcode from here.
    done = subprocess.run(
        command,
        env=environment,
        input=f"{OPERATOR[1]}\n",
        capture_output=True,
        text=True,
        start_new_session=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_copied_calls_run_as_they_are_with_their_options(open_page: OpenPage, site: Site) -> None:
    with relayed(open_page, f"ws://127.0.0.1:{site.http_port}") as (page, url):
        page.goto(f"{url}#/services/shop/quote")
        page.get_by_label("symbol").fill("ABC")
        page.get_by_label("qty").fill("2")
        page.get_by_text("Options", exact=True).click()
        page.get_by_label("Instance").select_option(index=1)
        page.get_by_label("Time limit, seconds").fill("7.5")
        written = {}
        for language in ("Python", "curl", "nebula call"):
            page.get_by_role("group", name="Write the call for").get_by_text(language, exact=True).click()
            written[language] = page.get_by_label("The call as code").inner_text()

    assert "timeout=7.5" in written["Python"]
    assert "Neb-Timeout: 7500" in written["curl"]
    assert "--timeout 7.5" in written["nebula call"]
    assert OPERATOR[1] not in str(written)
    assert {language: json.loads(_run(text, language)) for language, text in written.items()} == {
        "Python": 2.5,
        "curl": 2.5,
        "nebula call": 2.5,
    }


def test_page_without_an_address_for_http_says_why_there_is_no_curl(open_page: OpenPage, site: Site) -> None:
    with relayed(open_page, f"stomp://127.0.0.1:{site.stomp_port}") as (page, url):
        page.goto(f"{url}#/services/shop/quote")
        page.get_by_label("symbol").fill("ABC")
        command = page.get_by_role("group", name="Write the call for")
        command.get_by_text("nebula call", exact=True).click()
        written = page.get_by_label("The call as code").inner_text()
        command.get_by_text("curl", exact=True).click()
        page.get_by_text("This page knows no address of the broker for HTTP.").wait_for()

        assert page.get_by_label("The call as code").count() == 0
    assert json.loads(_run(written, "nebula call")) == 1.25


def test_map_of_a_broker_that_does_not_count_says_how_to_turn_it_on(
    open_page: OpenPage, tmp_path: Path
) -> None:
    with (
        running("broker", "--port", "0", "--store", "memory", cwd=tmp_path) as (_, broker),
        running("console", "--broker", broker["url"]) as (_, line),
    ):
        page: Page = open_page()
        page.goto(line["url"])
        page.get_by_role("heading", name="Overview").wait_for()
        page.goto(f"{line['url']}#/map")

        page.get_by_text("count_flows = true").wait_for()
