"""Who signs in, and what is shown to whom."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.foreign.console.conftest import READER, OpenPage, Site, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The first one waits for Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]


def entries(page: Page) -> list[str]:
    """The navigation."""
    return page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link").all_inner_texts()


def test_operator_sees_all_pages_and_the_overview_first(operator: Page) -> None:
    operator.get_by_role("heading", name="Overview").wait_for()

    assert entries(operator) == [
        "Overview",
        "Services",
        "Jobs",
        "Queues",
        "Topics",
        "Last values",
        "Dead letters",
        "Connections",
        "Map",
    ]


def test_user_without_operators_rights_sees_no_pages_of_operators(reader: Page, site: Site) -> None:
    reader.get_by_role("heading", name="Services").wait_for()

    assert entries(reader) == ["Services", "Jobs", "Topics", "Last values"]
    reader.goto(site.at("connections"))
    reader.get_by_text("You may not see this").wait_for()
    assert "connections.list" in reader.locator("main").inner_text()


def test_wrong_passcode_is_refused_and_the_right_one_taken_afterwards(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_label("Login").fill("reader")
    page.get_by_label("Passcode", exact=True).last.fill("wrong")
    page.get_by_role("button", name="Sign in").click()

    page.get_by_role("alert").filter(has_text=re.compile("refuses")).wait_for()
    sign_in(page, *READER)
