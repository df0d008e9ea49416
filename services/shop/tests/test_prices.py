"""Prices are kept by the broker, and asked for by verbs."""

from __future__ import annotations

import pytest

from nebula import RemoteError
from nebula.testing import TestClient
from services.shop.prices import NotForSale, Price, app, catalogue, mark, quote


def test_three_cost_three_times_as_much() -> None:
    with TestClient(app) as client:
        client.call(mark, "hat", 1500)

        assert client.call(quote, "hat", 3) == 4500


def test_what_has_no_price_is_not_for_sale() -> None:
    with TestClient(app) as client, pytest.raises(NotForSale, match="nobody sells shoes"):
        client.call(quote, "shoes")


def test_catalogue_is_sorted_and_has_the_newest_prices() -> None:
    with TestClient(app) as client:
        for item, cents in (("scarf", 900), ("hat", 1500), ("scarf", 800)):
            client.call(mark, item, cents)

        assert client.call(catalogue) == [Price(item="hat", cents=1500), Price(item="scarf", cents=800)]


def test_price_is_followed_without_the_service() -> None:
    with TestClient(app) as client:
        client.call(mark, "hat", 1500)

        assert client.value("X/price.hat", as_=Price).get() == Price(item="hat", cents=1500)


@pytest.mark.parametrize("item", ["", "*", "a.b", "Hat"])
def test_item_that_is_no_name_is_refused(item: str) -> None:
    with TestClient(app) as client, pytest.raises(RemoteError, match="bad-parameters: item"):
        client.call(quote, item)
