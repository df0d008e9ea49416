"""Injected arguments of handlers: made for each request, closed after the reply."""

from __future__ import annotations

import functools
import threading
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Annotated, Any
from uuid import uuid4

import anyio
import pytest

from nebula.errors import CallTimeout, RemoteError
from nebula.rpc.client.client import Client
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.injection import Depends
from nebula.rpc.contract.signature import Signature
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient


def fresh(**options: Any) -> Responder:
    return Responder(f"service-{uuid4().hex}", **options)


# --- declaring ---


def one() -> int:
    return 1


def doubled(number: Annotated[int, Depends(one)]) -> int:
    return 2 * number


def needs_circular(number: Annotated[int, Depends(circular)]) -> int:
    return number


def circular(number: Annotated[int, Depends(needs_circular)]) -> int:
    return number


def test_providers_that_need_each_other_are_refused_by_their_names() -> None:
    async def quote(number: Annotated[int, Depends(circular)]) -> int:
        return number

    with pytest.raises(
        TypeError, match=r"\.circular needs \S+\.needs_circular needs \S+\.circular; make one"
    ):
        fresh().verb(quote)


def test_injected_argument_is_no_part_of_the_contract() -> None:
    def quote(symbol: str, *, number: int = Depends(one)) -> str:
        return symbol

    signature = Signature(quote, context=(Request,))

    assert signature.names == ("symbol",)
    assert list(signature.parameters_schema()["properties"]) == ["symbol"]
    assert signature.pack(["ABC"], {}) == {"symbol": "ABC"}
    with pytest.raises(TypeError, match="no parameter number"):
        signature.pack(["ABC"], {"number": 2})


@pytest.mark.anyio
async def test_injected_argument_may_stand_anywhere_and_in_an_annotation() -> None:
    app = fresh()

    @app.verb
    async def first(number: Annotated[int, Depends(one)], symbol: str, qty: int = 1) -> str:
        return f"{symbol} {qty} {number}"

    @app.verb
    def last(symbol: str, number: int = Depends(one), two: Annotated[int, Depends(doubled)] = 0) -> str:
        return f"{symbol} {number} {two}"

    @app.job(engine=None)
    def made(number: Annotated[int, Depends(one)], symbol: str) -> str:
        return f"{symbol} {number}"

    async with TestClient(app) as client:
        assert await client.call(app.name, "first", ["ABC", 3]) == "ABC 3 1"
        assert await client.call(app.name, "first", {"symbol": "ABC"}) == "ABC 1 1"
        assert await client.call(last, "ABC") == "ABC 1 2"
        job = await client.start(app.name, "made", ["ABC"])
        assert await job.result() == "ABC 1"
        with pytest.raises(RemoteError, match="bad-parameters"):
            await client.call(app.name, "first", {"symbol": "ABC", "number": 7})
        with pytest.raises(TypeError, match="takes 1 arguments, 2 were given"):
            await client.call(last, "ABC", 2)


def test_argument_with_two_values_is_refused() -> None:
    def quote(symbol: str, number: Annotated[int, Depends(one)] = Depends(one)) -> None: ...

    with pytest.raises(TypeError, match="number has Depends twice; keep one"):
        Signature(quote)


def test_provider_with_a_parameter_that_gets_no_value_is_refused() -> None:
    def provider(name: str) -> str:
        return name

    def quote(*, name: str = Depends(provider)) -> None: ...

    with pytest.raises(TypeError, match="name gets no value; annotate it with Request"):
        Signature(quote, context=(Request,))


def test_provider_that_returns_an_iterator_is_refused_as_its_type_would_lie() -> None:
    def provider() -> Iterator[int]:
        return iter([1])

    def quote(*, number: int = Depends(provider)) -> None: ...

    with pytest.raises(TypeError, match="write it as a generator"):
        Signature(quote)


def test_what_cannot_be_called_is_refused() -> None:
    def quote(*, number: Any = Depends(1)) -> None: ...  # type: ignore[call-overload]

    with pytest.raises(TypeError, match="nothing that can be called"):
        Signature(quote)


# --- giving ---


class Settings:
    """A class is a provider, too."""

    def __init__(self, request: Request) -> None:
        self.verb = request.verb


class Doubling:
    """A callable object is a provider, too."""

    async def __call__(self, settings: Settings = Depends(Settings)) -> str:
        return settings.verb * 2


def with_prefix(prefix: str, request: Request) -> str:
    return prefix + request.verb


async def in_a_task(request: Request) -> str:
    return f"async {request.verb}"


