"""Each page in light and dark, wide and narrow: nothing sticks out, and axe finds nothing serious."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.foreign.console.conftest import OPERATOR, OpenPage, Site, axe_findings, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600), pytest.mark.usefixtures("axe")]

PAGES = (
    "overview",
    "services",
    "services/shop",
    "jobs",
    "queues",
    "queues/%2Fqueue%2Forders",
    "topics",
    "values",
    "dead-letters",
    "connections",
    "connections?kind=durable",
    "map",
)
SIZES = {"wide": {"width": 1280, "height": 860}, "narrow": {"width": 390, "height": 844}}

# Screenshots are left there, for somebody to look at.
SHOTS = os.environ.get("NEBULA_TEST_SHOTS")

# What reaches over the right edge, unless it is in something that scrolls.
_OVERFLOWING = """() => [...document.querySelectorAll('body *')].filter(element => {
  if (element.getBoundingClientRect().right <= innerWidth + 1) return false;
  for (let one = element.parentElement; one !== null && one !== document.body; one = one.parentElement) {
    if (one.tagName !== 'MAIN' && /auto|scroll|hidden|clip/.test(getComputedStyle(one).overflowX)) {
      return false;
    }
  }
  return true;
}).slice(0, 5).map(element => element.outerHTML.slice(0, 200))"""


def take(page: Page, name: str) -> None:
    """Leave a screenshot, where that is wanted."""
    if SHOTS is not None:
        page.screenshot(path=Path(SHOTS) / f"{name.replace('/', '_').replace('%2F', '_')}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pages_look_right_and_axe_finds_nothing_serious(
    open_page: OpenPage, site: Site, size: str, scheme: str
) -> None:
    from playwright.sync_api import expect

    with site.client() as client:
        client.publish("/queue/orders", {"item": "lamp"})
        client.publish("X/price.lamp", {"cents": 1250})
    page = open_page(color_scheme=scheme, viewport=SIZES[size])
    page.get_by_label("Login").wait_for()
    take(page, f"sign-in-{scheme}-{size}")
    found = {"sign-in": axe_findings(page) + page.evaluate(_OVERFLOWING)}
    sign_in(page, *OPERATOR)
    for path in PAGES:
        page.goto(site.at(path))
        page.locator("main h1, [role=dialog] h2, dialog h2").first.wait_for()
        expect(page.locator(".loading")).to_have_count(0)
        take(page, f"{path}-{scheme}-{size}")
        found[path] = axe_findings(page) + page.evaluate(_OVERFLOWING)

    assert {path: each for path, each in found.items() if each} == {}


def test_menu_of_a_narrow_page_opens_and_closes(open_page: OpenPage) -> None:
    page = open_page(OPERATOR, viewport=SIZES["narrow"])

    page.get_by_role("button", name="Menu").click()
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Queues").click()

    page.get_by_role("heading", name="Queues").wait_for()
    page.locator("#navigation").wait_for(state="hidden")


def test_colours_follow_the_switch_and_stay(open_page: OpenPage) -> None:
    page = open_page(OPERATOR, color_scheme="light")

    page.get_by_role("button", name="Colours: auto").click()
    page.get_by_role("button", name="Colours: light").click()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()

    assert background == "rgb(14, 17, 22)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == background
