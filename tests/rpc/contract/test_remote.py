"""Declarations of remote verbs: which service a call goes to, and which fields of a model are sent."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from pydantic import ConfigDict, Field

from nebula.rpc import OMITTED, Partial, Remote
from nebula.rpc.contract.typed_calls import resolve
from nebula.rpc.contract.verbs import Target, VerbOptions
from nebula.rpc.errors import VerbError


class SoldOut(VerbError):
    code = "sold-out"


def test_declared_function_knows_whom_to_ask() -> None:
    shop = Remote("shop")

    @shop.verb
    async def price(item: str) -> int:
        raise NotImplementedError

    @shop.verb(name="price.list", queue="slow", errors=[SoldOut], idempotent=True)
    async def listed() -> list[int]:
        raise NotImplementedError

    @shop.job
    def stock(items: int = OMITTED) -> None:
        raise NotImplementedError

    plain, rich = (resolve(one, None)[0] for one in (price, listed))
    assert plain == Target("shop", "/queue/shop", "price")
    assert (rich.destination, rich.verb) == ("/queue/slow", "price.list")
    assert rich.options == VerbOptions("price.list", queue="slow", errors=(SoldOut,), idempotent=True)
    job, contract = resolve(stock, None, as_job=True)
    assert job.is_job
    assert contract.pack((), {}) is None


def test_service_may_be_named_by_its_queue() -> None:
    for name in ("shop", "/queue/shop"):
        remote = Remote(name)

        @remote.verb
        def price() -> int:
            raise NotImplementedError

        assert resolve(price, None)[0] == Target("shop", "/queue/shop", "price")


class Lamp(Partial):
    model_config = ConfigDict(populate_by_name=True)

    watts: int
    tags: list[str] = Field(default_factory=list)
    class_: str = Field(default="x", validation_alias="class", serialization_alias="class")
    old: int = Field(default=0, deprecated="no use")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"watts": 1}, {"watts": 1}),
        ({"watts": 1, "tags": []}, {"watts": 1, "tags": []}),
        ({"watts": 1, "class": "x"}, {"watts": 1, "class": "x"}),
        ({"watts": 1, "old": 0}, {"watts": 1, "old": 0}),
    ],
)
def test_partial_model_is_sent_without_its_unset_fields(given: dict[str, Any], sent: dict[str, Any]) -> None:
    lamp = Lamp.model_validate(given)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert lamp.model_dump(by_alias=True) == sent
        assert lamp.model_dump() == {
            ("class_" if name == "class" else name): one for name, one in sent.items()
        }


def test_list_that_was_filled_in_place_is_sent() -> None:
    lamp = Lamp(watts=1)
    lamp.tags.append("new")

    assert lamp.model_dump() == {"watts": 1, "tags": ["new"]}
