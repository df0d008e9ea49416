"""Options of calls and starts: where they are given, and the errors about wrong ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula import sync
from nebula.errors import JobEnded
from nebula.rpc.client.client import Client
from nebula.rpc.contract.call_options import _KINDS, OPTIONS
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.service.responder import Responder
from nebula.testing import TestClient, serving

app = Responder("prices")


@app.verb
async def quote(symbol: str, qty: int = 1) -> Decimal:
    return Decimal(qty)


@app.job(engine=None)
def total(month: int) -> int:
    return month


def wrong(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Awaitable[Any]:
    """A call that type checkers refuse."""
    made: Awaitable[Any] = call(*args, **kwargs)
    return made


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    (
        "call",
        (quote, "ABC"),
        {"timeout": 2},
        "quote has no parameter timeout; options come first: client.with_options(timeout=…).call(quote, …)",
    ),
    (
        "start",
        (total, 3),
        {"notify": "x"},
        "total has no parameter notify; options come first: client.with_options(notify=…).start(total, …)",
    ),
    ("call", (quote, "ABC"), {"quantity": 2}, "quote has no parameter quantity"),
    ("call", (quote,), {}, "quote needs symbol"),
    (
        "call",
        ("prices",),
        {},
        "client.call('prices', …) needs a verb: client.call('prices', VERB, PARAMETERS)",
    ),
    (
        "call",
        ("prices", "quote", "ABC", 2),
        {},
        """client.call('prices', …) takes all parameters as one value: \
client.call('prices', 'quote', {"name": value})""",
    ),
    (
        "call",
        ("prices", "quote"),
        {"symbol": "ABC", "qty": 2},
        """client.call('prices', …) has no option qty, symbol; parameters go into one object: \
