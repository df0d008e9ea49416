"""`POST /call/SERVICE/VERB`, as curl and its like use it: who may, what is answered, what is refused."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import argon2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from nebula.broker.certificates import Authority, make_authority
from nebula.broker.http_posts import Posted, credentials_of, is_json, is_ours
from nebula.broker.listeners import Listener
from nebula.errors import (
    CallTimeout,
    ConnectionLost,
    NebulaError,
    NoResponder,
    Rejected,
    RemoteError,
)
from nebula.host.http_calls import _BadCall, answer_to, read_call, status_of
from nebula.rpc.errors import CODES
from nebula.sync import Client
from tests.cli.programs import nebula, running

DEADLINE = 20.0
JSON = {"Content-Type": "application/json"}
KEY = ec.generate_private_key(ec.SECP256R1())

SHOP = """
import threading
from typing import Any

from nebula import Request, Responder, VerbError

app = Responder("shop")
begun = threading.Event()


@app.verb
async def quote(symbol: str, qty: int = 1) -> float:
    return {"ABC": 1.25, "é": 2.0}[symbol] * qty


@app.verb
async def echo(value: Any) -> Any:
    return value


@app.verb
async def nothing() -> None:
    pass


@app.verb
async def who(request: Request) -> str | None:
    return request.principal


@app.verb
async def fail(code: str, retryable: bool = False) -> None:
    raise VerbError(code, "it failed", details={"why": "so"}, retryable=retryable)


@app.verb
def hang(seconds: float) -> None:
    begun.set()
    threading.Event().wait(seconds)


@app.verb
def has_begun() -> bool:
    return begun.wait(10)
"""

RIGHTS = """
[capability.call]
publish = ["/queue/shop", "/queue/nobody"]

[capability.serve]
subscribe = ["/queue/shop"]

[identity]
"app:shop" = ["serve"]
"anonymous" = ["call"]
"alice" = ["call"]
"robot" = ["call"]
"{certificate}" = ["call"]
"""

CONFIG = """
rights = ["rights.toml"]
app = ["shop:app"]
store = "memory"

[limits]
max_http_body_bytes = 1000

[identity]
users = "users.toml"
jwks = "keys.json"

[[listener]]
port = 0
http = true
calls = true
anonymous = true
origins = ["https://shop.example"]
hosts = ["api.example"]

[[listener]]
port = 0
http = true
calls = true

[[listener]]
port = 0
http = true
calls = true
tls_cert = "server.pem"
tls_key = "server.key"
client_ca = "ca.pem"
deny = "deny.txt"

