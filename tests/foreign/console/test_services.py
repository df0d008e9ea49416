"""The console's services: instances, and each verb by its form, in Chromium with a real broker."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.programs import running
from tests.foreign.console.conftest import OPERATOR, READER, OpenPage, Site, axe_findings

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

_HERE = Path(__file__).parent

_ECHO = '''
from nebula import Responder

app = Responder("echo")


@app.verb
def say(text: str) -> str:
    """Say it again."""
    return text
'''


@pytest.fixture(scope="module")
def workshop(site: Site) -> Iterator[None]:
    """The service of `workshop.py` next to the broker's own."""
    (site.folder / "workshop.py").write_text((_HERE / "workshop.py").read_text())
    environment = {**os.environ, "NEBULA_BROKER": site.address(), "NEBULA_STATE": str(site.folder / "jobs")}
    with running("run", "workshop:app", env=environment, cwd=site.folder):
        yield


def _verb(page: Page, site: Site, service: str, verb: str) -> Locator:
    """Open the page of a verb; its reply."""
    page.goto(site.at(f"services/{service}/{verb}"))
    page.get_by_role("heading", name="Parameters").wait_for()
    return page.get_by_role("region", name="Reply")


def _json_of(reply: Locator) -> object:
    return json.loads(reply.get_by_label("Result", exact=True).inner_text())


def test_services_are_listed_with_their_instances(site: Site, operator: Page, workshop: None) -> None:
    operator.goto(site.at("services"))

    row = operator.get_by_role("row").filter(has=operator.get_by_role("link", name="workshop"))
    row.get_by_text("ok", exact=True).wait_for()
    row.get_by_text("2.1").wait_for()
    operator.get_by_role("link", name="shop", exact=True).click()
    operator.get_by_role("heading", name="Instances").wait_for()
    operator.get_by_role("link", name="quote").wait_for()


def test_services_that_one_may_not_call_are_not_shown(site: Site, reader: Page, workshop: None) -> None:
    reader.goto(site.at("services"))

    reader.get_by_role("link", name="shop", exact=True).wait_for()
    assert reader.get_by_role("link", name="workshop").count() == 0


def test_instance_that_ends_disappears(site: Site, operator: Page) -> None:
    (site.folder / "passing.py").write_text('from nebula import Responder\napp = Responder("passing")\n')
    environment = {
        **os.environ,
        "NEBULA_BROKER": site.address(),
        "NEBULA_STATE": str(site.folder / "passing"),
    }
    operator.goto(site.at("services"))
    link = operator.get_by_role("link", name="passing")

    with running("run", "passing:app", env=environment, cwd=site.folder):
        link.wait_for()

    link.wait_for(state="detached")


def test_form_outlives_a_restart_of_its_service(site: Site, operator: Page) -> None:
    (site.folder / "echo.py").write_text(_ECHO)
    environment = {**os.environ, "NEBULA_BROKER": site.address(), "NEBULA_STATE": str(site.folder / "echo")}
    with running("run", "echo:app", env=environment, cwd=site.folder):
        reply = _verb(operator, site, "echo", "say")
        operator.get_by_label("text").fill("still here")
    operator.get_by_text("no-responder").wait_for()

    with running("run", "echo:app", env=environment, cwd=site.folder):
        operator.get_by_text("no-responder").wait_for(state="detached")
        operator.get_by_role("button", name="Call", exact=True).click()
        reply.get_by_text("success").wait_for()

        assert _json_of(reply) == "still here"


def test_verb_is_called_by_its_form(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "quote")
    operator.get_by_label("symbol").fill("ABC")
    operator.get_by_label("qty").fill("2")
    operator.get_by_role("button", name="Call", exact=True).click()

    reply.get_by_text("success").wait_for()
    assert _json_of(reply) == 2.5
    assert re.search(r"after \d", reply.inner_text())


def test_call_by_keyboard_alone(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "quote")
    operator.get_by_label("symbol").focus()
    operator.keyboard.type("ABC")
    operator.keyboard.press("Control+Enter")

    reply.get_by_text("success").wait_for()
    assert _json_of(reply) == 1.25


def test_same_call_as_code(site: Site, operator: Page) -> None:
    _verb(operator, site, "shop", "quote")
    operator.get_by_label("symbol").fill("A'C")
    code = operator.get_by_label("The call as code")

    assert 'client.call("shop", "quote", {"symbol": "A\'C"})' in code.inner_text()
    operator.get_by_text("curl", exact=True).click()
    assert code.inner_text() == (
        f"""curl -s -u operator --json '{{"symbol":"A'\\''C"}}' http://127.0.0.1:{site.http_port}/call/shop/quote"""
    )
    operator.get_by_text("nebula call", exact=True).click()
    operator.get_by_role("button", name="Copy", exact=True).last.click()
    operator.get_by_text("Copied").wait_for()
    copied = operator.evaluate("navigator.clipboard.readText()")
    address = f'ws://operator:"$PASSCODE"@127.0.0.1:{site.http_port}'
    assert copied == f"NEBULA_BROKER={address} nebula call shop quote 'symbol=A'\\''C'"


def test_typed_error_is_shown_with_its_details(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "quote")
    operator.get_by_label("symbol").fill("XYZ")
    operator.get_by_role("button", name="Call", exact=True).click()

    error = reply.get_by_role("alert")
    error.get_by_text("unknown-symbol").wait_for()
    error.get_by_text("there is no price of XYZ").wait_for()
    assert json.loads(error.get_by_label("Details of the error").inner_text()) == {"symbol": "XYZ"}


