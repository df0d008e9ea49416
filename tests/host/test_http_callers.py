"""Who may `POST /call/SERVICE/VERB`: by login, token, certificate or not at all; and no foreign page."""

from __future__ import annotations

import http.client
import json
import ssl
import time

import pytest

from tests.host.http_house import DEADLINE, JSON, House, basic, bearer, post


def test_call_bears_the_principal_of_its_login(house: House) -> None:
    headers = JSON | basic("alice", "alice's: word")

    assert post(house.closed, "/call/shop/who", "", headers) == (200, "alice")
    # Again, by the client that is there already.
    assert post(house.closed, "/call/shop/who", "", headers) == (200, "alice")


def test_call_bears_the_principal_of_its_token(house: House) -> None:
    assert post(house.closed, "/call/shop/who", "", JSON | bearer()) == (200, "robot")


def test_call_without_a_name_is_anonymous_where_that_may_be(house: House) -> None:
    assert post(house.open, "/call/shop/who", "") == (200, "anonymous")
    assert post(house.open, "/call/shop/who", "", JSON | basic("alice", "alice's: word")) == (200, "alice")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("alice", "wrong"),
        basic("nobody", "alice's: word"),
        bearer(exp=time.time() - 60),
        {"Authorization": "Basic not-base64"},
        {"Authorization": "Digest x"},
    ],
)
def test_stranger_is_kept_out(house: House, headers: dict[str, str]) -> None:
    status, error = post(house.closed, "/call/shop/who", "", JSON | headers)

    assert (status, error["code"]) == (401, "not-admitted")


@pytest.mark.parametrize(
    "headers",
    [
        basic("alice", "wrong"),
        basic("nobody", "alice's: word"),
        bearer(sub="anonymous"),
        {"Authorization": "Basic not-base64"},
        {"Authorization": "Digest x"},
    ],
)
def test_who_shows_what_is_wrong_is_not_anonymous_instead(house: House, headers: dict[str, str]) -> None:
    status, error = post(house.open, "/call/shop/who", "", JSON | headers)

    assert (status, error["code"]) == (401, "not-admitted")


def test_who_shows_two_names_has_none(house: House) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", house.open, timeout=DEADLINE)
    connection.putrequest("POST", "/call/shop/who")
    connection.putheader("Content-Type", "application/json")
    for _ in range(2):
        connection.putheader("Authorization", basic("alice", "alice's: word")["Authorization"])
    connection.endheaders()

    assert connection.getresponse().status == 401
    connection.close()


def test_stranger_s_body_is_not_read(house: House) -> None:
    headers = JSON | {"Content-Length": "900", "Expect": "100-continue"}
    connection = http.client.HTTPConnection("127.0.0.1", house.closed, timeout=DEADLINE)
    connection.putrequest("POST", "/call/shop/who")
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()

    assert connection.sock.recv(100).startswith(b"HTTP/1.1 401")
    connection.close()


def test_principal_without_the_right_may_not_call(house: House) -> None:
    status, error = post(house.closed, "/call/shop/who", "", JSON | basic("bob", "bob's: word"))

    assert (status, error["code"]) == (403, "not-allowed")


def certified(house: House, stem: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=house.folder / "ca.pem")
    context.load_cert_chain(house.folder / f"{stem}.pem", house.folder / f"{stem}.key")
    return context


def test_call_bears_the_principal_of_its_certificate(house: House) -> None:
    tls = certified(house, "client")

    assert post(house.certified, "/call/shop/who", "", tls=tls) == (200, house.certificate)


def test_login_counts_before_a_certificate(house: House) -> None:
    tls = certified(house, "client")

    headers = JSON | basic("alice", "alice's: word")
    assert post(house.certified, "/call/shop/who", "", headers, tls=tls) == (200, "alice")
    assert post(house.certified, "/call/shop/who", "", JSON | basic("alice", "no"), tls=tls)[0] == 401


def test_denied_certificate_is_kept_out(house: House) -> None:
    assert post(house.certified, "/call/shop/who", "", tls=certified(house, "denied"))[0] == 401


def test_login_does_not_make_up_for_a_denied_certificate(house: House) -> None:
    headers = JSON | basic("alice", "alice's: word")

    assert post(house.certified, "/call/shop/who", "", headers, tls=certified(house, "denied"))[0] == 401


@pytest.mark.parametrize(("stem", "status"), [("client", 200), ("denied", 403)])
@pytest.mark.parametrize("path", ["/metrics", "/readyz"])
def test_page_is_not_for_a_denied_certificate(house: House, path: str, stem: str, status: int) -> None:
    assert post(house.certified, path, "", {}, method="GET", tls=certified(house, stem))[0] == status


# --- pages, forms, and other things that are no calls ---


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Origin": "https://evil.example"}, 403, "wrong-origin"),
        ({"Origin": "null"}, 403, "wrong-origin"),
        ({"Origin": "http://localhost:3000"}, 403, "wrong-origin"),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421, "wrong-host"),
        ({"Host": "evil.example"}, 421, "wrong-host"),
        ({"Content-Type": "text/plain"}, 415, "not-json"),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415, "not-json"),
        ({"Content-Type": "application/json; charset=latin-1"}, 415, "not-json"),
    ],
)
def test_what_a_foreign_page_could_send_is_refused(
    house: House, headers: dict[str, str], status: int, code: str
) -> None:
    found, error = post(house.open, "/call/shop/nothing", "", JSON | headers)

    assert (found, error["code"]) == (status, code)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://shop.example"},
        {"Host": "shop.example", "Origin": "https://shop.example"},
        {"Host": "api.example:8443"},
        {"Host": "localhost:1", "Origin": "http://localhost:3000"},
        {"Host": "[::1]:1"},
    ],
)
def test_page_of_ours_and_host_of_ours_may_call(house: House, headers: dict[str, str]) -> None:
    assert post(house.open, "/call/shop/nothing", "", JSON | headers) == (200, None)


def test_request_without_a_content_type_is_refused(house: House) -> None:
    assert post(house.open, "/call/shop/nothing", "", {})[0] == 415


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS"])
def test_only_post_calls(house: House, method: str) -> None:
    assert post(house.open, "/call/shop/nothing", "", method=method)[0] == 405


@pytest.mark.parametrize("is_chunked", [False, True])
def test_body_that_is_too_large_is_refused(house: House, is_chunked: bool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", house.open, timeout=DEADLINE)
    connection.putrequest("POST", "/call/shop/echo")
    connection.putheader("Content-Type", "application/json")
    name, value = ("Transfer-Encoding", "chunked") if is_chunked else ("Content-Length", "1001")
    connection.putheader(name, value)
    connection.endheaders()
    if is_chunked:
        connection.sock.sendall(b"3e9\r\n" + b'"' * 1001 + b"\r\n")
    response = connection.getresponse()

    assert (response.status, json.loads(response.read())["code"]) == (413, "too-large")
    connection.close()