[[listener]]
port = 0
http = true
anonymous = true
"""


class House:
    """A broker with listeners of all kinds, and what is needed to come in.

    Attributes:
        open: the port where everybody may be anonymous.
        closed: where everybody has to say who it is.
        certified: where certificates say so.
        silent: where no calls are taken.
    """

    def __init__(self, folder: Path, ports: list[int], certificate: str) -> None:
        self.folder = folder
        self.open, self.closed, self.certified, self.silent = ports
        self.certificate = certificate


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    authority = make_authority("site", days=1)
    certificate = write_certificates(folder, authority)
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    users = {name: hasher.hash(f"{name}'s: word") for name in ("alice", "bob")}
    (folder / "users.toml").write_text(
        "[users]\n" + "".join(f'{name} = "{words}"\n' for name, words in users.items())
    )
    key = jwt.algorithms.ECAlgorithm.to_jwk(KEY.public_key(), as_dict=True)
    (folder / "keys.json").write_text(json.dumps({"keys": [key | {"alg": "ES256"}]}))
    (folder / "shop.py").write_text(SHOP)
    (folder / "rights.toml").write_text(RIGHTS.replace("{certificate}", certificate))
    (folder / "nebula.toml").write_text(CONFIG)
    with running("broker", cwd=folder) as (process, first):
        assert process.stdout is not None
        lines = [first, *(json.loads(process.stdout.readline()) for _ in range(3))]
        yield House(folder, [urlsplit(line["url"]).port or 0 for line in lines], certificate)


def write_certificates(folder: Path, authority: Authority) -> str:
    authority.certificate.write(folder, "ca")
    authority.issue_server(["127.0.0.1"], days=1).write(folder, "server")
    authority.issue_client("denied", days=1).write(folder, "denied")
    (folder / "deny.txt").write_text(authority_fingerprint(folder / "denied.pem"))
    client = authority.issue_client("machine", days=1)
    client.write(folder, "client")
    return client.fingerprint


def authority_fingerprint(file: Path) -> str:
    import hashlib

    der = ssl.PEM_cert_to_DER_cert(file.read_text())
    return hashlib.sha256(der).hexdigest()


def post(
    port: int,
    path: str,
    body: str | bytes = "{}",
    headers: Mapping[str, str] = JSON,
    *,
    method: str = "POST",
    tls: ssl.SSLContext | None = None,
) -> tuple[int, Any]:
    """The status, and what the body says."""
    connection = (
        http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        if tls is None
        else http.client.HTTPSConnection("127.0.0.1", port, timeout=DEADLINE, context=tls)
    )
    try:
        octets = body.encode() if isinstance(body, str) else body
        connection.request(method, path, octets, dict(headers))
        response = connection.getresponse()
        text = response.read()
        is_json = response.headers["content-type"] == "application/json"
        return response.status, json.loads(text) if is_json else text.decode()
    finally:
        connection.close()


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
        ("/call/shop/fail", '{"code": "not-found"}', 404, "not-found"),
        ("/call/shop/fail", '{"code": "not-allowed"}', 403, "not-allowed"),
        ("/call/shop/fail", '{"code": "sold-out"}', 422, "sold-out"),
        ("/call/shop/fail", '{"code": "sold-out", "retryable": true}', 503, "sold-out"),
        ("/call/shop/fail", '{"code": "busy"}', 503, "busy"),
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


# --- who asks ---


def basic(login: str, passcode: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{login}:{passcode}".encode()).decode()}


def bearer(**claims: Any) -> dict[str, str]:
    token = jwt.encode({"exp": time.time() + 60, "sub": "robot"} | claims, KEY, "ES256")
    return {"Authorization": f"Bearer {token}"}


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


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Basic YTpi", ("a", "b")),
        ("basic YTpiOmM=", ("a", "b:c")),
        ("Basic w6k6w6k=", ("é", "é")),
        ("Bearer a.b.c", (None, "a.b.c")),
        ("Basic YQ==", None),
        ("Basic /////w==", None),
        ("Basic YTpi!", None),
        ("Bearer", None),
        ("Bearer ", None),
        ("", None),
    ],
)
def test_authorization_is_read(authorization: str, expected: tuple[str | None, str] | None) -> None:
    assert credentials_of(authorization) == expected


@pytest.mark.parametrize(
    ("host", "is_so"),
    [
        ("localhost", True),
        ("LOCALHOST:80", True),
        ("127.0.0.1:61680", True),
        ("192.0.2.1", True),
        ("[::1]:61680", True),
        ("inside.example", True),
        ("api.example", True),
        ("shop.example", True),
        ("shop.example.evil.example", False),
        ("evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_host_is_ours_by_address_or_by_a_name_that_is_listed(host: str, is_so: bool) -> None:
    listener = Listener(
        "localhost", http=True, hosts=("API.example", "inside.example"), origins=("https://shop.example",)
    )

    assert is_ours(host, listener) == is_so


@pytest.mark.parametrize(
    ("content_type", "is_so"),
    [
        ("application/json", True),
        ('Application/JSON ; charset="utf-8"', True),
        ("application/json;", True),
        ("application/json; charset=utf-16", False),
        ("application/jsonp", False),
        ("text/json", False),
        ("", False),
    ],
)
def test_content_type_is_json(content_type: str, is_so: bool) -> None:
    assert is_json(content_type) == is_so


def posted(path: str = "/call/s/v", query: str = "", timeout: str = "") -> Posted:
    return Posted("anonymous", path, query, timeout, b"")


def test_header_says_how_long_before_the_query_does() -> None:
    assert read_call(posted()).seconds == 30.0
    assert read_call(posted(query="neb-timeout=2000")).seconds == 2.0
    assert read_call(posted(query="neb-timeout=2000", timeout="1500")).seconds == 1.5
    assert read_call(posted(timeout="300000")).seconds == 300.0


@pytest.mark.parametrize("timeout", ["0", "-1", "1.5", "300001", "²", "9" * 5000])
def test_timeout_that_cannot_be_is_refused(timeout: str) -> None:
    with pytest.raises(_BadCall):
        read_call(posted(timeout=timeout))


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NoResponder("rejected-no-consumer", "/queue/s"), 404, "no-responder"),
        (CallTimeout("late"), 504, "timeout"),
        (Rejected("rejected-unauthorised", "/queue/s"), 403, "not-allowed"),
        (Rejected("rejected-full", "/queue/s"), 503, "busy"),
        (Rejected("rejected-invalid", "/queue/s"), 400, "bad-request"),
        (ConnectionLost("gone"), 503, "unavailable"),
        (RemoteError("error", "a peer's"), 500, "error"),
    ],
)
def test_each_failure_of_a_call_has_its_status(error: NebulaError, status: int, code: str) -> None:
    answer = answer_to(error)

    assert (answer.status, json.loads(answer.body)["code"]) == (status, code)


def test_page_has_the_status_of_each_code() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "http.md").read_text(encoding="utf-8")

    for code in (*CODES, "error"):
        assert f"| `{code}` | {status_of(code):d} |" in page
