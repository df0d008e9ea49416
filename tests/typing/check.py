"""Calls as the type checker sees them. Checked, not run.

A line marked `wrong` must be rejected with the code it names: mypy reports an ignore that it did not need.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from decimal import Decimal
from typing import Any, assert_type

from pydantic import BaseModel

from nebula.rpc.client.client import Client
from nebula.rpc.client.values import LastValue
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.injection import Depends
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.verbs import verb
from nebula.rpc.discovery import ScatterResult
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.middleware.chain import Call, CallNext, MakeCall
from nebula.rpc.service.lifespan import lifespan_state
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.sync import Client as SyncClient

app = Responder("prices")


@app.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    return Decimal(qty)


@app.verb(name="compute")
def crunch(values: list[int]) -> int:
    return sum(values)


@verb(allow=["alice"])
async def look(request: Request, word: str) -> str:
    return word


@verb
def peek(request: Request, word: str) -> bytes:
    return word.encode()


@app.job(engine=None, timeout=60)
def report(job: Job, month: int) -> list[str]:
    return [str(month)]


async def jobs_are_started_by_function_or_name(client: Client) -> None:
    assert_type(await client.start(report, 1), JobHandle[list[str]])
    assert_type(await client.start("prices", "report", [1], dedupe="x"), JobHandle[Any])
    assert_type(await (await client.start(report, month=1)).result(), list[str])
    assert_type(await (await client.start(report, month=1)).result(tuple[str, ...]), tuple[str, ...])
    assert_type(await (await client.start("prices", "report")).result(), Any)
    assert_type(await (await (await client.start(report, 1)).rerun()).result(), list[str])
    patient = client.with_options(timeout=5, priority=9, dedupe="x", retry=None)
    assert_type(await patient.start(report, 1), JobHandle[list[str]])
    client.with_options(priority="high")  # type: ignore[arg-type]  # wrong
    client.with_options(prioritty=9)  # type: ignore[call-arg]  # wrong
    await client.start(report, month="x")  # type: ignore[arg-type]  # wrong
    await client.start(report, "x")  # type: ignore[arg-type]  # wrong
    await client.start("prices", "report", priority="high")  # type: ignore[call-overload]  # wrong
    report("x", 1)  # type: ignore[arg-type]  # wrong


async def decorators_keep_the_signature() -> None:
    assert_type(await quote("ABC"), Decimal)
    assert_type(crunch([1]), int)
    crunch(["x"])  # type: ignore[list-item]  # wrong


async def calls_have_the_handlers_type(client: Client) -> None:
    assert_type(await client.call(quote, "ABC", qty=2), Decimal)
    assert_type(await client.call(crunch, [1, 2]), int)
    assert_type(await client.call(look, "x"), str)
    assert_type(await client.call(peek, word="x"), bytes)
    assert_type(await client.with_options(timeout=5).call(quote, "ABC"), Decimal)
    assert_type(await client.service("other").call(look, "x"), str)


async def calls_by_name_have_the_type_asked_for(client: Client) -> None:
    assert_type(await client.call("prices", "quote", {"symbol": "ABC"}, result=Decimal, timeout=5), Decimal)
    assert_type(await client.call("prices", "quote", result=list[int]), list[int])
    assert_type(await client.call("prices", "quote", {"symbol": "ABC"}), Any)


async def all_instances_answer_with_the_handlers_type(client: Client) -> None:
    assert_type(await client.call_all(quote, "ABC", qty=2), ScatterResult[Decimal])
    assert_type((await client.call_all(crunch, [1])).values, dict[str, int])
    assert_type(await client.call_all("prices", "quote", result=Decimal), ScatterResult[Decimal])
    assert_type(await client.call_all("prices", "quote", {"symbol": "ABC"}, timeout=5), ScatterResult[Any])
    async with client.call_all(look, "x") as answers:
        assert_type([one.value async for one in answers], list[str])
    client.call_all(quote, 7)  # type: ignore[arg-type]  # wrong
    client.call_all(look)  # type: ignore[arg-type, call-arg]  # wrong
    client.call_all("prices")  # type: ignore[call-overload]  # wrong


async def wrong_calls_are_rejected(client: Client) -> None:
    await client.call(quote, 7)  # type: ignore[arg-type]  # wrong
    await client.call(quote)  # type: ignore[arg-type, call-arg]  # wrong
    await client.call(quote, "ABC", quantity=2)  # type: ignore[call-arg]  # wrong
    await client.call(look)  # type: ignore[arg-type, call-arg]  # wrong
    await client.call(look, 7)  # type: ignore[arg-type]  # wrong
    await client.call("prices")  # type: ignore[call-overload]  # wrong
    await client.call(quote, symbol=7)  # type: ignore[arg-type]  # wrong
    await client.call(quote, "ABC", qty="2")  # type: ignore[arg-type]  # wrong
    await client.call("prices", "quote", timeout="5")  # type: ignore[call-overload]  # wrong
    await client.send(quote, 7)  # type: ignore[arg-type]  # wrong
    wrong: str = await client.call(crunch, [1])  # type: ignore[assignment]  # wrong
    del wrong


def sync_calls_are_the_same_without_await(client: SyncClient) -> None:
    assert_type(client.call(quote, "ABC", qty=2), Decimal)
    assert_type(client.call(crunch, [1, 2]), int)
    assert_type(client.call(look, "x"), str)
    assert_type(client.call("prices", "quote", result=Decimal), Decimal)
    assert_type(client.call_all(look, "x"), ScatterResult[str])
    assert_type(client.call_all(quote, "ABC").values, dict[str, Decimal])
    assert_type(client.call_all("prices", "quote", result=Decimal), ScatterResult[Decimal])
    client.call_all(look, 7)  # type: ignore[arg-type]  # wrong
    client.call(quote)  # type: ignore[arg-type, call-arg]  # wrong
    client.call(crunch, values=["x"])  # type: ignore[arg-type]  # wrong
    client.call(crunch, ["x"])  # type: ignore[arg-type]  # wrong
    client.send(look, 7)  # type: ignore[arg-type]  # wrong


@app.verb
async def ticks(symbol: str, count: int = 1) -> AsyncIterator[Decimal]:
    yield Decimal(count)


@app.verb
def rows(request: Request, table: str) -> Iterator[int]:
    yield 1


async def streams_have_the_type_of_what_the_handler_yields(client: Client) -> None:
    assert_type([tick async for tick in client.stream(ticks, "ABC", count=2)], list[Decimal])
    assert_type(await anext(client.stream(rows, "t")), int)
    assert_type([one async for one in client.stream("prices", "ticks", result=Decimal)], list[Decimal])
    assert_type(await client.stream("prices", "ticks").next_batch(), Sequence[Any])
    async with client.with_options(timeout=5).stream(ticks, "ABC") as held:
        assert_type(await anext(held), Decimal)
    client.stream(ticks, 7)  # type: ignore[arg-type]  # wrong
    client.stream(ticks, "ABC", quantity=2)  # type: ignore[call-arg]  # wrong
    client.stream(rows)  # type: ignore[arg-type, call-arg]  # wrong


def sync_streams_are_the_same_without_await(client: SyncClient) -> None:
    assert_type(list(client.stream(ticks, "ABC")), list[Decimal])
    assert_type(list(client.stream(rows, table="t")), list[int])
    client.stream(ticks)  # type: ignore[arg-type, call-arg]  # wrong


class Meter(BaseModel):
    cents: int


@app.on("X/EGM.*", eager=True)
async def note(meter: Meter | None, request: Request) -> None: ...


async def listening_keeps_the_signature_and_knows_its_options(request: Request) -> None:
    await note(Meter(cents=1), request)
    await note("x", request)  # type: ignore[arg-type]  # wrong
    app.on("X/EGM.*", concurrency="2")  # type: ignore[arg-type]  # wrong
    app.on("X/EGM.*", ack="auto")  # type: ignore[arg-type]  # wrong
    await app.publish("X/total", Meter(cents=1))


async def last_values_are_of_the_type_asked_for(client: Client) -> None:
    value = client.value("X/total", as_=Meter)
    assert_type(value, LastValue[Meter])
    assert_type(await value.get(), Meter | None)
    async for now in value:
        assert_type(now, Meter | None)
    await value.put(Meter(cents=1), ephemeral=True)
    await value.put("x")  # type: ignore[arg-type]  # wrong
    client.value("X/total")  # type: ignore[call-arg]  # wrong


def sync_last_values_are_the_same_without_await(client: SyncClient) -> None:
    value = client.value("X/total", as_=Meter)
    assert_type(value.get(), Meter | None)
    assert_type(list(value), list[Meter | None])
    value.put(Meter(cents=1))
    value.put(7)  # type: ignore[arg-type]  # wrong


class Db:
    """What a provider makes."""


async def get_db() -> AsyncIterator[Db]:
    yield Db()


def get_db_plainly() -> Iterator[Db]:
    yield Db()


async def who(request: Request) -> str:
    return request.principal or ""


@app.verb
async def stored(
    symbol: str, *, db: Db = Depends(get_db), other: Db = Depends(get_db_plainly), name: str = Depends(who)
) -> int:
    return len(symbol)


@app.verb
async def stateful(request: Request[Db], symbol: str, *, whole: Db = Depends(lifespan_state)) -> Db:
    assert_type(request.state, Db)
    return request.state


@app.job(engine=None)
async def stored_job(ctx: Job, month: int, *, db: Db = Depends(get_db)) -> int:
    return month


async def callers_leave_out_what_providers_make(client: Client) -> None:
    assert_type(await client.call(stored, "ABC"), int)
    assert_type(await client.call(stateful, "ABC"), Db)
    assert_type(await client.start(stored_job, 1), JobHandle[int])
    await client.call(stored)  # type: ignore[arg-type, call-arg]  # wrong


def providers_give_what_parameters_take() -> None:
    assert_type(Depends(get_db), Db)
    assert_type(Depends(get_db_plainly), Db)
    assert_type(Depends(who), str)
    assert_type(Depends(Db), Db)
    wrong: int = Depends(get_db)  # type: ignore[assignment]  # wrong
    del wrong


async def around(request: Request, call_next: CallNext) -> ReplyBody:
    return await call_next(request)


async def around_calls(call: Call, call_next: MakeCall) -> Any:
    return await call_next(call)


Responder("a", middleware=[around])
Client(middleware=[around_calls])
Responder("a", middleware=[around_calls])  # type: ignore[list-item]  # wrong
