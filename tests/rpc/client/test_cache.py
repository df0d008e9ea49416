"""Cache of replies: one request for equal calls, and never the reply to another call.

Rules: C.6, D.39.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nebula.avro import Schema
from nebula.errors import CallTimeout, NoResponder, RemoteError
from nebula.rpc.client import cache as module
from nebula.rpc.client.cache import Ask, Cache, CacheFailed, KeptReply, MemoryCache
from nebula.rpc.client.client import Client
from nebula.rpc.errors import VerbError
from nebula.rpc.service.responder import Responder
from nebula.rpc.wire.avro_bodies import write_message, write_value
from nebula.rpc.wire.envelope import dump_json, encode
from nebula.rpc.wire.replies import Reply
from nebula.testing import TestClient, fake
from tests.own_logs import all_logs

pytestmark = pytest.mark.anyio

_DEADLINE = 10.0
_JSON = "application/json"

prices = Responder("prices")


@prices.verb
async def quote(symbol: str, qty: int = 1) -> float:
    raise NotImplementedError


_COUNT = Schema({"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]})


def request(verb: str, parameters: Any = None) -> bytes:
    return encode(_JSON, verb, None if parameters is None else dump_json(parameters))


class Asked:
    """A service that counts its requests and replies with the count."""

    def __init__(self) -> None:
        self.times = 0

    async def __call__(self, seconds: float) -> Reply:
        self.times += 1
        await anyio.lowlevel.checkpoint()
        return KeptReply({"content-type": _JSON}, b'{"verb":"x","parameters":%d}' % self.times)


@pytest.fixture
def cache() -> Cache:
    return Cache({"prices.quote": 60.0})


async def ask(cache: Cache, asked: Ask, parameters: Any = None, **options: Any) -> bytes:
    options = {"timeout": 5.0, **options}
    answer = await cache.ask("/queue/prices", request("quote", parameters), asked, **options)
    return answer.body


# --- what is one question ---


async def test_same_question_is_asked_once(cache: Cache) -> None:
    asked = Asked()
    answers = {await ask(cache, asked, {"a": 1, "b": {"d": 2, "c": 3}}) for _ in range(3)}
    answers.add(await ask(cache, asked, {"b": {"c": 3, "d": 2}, "a": 1}))

    assert (asked.times, len(answers)) == (1, 1)
    assert (cache.hits, cache.misses) == (3, 1)


@pytest.mark.parametrize("other", [None, [], {}, "", 0, False, [1, 2], [2, 1], {"a": [1]}, {"a": {"1": 1}}])
async def test_other_parameters_are_another_question(cache: Cache, other: Any) -> None:
    asked = Asked()
    await ask(cache, asked, {"a": 1})
    await ask(cache, asked, other)

    assert asked.times == 2


async def test_questions_in_avro_are_distinguished_by_their_bytes() -> None:
    def body(value: int) -> bytes:
        return write_message("quote", write_value(_COUNT, {"n": value}), None)

    cache = Cache({"prices.quote": 60})
    asked = Asked()
    for request_body in (
        body(1),
        body(2),
        body(1),
        request("quote", {"n": 1}),
        write_message("quote", None, None),
    ):
        await cache.ask("/queue/prices", request_body, asked, timeout=5)
    assert asked.times == 4
    await cache.invalidate("prices", "quote")
    await cache.ask("/queue/prices", body(1), asked, timeout=5)

    assert asked.times == 5


async def test_other_target_or_verb_is_another_question() -> None:
    cache = Cache({"prices.quote": 60, "prices.list": 60, "shop.quote": 60})
    asked = Asked()
    for destination, verb in [
        ("/queue/prices", "quote"),
        ("/queue/prices", "list"),
        ("/queue/shop", "quote"),
    ]:
        await cache.ask(destination, request(verb), asked, timeout=5)

    assert asked.times == 3


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(st.tuples(st.text(), st.text(), _VALUES), st.tuples(st.text(), st.text(), _VALUES))
def test_keys_are_equal_where_questions_are(one: tuple[Any, Any, Any], other: tuple[Any, Any, Any]) -> None:
    as_json = [dump_json(each) for each in (one, other)]
    shuffled = (one[0], one[1], _turned(one[2]))

    assert module._json(one) == module._json(shuffled)
    if as_json[0] != as_json[1] and one != other:
        assert module._json(one) != module._json(other)
    assert module._json(one).startswith(module._prefix(one[0], one[1]))
    if one[:2] != other[:2]:
        assert not module._json(other).startswith(module._prefix(one[0], one[1]))
    if one[0] != other[0]:
        assert not module._json(other).startswith(module._prefix(one[0], None))


def _turned(value: Any) -> Any:
    """The same value with the keys of its objects in reverse order."""
    if isinstance(value, dict):
        return {key: _turned(each) for key, each in reversed(value.items())}
    return [_turned(each) for each in value] if isinstance(value, list) else value


# --- for how long ---


async def test_verb_that_was_not_named_is_asked_each_time() -> None:
    cache = Cache()
    asked = Asked()
    for _ in range(2):
        await ask(cache, asked)

    assert asked.times == 2


async def test_call_may_say_how_long_its_answer_is_kept() -> None:
    cache = Cache()
    asked = Asked()
    for _ in range(2):
        await ask(cache, asked, keep=60.0)

    assert asked.times == 1


async def test_without_the_cache_nothing_is_read_and_nothing_kept(cache: Cache) -> None:
    asked = Asked()
    await ask(cache, asked, keep=False)
    first = await ask(cache, asked)
    await ask(cache, asked, keep=False)
    last = await ask(cache, asked)

    assert asked.times == 3
    assert first == last


async def test_answer_is_forgotten_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    cache = Cache({"prices.quote": 60.0})
    asked = Asked()
    await ask(cache, asked)
    now += 59
    await ask(cache, asked)
    assert asked.times == 1
    now += 2
    await ask(cache, asked)

    assert asked.times == 2


async def test_memory_is_bounded_and_what_was_not_asked_for_goes_first() -> None:
    store = MemoryCache(max_bytes=30_000)
    for number in range(30):
        await store.put(str(number), b"x" * 1000, 60)
        await store.get("0")
    await store.put("too large", b"x" * 40_000, 60)

    assert await store.get("0") == b"x" * 1000
    assert await store.get("1") is None
    assert await store.get("29") == b"x" * 1000
    assert await store.get("too large") is None


@pytest.mark.parametrize(
    ("verbs", "reason"),
    [
        ({"prices": 1.0}, "not SERVICE.VERB"),
        ({".quote": 1.0}, "not SERVICE.VERB"),
        ({"prices.quote": 0}, "no time to keep"),
        ({"prices.quote": -1}, "no time to keep"),
        ({"prices.quote": float("nan")}, "no time to keep"),
    ],
)
def test_unusable_rules_of_a_cache_are_refused_at_once(verbs: dict[str, float], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Cache(verbs)


# --- many at once ---


async def test_hundred_callers_of_a_cold_key_make_one_request(cache: Cache) -> None:
    asked = Asked()
    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(ask, cache, asked)

    assert asked.times == 1
    assert (cache.hits, cache.misses) == (99, 1)


async def test_one_error_fails_all_waiting_calls_each_with_its_own_copy_and_is_not_kept(cache: Cache) -> None:
    errors: list[Exception] = []
    times = 0

    async def fail(seconds: float) -> Reply:
        nonlocal times
        times += 1
        await anyio.wait_all_tasks_blocked()
        raise RemoteError("sold-out", "none left")

    async def try_it() -> None:
        try:
            await ask(cache, fail)
        except RemoteError as error:
            errors.append(error)

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(try_it)
        assert (times, len(errors)) == (1, 5)
        assert {str(error) for error in errors} == {str(RemoteError("sold-out", "none left"))}
        # Each adds the frames of its own call.
        assert len({id(error) for error in errors}) == 5
        await try_it()

    assert times == 2


@pytest.mark.parametrize("how", ["cancelled", "out of time"])
async def test_caller_that_asks_for_all_may_give_up_and_the_next_one_asks(cache: Cache, how: str) -> None:
    asked = Asked()
    leads = anyio.Event()
    scope = anyio.CancelScope()

    async def give_up(seconds: float) -> Reply:
        leads.set()
        if how == "cancelled":
            await anyio.sleep_forever()
        await anyio.wait_all_tasks_blocked()
        raise CallTimeout("too slow")

    async def lead() -> None:
        with scope, suppress(CallTimeout):
            await ask(cache, give_up)

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lead)
            await leads.wait()
            for _ in range(3):
                tasks.start_soon(ask, cache, asked)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()

    assert asked.times == 1


async def test_caller_waits_for_another_call_within_its_own_time(cache: Cache) -> None:
    leads = anyio.Event()

    async def never(seconds: float) -> Reply:
        leads.set()
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, cache, never)
            await leads.wait()
            with pytest.raises(CallTimeout, match="the call that this one shares"):
                await ask(cache, never, timeout=0.01)
            tasks.cancel_scope.cancel()


async def test_time_for_another_call_counts_for_the_own_one(
    monkeypatch: pytest.MonkeyPatch, cache: Cache
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    leads, gives_up = anyio.Event(), anyio.Event()
    left: list[float] = []

    async def give_up(seconds: float) -> Reply:
        leads.set()
        await gives_up.wait()
        raise CallTimeout("too slow")

    async def lead() -> None:
        with pytest.raises(CallTimeout):
            await ask(cache, give_up)

    async def note(seconds: float) -> Reply:
        left.append(seconds)
        return await Asked()(seconds)

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lead)
            await leads.wait()
            tasks.start_soon(partial(ask, cache, note, timeout=5.0))
            await anyio.wait_all_tasks_blocked()
            now += 2
            gives_up.set()

    assert left == [3.0]


async def test_caller_without_time_left_when_another_call_ends_does_not_ask(
    monkeypatch: pytest.MonkeyPatch, cache: Cache
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    leads, gives_up, asked = anyio.Event(), anyio.Event(), Asked()

    async def give_up(seconds: float) -> Reply:
        leads.set()
        await gives_up.wait()
        raise CallTimeout("too slow")

    async def lead() -> None:
        with pytest.raises(CallTimeout):
            await ask(cache, give_up)

    async def follow() -> None:
        with pytest.raises(CallTimeout, match="the call that this one shares"):
            await ask(cache, asked, timeout=5.0)

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lead)
            await leads.wait()
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            now += 5
            gives_up.set()

    assert asked.times == 0


# --- forgetting ---


async def test_key_verb_and_target_can_be_forgotten() -> None:
    cache = Cache({"prices.quote": 60, "prices.list": 60, "shop.quote": 60})
    asked = Asked()
    questions = [
        ("/queue/prices", "quote", {"a": 1, "b": 2}),
        ("/queue/prices", "quote", None),
        ("/queue/prices", "list", None),
        ("/queue/shop", "quote", None),
    ]

    async def asked_anew() -> int:
        before = asked.times
        for destination, verb, parameters in questions:
            await cache.ask(destination, request(verb, parameters), asked, timeout=5)
        return asked.times - before

    assert await asked_anew() == 4
    assert await asked_anew() == 0
    await cache.invalidate("prices", "quote", {"b": 2, "a": 1})
    assert await asked_anew() == 1
    await cache.invalidate("prices", "quote", None)
    assert await asked_anew() == 1
    await cache.invalidate("prices", "quote")
    assert await asked_anew() == 2
    await cache.invalidate("prices")
    assert await asked_anew() == 3
    await cache.invalidate("price")
    assert await asked_anew() == 0


async def test_answer_that_was_under_way_when_it_was_forgotten_is_not_kept(cache: Cache) -> None:
    asked = Asked()
    leads, goes_on = anyio.Event(), anyio.Event()

    async def slow(seconds: float) -> Reply:
        leads.set()
        await goes_on.wait()
        return await asked(seconds)

    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, cache, slow)
            await leads.wait()
            await cache.invalidate("prices", "quote")
            fresh = await ask(cache, asked)
            goes_on.set()
        assert await ask(cache, asked) == fresh

    assert asked.times == 2


class SlowPut(MemoryCache):
    """A store whose `put` waits until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.puts, self.goes_on = anyio.Event(), anyio.Event()

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        self.puts.set()
        await self.goes_on.wait()
        await super().put(key, value, seconds)


