"""The console's jobs in Chromium: started, followed, cancelled and run again, without Spark."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.programs import running
from tests.foreign.console.conftest import OPERATOR, READER, OpenPage, Site, axe_findings

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.foreign, pytest.mark.timeout(600)]

_HERE = Path(__file__).parent


@pytest.fixture(scope="module", autouse=True)
def workshop(site: Site) -> Iterator[None]:
    """The service of `workshop.py` next to the broker's own."""
    (site.folder / "workshop.py").write_text((_HERE / "workshop.py").read_text())
    environment = {**os.environ, "NEBULA_BROKER": site.address(), "NEBULA_STATE": str(site.folder / "jobs")}
    with running("run", "workshop:app", env=environment, cwd=site.folder):
        yield


def _started(site: Site, verb: str, parameters: dict[str, Any], service: str = "workshop") -> str:
    """The id of a job that was started by a program, not by the page."""
    with site.client() as client:
        return client.start(service, verb, parameters).id


def _state(page: Page, state: str) -> None:
    """Wait until the head of a job's page shows a state."""
    page.get_by_role("heading", level=1).get_by_text(state, exact=True).wait_for()


def test_job_is_started_and_followed_to_its_result(site: Site, operator: Page) -> None:
    operator.goto(site.at("jobs"))
    operator.get_by_role("button", name="Start a job…").click()
    operator.get_by_role("dialog").get_by_role("link", name="workshop assemble").click()
    operator.get_by_label("rows").fill("450")
    operator.get_by_label("wait").select_option("true")
    operator.get_by_role("button", name="Start the job").click()
    operator.get_by_role("link", name="Follow the job").click()

    _state(operator, "running")
    steps = operator.get_by_role("region", name="Steps").get_by_role("listitem")
    steps.filter(has_text="assemble").and_(operator.locator("[aria-current=step]")).wait_for()
    log = operator.get_by_role("log")
    log.get_by_text("part 2 is here").wait_for()

    with site.client() as client:
        client.call("workshop", "release")
    _state(operator, "done")
    log.get_by_text("assembled").wait_for()
    result = operator.get_by_role("region", name="Result")
    result.get_by_text(re.compile("^rows 1.200 of 450$")).wait_for()
    # The recorded steps come with the end, in place of those that were seen.
    steps.first.filter(has_text="1/2 gather").wait_for()


def test_job_is_started_with_a_priority(site: Site, operator: Page) -> None:
    operator.goto(site.at("services/workshop/assemble"))
    operator.get_by_text("Options", exact=True).click()
    operator.get_by_label("Priority").select_option("8")
    operator.get_by_role("button", name="Start the job").click()
    operator.get_by_role("link", name="Follow the job").click()

    operator.get_by_role("region", name="About the job").get_by_text("8", exact=True).wait_for()


def test_result_is_read_page_by_page(site: Site, operator: Page) -> None:
    job = _started(site, "assemble", {"rows": 450})
    operator.goto(site.at(f"jobs/{job}"))
    result = operator.get_by_role("region", name="Result", exact=True)

    result.get_by_role("cell", name="p0", exact=True).wait_for()
    result.get_by_role("button", name="Next rows").click()
    result.get_by_text(re.compile("^rows 201.400 of 450$")).wait_for()
    result.get_by_role("cell", name="p200", exact=True).wait_for()
    result.get_by_role("button", name="Next rows").click()
    result.get_by_text(re.compile("^rows 401.450 of 450$")).wait_for()
    assert result.get_by_role("button", name="Next rows").is_disabled()
    result.get_by_role("button", name="Previous rows").click()
    result.get_by_text(re.compile("^rows 201.400 of 450$")).wait_for()


def test_result_is_drawn(site: Site, operator: Page) -> None:
    job = _started(site, "assemble", {"rows": 5})
    operator.goto(site.at(f"jobs/{job}"))
    result = operator.get_by_role("region", name="Result", exact=True)
    result.get_by_text("Plot", exact=True).click()

    result.get_by_role("img", name="Result: weight by part").wait_for()
    assert result.locator("figure svg rect title").count() == 5


def test_result_is_saved(site: Site, operator: Page) -> None:
    job = _started(site, "assemble", {"rows": 2})
    operator.goto(site.at(f"jobs/{job}"))

    with operator.expect_download() as download:
        operator.get_by_role("button", name="Save as JSON lines").click()

    assert download.value.path().read_text() == ('{"part":"p0","weight":1000}\n{"part":"p1","weight":1001}\n')