client.call('prices', 'quote', {"qty": …, "symbol": …})""",
    ),
    (
        "call",
        ("prices", "quote"),
        {"timout": 2},
        "client.call('prices', …) has no option timout; did you mean 'timeout'?",
    ),
    (
        "start",
        ("prices", "total"),
        {"dedup": "x"},
        "client.start('prices', …) has no option dedup; did you mean 'dedupe'?",
    ),
    (
        "send",
        ("prices",),
        {},
        "client.send('prices', …) needs a verb: client.send('prices', VERB, PARAMETERS)",
    ),
    (
        "send",
        ("prices", "quote"),
        {"expire_in": 2},
        "client.send('prices', …) has no option expire_in; did you mean 'expires_in'?",
    ),
]


@pytest.mark.anyio
@pytest.mark.parametrize(("method", "args", "kwargs", "text"), WRONG)
async def test_wrong_call_is_reported_as_its_author_wrote_it(
    method: str, args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    client = Client("stomp://localhost:1")

    with pytest.raises(TypeError) as caught:
        await wrong(getattr(client, method), *args, **kwargs)

    # A function is told with its module, so that one finds it.
    assert str(caught.value).removeprefix(f"{__name__}.") == text


@pytest.mark.parametrize("method", ["stream", "call_all"])
def test_calls_that_are_not_awaited_are_explained_too(method: str) -> None:
    client = Client("stomp://localhost:1")

    with pytest.raises(TypeError, match=r"needs a verb"):
        getattr(client, method)("prices")
    with pytest.raises(TypeError, match=rf"client\.with_options\(timeout=…\)\.{method}\(quote, …\)"):
        getattr(client, method)(quote, "ABC", timeout=2)


@pytest.mark.parametrize("kind", [Client, sync.Client])
def test_unknown_option_is_reported_with_the_nearest_name(kind: type[Client] | type[sync.Client]) -> None:
    client: Any = kind("stomp://localhost:1")

    with pytest.raises(
        TypeError, match=r"^client.with_options\(…\) has no option prio; did you mean 'priority'\?$"
    ):
        client.with_options(prio=9)
    with pytest.raises(
        TypeError, match=r"no option colour; it has cache, dedupe, errors, .+ wait_for_responder"
    ):
        client.with_options(colour="red")


@dataclass
class Day:
    when: date
    total: Decimal


@pytest.mark.anyio
async def test_result_of_a_job_is_what_its_function_returns(tmp_path: Path) -> None:
    nightly = Responder("nightly", state=tmp_path)

    @nightly.job(engine=None)
    async def days(count: int) -> list[Day]:
        return [Day(date(2026, 11, 1 + one), Decimal("1.50")) for one in range(count)]

    @nightly.job(engine=None)
    def liar() -> int:
        return "many"  # type: ignore[return-value]

    async with TestClient(nightly) as client:
        with anyio.fail_after(20):
            job = await client.start(days, 1)
            again = await job.rerun()

            assert await job.result() == [Day(date(2026, 11, 1), Decimal("1.50"))]
            assert await again.result() == [Day(date(2026, 11, 1), Decimal("1.50"))]
            assert await client.job(job.id).result() == [{"when": "2026-11-01", "total": "1.50"}]
            assert await job.result(list[dict[str, str]]) == [{"when": "2026-11-01", "total": "1.50"}]
            with pytest.raises((UnexpectedReply, JobEnded)):
                await (await client.start(liar)).result()


@pytest.mark.anyio
async def test_options_of_a_view_are_those_of_its_jobs(tmp_path: Path) -> None:
    nightly = Responder("nightly", state=tmp_path)

    @nightly.job(engine=None)
    async def report(month: int) -> int:
        return month

    async with TestClient(nightly) as client:
        with anyio.fail_after(20):
            once = client.with_options(dedupe="report 3", priority=9)
            first = await once.start(report, 3)
            same = await once.with_options(timeout=4).start(report, 3)
            other = await client.start(report, 3)
            late = await client.with_options(not_before=4e9).start(report, 4)
            named = await once.start("nightly", "report", {"month": 3})

            assert first.id == same.id == named.id
            assert other.id != first.id
            assert (await first.show())["priority"] == 9
            assert (await late.status()).state == JobState.QUEUED
            # A new job is asked for by this very call.
            assert (await first.rerun()).id != first.id


def test_results_are_typed_without_await_too(tmp_path: Path, broker_url: str) -> None:
    nightly = Responder("nightly-sync", state=tmp_path)

    @nightly.job(engine=None)
    def amount() -> Decimal:
        return Decimal("1.50")

    async def main() -> Decimal:
        def work() -> Decimal:
            with sync.Client(broker_url) as client:
                return client.with_options(priority=9).start(amount).result()

        async with serving(broker_url, nightly):
            return await anyio.to_thread.run_sync(work)

    assert anyio.run(main) == Decimal("1.50")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"timeout": "soon"}, "seconds, a number, as timeout, not str"),
        ({"timeout": timedelta(seconds=2)}, "seconds, a number, as timeout, not timedelta"),
        ({"retry": 3}, r"a Retry\(…\), as retry, not int"),
        ({"priority": "high"}, "a number of 0 to 9, as priority, not str"),
        ({"not_before": "tomorrow"}, "a datetime, or seconds since the epoch, as not_before, not str"),
        ({"dedupe": 7}, "a text, as dedupe, not int"),
    ],
)
def test_option_of_another_type_is_reported_at_the_call(options: dict[str, Any], text: str) -> None:
    client: Any = Client("stomp://localhost:1")

    with pytest.raises(TypeError, match=rf"^client.with_options\(…\) takes {text}$"):
        client.with_options(**options)


@pytest.mark.anyio
async def test_option_of_a_call_by_name_is_of_its_kind() -> None:
    client: Any = Client("stomp://localhost:1")

    with pytest.raises(TypeError, match=r"^client\.call\('prices', …\) takes seconds, a number, as timeout"):
        await client.call("prices", "quote", timeout="soon")
    with pytest.raises(TypeError, match=r"^client\.start\('prices', …\) takes a text, as dedupe, not int"):
        await client.start("prices", "total", dedupe=7)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 2, "cache": False, "wait_for_responder": 0.5},
        {"timeout": None, "retry": None, "dedupe": None},
        {"not_before": datetime.now(UTC), "priority": 9, "notify": "ended"},
    ],
)
def test_options_of_their_kinds_are_taken(options: dict[str, Any]) -> None:
    client: Any = Client("stomp://localhost:1")

    client.with_options(**options)


def test_each_option_has_a_kind() -> None:
    # Classes of errors are looked at where they are raised.
    assert OPTIONS - _KINDS.keys() == {"errors"}
