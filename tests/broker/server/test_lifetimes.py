"""When connections end because of who they are: by certificate, token and passcode, and by their age."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from contextlib import AbstractContextManager
from http import HTTPStatus
from math import inf
from pathlib import Path

import argon2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from nebula.broker.assembly import Assembly
from nebula.broker.operations.certificates import make_authority
from nebula.broker.operations.events import NOT_ADMITTED, TOO_OLD
from nebula.broker.server.authenticator import Authenticator
from nebula.broker.server.http_posts import Posted, Response
from nebula.broker.server.identity import ANONYMOUS_IDENTITY, Identity, Proof
from nebula.broker.server.lifetimes import Lifetimes
from nebula.broker.server.listener import Listener
from nebula.broker.server.tls import ServerTls, TlsFiles
from nebula.broker.settings import load_broker_settings
from tests.broker.browser import HEAD, Browser, HttpServed, serve_http
from tests.faults.served import Served, Wire, serve

LISTENER = Listener()
HASHER = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
KEY = ec.generate_private_key(ec.SECP256R1())
TIMEOUT = 10.0


class Wall:
    """Seconds since 1970, as a test sets them."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Peer:
    """Notes why it was ended."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def end_for(self, reason: str) -> None:
        self.reasons.append(reason)


class Files:
    """What a listener knows of those who come, as tests change it."""

    def __init__(self) -> None:
        self.known: set[str] = {"alice", "till"}
        self.denied: set[str] = set()
        self.needs_client_certificate = True

    def still_knows(self, identity: Identity) -> bool:
        return identity.principal in self.known

    def is_denied(self, principal: str) -> bool:
        return principal in self.denied


def listener_of(files: Files) -> Listener:
    return Listener(tls=files, authenticator=files)  # type: ignore[arg-type]


def passcode(name: str = "alice") -> Identity:
    return Identity(name, Proof.PASSCODE, checked_by="hash")


# --- by themselves ---


@pytest.mark.parametrize("proof", [Proof.CERTIFICATE, Proof.TOKEN])
def test_connection_ends_when_its_proof_expires(proof: Proof) -> None:
    wall = Wall()
    lives, peer = Lifetimes(wall_clock=wall), Peer()
    lives.begin(peer, LISTENER, Identity("till", proof, expires_at=1_060.0), 0.0)

    wall.now = 1_059.9
    lives.advance(1.0)
    assert peer.reasons == []

    wall.now = 1_060.0
    lives.advance(1.0)
    assert peer.reasons == [f"your {proof} has expired"]
    assert len(lives) == 0


def test_each_connection_has_its_own_end() -> None:
    wall = Wall()
    lives = Lifetimes(wall_clock=wall)
    peers = [Peer() for _ in range(4)]
    for peer, end in zip(peers, (1_030.0, 1_010.0, inf, 1_020.0), strict=True):
        lives.begin(peer, LISTENER, Identity("till", Proof.TOKEN, expires_at=end), 0.0)

    ended = []
    for wall.now in (1_000.0, 1_010.0, 1_019.0, 1_025.0, 1_030.0, 1_000_000.0):
        lives.advance(0.0)
        ended.append([len(peer.reasons) for peer in peers])

    assert ended == [[0, 0, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 1], [1, 1, 0, 1], [1, 1, 0, 1]]


def test_grace_counts_for_what_has_expired_and_for_who_is_gone() -> None:
    wall, files = Wall(), Files()
    lives = Lifetimes(wall_clock=wall, grace_seconds=30.0)
    late, gone = Peer(), Peer()
    lives.begin(late, listener_of(files), Identity("till", Proof.TOKEN, expires_at=1_010.0), 0.0)
    lives.begin(gone, listener_of(files), passcode(), 0.0)
    files.known.remove("alice")
    lives.review(0.0)
    # Another reload does not begin the grace anew.
    wall.now = 1_029.0
    lives.review(0.0)
    assert (late.reasons, gone.reasons) == ([], [])

    wall.now = 1_030.0
    lives.advance(0.0)
    assert (late.reasons, gone.reasons) == ([], [NOT_ADMITTED])

    wall.now = 1_040.0
    lives.advance(0.0)
    assert late.reasons == ["your token has expired"]


def test_reload_ends_who_is_gone_and_nobody_else() -> None:
    files = Files()
    lives = Lifetimes(wall_clock=Wall())
    gone, stays, certified, anonymous = (Peer() for _ in range(4))
    lives.begin(gone, listener_of(files), passcode("alice"), 0.0)
    lives.begin(stays, listener_of(files), passcode("till"), 0.0)
    lives.begin(certified, listener_of(files), Identity("f00d", Proof.CERTIFICATE), 0.0)
    lives.begin(anonymous, listener_of(files), ANONYMOUS_IDENTITY, 0.0)
    lives.review(0.0)
    assert gone.reasons == []

    files.known.remove("alice")
    lives.review(0.0)

    assert gone.reasons == [NOT_ADMITTED]
    assert stays.reasons == certified.reasons == anonymous.reasons == []


def test_who_is_known_again_within_the_grace_stays() -> None:
    wall, files, peer = Wall(), Files(), Peer()
    lives = Lifetimes(wall_clock=wall, grace_seconds=30.0)
    lives.begin(peer, listener_of(files), passcode(), 0.0)
    files.known.remove("alice")
    lives.review(0.0)
    files.known.add("alice")
    lives.review(0.0)

    wall.now = 2_000.0
    lives.advance(0.0)

    assert peer.reasons == []


def test_denied_certificate_has_no_grace() -> None:
    files, peer = Files(), Peer()
    lives = Lifetimes(wall_clock=Wall(), grace_seconds=30.0)
    lives.begin(peer, listener_of(files), Identity("f00d", Proof.CERTIFICATE), 0.0)
    files.denied.add("f00d")

    lives.review(0.0)

    assert peer.reasons == [NOT_ADMITTED]


def test_login_that_is_called_like_a_denied_certificate_is_none() -> None:
    files, peer = Files(), Peer()
    lives = Lifetimes(wall_clock=Wall())
    lives.begin(peer, listener_of(files), passcode(), 0.0)
    files.denied.add("alice")

    lives.review(0.0)

    assert peer.reasons == []


def test_greatest_age_ends_also_who_is_anonymous_and_spreads_the_ends() -> None:
    chances = iter([0.0, 1.0])
    lives = Lifetimes(wall_clock=Wall(), max_seconds=100.0, chance=lambda: next(chances))
    late, early, post = Peer(), Peer(), Peer()
    lives.begin(late, LISTENER, ANONYMOUS_IDENTITY, 5.0)
    lives.begin(early, LISTENER, passcode(), 5.0)
    lives.begin(post, LISTENER, passcode())

    ended = []
    for now in (94.9, 95.0, 104.9, 105.0):
        lives.advance(now)
        ended.append((late.reasons[:], early.reasons[:]))

    assert ended == [([], []), ([], [TOO_OLD]), ([], [TOO_OLD]), ([TOO_OLD], [TOO_OLD])]
    assert post.reasons == []


def test_who_has_gone_is_forgotten_and_who_can_not_end_is_not_kept() -> None:
    lives, peer = Lifetimes(wall_clock=Wall()), Peer()
    lives.begin(peer, LISTENER, passcode(), 0.0)
    lives.begin(Peer(), LISTENER, ANONYMOUS_IDENTITY, 0.0)
    assert len(lives) == 1

    lives.end(peer)
    lives.end(peer)

    assert len(lives) == 0


# --- connections ---


class Site:
    """A broker's listener for certificates, and one for logins and tokens; with a wall clock that is set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wall = Wall(time.time())
        authority = make_authority("site", days=1)
        ca, _ = authority.certificate.write(folder, "ca")
        server = authority.issue_server(["127.0.0.1"], days=1).write(folder, "server")
        self.client = authority.issue_client("till", days=0.5)
        self.client.write(folder, "till")
        self.deny()
        self.users(alice="secret", bob="hidden")
        self.keys(KEY)
        tls = ServerTls(TlsFiles(*server, ca, folder / "deny.txt"))
        self.authenticator = Authenticator(users=folder / "users.toml", jwks=folder / "keys.json")
        self.listeners = [
            Listener("127.0.0.1", 0, tls=tls),
            Listener("127.0.0.1", 0, authenticator=self.authenticator),
        ]

    def deny(self, *fingerprints: str) -> None:
        (self.folder / "deny.txt").write_text("\n".join(fingerprints))

    def users(self, **passcodes: str) -> None:
        lines = [f'{login} = "{HASHER.hash(word)}"\n' for login, word in passcodes.items()]
        (self.folder / "users.toml").write_text("[users]\n" + "".join(lines))

    def keys(self, *keys: ec.EllipticCurvePrivateKey) -> None:
        entries = [jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True) for key in keys]
        (self.folder / "keys.json").write_text(json.dumps({"keys": entries}))

    def serve(self) -> AbstractContextManager[Served]:
        return serve(listeners=self.listeners, lifetimes=Lifetimes(wall_clock=self.wall))

    def wrap(self, broker: Served) -> Wire:
        wire = Wire(int(broker.server.urls[0].rpartition(":")[2]))
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        context.load_cert_chain(self.folder / "till.pem", self.folder / "till.key")
        wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
        return wire

    def certified(self, broker: Served) -> Wire:
        wire = self.wrap(broker)
        wire.connect("1.2")
        return wire

    def login(self, broker: Served, login: str, word: str) -> Wire:
        wire = Wire(int(broker.server.urls[1].rpartition(":")[2]))
        wire.say(f"CONNECT accept-version:1.2; host:h; login:{login}; passcode:{word}")
        frame = wire.next()
        assert frame is not None
        assert frame[0] == "CONNECTED"
        return wire

    def token(self, seconds: float) -> str:
        return jwt.encode({"sub": "robot", "exp": self.wall.now + seconds}, KEY, "ES256")


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def message_of(wire: Wire) -> str:
    """Of the ERROR that ended the connection."""
    *_, last = wire.rest()
    assert last[0] == "ERROR"
    return last[1]["message"]


