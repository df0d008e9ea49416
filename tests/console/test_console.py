"""The console as the broker and `nebula console` serve it."""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.frames import CloseCode
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin, Subprotocol

from nebula.broker.server.http import HttpListener
from nebula.broker.server.listener import Listener
from nebula.console.assets import FOLDER, PATH, assets, page_about
from nebula.console.relay import url_of
from nebula.stomp.client.addresses import parse_address
from nebula.sync import Client
from tests.cli.programs import Program, running


class Served:
    """A console, by its address."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.port = int(url.rpartition(":")[2].partition("/")[0])

    def get(self, path: str = PATH, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
        """The response to a request, and its body."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, headers={"Host": f"127.0.0.1:{self.port}"} | headers)
        response = connection.getresponse()
        body = response.read()
        connection.close()
        return response, body

    def page(self, origin: str | None = None) -> ClientConnection:
        """A WebSocket as a page of an origin opens it, by default one of the console."""
        return connect(
            f"ws://127.0.0.1:{self.port}/stomp",
            origin=Origin(origin or f"http://127.0.0.1:{self.port}"),
            subprotocols=[Subprotocol("v12.stomp")],
            max_size=None,
            open_timeout=10,
        )


def connected(page: ClientConnection) -> ClientConnection:
    """The same, when it has sent its CONNECT and has the CONNECTED."""
    page.send("CONNECT\naccept-version:1.2\nhost:h\n\n\0")
    assert page.recv(10, decode=False).startswith(b"CONNECTED\n")
    return page


def lines_of(program: Program, number: int) -> list[dict[str, Any]]:
    assert program.stdout is not None
    return [json.loads(program.stdout.readline()) for _ in range(number)]


@contextmanager
def broker_with_console() -> Iterator[tuple[str, Served]]:
    words = ("broker", "--port", "0", "--http", "0", "--console", "--store", "memory")
    with running(*words) as (program, first):
        _, console = lines_of(program, 2)
        assert console["event"] == "console"
        yield first["url"], Served(console["url"])


@contextmanager
def broker_and_relay() -> Iterator[tuple[Program, Served]]:
    with (
        running("broker", "--port", "0", "--store", "memory") as (broker, first),
        running("console", "--broker", first["url"]) as (_, line),
    ):
        assert line["event"] == "console"
        yield broker, Served(line["url"])


@pytest.fixture(scope="module", params=["broker", "relay"])
def served(request: pytest.FixtureRequest) -> Iterator[Served]:
    """The console of a broker, and one next to a broker."""
    if request.param == "broker":
        with broker_with_console() as (_, console):
            yield console
        return
    with broker_and_relay() as (_, console):
        yield console


def test_page_and_its_files_are_served_with_a_strict_policy(served: Served) -> None:
    response, body = served.get()

    policy = response.headers["content-security-policy"]
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    files = re.findall(r'(?:src|href)="\./([^"]+)"', body.decode())
    assert len(files) == 3
    for file in files:
        response, body = served.get(PATH + file)
        assert (response.status, body) == (200, (FOLDER / file).read_bytes())
        assert "immutable" in response.headers["cache-control"]