def test_declared_error_is_explained(site: Site, operator: Page, workshop: None) -> None:
    reply = _verb(operator, site, "workshop", "reserve")
    operator.get_by_label("Kind of material").select_option("Wood")
    operator.get_by_label("logs").fill("101")
    operator.get_by_role("button", name="Call", exact=True).click()

    error = reply.get_by_role("alert")
    error.get_by_text("out-of-stock").wait_for()
    error.get_by_text("There is too little of it.").wait_for()


def test_faults_are_shown_before_a_call(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "quote")
    operator.get_by_label("symbol").fill("ABC")
    operator.get_by_label("qty").fill("0")
    operator.get_by_role("button", name="Call", exact=True).click()

    operator.get_by_text("must be at least 1").wait_for()
    reply.get_by_text("No call yet.").wait_for()
    assert operator.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"


def test_faults_of_the_service_are_shown_at_their_fields(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "place")
    operator.get_by_text("JSON", exact=True).click()
    operator.get_by_label("Parameters as JSON").fill(
        '{"customer": "Ann", "items": [{"name": "nut", "amount": 100}]}'
    )
    operator.get_by_role("button", name="Call", exact=True).click()

    reply.get_by_role("alert").get_by_text("bad-parameters").wait_for()
    reply.get_by_text("items.0.amount", exact=True).wait_for()
    form = operator.get_by_role("region", name="Try it")
    form.get_by_text("items.0.amount: Input should be less than or equal to 99").wait_for()


def test_nested_model_is_filled_in(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "place")
    operator.get_by_label("customer").fill("Ann")
    operator.get_by_role("button", name="Add an item to items").click()
    operator.get_by_label("name", exact=True).first.fill("nut")
    operator.get_by_label("amount").first.fill("3")
    operator.get_by_label("size").first.select_option("large")
    operator.get_by_role("button", name="Add an item to items").click()
    operator.get_by_label("name", exact=True).nth(1).fill("bolt")
    operator.get_by_label("due").fill("2026-12-24")
    operator.get_by_role("button", name="Call", exact=True).click()

    reply.get_by_text("success").wait_for()
    assert _json_of(reply) == {"customer": "Ann", "units": 4}
    # As JSON it is what the form has said.
    operator.get_by_text("JSON", exact=True).click()
    assert json.loads(operator.get_by_label("Parameters as JSON").input_value()) == {
        "customer": "Ann",
        "items": [{"name": "nut", "amount": 3, "size": "large"}, {"name": "bolt"}],
        "due": "2026-12-24",
    }


def test_link_brings_parameters(site: Site, operator: Page) -> None:
    operator.goto(site.at("services/shop/quote?with=%7B%22symbol%22%3A%22ABC%22%2C%22qty%22%3A4%7D"))

    operator.get_by_label("symbol").wait_for()
    assert operator.get_by_label("symbol").input_value() == "ABC"
    assert operator.get_by_label("qty").input_value() == "4"
    operator.get_by_text("No call yet.").wait_for()


def test_stream_shows_its_items(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "ticks")
    operator.get_by_label("count").fill("300")
    operator.get_by_role("button", name="Read the stream").click()

    reply.get_by_text("ended").wait_for()
    reply.get_by_text(re.compile(r"^300 items")).wait_for()
    # Only the last ones are kept.
    assert reply.get_by_role("list", name="Items").get_by_role("listitem").count() == 200
    assert reply.get_by_role("listitem").last.inner_text() == "299"


def test_stream_is_stopped(site: Site, operator: Page) -> None:
    reply = _verb(operator, site, "shop", "ticks")
    operator.get_by_label("count").fill("10000")
    operator.get_by_label("delay").fill("0.05")
    operator.get_by_role("button", name="Read the stream").click()
    reply.get_by_role("listitem").first.wait_for()
    operator.get_by_role("button", name="Stop").click()

    reply.get_by_text("stopped").wait_for()
    operator.get_by_role("button", name="Read the stream").wait_for()


def test_verb_that_one_may_not_call_is_disabled(site: Site, operator: Page, workshop: None) -> None:
    _verb(operator, site, "workshop", "secret")

    operator.get_by_text("The service does not let you call this verb.").wait_for()
    assert operator.get_by_role("button", name="Call", exact=True).is_disabled()


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_accessible_and_fit(
    site: Site, open_page: OpenPage, workshop: None, colours: str, width: int
) -> None:
    page = open_page(OPERATOR, color_scheme=colours, viewport={"width": width, "height": 844})
    shown = {"services": "workshop", "services/workshop": "reserve", "services/shop/place": "customer"}

    findings = {}
    for at, text in shown.items():
        page.goto(site.at(at))
        page.get_by_text(text, exact=True).first.wait_for()
        wider = page.evaluate(
            "document.querySelector('main').scrollWidth - document.querySelector('main').clientWidth"
        )
        findings[at] = axe_findings(page) + ([f"{wider} pixels too wide"] if wider > 0 else [])

    assert findings == {at: [] for at in shown}


def test_reader_calls_what_it_may(site: Site, open_page: OpenPage) -> None:
    page = open_page(READER)
    reply = _verb(page, site, "shop", "quote")
    page.get_by_label("symbol").fill("ABC")
    page.get_by_role("button", name="Call", exact=True).click()

    reply.get_by_text("success").wait_for()
