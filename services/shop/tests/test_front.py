"""The web front by FastAPI's own test client, in front of fakes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from fastapi.testclient import TestClient as Browser

from nebula.testing import Fake, FakeCall, TestClient, fake
from services.shop.front import web
from services.shop.orders import Order, place
from services.shop.prices import Price, catalogue
from services.shop.report import Sold, takings
from services.shop.stock import OutOfStock

ORDER = Order(id="1", placed_at=datetime(2026, 11, 22, tzinfo=UTC), item="hat", count=2, cents=3000)


@contextmanager
def browsing(*services: Fake) -> Iterator[Browser]:
    with TestClient(*services), Browser(web) as browser:
        yield browser


def test_prices_are_those_of_the_service() -> None:
    with browsing(fake(catalogue, returns=[Price(item="hat", cents=1500)])) as browser:
        assert browser.get("/prices").json() == [{"item": "hat", "cents": 1500}]


def test_order_is_placed() -> None:
    placing = fake(place, returns=ORDER)
    with browsing(placing) as browser:
        response = browser.post("/orders", json={"item": "hat", "count": 2})

    assert response.status_code == 201
    assert Order.model_validate(response.json()) == ORDER
    assert placing.calls == [FakeCall({"item": "hat", "count": 2})]


def test_what_is_out_of_stock_is_told_with_what_is_left() -> None:
    sold_out = OutOfStock("1 of hat are left", details={"left": 1})
    with browsing(fake(place, raises=sold_out)) as browser:
        response = browser.post("/orders", json={"item": "hat", "count": 2})

    assert response.status_code == 422
    assert response.json() == {
        "code": "out-of-stock",
        "message": "1 of hat are left",
        "retryable": False,
        "details": {"left": 1},
    }


def test_service_that_is_away_is_unavailable() -> None:
    with browsing() as browser:
        response = browser.post("/orders", json={"item": "hat"})

    assert (response.status_code, response.json()["code"]) == (503, "no-responder")


def test_button_starts_the_report_and_follows_it() -> None:
    sold = [Sold(item="hat", orders=1, pieces=2, cents=3000)]
    report = fake(takings, returns=sold)
    with browsing(report) as browser:
        assert '<button id="start">' in browser.get("/").text
        job = browser.post("/reports?day=2026-11-22").json()["job"]
        told = browser.get(f"/reports/{job}/progress").text
        result = browser.get(f"/reports/{job}")

    assert '"state":"done"' in told.splitlines()[-2]
    assert [Sold.model_validate(each) for each in result.json()] == sold
    assert [call.parameters["day"].isoformat() for call in report.calls] == ["2026-11-22"]


def test_report_that_nobody_knows_is_not_found() -> None:
    with browsing(fake(takings)) as browser:
        response = browser.get("/reports/report/01JAAAAAAAAAAAAAAAAAAAAAAA")

    assert (response.status_code, response.json()["code"]) == (404, "not-found")
