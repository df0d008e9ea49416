"""`POST /call/SERVICE/VERB`, as curl and its like use it: what is answered, and when it is switched on."""

from __future__ import annotations

import http.client
import json
import threading
import tracemalloc
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from nebula.broker.server.http_posts import Posted
from nebula.errors import (
    CallTimeout,
    ConnectionLost,
    NebulaError,
    NoResponder,
    Rejected,
    RemoteError,
)
from nebula.host.http_calls import BadCall, failure_reply, read_call
from nebula.rpc.errors import CODES
from nebula.rpc.http_problems import status_of
from nebula.sync import Client
from tests.cli.programs import nebula, running
from tests.host.http_house import DEADLINE, JSON, SHOP, House, basic, post

# --- what is answered ---


@pytest.mark.parametrize(
    ("path", "body", "value"),
    [
        ("/call/shop/quote", '{"symbol": "ABC", "qty": 2}', 2.5),
        ("/call/shop/quote", '["ABC", 4]', 5.0),
        ("/call/shop/quote", '"ABC"', 1.25),
        ("/call/shop/quote", '{"symbol": "é"}', 2.0),
        ("/call/shop/echo", '{"value": {"é": [null, true, 1.5]}}', {"é": [None, True, 1.5]}),
        ("/call/shop/nothing", "{}", None),
        ("/call/shop/nothing", "", None),
        ("/call/sh%6Fp/nothing?neb-timeout=5000", "", None),
    ],
)
def test_call_is_answered_with_the_value(house: House, path: str, body: str, value: Any) -> None:
    assert post(house.open, path, body) == (200, value)


def test_content_type_may_say_that_it_is_utf_8(house: House) -> None:
    headers = {"Content-Type": "application/json; charset=UTF-8"}

    assert post(house.open, "/call/shop/nothing", "", headers) == (200, None)


def test_body_may_come_in_chunks_and_after_it_was_asked_for(house: House) -> None:
    headers = JSON | {"Transfer-Encoding": "chunked", "Expect": "100-continue"}
    connection = http.client.HTTPConnection("127.0.0.1", house.open, timeout=DEADLINE)
    connection.putrequest("POST", "/call/shop/quote")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 100")
    connection.sock.sendall(b'9\r\n{"symbol"\r\n8\r\n: "ABC"}\r\n0\r\n\r\n')
    response = connection.getresponse()

    assert (response.status, json.loads(response.read())) == (200, 1.25)
    connection.close()


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/call/shop/quote", "{}", 422, "bad-parameters"),
        ("/call/shop/nope", "{}", 404, "unknown-verb"),
        ("/call/shop/quote", "{", 400, "bad-request"),
        ("/call/shop/quote", "NaN", 400, "bad-request"),
        ("/call/shop/quote", b"\xff", 400, "bad-request"),
        ("/call/shop/quote", "[" * 500, 400, "bad-request"),
        ("/call/nobody/quote", "{}", 404, "no-responder"),
        ("/call/shop", "{}", 400, "bad-request"),
        ("/call/shop/quote/more", "{}", 400, "bad-request"),
        ("/call//quote", "{}", 400, "bad-request"),
        ("/call/shop/%00", "{}", 400, "bad-request"),
        ("/call/%2Fqueue%2Fshop/quote", "{}", 400, "bad-request"),
        (f"/call/{'s' * 300}/quote", "{}", 400, "bad-request"),
        ("/call/shop/quote?neb-timeout=soon", "{}", 400, "bad-request"),
        (f"/call/shop/quote?{'a=&' * 20}neb-timeout=1000", "{}", 400, "bad-request"),
        ("/call/shop/fail", '{"code": "not-found"}', 404, "not-found"),
        ("/call/shop/fail", '{"code": "not-allowed"}', 403, "not-allowed"),
        ("/call/shop/fail", '{"code": "sold-out"}', 422, "sold-out"),
        ("/call/shop/fail", '{"code": "sold-out", "retryable": true}', 503, "sold-out"),
        ("/call/shop/fail", '{"code": "busy"}', 503, "busy"),
        ("/call/shop/fail", '{"code": "upstream-timeout"}', 504, "upstream-timeout"),
        ("/call/shop/fail", '{"code": "upstream-unavailable"}', 503, "upstream-unavailable"),
        ("/call/shop/fail", '{"code": "upstream-error"}', 502, "upstream-error"),
        ("/call/shop/fail", '{"code": "upstream-error", "retryable": true}', 502, "upstream-error"),
        ("/call/shop/quote", '"XYZ"', 500, "internal"),
    ],
)
def test_what_fails_has_a_status_and_a_code(
    house: House, path: str, body: str | bytes, status: int, code: str
) -> None:
    found, error = post(house.open, path, body)

    assert (found, error["code"]) == (status, code)
    assert error["message"]
    assert isinstance(error["retryable"], bool)


def test_number_that_json_has_not_is_a_fault_of_the_service(house: House) -> None:
    status, error = post(house.open, "/call/shop/mean", "{}")

    assert (status, error["code"]) == (500, "bad-result")
    assert error["details"] == [{"field": "mean", "type": "finite_number"}]


def test_error_of_a_verb_comes_with_its_details(house: House) -> None:
    _, error = post(house.open, "/call/shop/fail", '{"code": "sold-out"}')

    assert error == {
        "code": "sold-out",
        "message": "it failed",
        "retryable": False,
        "details": {"why": "so"},
    }


@pytest.mark.parametrize("where", ["header", "query"])
def test_call_ends_with_its_time(house: House, where: str) -> None:
    headers = JSON | ({"Neb-Timeout": "100"} if where == "header" else {})
    query = "" if where == "header" else "?neb-timeout=100"

    status, error = post(house.open, f"/call/shop/hang{query}", "1.0", headers)

    assert (status, error["code"]) == (504, "timeout")


