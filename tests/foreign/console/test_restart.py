"""The console while the broker is away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.foreign.console.conftest import OPERATOR, OpenPage, Site

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]


def test_page_says_that_the_broker_is_gone_and_comes_back_by_itself(operator: Page, site: Site) -> None:
    operator.goto(site.at("connections"))
    operator.get_by_role("cell", name="operator").first.wait_for()
    site.stop()

    operator.get_by_role("alert").filter(has_text="The broker cannot be reached").wait_for()
    # What was read stays to be seen.
    assert operator.get_by_role("cell", name="operator").first.is_visible()
    site.start()
    operator.get_by_role("alert").filter(has_text="The broker cannot be reached").wait_for(state="detached")
    operator.get_by_text("connected", exact=True).wait_for()
    operator.goto(site.at("overview"))
    operator.get_by_text("since the start").wait_for()


def test_figures_of_before_are_there_after_a_reload(open_page: OpenPage, site: Site) -> None:
    page = open_page(OPERATOR, at="overview")
    page.get_by_role("img", name="Messages per second").wait_for()

    history = page.evaluate("() => document.querySelectorAll('.chart canvas').length")

    assert history == 6
