"""Last values in the console: a tree that changes before one's eyes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.foreign.console.conftest import OPERATOR, OpenPage, Site, axe_findings
from tests.foreign.console.pouring import pour

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

# The first one waits for Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]


def item(page: Page, name: str | re.Pattern[str]) -> Locator:
    """A node of the tree."""
    return page.get_by_role("treeitem", name=name)


def test_tree_shows_values_and_changes_as_they_do(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.publish("X/weather.oslo", 3)
        operator.goto(site.at("values"))
        item(operator, re.compile("oslo.*3")).wait_for()

        client.publish("X/weather.oslo", 4)
        item(operator, re.compile("oslo.*4")).wait_for()
        client.publish("X/weather.rome", 20)
        item(operator, re.compile("rome.*20")).wait_for()
        client.publish("X/weather.rome", b"", content_type="text/plain")
        item(operator, "rome").wait_for(state="detached")


def test_value_is_shown_with_its_changes_and_deleted_after_a_question(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.publish("X/lamp.1", {"on": False})
        operator.goto(site.at("values"))
        item(operator, re.compile("^1")).click()
        details = operator.get_by_role("region", name="Value of X/lamp.1", exact=True)
        details.get_by_text("false", exact=True).wait_for()

        client.publish("X/lamp.1", {"on": True})
        details.get_by_text("true", exact=True).wait_for()
        details.get_by_text("1 change,").wait_for()
        details.get_by_role("button", name="Delete").click()
        operator.get_by_role("dialog").get_by_role("button", name="Delete").click()
        details.get_by_text("It has no value at present").wait_for()

        assert client.values("X/lamp.*", as_=dict) == {}


def test_value_is_changed_in_the_page(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.publish("X/limit", {"speed": 50})
        operator.goto(site.at("values/X%2Flimit"))
        operator.get_by_role("button", name="Change").click()
        form = operator.get_by_role("dialog")
        form.get_by_label("Body", exact=True).fill('{"speed": 80}')
        form.get_by_role("button", name="Set").click()
        form.get_by_text("X/limit has accepted the message").wait_for()

        assert client.values("X/limit", as_=dict) == {"X/limit": {"speed": 80}}


def test_tree_is_used_with_the_keyboard(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.publish("X/keys.a", "first")
        client.publish("X/keys.b", "second")
    operator.goto(site.at("values"))
    operator.get_by_label("Filter the values").fill("keys")
    item(operator, re.compile("second")).wait_for()
    tree = operator.get_by_role("tree")
    tree.focus()
    operator.keyboard.press("End")
    operator.keyboard.press("Enter")

    operator.get_by_role("region", name="Value of X/keys.b").wait_for()
    operator.keyboard.press("Home")
    active = tree.get_attribute("aria-activedescendant")
    assert active is not None
    assert operator.locator(f'[id="{active}"]').get_attribute("aria-level") == "1"


def test_ten_thousand_values_are_filtered_and_only_those_in_sight_drawn(operator: Page, site: Site) -> None:
    names = [f"X/EGM.Q.GM{number:06}.EGMStatus" for number in range(10_000)]
    pour(site.address(), ((name, b'{"state": "idle"}') for name in names))

    operator.goto(site.at("values"))
    operator.get_by_text(re.compile("10,0.. values")).wait_for()
    item(operator, re.compile(r"^[▸▾]?\s*Q")).click()
    item(operator, re.compile("GM000003")).wait_for()
    assert item(operator, re.compile("GM")).count() < 100
    operator.get_by_label("Filter the values").fill("GM009999")
    item(operator, re.compile("idle")).click()

    operator.get_by_role("region", name=f"Value of {names[-1]}").wait_for()


def test_reader_sees_values_and_may_not_delete_them(reader: Page, site: Site) -> None:
    with site.client() as client:
        client.publish("X/door", "open")
    reader.goto(site.at("values/X%2Fdoor"))
    reader.get_by_role("region", name="Value of X/door").get_by_text('"open"').wait_for()

    for name in ("Change", "Delete"):
        button = reader.get_by_role("button", name=name, disabled=True)
        button.wait_for()
        assert button.get_attribute("title") == "You may not publish to X/door."


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_page_is_accessible(open_page: OpenPage, site: Site, scheme: str, width: int) -> None:
    with site.client() as client:
        client.publish("X/seen.a", {"text": "b"})
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    page = open_page(OPERATOR, "values/X%2Fseen.a", **options)
    page.get_by_role("region", name="Value of X/seen.a").get_by_text('"b"').wait_for()

    assert axe_findings(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
