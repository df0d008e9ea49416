"""Overview, connections, durable sessions and the map."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nebula.stomp.client import StompClient
from tests.foreign.console.conftest import READER, Site, apart

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]


def test_connection_is_shown_and_ended_after_a_question(operator: Page, site: Site) -> None:
    with site.client(READER) as client:
        client.call("shop", "quote", {"symbol": "ABC"})
        operator.goto(site.at("connections"))
        operator.get_by_role("row").filter(has_text="reader").get_by_role("link").click()
        dialog = operator.get_by_role("dialog", name="Connection")
        dialog.get_by_text("STOMP 1.2").wait_for()
        dialog.get_by_role("button", name="Disconnect").click()

        question = operator.get_by_role("dialog", name="Disconnect?")
        question.get_by_role("button", name="Cancel").click()
        assert dialog.is_visible()
        dialog.get_by_role("button", name="Disconnect").click()
        question.get_by_role("button", name="Disconnect").click()
        operator.get_by_text("Disconnected.").wait_for()


def test_durable_session_is_ended_with_what_waits_for_it(operator: Page, site: Site) -> None:
    async def come_and_go() -> None:
        archive = StompClient(site.address(), client_id="archive")
        async with archive, archive.subscribe("/topic/news", durable="all"):
            pass
        async with StompClient(site.address()) as client:
            await client.send("/topic/news", b"something", {"persistent": "true"}, receipt=True)

    apart(come_and_go)
    operator.goto(site.at("connections?kind=durable"))
    operator.get_by_role("link", name="archive").click()
    dialog = operator.get_by_role("dialog", name="Durable session")
    dialog.get_by_text("1 messages").or_(dialog.get_by_text("1 message")).first.wait_for()
    dialog.get_by_role("button", name="End session").click()
    operator.get_by_role("dialog", name="End the session?").get_by_role("button", name="End session").click()

    operator.get_by_text("The session has ended.").wait_for()
    operator.get_by_text("There are no durable sessions.").wait_for()


def test_escape_closes_a_dialog_and_the_focus_goes_back(operator: Page, site: Site) -> None:
    operator.goto(site.at("connections"))
    link = operator.get_by_role("row").filter(has_text="app:shop").get_by_role("link").first
    link.focus()
    operator.keyboard.press("Enter")
    operator.get_by_role("dialog", name="Connection").wait_for()

    operator.keyboard.press("Escape")

    operator.get_by_role("dialog", name="Connection").wait_for(state="detached")
    assert operator.evaluate("document.activeElement.tagName") == "A"


def test_map_shows_who_calls_whom_and_what_belongs_together(operator: Page, site: Site) -> None:
    from playwright.sync_api import expect

    with site.client(READER) as client:
        client.call("shop", "quote", {"symbol": "ABC"})
        operator.goto(site.at("map"))
        node = operator.get_by_role("button", name="destination /queue/shop")
        node.wait_for()
        operator.get_by_role("button", name="sender reader").wait_for()
        operator.get_by_role("button", name="receiver app:shop").wait_for()
        node.focus()
        operator.keyboard.press("Enter")

        expect(node).to_have_attribute("aria-pressed", "true")


def test_overview_names_a_queue_that_nobody_reads(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.publish("/queue/forgotten", {"number": 1})
    operator.goto(site.at("overview"))

    alarms = operator.get_by_role("region", name="Alarms")
    alarms.get_by_text("/queue/forgotten has messages").wait_for(timeout=30_000)
    alarms.get_by_role("link", name="Look into it").click()
    operator.get_by_text("/queue/forgotten").first.wait_for()