def in_a_thread(request: Request) -> str:
    assert threading.current_thread() is not threading.main_thread()
    return f"plain {request.verb}"


def around_a_task(request: Request) -> Awaitable[str]:
    async def in_it() -> str:
        return f"around {request.verb}"

    return in_it()


async def yielded() -> AsyncIterator[str]:
    yield "async yielded"


def yielded_plainly() -> Iterator[str]:
    yield "plain yielded"


PROVIDERS: dict[str, Any] = {
    "async seen": in_a_task,
    "plain seen": in_a_thread,
    "around seen": around_a_task,
    "async yielded": yielded,
    "plain yielded": yielded_plainly,
    "seenseen": Doubling(),
    "+seen": functools.partial(with_prefix, "+"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("expected", PROVIDERS)
async def test_each_kind_of_provider_gives_to_each_kind_of_handler(kind: str, expected: str) -> None:
    app = fresh()
    provider = PROVIDERS[expected]

    async def seen(*, given: str = Depends(provider)) -> str:
        return given

    def seen_plainly(*, given: str = Depends(provider)) -> str:
        return given

    app.verb(name="seen")(seen if kind == "async" else seen_plainly)
    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(app.name, "seen") == expected


@pytest.mark.anyio
async def test_provider_runs_once_for_a_request_however_many_ask_and_again_for_the_next() -> None:
    app = fresh()
    calls: list[object] = []

    async def made() -> object:
        calls.append(object())
        return calls[-1]

    async def left(thing: object = Depends(made)) -> object:
        return thing

    async def right(thing: object = Depends(made)) -> object:
        return thing

    @app.verb
    async def same(
        *, a: object = Depends(left), b: object = Depends(right), c: object = Depends(made)
    ) -> bool:
        return a is b is c

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(same) is True
            assert await client.call(same) is True
    assert len(calls) == 2


@pytest.mark.anyio
async def test_caller_cannot_give_what_a_provider_makes() -> None:
    app = fresh()

    @app.verb
    async def number(*, given: int = Depends(one)) -> int:
        return given

    async with TestClient(app) as client:
        with anyio.fail_after(5), pytest.raises(RemoteError, match="bad-parameters"):
            await client.call(app.name, "number", {"given": 7})


@pytest.mark.anyio
async def test_context_and_parameters_go_together_with_what_is_given() -> None:
    app = fresh()

    @app.verb
    async def joined(word: str, request: Request, times: int = 2, *, given: int = Depends(one)) -> str:
        return f"{word * times} {request.verb} {given}"

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(app.name, "joined", ["a", 3]) == "aaa joined 1"
            assert await client.call(app.name, "joined", {"word": "b"}) == "bb joined 1"


# --- closing ---


class Diary:
    """The events of a provider's `yield`, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.closed = anyio.Event()

    async def provider(self) -> AsyncIterator[str]:
        self.lines.append("opened")
        try:
            yield "given"
        except BaseException as error:
            self.lines.append(type(error).__name__)
            raise
        else:
            self.lines.append("kept")
        finally:
            await anyio.lowlevel.checkpoint()
            self.lines.append("closed")
            self.closed.set()


@pytest.mark.anyio
async def test_generator_is_closed_after_the_answer() -> None:
    app, diary = fresh(), Diary()
    may_close = anyio.Event()

    async def slow_to_close() -> AsyncIterator[int]:
        yield 1
        await may_close.wait()
        diary.closed.set()

    @app.verb
    async def number(*, given: int = Depends(slow_to_close)) -> int:
        return given

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(number) == 1
            assert not diary.closed.is_set()
            may_close.set()
            await diary.closed.wait()


@pytest.mark.anyio
async def test_generators_close_in_the_opposite_order() -> None:
    app = fresh()
    lines: list[str] = []
    closed = anyio.Event()

    def outer() -> Iterator[str]:
        yield "outer"
        lines.append("outer")
        anyio.from_thread.run_sync(closed.set)

    async def inner(given: str = Depends(outer)) -> AsyncIterator[str]:
        yield f"{given} inner"
        lines.append("inner")

    @app.verb
    async def both(*, given: str = Depends(inner)) -> str:
        return given

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(both) == "outer inner"
            await closed.wait()
    assert lines == ["inner", "outer"]


@pytest.mark.anyio
async def test_generator_gets_the_error_of_the_handler() -> None:
    app, diary = fresh(), Diary()

    @app.verb
    async def failing(*, given: str = Depends(diary.provider)) -> None:
        raise VerbError("sold-out", "none left")

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            with pytest.raises(RemoteError, match="sold-out: none left"):
                await client.call(failing)
            await diary.closed.wait()
    assert diary.lines == ["opened", "VerbError", "closed"]


@pytest.mark.anyio
async def test_error_of_a_provider_is_answered_and_those_before_it_are_closed() -> None:
    app, diary = fresh(), Diary()

    async def refusing(given: str = Depends(diary.provider)) -> None:
        raise VerbError("no-room", "come back later")

    @app.verb
    async def never(*, given: str = Depends(diary.provider), other: None = Depends(refusing)) -> None:
        diary.lines.append("handled")

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            with pytest.raises(RemoteError, match="no-room: come back later"):
                await client.call(never)
            await diary.closed.wait()
    assert diary.lines == ["opened", "VerbError", "closed"]


@pytest.mark.anyio
async def test_bug_of_a_provider_is_hidden_from_the_caller() -> None:
    app = fresh()

    def broken() -> int:
        raise KeyError("secret")

    @app.verb
    async def number(*, given: int = Depends(broken)) -> int:
        return given

    async with TestClient(app) as client:
        with anyio.fail_after(5), pytest.raises(RemoteError, match="internal") as caught:
            await client.call(number)
    assert "secret" not in str(caught.value)


@pytest.mark.anyio
async def test_failure_after_the_reply_does_no_harm() -> None:
    app = fresh(concurrency=1)

    async def rude() -> AsyncIterator[int]:
        yield 1
        raise RuntimeError("after the answer")

    @app.verb
    async def number(*, given: int = Depends(rude)) -> int:
        return given

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert await client.call(number) == 1
            assert await client.call(number) == 1


@pytest.mark.anyio
async def test_generator_closes_in_peace_when_the_requests_time_is_over() -> None:
    app, diary = fresh(concurrency=1), Diary()

    @app.verb
    async def endless(*, given: str = Depends(diary.provider)) -> None:
        await anyio.sleep_forever()

    @app.verb
    async def quick() -> int:
        return 1

    async with TestClient(app) as client:
        with anyio.fail_after(10):
            with pytest.raises(CallTimeout):
                await client.with_options(timeout=0.5).call(endless)
            await diary.closed.wait()
            # Its worker is free again.
            assert await client.call(quick) == 1
    assert diary.lines[0] == "opened"
    assert diary.lines[-1] == "closed"
    assert "kept" not in diary.lines


@pytest.mark.anyio
async def test_stream_has_what_is_given_until_its_end() -> None:
    app, diary = fresh(), Diary()

    @app.verb
    async def letters(*, given: str = Depends(diary.provider)) -> AsyncIterator[str]:
        for one in given:
            assert diary.lines[-1] == "opened"
            yield one

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            assert [one async for one in client.stream(letters)] == list("given")
            await diary.closed.wait()
            assert await client.call(app.name, "letters") == list("given")
    assert diary.lines[:3] == ["opened", "kept", "closed"]


@pytest.mark.anyio
async def test_second_request_with_a_key_makes_nothing_new() -> None:
    app, diary = fresh(), Diary()

    @app.verb
    async def once(*, given: str = Depends(diary.provider)) -> str:
        return given

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            keyed = client.with_options(idempotency_key="k1")
            assert await keyed.call(once) == "given"
            assert await keyed.call(once) == "given"
    assert diary.lines.count("opened") == 1


@pytest.mark.anyio
async def test_call_of_a_provider_has_the_time_of_the_request() -> None:
    app = fresh()
    left: list[float | None] = []

    async def looks(request: Request) -> None:
        from nebula.rpc.wire.deadlines import AMBIENT

        left.append(AMBIENT.get())
        assert AMBIENT.get() == request.deadline

    @app.verb
    async def seen(*, given: None = Depends(looks)) -> None: ...

    async with TestClient(app) as client:
        with anyio.fail_after(5):
            await client.with_options(timeout=3).call(seen)
    assert left != [None]


@pytest.mark.anyio
async def test_plain_generator_is_closed_over_a_real_connection(client: Client, broker_url: str) -> None:
    app = fresh()
    closed = threading.Event()

    def opened() -> Iterator[int]:
        try:
            yield 1
        finally:
            closed.set()

    @app.verb
    def number(*, given: int = Depends(opened)) -> int:
        return given

    from nebula import testing

    async with testing.serving(broker_url, app):
        with anyio.fail_after(5):
            assert await client.call(number) == 1
            await anyio.to_thread.run_sync(closed.wait)