def test_page_has_no_script_or_style_of_its_own_and_fetches_nothing_from_elsewhere() -> None:
    page = (FOLDER / "index.html").read_text()

    assert re.findall(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=", page) == []
    assert re.findall(r'(?:src|href)="(?!\./)', page) == []
    for style in FOLDER.rglob("*.css"):
        assert re.findall(r"@import|url\(", style.read_text()) == []


def test_files_are_compressed_for_who_takes_that(served: Served) -> None:
    plain, whole = served.get()
    packed, compressed = served.get(**{"Accept-Encoding": "br, gzip"})

    assert plain.headers["content-encoding"] is None
    assert packed.headers["content-encoding"] == "gzip"
    assert gzip.decompress(compressed) == whole
    assert packed.headers["vary"] == "accept-encoding"


@pytest.mark.parametrize(("path", "target"), [("/", "console/"), ("/console", "console/")])
def test_short_addresses_lead_to_the_console(served: Served, path: str, target: str) -> None:
    response, _ = served.get(path)

    assert (response.status, response.headers["location"]) == (307, target)


@pytest.mark.parametrize("path", ["/console/none.js", "/console/../assets.py", "/console/static/", "/other"])
def test_what_is_not_there_is_404(served: Served, path: str) -> None:
    assert served.get(path)[0].status == 404


def test_host_that_somebody_made_to_point_here_is_refused(served: Served) -> None:
    response, body = served.get(Host="rebound.example")

    assert response.status == 421
    assert b"<script" not in body


def test_page_of_the_console_connects_and_a_page_of_elsewhere_does_not(served: Served) -> None:
    with served.page() as page:
        connected(page)
    for origin in ("http://evil.example", f"http://127.0.0.1.evil.example:{served.port}", "null"):
        with pytest.raises(InvalidStatus) as refused:
            served.page(origin)
        assert refused.value.response.status_code == 403


def test_head_has_the_headers_of_the_page_and_no_body() -> None:
    with broker_with_console() as (_, console):
        response, body = console.get(method="HEAD")

        assert (response.status, body) == (200, b"")
        assert int(response.headers["content-length"]) == len((FOLDER / "index.html").read_bytes())
        assert console.get(method="POST")[0].status == 405


def test_broker_without_a_console_serves_none() -> None:
    with running("broker", "--port", "0", "--http", "0", "--store", "memory") as (program, _):
        [line] = lines_of(program, 1)

        assert Served(line["url"]).get()[0].status == 404


# --- whose pages may connect ---


@pytest.mark.parametrize(
    ("origin", "host", "is_trusted"),
    [
        ("https://broker.example", "broker.example", True),
        ("http://broker.example:8080", "broker.example:8080", True),
        ("http://BROKER.example:8080", "broker.example:8080", True),
        ("http://10.0.0.5:8080", "10.0.0.5:8080", True),
        ("http://localhost:8080", "localhost:8080", True),
        # Another port of the same machine is another program's.
        ("http://broker.example:3000", "broker.example:8080", False),
        ("https://evil.example", "broker.example", False),
        # The page's own host, made to point here.
        ("http://evil.example:8080", "evil.example:8080", False),
        ("null", "broker.example", False),
        ("file://broker.example", "broker.example", False),
    ],
)
def test_pages_of_the_console_are_those_of_the_listeners_own_hosts(
    origin: str, host: str, is_trusted: bool
) -> None:
    listener = Listener(http=True, console=True, hosts=("broker.example",))
    http = HttpListener(None, listener=listener)

    assert http.trusts(origin, host) is is_trusted


def test_without_a_console_a_page_of_the_listeners_own_host_is_not_trusted() -> None:
    http = HttpListener(None, listener=Listener(http=True, hosts=("broker.example",)))

    assert not http.trusts("https://broker.example", "broker.example")


# --- the relay ---


def test_relay_reaches_brokers_by_websocket_too() -> None:
    with (
        broker_with_console() as (_, console),
        running("console", "--broker", f"ws://127.0.0.1:{console.port}") as (_, line),
        Served(line["url"]).page() as page,
    ):
        connected(page)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("stomp://alice:secret@127.0.0.1:61613", "stomp://127.0.0.1:61613"),
        ("stomps://broker.example", "stomps://broker.example:61614"),
        ("stomp://rabbit.example/a%20b", "stomp://rabbit.example:61613/a%20b"),
        ("ws://alice:secret@[::1]:8080", "ws://[::1]:8080/stomp"),
        ("wss://broker.example/a&b/stomp", "wss://broker.example:443/a&b/stomp"),
    ],
)
def test_address_is_told_without_the_login(given: str, told: str) -> None:
    address = parse_address(given)

    assert url_of(address) == told
    assert parse_address(told) == replace(address, login=None, passcode=None)