def test_job_is_cancelled(site: Site, operator: Page) -> None:
    job = _started(site, "assemble", {"wait": True})
    operator.goto(site.at(f"jobs/{job}"))
    _state(operator, "running")
    operator.get_by_role("button", name="Cancel", exact=True).click()
    operator.get_by_role("dialog").get_by_role("button", name="Cancel the job").click()

    _state(operator, "cancelled")
    assert operator.get_by_role("button", name="Cancel", exact=True).count() == 0


def test_failure_is_explained(site: Site, operator: Page) -> None:
    job = _started(site, "break_down", {"reason": "the glue is dry"})
    operator.goto(site.at(f"jobs/{job}"))

    _state(operator, "failed")
    error = operator.get_by_role("alert")
    assert "broken" in error.inner_text()
    assert "the glue is dry" in error.inner_text()
    operator.get_by_role("log").get_by_text("about to fail").wait_for()


def test_job_is_run_again(site: Site, operator: Page) -> None:
    job = _started(site, "assemble", {"rows": 7})
    operator.goto(site.at(f"jobs/{job}"))
    _state(operator, "done")
    operator.get_by_role("button", name="Run again").click()

    operator.get_by_text("Rerun of").wait_for()
    assert job not in operator.url
    _state(operator, "done")
    operator.get_by_role("cell", name="p6", exact=True).wait_for()


def test_job_is_edited_and_run(site: Site, operator: Page) -> None:
    job = _started(site, "assemble", {"rows": 7})
    operator.goto(site.at(f"jobs/{job}"))
    operator.get_by_role("link", name="Edit and run…").click()

    rows = operator.get_by_label("rows")
    rows.wait_for()
    assert rows.input_value() == "7"


def test_jobs_are_listed_and_narrowed(site: Site, operator: Page) -> None:
    _started(site, "assemble", {"rows": 1})
    failed = _started(site, "break_down", {"reason": "no nails left"})
    operator.goto(site.at("jobs"))
    rows = operator.get_by_role("region", name="Jobs", exact=True).get_by_role("row")

    rows.filter(has_text="break_down").first.wait_for()
    rows.filter(has_text="assemble").first.wait_for()
    operator.get_by_role("region", name="Timeline").get_by_role("img").wait_for()
    operator.get_by_label("Search notes and errors").fill("no nails")
    rows.filter(has_text="assemble").first.wait_for(state="detached")
    rows.filter(has_text=failed[-6:]).wait_for()
    operator.get_by_label("Search notes and errors").fill("")
    operator.get_by_text("Running", exact=True).click()
    operator.get_by_text("No job matches.").wait_for()


def test_running_job_appears_and_is_cancelled_in_the_list(site: Site, operator: Page) -> None:
    operator.goto(site.at("jobs"))
    operator.get_by_role("heading", name="Jobs", exact=True).wait_for()
    job = _started(site, "assemble", {"wait": True})
    row = operator.get_by_role("row").filter(has_text=job[-6:])

    row.get_by_text("running", exact=True).wait_for()
    row.get_by_role("button", name="Cancel").click()
    row.get_by_text("cancelled", exact=True).wait_for()


def test_jobs_of_others_show_their_state_alone(site: Site, open_page: OpenPage) -> None:
    job = _started(site, "count", {"up_to": 2}, service="shop")
    page = open_page(READER)
    page.goto(site.at(f"jobs/{job}"))

    page.get_by_text("This job belongs to operator.").wait_for()
    _state(page, "done")
    assert page.get_by_role("button", name="Run again").is_disabled()
    assert page.get_by_role("log").count() == 0


def test_forgotten_job_is_told_so(site: Site, operator: Page) -> None:
    operator.goto(site.at("jobs/workshop/01JD3Z7VTP5W0Q4YH2X8K6M9NB"))

    operator.get_by_role("alert").get_by_text("not-found").wait_for()


@pytest.mark.usefixtures("axe")
@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_accessible_and_fit(site: Site, open_page: OpenPage, colours: str, width: int) -> None:
    job = _started(site, "assemble", {"rows": 5})
    page = open_page(OPERATOR, color_scheme=colours, viewport={"width": width, "height": 844})
    shown = {"jobs": re.compile("^Timeline$"), f"jobs/{job}": re.compile("^Result$")}

    findings = {}
    for at, text in shown.items():
        page.goto(site.at(at))
        page.get_by_role("heading", name=text).wait_for()
        wider = page.evaluate("(main => main.scrollWidth - main.clientWidth)(document.querySelector('main'))")
        findings[at] = axe_findings(page) + ([f"{wider} pixels too wide"] if wider > 0 else [])

    assert findings == {at: [] for at in shown}
