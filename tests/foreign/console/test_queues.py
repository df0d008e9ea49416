"""Queues and topics in the console: peek, publish, purge, ten thousand rows, a live view."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from nebula import AckMode, avro
from tests.foreign.console.conftest import OPERATOR, OpenPage, Site, axe_findings, sign_in
from tests.foreign.console.pouring import pour

if TYPE_CHECKING:
    from playwright.sync_api import Page

# The first one waits for Chromium to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

METER = avro.Schema(
    {
        "type": "record",
        "name": "venue.Meter_v1",
        "fields": [
            {"name": "cents", "type": "long"},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["IN", "OUT"]}},
        ],
    }
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A broker that knows schemas."""
    one = Site(tmp_path_factory.mktemp("console"))
    settings = one.folder / "nebula.toml"
    settings.write_text('schemas = "schemas"\n' + settings.read_text())
    (one.folder / "schemas").mkdir()
    one.start()
    yield one
    one.stop()


def at(page: Page, site: Site, kind: str, name: str) -> None:
    """Go to the page of one queue or topic."""
    page.goto(site.at(f"{kind}/{quote(name, safe='')}"))


def first_of(site: Site, queue: str) -> tuple[dict[str, str], bytes]:
    """Consume the first message of a queue."""
    with site.client() as client, client.subscribe(queue, ack=AckMode.CLIENT_INDIVIDUAL) as messages:
        message = next(iter(messages))
        message.ack()
        return dict(message.headers), message.body


