"""A broker that answers `POST /call/…`, with listeners of all kinds, and those who come to it."""

from __future__ import annotations

import base64
import hashlib
import http.client
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import argon2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec

from nebula.broker.operations.certificates import Authority, make_authority
from tests.cli.programs import running

DEADLINE = 20.0
JSON = {"Content-Type": "application/json"}
KEY = ec.generate_private_key(ec.SECP256R1())

SHOP = """
import threading
from typing import Any

import anyio

from nebula import Request, Responder, VerbError

app = Responder("shop")
begun, waiting, withdrawn = threading.Event(), threading.Event(), threading.Event()


@app.verb
async def quote(symbol: str, qty: int = 1) -> float:
    return {"ABC": 1.25, "é": 2.0}[symbol] * qty


@app.verb
async def echo(value: Any) -> Any:
    return value


@app.verb
async def mean() -> dict[str, float]:
    return {"mean": float("nan")}


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


@app.verb
async def wait() -> None:
    waiting.set()
    try:
        await anyio.sleep_forever()
    finally:
        withdrawn.set()


@app.verb
def waits() -> bool:
    return waiting.wait(10)


@app.verb
def was_withdrawn() -> bool:
    return withdrawn.wait(10)
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


@contextmanager
def running_house(folder: Path) -> Iterator[House]:
    """Run it for a block, with its files in a folder."""
    authority = make_authority("site", days=1)
    certificate = _write_certificates(folder, authority)
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


def _write_certificates(folder: Path, authority: Authority) -> str:
    authority.certificate.write(folder, "ca")
    authority.issue_server(["127.0.0.1"], days=1).write(folder, "server")
    authority.issue_client("denied", days=1).write(folder, "denied")
    (folder / "deny.txt").write_text(_fingerprint_of(folder / "denied.pem"))
    client = authority.issue_client("machine", days=1)
    client.write(folder, "client")
    return client.fingerprint


def _fingerprint_of(file: Path) -> str:
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


def basic(login: str, passcode: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{login}:{passcode}".encode()).decode()}


def bearer(**claims: Any) -> dict[str, str]:
    token = jwt.encode({"exp": time.time() + 60, "sub": "robot"} | claims, KEY, "ES256")
    return {"Authorization": f"Bearer {token}"}