def test_connection_ends_with_its_certificate(site: Site) -> None:
    with site.serve() as broker:
        alice, till = site.login(broker, "alice", "secret"), site.certified(broker)

        site.wall.now = site.client.x509.not_valid_after_utc.timestamp()

        assert message_of(till) == "your certificate has expired"
        assert alice.is_in_order()
        assert broker.ask(lambda: broker.server.runtime.ended) == {"your certificate has expired": 1}


def test_certificate_that_has_expired_by_our_clock_does_not_come_in(site: Site) -> None:
    # As with a session that TLS 1.2 resumes: the handshake does not look at the date.
    site.wall.now = site.client.x509.not_valid_after_utc.timestamp()
    with site.serve() as broker:
        till = site.wrap(broker)
        till.say("CONNECT accept-version:1.2; host:h")

        assert message_of(till) == "not admitted"
        assert broker.ask(lambda: len(broker.server.lifetimes)) == 0


def test_connection_ends_with_its_token(site: Site) -> None:
    with site.serve() as broker:
        short, long = (site.login(broker, "", site.token(seconds)) for seconds in (60, 600))

        site.wall.now += 60 + 10  # clocks may differ by so much

        assert message_of(short) == "your token has expired"
        assert long.is_in_order()


def test_reload_ends_connections_of_users_that_are_gone_or_have_another_passcode(site: Site) -> None:
    with site.serve() as broker:
        alice, bob = site.login(broker, "alice", "secret"), site.login(broker, "bob", "hidden")
        robot, till = site.login(broker, "", site.token(60)), site.certified(broker)
        site.users(bob="changed", carol="new")

        broker.ask(broker.server.reload)

        assert message_of(alice) == message_of(bob) == "not admitted"
        assert robot.is_in_order()
        assert till.is_in_order()

        site.keys(ec.generate_private_key(ec.SECP256R1()))
        broker.ask(broker.server.reload)

        assert message_of(robot) == "not admitted"
        assert till.is_in_order()


