"""The console by `nebula console`, next to a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.programs import running
from tests.foreign.console.conftest import OPERATOR, OpenPage, Site, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]


def test_page_of_the_relay_signs_in_and_shows_the_broker(open_page: OpenPage, site: Site) -> None:
    with running("console", "--broker", f"stomp://127.0.0.1:{site.stomp_port}") as (_, line):
        page: Page = open_page()
        page.goto(line["url"])
        sign_in(page, *OPERATOR)
        page.goto(f"{line['url']}#/connections")

        page.get_by_role("cell", name="operator").first.wait_for()
