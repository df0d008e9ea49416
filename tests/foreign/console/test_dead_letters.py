"""Dead letters in the console: why they died, replay, an edited copy, purge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nebula import AckMode
from tests.foreign.console.conftest import OPERATOR, READER, OpenPage, Site, axe_findings, sign_in

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The first one waits for Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]


@pytest.fixture(autouse=True)
def _no_dead_letters(site: Site) -> None:
    with site.client() as client:
        client.call("nebula.broker", "dlq.purge", {})


def kill(site: Site, queue: str, *bodies: Any) -> None:
    """Send messages to a queue, and refuse each of them for good."""
    with site.client() as client:
        for body in bodies:
            client.publish(queue, body, headers={"trace": "t-1"})
        with client.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as messages:
            # The bodies first: behind the last one no message comes.
            for _, message in zip(bodies, messages, strict=False):
                message.nack(
                    **{
                        "requeue": "false",
                        "dead-letter-code": "bad-quantity",
                        "dead-letter-text": "qty must be positive",
                        "dead-letter-handler": "orders.take",
                    }
                )


def waiting_in(site: Site, queue: str) -> list[Any]:
    """The bodies of the messages that wait in a queue."""
    with site.client() as client:
        shown = client.call("nebula.broker", "queue.peek", {"queue": queue})
    return [json.loads(each["body"]) for each in shown]


def numbers(site: Site) -> list[int]:
    with site.client() as client:
        return [row["number"] for row in client.call("nebula.broker", "dlq.list", {})["rows"]]


def test_dead_letter_says_why_it_died_and_is_replayed(operator: Page, site: Site) -> None:
    kill(site, "/queue/orders", {"qty": -1})

    operator.goto(site.at("dead-letters"))
    row = operator.get_by_role("row").filter(has_text="/queue/orders")
    row.filter(has_text="bad-quantity").get_by_role("link").click()
    facts = operator.locator("main")
    for text in ("A consumer refused it for good.", "qty must be positive", "orders.take", "trace"):
        facts.get_by_text(text).first.wait_for()
    operator.get_by_role("button", name="Replay").click()
    dialog = operator.get_by_role("dialog")
    dialog.get_by_role("button", name="Replay").click()
    dialog.get_by_text("1 dead letter replayed.").wait_for()
    dialog.get_by_role("button", name="Close").last.click()

    operator.get_by_text("There is no such dead letter any more").wait_for()
    assert waiting_in(site, "/queue/orders") == [{"qty": -1}]
    with site.client() as client:
        client.call("nebula.broker", "queue.purge", {"queue": "/queue/orders"})


def test_edited_copy_is_sent_and_the_original_dropped(operator: Page, site: Site) -> None:
    kill(site, "/queue/mended", {"qty": -1})
    (number,) = numbers(site)

    operator.goto(site.at(f"dead-letters/{number}"))
    operator.get_by_role("button", name="Edit a copy").click()
    form = operator.get_by_role("dialog")
    form.get_by_text("This sends a new message, whose sender is you").wait_for()
    assert form.get_by_label("Destination").input_value() == "/queue/mended"
    assert form.get_by_label("Value of header 1").input_value() == "t-1"
    form.get_by_label("Body", exact=True).fill('{"qty": 1}')
    form.get_by_role("button", name="Send the copy").click()
    form.get_by_text(f"Dead letter {number} is dropped.").wait_for()

    assert waiting_in(site, "/queue/mended") == [{"qty": 1}]
    assert numbers(site) == []


def test_original_stays_where_the_copy_is_refused_or_one_wants_it_to(operator: Page, site: Site) -> None:
    kill(site, "/queue/kept", {"qty": -1})
    (number,) = numbers(site)

    operator.goto(site.at(f"dead-letters/{number}"))
    operator.get_by_role("button", name="Edit a copy").click()
    form = operator.get_by_role("dialog")
    form.get_by_label("Destination").fill("/topic/a*")
    form.get_by_role("button", name="Send the copy").click()
    form.get_by_text("rejected-invalid").wait_for()
    assert numbers(site) == [number]
    form.get_by_label("Destination").fill("/queue/elsewhere")
    form.get_by_label("Then drop the dead letter").uncheck()
    form.get_by_role("button", name="Send the copy").click()
    form.get_by_text(f"Dead letter {number} stays.").wait_for()

    assert waiting_in(site, "/queue/elsewhere") == [{"qty": -1}]
    assert numbers(site) == [number]


def test_all_of_one_source_are_replayed_to_another_queue(operator: Page, site: Site) -> None:
    kill(site, "/queue/first", 1, 2)
    kill(site, "/queue/second", 3)

    operator.goto(site.at("dead-letters"))
    operator.get_by_label("Source").fill("/queue/first")
    operator.get_by_label("Source").press("Enter")
    operator.get_by_role("row").filter(has_text="/queue/second").wait_for(state="detached")
    operator.get_by_role("button", name="Replay all of these").click()
    dialog = operator.get_by_role("dialog")
    dialog.get_by_text("all dead letters from /queue/first").wait_for()
    dialog.get_by_label("To another queue").check()
    dialog.get_by_label("Queue", exact=True).fill("/topic/none")
    dialog.get_by_role("button", name="Replay").click()
    dialog.get_by_text("bad-target").wait_for()
    dialog.get_by_label("Queue", exact=True).fill("/queue/third")
    dialog.get_by_role("button", name="Replay").click()
    dialog.get_by_text("2 dead letters replayed.").wait_for()

    assert waiting_in(site, "/queue/third") == [1, 2]
    assert len(numbers(site)) == 1


def test_chosen_ones_are_purged_after_a_question(operator: Page, site: Site) -> None:
    kill(site, "/queue/orders", 1, 2, 3)
    first, second, third = numbers(site)

    operator.goto(site.at("dead-letters"))
    operator.get_by_label(f"Choose dead letter {first}").check()
    operator.get_by_label(f"Choose dead letter {third}").check()
    operator.get_by_role("button", name="Purge 2").click()
    question = operator.get_by_role("dialog")
    question.get_by_text("2 dead letters").wait_for()
    question.get_by_role("button", name="Purge").click()
    operator.get_by_text("2 dead letters purged.").wait_for()

    assert numbers(site) == [second]


def test_page_is_for_those_who_may_read_dead_letters(open_page: OpenPage, site: Site) -> None:
    page = open_page(at="dead-letters")
    sign_in(page, *READER)

    page.get_by_text("You may not see this").wait_for()
    assert "dlq.list" in page.locator("main").inner_text()


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_pages_are_accessible(open_page: OpenPage, site: Site, scheme: str, width: int) -> None:
    kill(site, "/queue/orders", {"qty": -1})
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    page = open_page(OPERATOR, "dead-letters", **options)
    page.get_by_text("bad-quantity").wait_for()
    found = {"list": axe_findings(page)}
    page.get_by_role("row").filter(has_text="/queue/orders").get_by_role("link").click()
    page.get_by_text("orders.take").first.wait_for()
    found["letter"] = axe_findings(page)
    page.get_by_role("button", name="Edit a copy").click()
    found["copy"] = axe_findings(page)

    assert {where: findings for where, findings in found.items() if findings} == {}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
