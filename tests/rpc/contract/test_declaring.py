"""Declarations that newcomers write first: each works, or is refused at once with a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.verbs import verb
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient

pytestmark = pytest.mark.anyio


async def test_name_may_stand_first() -> None:
    app = Responder("names")

    @app.verb("get.price", idempotent=True)
    async def quote(symbol: str) -> str:
        return symbol

    @verb("get.size")
    async def size(symbol: str) -> int:
        return len(symbol)

    @app.job("make.report", engine=None)
    def report(month: int) -> int:
        return month

    app.include(type("Members", (), {"size": staticmethod(size)}))
    async with TestClient(app) as client:
        assert await client.call(quote, "ABC") == await client.call("names", "get.price", ["ABC"]) == "ABC"
        assert await client.call("names", "get.size", ["ABC"]) == 3
        assert await (await client.start("names", "make.report", [3])).result() == 3


def test_two_names_and_what_is_neither_name_nor_function_are_refused() -> None:
    app: Any = Responder("names")

    with pytest.raises(TypeError, match="multiple values for argument 'name'"):
        app.verb("quote", name="price")
    decorators: list[Any] = [app.verb, app.job, verb]
    for decorator in decorators:
        with pytest.raises(TypeError, match="takes a function or a name, not 7"):
            decorator(7)


def test_method_in_its_class_is_refused_with_what_to_write() -> None:
    app = Responder("desk")

    def declared(decorator: Any) -> str:
        with pytest.raises(TypeError) as told:

            class Desk:
                @decorator  # type: ignore[untyped-decorator]  # one of three
                async def quote(self, symbol: str) -> str:
                    return symbol

        return str(told.value)

    assert declared(app.verb).endswith(
        "Desk.quote is a method without its object; mark it with the bare @verb, and declare an object's: "
        "app.include(Desk())"
    )
    assert declared(app.job(engine=None)).endswith("a job is a function: write it outside of Desk")
    assert declared(app.on("X/ticks")).endswith("declare an object's: app.on(…)(Desk().quote)")


def test_class_that_is_included_in_place_of_its_object_is_refused() -> None:
    class Desk:
        @verb
        async def quote(self, symbol: str) -> str:
            return symbol

    with pytest.raises(TypeError, match=r"app\.include\(Desk\(\)\)"):
        Responder("desk").include(Desk)


class Counter:
    def __init__(self, step: int) -> None:
        self.step = step

    async def add(self, number: int) -> int:
        return number + self.step

    @staticmethod
    async def twice(number: int) -> int:
        return 2 * number


async def test_method_of_an_object_is_a_verb() -> None:
    app = Responder("counter")
    counter = Counter(3)
    app.verb(counter.add)
    app.verb(Counter.twice)

    async with TestClient(app) as client:
        assert await client.call(counter.add, 4) == await client.call("counter", "add", [4]) == 7
        assert await client.call(Counter.twice, 4) == 8


def test_same_method_of_two_objects_is_refused_as_callers_could_not_tell_them_apart() -> None:
    class Own(Counter):
        async def add(self, number: int) -> int:
            return number

    app = Responder("counters")
    app.verb(Own(1).add)

    with pytest.raises(
        TypeError, match="of another object; mark it with the bare @verb and include the objects"
    ):
        app.verb("add2")(Own(2).add)


async def test_parameter_without_annotation_takes_anything() -> None:
    app = Responder("anything")

    @app.verb
    async def echo(value, times=1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        return [value] * times

    async with TestClient(app) as client:
        assert await client.call("anything", "echo", {"value": {"a": [1, None]}}) == [{"a": [1, None]}]
        assert await client.call("anything", "echo", ["x", 2]) == ["x", "x"]


def test_request_and_job_without_annotation_are_refused() -> None:
    app = Responder("anything")

    with pytest.raises(
        TypeError, match="request has no annotation; write `request: Request` for the Request itself"
    ):

        @app.verb
        async def look(request, symbol: str) -> str:  # type: ignore[no-untyped-def]  # noqa: ANN001
            return symbol

    with pytest.raises(
        TypeError, match="ctx has no annotation; write `ctx: Job` for the Job itself, or `ctx: Any`"
    ):

        @app.job(engine=None)
        def report(ctx, month: int) -> int:  # type: ignore[no-untyped-def]  # noqa: ANN001
            return month

    @app.verb
    async def seen(request: Any, other: Request) -> Any:
        return request

    @app.job(engine=None)
    def done(job: Any, other: Job) -> Any:
        return job