async def test_answer_that_is_being_kept_when_it_is_forgotten_is_dropped() -> None:
    store = SlowPut()
    cache = Cache({"prices.quote": 60.0}, store=store)
    asked = Asked()
    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, cache, asked)
            await store.puts.wait()
            tasks.start_soon(cache.invalidate, "prices", "quote")
            await anyio.wait_all_tasks_blocked()
            store.goes_on.set()
        await ask(cache, asked)

    assert asked.times == 2


async def test_caller_that_waits_for_another_call_does_not_wait_for_the_store() -> None:
    store = SlowPut()
    cache = Cache({"prices.quote": 60.0}, store=store)
    asked = Asked()
    with anyio.fail_after(_DEADLINE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, cache, asked)
            tasks.start_soon(ask, cache, asked)
            await store.puts.wait()
            assert await ask(cache, asked)
            store.goes_on.set()

    assert asked.times == 1


# --- partitions ---


async def test_answers_are_not_for_others_unless_they_are_shared() -> None:
    for shared, times in ((False, 2), (True, 1)):
        cache, asked = Cache({"prices.quote": 60.0}, shared=shared), Asked()
        for partition in ("alice", "bob", "alice"):
            await ask(cache, asked, partition=partition)

        assert asked.times == times


async def test_forgotten_reply_is_forgotten_for_all(cache: Cache) -> None:
    asked = Asked()
    for partition in ("alice", "bob"):
        await ask(cache, asked, {"a": 1}, partition=partition)
    await cache.invalidate("prices", "quote", {"a": 1})
    for partition in ("alice", "bob"):
        await ask(cache, asked, {"a": 1}, partition=partition)

    assert asked.times == 4