def test_page_of_the_relay_names_its_broker_and_that_of_a_broker_names_none() -> None:
    with broker_with_console() as (url, console):
        assert b"nebula-broker" not in console.get()[1]
        with running("console", "--broker", url.replace("://", "://alice:secret@")) as (_, line):
            plain = Served(line["url"]).get()[1]
            packed = Served(line["url"]).get(**{"Accept-Encoding": "gzip"})[1]

    assert f'<meta name="nebula-broker" content="{url}">'.encode() in plain
    assert b"secret" not in plain
    assert gzip.decompress(packed) == plain


def test_address_on_the_page_is_escaped() -> None:
    assert b'content="ws://h:1/&quot;&gt;&lt;script&gt;">' in page_about('ws://h:1/"><script>').body


def test_relay_ends_a_websocket_with_its_broker_and_says_where_there_is_none() -> None:
    with broker_and_relay() as (broker, relay):
        with relay.page() as page:
            connected(page)
            broker.terminate()
            assert closing_code(page) == CloseCode.GOING_AWAY
        broker.wait(20)
        with relay.page() as page:
            assert closing_code(page) == CloseCode.TRY_AGAIN_LATER


def closing_code(page: ClientConnection) -> int | None:
    """The code of the Close that comes, whatever comes before."""
    try:
        while True:
            page.recv(20)
    except ConnectionClosed as closed:
        return None if closed.rcvd is None else closed.rcvd.code


def test_large_bodies_pass_through_the_relay_whole() -> None:
    body = b"x" * 3_000_000
    with broker_and_relay() as (_, relay), relay.page() as page:
        connected(page).send("SUBSCRIBE\nid:1\ndestination:/queue/large\n\n\0")
        page.send(b"SEND\ndestination:/queue/large\n\n" + body + b"\0")
        received = b""
        while not received.rstrip(b"\n").endswith(b"\0"):
            received += page.recv(20, decode=False)

    assert body in received


# --- the verbs behind it ---


def test_broker_with_a_console_keeps_figures_and_counts_who_sends_where() -> None:
    with broker_with_console() as (url, _), Client(url) as client:
        client.publish("/queue/orders", {"number": 1})
        client.publish("/queue/orders", {"number": 2})

        [sample] = client.call("nebula.broker", "broker.history")
        assert sample["connections"] >= 1
        assert client.call("nebula.broker", "broker.history", {"after": sample["at"]}) == []
        [flow] = client.call("nebula.broker", "flows.list")
        assert (flow["destination"], flow["messages"], flow["receivers"]) == ("/queue/orders", 2, [])
        mine = client.call("nebula.broker", "rights.mine")
        assert mine["principal"] == flow["sender"]
        assert {"broker.history", "flows.list", "queue.purge"} <= set(mine["verbs"])
        assert mine["value_prefixes"] == ["X/"]


@pytest.mark.parametrize(("setting", "counts"), [(None, False), ("true", True)])
def test_other_brokers_keep_figures_too_and_count_flows_where_the_setting_says_so(
    setting: str | None, counts: bool
) -> None:
    environment = os.environ | ({} if setting is None else {"NEBULA_SERVER_COUNT_FLOWS": setting})
    with (
        running("broker", "--port", "0", "--store", "memory", env=environment) as (_, line),
        Client(line["url"]) as client,
    ):
        client.publish("/queue/orders", {"number": 1})

        assert client.call("nebula.broker", "broker.history")
        assert ("flows.list" in client.call("nebula.broker", "rights.mine")["verbs"]) is counts
        if counts:
            [flow] = client.call("nebula.broker", "flows.list")
            assert (flow["destination"], flow["messages"]) == ("/queue/orders", 1)


def test_broker_with_a_console_need_not_count_flows() -> None:
    words = ("broker", "--port", "0", "--http", "0", "--console", "--store", "memory")
    with (
        running(*words, env={**os.environ, "NEBULA_SERVER_COUNT_FLOWS": "false"}) as (_, line),
        Client(line["url"]) as client,
    ):
        assert "flows.list" not in client.call("nebula.broker", "rights.mine")["verbs"]


def test_all_files_have_a_media_type() -> None:
    assert {asset.content_type for asset in assets().values()} == {
        "text/html; charset=utf-8",
        "text/javascript; charset=utf-8",
        "text/css; charset=utf-8",
        "image/svg+xml",
    }