def test_who_hangs_up_takes_the_call_back(house: House) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", house.open, timeout=DEADLINE)
    connection.request("POST", "/call/shop/wait", "", dict(JSON))
    assert post(house.open, "/call/shop/waits", "") == (200, True)

    connection.close()

    assert post(house.open, "/call/shop/was_withdrawn", "") == (200, True)


# --- where it is switched on ---


def test_listener_takes_calls_only_where_that_is_switched_on(house: House) -> None:
    assert post(house.silent, "/call/shop/nothing", "")[0] == 404


def test_flag_switches_it_on_for_the_listener_of_http(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    words = ("broker", "--port", "0", "--http", "0", "--http-calls", "--store", "memory", "--app", "shop:app")
    with running(*words, cwd=tmp_path) as (process, _):
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port
        assert port is not None

        assert post(port, "/call/shop/quote", '"ABC"') == (200, 1.25)
        # Logins are looked at where somebody could check them.
        assert post(port, "/call/shop/who", "", JSON | basic("a", "b")) == (200, "anonymous")


@pytest.mark.parametrize(
    ("setting", "said"),
    [("http_calls = true", "http_calls"), ("[[listener]]\nport = 0\ncalls = true", "http = true")],
)
def test_setting_that_means_nothing_is_refused(tmp_path: Path, setting: str, said: str) -> None:
    (tmp_path / "nebula.toml").write_text(setting)

    ended = nebula("broker", cwd=tmp_path)

    assert ended.returncode == 2
    assert said in ended.stderr


def test_call_under_way_is_answered_before_the_broker_ends(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    words = ("broker", "--port", "0", "--http", "0", "--http-calls", "--store", "memory", "--app", "shop:app")
    answers: list[tuple[int, Any]] = []
    with running(*words, cwd=tmp_path) as (process, tcp):
        assert process.stdout is not None
        port = urlsplit(json.loads(process.stdout.readline())["url"]).port
        assert port is not None
        calling = threading.Thread(target=lambda: answers.append(post(port, "/call/shop/hang", "0.5")))
        calling.start()
        with Client(tcp["url"]) as client:
            assert client.call("shop", "has_begun")
        process.terminate()
        calling.join(DEADLINE)

        assert process.wait(DEADLINE) == 0
    assert answers == [(200, None)]


# --- its parts ---


def posted(path: str = "/call/s/v", query: str = "", timeout: str = "") -> Posted:
    return Posted("anonymous", path, query, timeout, b"")


def test_header_says_how_long_before_the_query_does() -> None:
    assert read_call(posted()).seconds == 30.0
    assert read_call(posted(query="neb-timeout=2000")).seconds == 2.0
    assert read_call(posted(query="neb-timeout=2000", timeout="1500")).seconds == 1.5
    assert read_call(posted(timeout="300000")).seconds == 300.0


@pytest.mark.parametrize("timeout", ["0", "-1", "1.5", "300001", "²", "9" * 5000])
def test_timeout_that_cannot_be_is_refused(timeout: str) -> None:
    with pytest.raises(BadCall):
        read_call(posted(timeout=timeout))


def test_parameters_are_handed_on_as_they_came_but_in_ascii() -> None:
    body = '{ "é": [1e15, "\U0001f600"] }'.encode()

    call = read_call(Posted("anonymous", "/call/s/v", "", "", body))

    assert call.parameters == b'{ "\\u00e9": [1e15, "\\ud83d\\ude00"] }'


def test_call_holds_no_more_of_its_parameters_than_their_octets() -> None:
    body = b"[" + b"[]," * 300_000 + b"[]]"
    tracemalloc.start()
    try:
        call = read_call(Posted("anonymous", "/call/s/v", "", "", body))

        assert tracemalloc.get_traced_memory()[0] < 2 * len(body)
        assert call.parameters == body
    finally:
        tracemalloc.stop()


NEAR = NoResponder("rejected-no-consumer", "/queue/shpo")
NEAR.near = "shop"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NoResponder("rejected-no-consumer", "/queue/s"), 404, "no-responder"),
        (NEAR, 404, "no-responder"),
        (CallTimeout("late"), 504, "timeout"),
        (Rejected("rejected-unauthorised", "/queue/s"), 403, "not-allowed"),
        (Rejected("rejected-full", "/queue/s"), 503, "busy"),
        (Rejected("rejected-invalid", "/queue/s"), 400, "bad-request"),
        (ConnectionLost("gone"), 503, "unavailable"),
        (RemoteError("error", "a peer's"), 500, "error"),
    ],
)
def test_each_failure_of_a_call_has_its_status(error: NebulaError, status: int, code: str) -> None:
    answer = failure_reply(error)

    told = json.loads(answer.body)
    assert (answer.status, told["code"]) == (status, code)
    assert told["message"].endswith("; did you mean 'shop'?") is (error is NEAR)


def test_misspelt_service_has_a_suggestion(house: House) -> None:
    # What is not there may be called, and what is misspelt may not.
    nobody = post(house.open, "/call/nobody/quote", "{}")
    misspelt = post(house.open, "/call/shpo/quote", "{}")

    assert (nobody[0], nobody[1]["message"]) == (404, "the service is not running")
    assert misspelt[0] == 403
    assert misspelt[1]["message"] == "you may not call this service; did you mean 'shop'?"


def test_page_has_the_status_of_each_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "http.md").read_text(encoding="utf-8")

    for code in (*CODES, "error"):
        assert f"| `{code}` | {status_of(code):d} |" in page