async def test_number_that_begins_like_another_one_is_not_forgotten_with_it(cache: Cache) -> None:
    asked = Asked()
    await ask(cache, asked, 12)
    await cache.invalidate("prices", "quote", 1)
    await ask(cache, asked, 12)

    assert asked.times == 1


async def test_client_does_not_get_what_another_principal_or_broker_answered() -> None:
    def salaries(text: str) -> Responder:
        app = Responder("pay")

        @app.verb(allow=["alice"])
        async def salary() -> str:
            return text

        return app

    store = MemoryCache()

    async def read(url: str, login: str) -> str:
        cache = Cache({"pay.salary": 60}, store=store)
        async with Client(url.replace("://", f"://{login}@"), cache=cache) as client:
            return str(await client.call("pay", "salary"))

    with anyio.fail_after(_DEADLINE):
        async with TestClient(salaries("staging's")) as one, TestClient(salaries("production's")) as other:
            assert await read(one.url, "alice") == "staging's"
            assert await read(other.url, "alice") == "production's"
            with pytest.raises(RemoteError, match="not-allowed"):
                await read(other.url, "bob")


# --- a store that fails ---


class Hangs(MemoryCache):
    """A store that never answers."""

    async def get(self, key: str) -> bytes | None:
        self.given = anyio.current_effective_deadline() - anyio.current_time()
        await anyio.sleep_forever()
        raise AssertionError

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        await anyio.sleep_forever()