def test_message_is_peeked_into_as_json_text_and_hex_and_stays(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.publish(
            "/queue/orders", {"customer": "Jane", "id": 12345678901234567890}, headers={"trace": "t-1"}
        )

    operator.goto(site.at("queues"))
    operator.get_by_role("link", name="/queue/orders").click()
    operator.get_by_role("button", name=re.compile("^Message")).click()
    message = operator.get_by_role("group", name=re.compile("^Message"))

    message.get_by_text('"Jane"').wait_for()
    # JavaScript would round this number.
    message.get_by_text("12345678901234567890").wait_for()
    message.get_by_role("row", name="trace t-1").wait_for()
    message.get_by_text("Hex", exact=True).click()
    message.get_by_text("7b 22 63 75 73 74 6f 6d").wait_for()
    headers, _ = first_of(site, "/queue/orders")
    assert headers["trace"] == "t-1"


def test_avro_body_is_decoded_by_its_schema(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.call("nebula.broker", "schema.register", {"definition": METER.definition})
        client.send_avro("/queue/meters", {"cents": 1250, "kind": "OUT"}, METER)

    at(operator, site, "queues", "/queue/meters")
    operator.get_by_role("button", name=re.compile("^Message")).click()
    body = operator.get_by_role("region", name="Body as Avro")

    body.get_by_text("venue.Meter_v1").wait_for()
    assert "cents: 1250" in body.inner_text()
    assert '"OUT"' in body.inner_text()


def test_published_message_arrives_and_its_verdict_is_shown(operator: Page, site: Site) -> None:
    operator.goto(site.at("queues"))
    operator.get_by_role("button", name="Publish").click()
    form = operator.get_by_role("dialog")
    form.get_by_label("Destination").fill("/queue/parcels")
    form.get_by_label("Body", exact=True).fill('{"parcel": 7}')
    form.get_by_role("button", name="Add header").click()
    form.get_by_label("Name of header 1").fill("kind")
    form.get_by_label("Value of header 1").fill("small")
    form.get_by_role("button", name="Publish").click()
    form.get_by_text("/queue/parcels has accepted the message; no consumer is there yet.").wait_for()

    headers, body = first_of(site, "/queue/parcels")
    assert (headers["kind"], headers["content-type"], body) == ("small", "application/json", b'{"parcel": 7}')
    form.get_by_label("Destination").fill("/topic/a*")
    form.get_by_role("button", name="Publish").click()
    form.get_by_text("rejected-invalid").wait_for()
    form.get_by_label("Body", exact=True).fill("{")
    form.get_by_role("button", name="Publish").click()
    form.get_by_text("not valid JSON").wait_for()


def test_queue_is_purged_after_a_question(operator: Page, site: Site) -> None:
    with site.client() as client:
        for number in range(3):
            client.publish("/queue/old", number)

    at(operator, site, "queues", "/queue/old")
    operator.get_by_role("button", name="Purge").click()
    question = operator.get_by_role("dialog")
    question.get_by_text("/queue/old").wait_for()
    question.get_by_role("button", name="Cancel").click()
    operator.get_by_role("button", name="Purge").click()
    question.get_by_role("button", name="Purge").click()

    operator.get_by_text("3 messages purged from /queue/old").wait_for()
    operator.get_by_text("The queue is empty").wait_for()


def test_ten_thousand_queues_sort_filter_and_page(operator: Page, site: Site) -> None:
    names = [f"/queue/many.{number:05}" for number in range(10_000)]
    deep = [(names[7_777], b"1")] * 4
    pour(site.address(), [*((name, b"1") for name in names), *deep])

    operator.goto(site.at("queues"))
    operator.get_by_label("Filter Queues").fill("many.")
    pager = operator.get_by_role("navigation", name="Pages of Queues")
    pager.get_by_text("of 10,001").wait_for()
    operator.get_by_role("button", name="Depth").click()
    first = operator.locator("tbody tr").first
    first.filter(has_text=names[7_777]).wait_for()
    operator.get_by_role("button", name="Queue", exact=True).click()
    first.filter(has_text=names[0]).wait_for()
    pager.get_by_role("button", name="Last page").click()
    operator.get_by_role("link", name=names[-1], exact=True).wait_for()
    operator.get_by_label("Filter Queues").fill("/queue/many.0[0-3]*7")
    pager.get_by_text("of 400").wait_for()

    assert operator.locator("tbody tr").count() == 50


# Charts are drawn on a canvas: what is written there is noted.
_NOTE_TEXTS = """
  window.written = [];
  const fillText = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.written.push(text);
    return fillText.call(this, text, ...place);
  };
"""


def test_time_axis_of_a_chart_that_has_just_begun_shows_the_last_seconds(operator: Page, site: Site) -> None:
    with site.client() as client:
        client.publish("/queue/charted", "one")
    at(operator, site, "queues", "/queue/charted")
    # Not by the overview, which has charts too.
    operator.add_init_script(_NOTE_TEXTS)
    operator.reload()
    sign_in(operator, *OPERATOR)

    # `wait_for_function` would need `eval`, which the page's policy refuses.
    while not (times := operator.evaluate("written.filter((text) => text.includes(':'))")):
        operator.wait_for_timeout(50)

    # Hours and minutes alone are of an axis that is longer.
    assert [each for each in times if re.fullmatch(r"\d\d:\d\d:\d\d", each) is None] == []


_COUNT_FRAMES = """() => {
  window.drawn = 0;
  const draw = () => { window.drawn += 1; requestAnimationFrame(draw); };
  requestAnimationFrame(draw);
}"""


def test_live_view_keeps_up_with_two_thousand_messages_a_second(operator: Page, site: Site) -> None:
    at(operator, site, "topics", "/topic/market.*")
    # The page itself: then the broker has its subscription.
    operator.get_by_role("region", name="Subscribers").get_by_role("cell", name="operator").wait_for()
    counts = operator.locator(".live-counts")
    operator.evaluate(_COUNT_FRAMES)

    ticks = [(f"/topic/market.{number % 9}", b'{"seq": %d}' % number) for number in range(8_000)]
    pour(site.address(), ticks, per_second=2_000)
    operator.locator('.live-counts[data-received="8001"]').wait_for()
    frames = operator.evaluate("window.drawn")

    # At 60 frames a second there are 33 messages to a frame; a page that freezes draws none.
    assert frames > len(ticks) / 200
    assert "the last 500 kept" in counts.inner_text()
    operator.get_by_role("button", name=re.compile("market.*seq.*7999")).wait_for()


def test_live_view_is_paused_and_goes_on_with_what_comes_then(operator: Page, site: Site) -> None:
    at(operator, site, "topics", "/topic/news")
    operator.get_by_role("region", name="Subscribers").get_by_role("cell", name="operator").wait_for()
    with site.client() as client:
        client.publish("/topic/news", "first")
        operator.get_by_role("button", name=re.compile('"first"')).click()
        operator.get_by_role("group", name="Message").get_by_text("application/json").wait_for()
        # To look at one pauses the others.
        client.publish("/topic/news", "second")
        operator.get_by_text("Paused; 1 more has come").wait_for()
        operator.get_by_role("button", name="Resume").click()
        client.publish("/topic/news", "third")
        operator.get_by_role("button", name=re.compile('"third"')).wait_for()

    assert operator.get_by_role("button", name=re.compile('"second"')).count() == 0


def test_queues_are_not_watched_because_that_would_consume(operator: Page, site: Site) -> None:
    operator.goto(site.at("topics"))
    operator.get_by_label("Topic or glob to watch").fill("/queue/orders")

    assert operator.get_by_role("button", name="Watch live").is_disabled()


def test_reader_watches_topics_and_is_told_why_there_is_no_list(reader: Page, site: Site) -> None:
    reader.goto(site.at("topics"))
    reader.get_by_text("needs the right to call topics.list").wait_for()
    reader.get_by_label("Topic or glob to watch").fill("/topic/open")
    reader.get_by_role("button", name="Watch live").click()
    reader.get_by_text("Nothing has come yet").wait_for()
    with site.client() as client:
        # Until the subscription is there, which the reader may not look at.
        while reader.get_by_role("button", name=re.compile('"hello"')).count() == 0:
            client.publish("/topic/open", "hello")

    reader.get_by_role("button", name="Publish", disabled=True).wait_for()
    # Where no destination is chosen yet, the broker's verdict says so.
    reader.goto(site.at("topics"))
    reader.get_by_role("button", name="Publish").click()
    form = reader.get_by_role("dialog")
    form.get_by_label("Destination").fill("/topic/open")
    form.get_by_role("button", name="Publish").click()
    form.get_by_text("rejected-unauthorised").wait_for()


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_pages_are_accessible(open_page: OpenPage, site: Site, scheme: str, width: int) -> None:
    with site.client() as client:
        client.publish("/queue/a.seen", {"list": [1, None, True, "text"]})
    options: dict[str, Any] = {"color_scheme": scheme, "viewport": {"width": width, "height": 844}}
    page = open_page(OPERATOR, "queues", **options)
    page.get_by_role("link", name="/queue/a.seen").wait_for()
    found = {"list": axe_findings(page)}
    at(page, site, "queues", "/queue/a.seen")
    page.get_by_role("button", name=re.compile("^Message")).first.click()
    page.get_by_text('"text"').first.wait_for()
    found["queue"] = axe_findings(page)
    page.get_by_role("button", name="Publish").click()
    page.get_by_role("button", name="Add header").click()
    found["form"] = axe_findings(page)
    at(page, site, "topics", "/topic/**")
    page.get_by_text("Nothing has come yet").wait_for()
    found["topic"] = axe_findings(page)

    assert {where: findings for where, findings in found.items() if findings} == {}
    # Nothing is wider than the screen, but what scrolls within itself.
    assert page.evaluate("document.documentElement.scrollWidth") <= width