def test_file_that_cannot_be_used_ends_nobody(site: Site) -> None:
    with site.serve() as broker:
        alice = site.login(broker, "alice", "secret")
        (site.folder / "users.toml").write_text("[users")

        with pytest.raises(Exception, match="not valid TOML"):
            broker.ask(broker.server.reload)

        assert alice.is_in_order()


def test_connection_that_is_too_old_ends(site: Site) -> None:
    with serve(lifetimes=Lifetimes(max_seconds=1_000.0)) as broker:
        alice = broker.connect()
        broker.ask(lambda: broker.server.lifetimes.advance(broker.server.runtime.time() + 999.0))
        assert alice.is_in_order()

        broker.ask(lambda: broker.server.lifetimes.advance(broker.server.runtime.time() + 1_000.0))

        assert message_of(alice) == TOO_OLD


def test_who_has_disconnected_is_forgotten(site: Site) -> None:
    with site.serve() as broker:
        alice, till = site.login(broker, "alice", "secret"), site.certified(broker)
        assert broker.ask(lambda: len(broker.server.lifetimes)) == 2

        alice.close()
        till.close()

        while broker.ask(lambda: len(broker.server.lifetimes)):
            pass


# --- what is posted ---


class Waiting:
    """What is posted waits for ever, or until it is taken back."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.withdrawn = threading.Event()

    async def __call__(self, posted: Posted) -> Response:
        self.began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.withdrawn.set()
        raise AssertionError("it waits for ever")


def wait_at(http: HttpServed, waiting: Waiting, authorization: str) -> Browser:
    browser = Browser(http.port)
    browser.ask("/wait/", HEAD | {"Content-Length": "4", "Authorization": authorization}, "POST")
    browser.socket.sendall(b"body")
    assert waiting.began.wait(TIMEOUT)
    return browser


def test_post_under_way_is_taken_back_when_its_token_expires(site: Site) -> None:
    waiting = Waiting()
    with serve_http(posts={"/wait/": waiting}, authenticator=site.authenticator) as http:
        http.listener.lifetimes = Lifetimes(wall_clock=site.wall)
        browser = wait_at(http, waiting, f"Bearer {site.token(60)}")

        site.wall.now += 70
        http.served.ask(lambda: http.listener.lifetimes.advance(0.0))

        assert browser.answer()[0] == HTTPStatus.UNAUTHORIZED
        assert waiting.withdrawn.wait(TIMEOUT)
        assert http.served.ask(lambda: http.listener.posted_bytes) == 0


def test_post_under_way_is_taken_back_when_its_user_is_gone(site: Site) -> None:
    waiting = Waiting()
    with serve_http(posts={"/wait/": waiting}, authenticator=site.authenticator) as http:
        browser = wait_at(http, waiting, "Basic YWxpY2U6c2VjcmV0")  # alice:secret
        site.users(bob="hidden")
        site.authenticator.reload()

        http.served.ask(lambda: http.listener.lifetimes.review(0.0))

        assert browser.answer()[0] == HTTPStatus.UNAUTHORIZED
        assert waiting.withdrawn.wait(TIMEOUT)


def test_post_that_was_answered_is_forgotten(site: Site) -> None:
    async def echo(posted: Posted) -> Response:
        return Response(HTTPStatus.OK, posted.body)

    with serve_http(posts={"/echo/": echo}, authenticator=site.authenticator) as http:
        browser = Browser(http.port)
        head = HEAD | {"Content-Length": "4", "Authorization": f"Bearer {site.token(60)}"}
        browser.ask("/echo/", head, "POST")
        browser.socket.sendall(b"body")

        assert browser.answer()[0] == HTTPStatus.OK
        assert http.served.ask(lambda: len(http.listener.lifetimes)) == 0


# --- settings ---


def test_settings_reach_the_broker(tmp_path: Path) -> None:
    file = tmp_path / "nebula.toml"
    file.write_text('store = "memory"\n[identity]\ngrace_seconds = 30.0\nmax_connection_seconds = 100.0\n')
    lives = Assembly(load_broker_settings(file).value, lambda error: None).server.lifetimes
    lives.wall_clock = wall = Wall()
    expires, grows_old = Peer(), Peer()
    lives.begin(expires, LISTENER, Identity("till", Proof.CERTIFICATE, expires_at=1_010.0), 0.0)
    lives.begin(grows_old, LISTENER, ANONYMOUS_IDENTITY, 0.0)

    wall.now = 1_039.0
    lives.advance(89.0)
    assert expires.reasons == grows_old.reasons == []

    wall.now = 1_040.0
    lives.advance(100.0)
    assert expires.reasons == ["your certificate has expired"]
    assert grows_old.reasons == [TOO_OLD]