async def test_call_whose_store_hangs_is_answered_in_its_time() -> None:
    store = Hangs()
    cache = Cache({"prices.quote": 60}, store=store)
    with all_logs() as logs, anyio.fail_after(_DEADLINE):
        assert await ask(cache, Asked(), timeout=0.05)

    assert store.given <= 0.03  # the rest is for the service
    # A broker of the test before may have something to say, too.
    assert [entry["event"] for entry in logs].count("cache failed") == 1


class Down:
    """A store that cannot be reached."""

    async def get(self, key: str) -> bytes | None:
        raise CacheFailed("down")

    async def put(self, key: str, value: bytes, seconds: float) -> None:
        raise CacheFailed("down")

    async def drop(self, prefix: str) -> None:
        raise CacheFailed("down")


async def test_calls_go_on_without_a_store_that_fails() -> None:
    cache = Cache({"prices.quote": 60}, store=Down())
    asked = Asked()
    with all_logs() as logs:
        for _ in range(3):
            await ask(cache, asked)

    assert asked.times == 3
    assert [entry["event"] for entry in logs].count("cache failed") == 1


async def test_caller_that_wants_to_forget_learns_that_it_failed() -> None:
    with pytest.raises(CacheFailed, match=r"prices: .*down"):
        await Cache(store=Down()).invalidate("prices")


