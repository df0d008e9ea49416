"""The gem's requester asks a service of ours, its listener answers a client of ours, over our broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import anyio.to_thread
import pytest

from nebula.errors import CallTimeout, NoResponder, RemoteError
from nebula.rpc.client import client as rpc
from nebula.sync import Client
from tests.cli.programs import running
from tests.foreign.gem.double import Gem, Raised, playing
from tests.foreign.install import install_package

# The first one waits for the stomp gem to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]

_SHOP = """
from nebula import Responder, VerbError

app = Responder("shop")


@app.verb
async def add(a: int, b: int) -> int:
    return a + b


@app.verb
async def say(text: str) -> str:
    return text


@app.verb
async def lines() -> str:
    return "one\\ntwo"


@app.verb
async def fail() -> None:
    raise VerbError("sold-out", "none left")


@app.verb
async def large(size: int) -> str:
    return "x" * size
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of ours with a service of ours."""
    install_package("ruby-stomp")
    folder = tmp_path_factory.mktemp("gem")
    (folder / "shop.py").write_text(_SHOP)
    words = ("broker", "--port", "0", "--store", "memory", "--app", "shop:app")
    with running(*words, cwd=folder) as (_, line):
        yield line["url"]


@pytest.fixture(scope="module")
def gem(url: str) -> Iterator[Gem]:
    with playing() as one:
        yield one


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, timeout=10) as one:
        yield one


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def question(
    url: str, verb: str, params: Any = None, content_type: str = "application/json"
) -> dict[str, Any]:
    """What the gem's requester is told to do."""
    queues = {"name": "shop", "sendQueue": f"/queue/out-{uuid4().hex}", "receiveQueue": "/queue/shop"}
    message = {"verb": verb, "params": params, "contentType": content_type}
    return {"port": port_of(url), "target": queues, "message": message, "timeout": 10}


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2"])
@pytest.mark.parametrize(
    ("verb", "params", "content_type", "expected"),
    [
        ("ping", None, "application/json", {"verb": "success", "params": [], "desc": ""}),
        ("add", {"a": 1, "b": 2}, "application/json", {"verb": "addresponse", "params": 3}),
        ("ping", None, "text/plain", {"verb": "success", "params": "[]", "desc": ""}),
        ("add", "[1, 2]", "text/plain", {"verb": "addresponse", "params": "3"}),
        ("say", ["grün ✓"], "application/json", {"params": "grün ✓"}),
        ("lines", None, "text/plain", {"params": "one two"}),
        ("large", [600_000], "application/json", {"params": "x" * 600_000}),
        ("fail", None, "application/json", {"verb": "error", "desc": "none left"}),
        ("nope", None, "application/json", {"verb": "error"}),
        ("nope", None, "text/plain", {"verb": "error"}),
    ],
)
def test_requester_of_the_gem_is_answered(
    url: str, gem: Gem, version: str, verb: str, params: Any, content_type: str, expected: dict[str, Any]
) -> None:
    headers = {} if version == "1.0" else {"accept-version": version, "host": "localhost"}

    answer = gem.do("ask", **question(url, verb, params, content_type), connect_headers=headers)

    assert expected.items() <= answer.items()
    assert answer["content_type"] == content_type


def test_text_beyond_ascii_comes_to_the_gem_as_latin_1_where_it_asked_in_text(url: str, gem: Gem) -> None:
    answer = gem.do("ask", **question(url, "say", "é", "text/plain"))

    assert answer["params"] == "Ã©"


def test_requester_of_the_gem_waits_in_vain_where_nobody_serves(url: str, gem: Gem) -> None:
    wanted = question(url, "ping")
    wanted["target"]["receiveQueue"] = f"/queue/nobody-{uuid4().hex}"

    with pytest.raises(Raised) as caught:
        gem.do("ask", **wanted | {"timeout": 0.2})

    assert caught.value.kind == "NebulousStomp::NebulousTimeout"


@pytest.mark.anyio
async def test_requesters_of_both_kinds_share_a_queue_of_answers(url: str, gem: Gem) -> None:
    wanted = question(url, "say", ["the gem's"])
    ours: list[str] = []
    async with rpc.Client(url, reply_to=wanted["target"]["sendQueue"], timeout=10) as client:
        gem.begin("ask", **wanted)
        # Its polls are a fifth of a second apart: there are answers to both on the queue at once.
        for number in range(20):
            ours.append(await client.call("shop", "say", [f"ours {number}"]))
        theirs = await anyio.to_thread.run_sync(gem.end)

    assert theirs["params"] == "the gem's"
    assert ours == [f"ours {number}" for number in range(20)]


@pytest.fixture
def service(url: str, gem: Gem, client: Client) -> str:
    """The queue of the gem's listener, which reads it."""
    queue = f"/queue/in-{uuid4().hex}"
    assert gem.do("listen", port=port_of(url), queue=queue)
    # Sent, not called: a listener of 1.0 cannot be seen to have subscribed but by what it takes.
    client.send(queue, "crash")
    assert gem.do("heard")["verb"] == "crash"
    return queue


def test_client_of_ours_gets_the_success_of_the_gem(client: Client, service: str) -> None:
    assert client.call(service, "ping") is None


@pytest.mark.parametrize("value", [[1, 2], {"a": [None, True, 1.5]}, "grün ✓", 7])
def test_value_comes_back_from_the_gem_as_it_was(client: Client, service: str, value: Any) -> None:
    assert client.call(service, "echo", value) == value


def test_answer_of_the_gem_may_be_any_body(client: Client, service: str) -> None:
    assert client.call(service, "free", ["a", 1]) == ["a", 1]


def test_error_of_the_gem_is_raised(client: Client, service: str) -> None:
    with pytest.raises(RemoteError, match="it failed") as caught:
        client.call(service, "fail")

    assert caught.value.code == "error"


def test_verb_that_the_gem_does_not_know_is_an_error(client: Client, service: str) -> None:
    with pytest.raises(RemoteError, match="no verb nope"):
        client.call(service, "nope")


def test_request_at_which_the_gem_fails_is_lost_for_it_was_acked_before(client: Client, service: str) -> None:
    with pytest.raises(CallTimeout):
        client.call(service, "crash", timeout=0.3)

    # The next one is served: it was not the end of the listener.
    assert client.call(service, "ping") is None


@pytest.mark.anyio
async def test_client_that_shares_its_queue_of_answers_is_answered_by_the_gem(url: str, service: str) -> None:
    async with rpc.Client(url, reply_to=f"/queue/out-{uuid4().hex}", timeout=10) as client:
        assert await client.call(service, "echo", ["a"]) == ["a"]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_nobody_serves_where_the_listener_of_the_gem_has_died(
    url: str, gem: Gem, client: Client, version: str
) -> None:
    queue = f"/queue/in-{uuid4().hex}"
    headers = {"accept-version": version, "host": "localhost"}

    assert not gem.do("listen", port=port_of(url), queue=queue, connect_headers=headers, watch=20)
    with pytest.raises(NoResponder):
        client.call(queue, "ping")