# --- in a client ---


async def test_client_asks_a_service_once() -> None:
    price = fake(quote, returns=9.99)
    cache = Cache({"prices.quote": 60})
    with anyio.fail_after(_DEADLINE):
        async with TestClient(price, cache=cache) as client:
            assert await client.call(quote, "ABC") == 9.99
            assert await client.call(quote, symbol="ABC") == 9.99
            assert await client.call("prices", "quote", {"symbol": "ABC"}, result=float) == 9.99
            assert len(price.calls) == 1
            await client.call(quote, "ABC", 2)
            assert len(price.calls) == 2
            await client.with_options(cache=False).call(quote, "ABC")
            await client.call("prices", "quote", {"symbol": "ABC"}, cache=False)

    assert len(price.calls) == 4


async def test_hundred_calls_of_a_client_make_one_request() -> None:
    price = fake(quote, side_effect=_slowly)
    with anyio.fail_after(_DEADLINE):
        async with (
            TestClient(price, cache=Cache({"prices.quote": 60})) as client,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(100):
                tasks.start_soon(client.call, quote, "ABC")

    assert len(price.calls) == 1


async def _slowly(symbol: str, qty: int) -> float:
    await anyio.wait_all_tasks_blocked()
    return 9.99


async def test_call_without_a_named_verb_is_kept_if_it_says_so() -> None:
    count = fake("prices", "count", side_effect=[1, 2])
    with anyio.fail_after(_DEADLINE):
        async with TestClient(count, cache=Cache()) as client:
            answers = [await client.call("prices", "count", cache=60.0) for _ in range(2)]
            answers.append(await client.call("prices", "count"))

    assert answers == [1, 1, 2]


async def test_error_of_a_service_is_not_kept() -> None:
    price = fake(quote, side_effect=[VerbError("sold-out", "none left"), 9.99])
    with anyio.fail_after(_DEADLINE):
        async with TestClient(price, cache=Cache({"prices.quote": 60})) as client:
            with pytest.raises(RemoteError, match="sold-out"):
                await client.call(quote, "ABC")
            assert await client.call(quote, "ABC") == 9.99
            with pytest.raises(NoResponder):
                await client.call("nobody", "ping", cache=60.0)


async def test_clients_may_share_a_cache() -> None:
    price = fake(quote, returns=9.99)
    cache = Cache({"prices.quote": 60})
    with anyio.fail_after(_DEADLINE):
        async with TestClient(price, cache=cache) as client, Client(client.url, cache=cache) as other:
            await client.call(quote, "ABC")
            await other.call(quote, "ABC")

    assert len(price.calls) == 1


async def test_option_needs_a_cache() -> None:
    with anyio.fail_after(_DEADLINE):
        async with TestClient(fake("prices", "quote")) as client:
            with pytest.raises(ValueError, match="the client has no cache"):
                await client.call("prices", "quote", cache=60.0)
            assert await client.call("prices", "quote", cache=False) is None
