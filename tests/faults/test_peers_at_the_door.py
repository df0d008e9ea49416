"""Peers that misbehave before they have a session: floods, silence, slowness. Others do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.operations.certificates import make_authority
from nebula.broker.server.admission import Admission, place_of
from nebula.broker.server.authenticator import Authenticator, users_line
from nebula.broker.server.listener import Listener
from nebula.broker.server.tls import ServerTls, TlsFiles
from tests.broker.browser import UPGRADE, Browser
from tests.faults.served import Served, Wire, serve

ELSEWHERE = "127.0.0.2"
FLOOD = 20


@contextlib.contextmanager
def innocent(broker: Served) -> Iterator[Wire]:
    """Somebody who was there before, whom nothing must harm."""
    wire = broker.connect(source=ELSEWHERE)
    wire.say("SUBSCRIBE id:s; destination:/queue/innocent")
    yield wire
    wire.say("SEND destination:/queue/innocent | still here")
    frame = wire.next()
    assert frame is not None
    assert frame[2:] == ("still here",)
    wire.close()


def message_of(wire: Wire) -> str:
    """Of the ERROR that is all it gets."""
    (frame,) = wire.rest()
    assert frame[0] == "ERROR"
    return frame[1]["message"]


def wait_until(is_so: Callable[[], bool]) -> None:
    """The test's own time limit ends what never comes."""
    while not is_so():
        time.sleep(0.005)


# Floods of connections


def test_flood_from_one_address_leaves_room_for_others() -> None:
    with serve(Limits(max_connections=50, max_connections_per_address=5)) as broker, innocent(broker):
        held = [broker.connect() for _ in range(5)]

        refusals = {message_of(Wire(broker.port)) for _ in range(FLOOD)}
        assert refusals == {"more than 5 connections from your address"}
        assert broker.connect(source=ELSEWHERE).is_in_order()
        held.pop().close()
        wait_until(lambda: broker.ask(lambda: len(broker.server.runtime.admission)) < 7)
        assert broker.connect().is_in_order()


def test_refused_peers_that_stay_take_nobodys_place() -> None:
    limits = Limits(max_connections=4, max_connections_per_address=2)
    with serve(limits) as broker, innocent(broker):
        held = [broker.connect() for _ in range(2)]
        refused = [Wire(broker.port) for _ in range(FLOOD)]  # they read nothing, and do not go
        for wire in refused:
            assert wire.next() is not None

        assert broker.connect(source=ELSEWHERE).is_in_order()
        assert all(wire.is_in_order() for wire in held)


def test_peers_that_were_ended_and_stay_take_nobodys_place() -> None:
    with serve(Limits(max_connections=6, principal_share=1.0)) as broker, innocent(broker):
        ended = []
        for _ in range(FLOOD):
            wire = broker.connect()
            wire.send(b"NONSENSE\n\n\0")
            frame = wire.next()
            assert frame is not None
            assert frame[0] == "ERROR"
            ended.append(wire)  # it does not go by itself

        assert broker.connect(source=ELSEWHERE).is_in_order()


def test_peers_that_never_connect_lose_their_places() -> None:
    with serve(Limits(max_connections=3)) as broker, innocent(broker):
        broker.limit(connect_timeout=0.3)
        silent = [Wire(broker.port) for _ in range(2)]

        assert {message_of(wire) for wire in silent} == {"no CONNECT came in time"}
        for wire in silent:
            wire.close()
        wait_until(lambda: broker.ask(lambda: len(broker.server.runtime.admission)) == 1)
        broker.limit(connect_timeout=10.0)
        assert broker.connect().is_in_order()


def test_connect_that_comes_octet_by_octet_has_no_more_time() -> None:
    with serve(Limits()) as broker, innocent(broker):
        broker.limit(connect_timeout=0.3)
        mallory = Wire(broker.port)
        drip(mallory.socket, b"CONNECT\naccept-version:1.2\nhost:", b"h")

        assert message_of(mallory) == "no CONNECT came in time"


def drip(peer: socket.socket, beginning: bytes, octet: bytes) -> None:
    """Send an octet now and then until the broker has had enough."""
    peer.sendall(beginning)
    peer.settimeout(0.02)
    with contextlib.suppress(ConnectionError):
        while True:
            peer.sendall(octet)
            with contextlib.suppress(TimeoutError):
                peer.recv(1, socket.MSG_PEEK)
                break
    peer.settimeout(10)


def test_one_place_is_an_address_or_a_subnet() -> None:
    assert place_of("192.0.2.1") != place_of("192.0.2.2")
    assert place_of("2001:db8::1") == place_of("2001:db8::2:3:4:5") != place_of("2001:db8:0:1::1")
    assert place_of("fe80::1%eth0") == place_of("fe80::2%eth1")
    assert place_of("::ffff:192.0.2.1") == "192.0.2.1" != place_of("::ffff:192.0.2.2")


def test_guest_is_counted_once_and_by_its_address() -> None:
    admission = Admission(3, 2)
    entries = [admission.enter(number, "a") for number in range(3)]
    assert entries == [None, None, "more than 2 connections from your address"]

    admission.leave(2)  # was refused
    admission.leave(0)
    admission.leave(0)

    entries = [admission.enter("b", "a"), admission.enter("c", None), admission.enter("d", None)]
    assert entries == [None, None, "more than 3 connections"]


# Half-open connections


def test_system_asks_silent_peers_whether_they_are_there() -> None:
    with serve(Limits(keepalive_seconds=8)) as broker, innocent(broker):

        def options() -> list[int]:
            (connection,) = broker.connections
            found = connection._transport.get_extra_info("socket")
            assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            return [found.getsockopt(socket.IPPROTO_TCP, name) for name in names]

        assert broker.ask(options) == [8, 2, 4]


def test_peer_that_promised_beats_and_is_gone_without_a_word_is_given_up() -> None:
    with serve() as broker, innocent(broker):
        gone = Wire(broker.port)
        gone.connect("1.2", heart_beat="100,0")
        gone.say("SUBSCRIBE id:s; destination:/queue/a")

        assert gone.rest()[-1][1]["message"] == "no heart-beat came in time"
        assert not broker.ask(lambda: broker.server.broker.queues.get("/queue/a"))


# TLS


@pytest.fixture(scope="module")
def tls_listener(tmp_path_factory: pytest.TempPathFactory) -> Listener:
    folder = tmp_path_factory.mktemp("tls")
    authority = make_authority("here", days=1)
    certificate, key = authority.issue_server(["127.0.0.1"], days=1).write(folder, "server")
    return Listener("127.0.0.1", 0, tls=ServerTls(TlsFiles(Path(certificate), Path(key))))


def trusting_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def port_of(broker: Served, number: int) -> int:
    """Of one of its listeners."""
    return int(broker.server.urls[number].rpartition(":")[2])


class TlsWire(Wire):
    """A client behind TLS."""

    def connect(self, version: str, *, heart_beat: str = "0,0") -> tuple[str, dict[str, str], str]:
        self.socket = trusting_context().wrap_socket(self.socket)
        return super().connect(version, heart_beat=heart_beat)  # type: ignore[return-value]


@pytest.mark.parametrize("beginning", [b"", b"\x16\x03\x01\x02", b"GET / HTTP/1.1\r\n\r\n"])
def test_silence_and_nonsense_in_a_handshake_end_the_connection(
    tls_listener: Listener, beginning: bytes
) -> None:
    with serve(Limits(), listeners=[tls_listener]) as broker:
        alice = TlsWire(broker.port)
        alice.connect("1.2")
        broker.limit(connect_timeout=0.3)
        mallory = socket.create_connection(("127.0.0.1", broker.port), timeout=10)
        mallory.sendall(beginning)

        with contextlib.suppress(ConnectionError):
            while mallory.recv(1000):
                pass
        mallory.close()
        assert alice.is_in_order()


def test_silent_handshakes_of_one_address_leave_room_for_others(tls_listener: Listener) -> None:
    limits = Limits(max_connections=50, max_connections_per_address=5, connect_timeout=60)
    with serve(limits, listeners=[Listener("127.0.0.1", 0), tls_listener]) as broker, innocent(broker):
        port = port_of(broker, 1)
        silent = [Wire(port) for _ in range(FLOOD)]
        assert all(wire.next() is None for wire in silent[:-5])

        assert broker.ask(lambda: len(broker.server.runtime.admission)) == 6
        assert broker.connect().is_in_order()  # in the place of the oldest handshake
        assert broker.connect(source=ELSEWHERE).is_in_order()
        elsewhere = TlsWire(port, source=ELSEWHERE)
        elsewhere.connect("1.2")
        assert elsewhere.is_in_order()


@pytest.mark.parametrize("run_loop", [uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def test_silent_handshake_has_one_place_and_gives_it_back(tls_listener: Listener, run_loop: Any) -> None:
    limits = Limits(max_connections_per_address=1, connect_timeout=1.5)
    listeners = [Listener("127.0.0.1", 0), tls_listener]
    with serve(limits, listeners=listeners, run_loop=run_loop) as broker, innocent(broker):
        silent = Wire(port_of(broker, 1))
        wait_until(lambda: broker.ask(lambda: len(broker.server.runtime.admission)) == 2)
        assert silent.next() is None
        wait_until(lambda: broker.ask(lambda: len(broker.server.runtime.admission)) == 1)
        alice = TlsWire(port_of(broker, 1))
        alice.connect("1.2")  # counted in its handshake, and not once more
        assert alice.is_in_order()
        assert message_of(Wire(broker.port)) == "more than 1 connections from your address"
        alice.close()
        wait_until(lambda: broker.ask(lambda: len(broker.server.runtime.admission)) == 1)


def test_peer_that_is_refused_before_its_handshake_is_counted(tls_listener: Listener) -> None:
    limits = Limits(max_connections_per_address=1)
    with serve(limits, listeners=[Listener("127.0.0.1", 0), tls_listener]) as broker:
        port = port_of(broker, 1)
        alice = TlsWire(port)
        alice.connect("1.2")
        assert alice.is_in_order()

        assert Wire(port).next() is None
        assert broker.ask(lambda: broker.server.runtime.events.counts["connection refused"]) == 1


def test_silent_handshakes_for_websockets_leave_room_for_others(tls_listener: Listener) -> None:
    listeners = [Listener("127.0.0.1", 0), replace(tls_listener, http=True)]
    limits = Limits(max_http_requests=4, connect_timeout=60)
    with serve(limits, listeners=listeners) as broker, innocent(broker):
        silent = [Wire(port_of(broker, 1)) for _ in range(FLOOD)]
        assert all(wire.next() is None for wire in silent[2:])

        elsewhere = Browser(port_of(broker, 1), source=ELSEWHERE)
        elsewhere.socket = trusting_context().wrap_socket(elsewhere.socket)
        elsewhere.ask("/stomp", UPGRADE)
        assert elsewhere.answer()[0] == 101


def test_peer_cannot_keep_us_busy_with_renegotiations(tls_listener: Listener) -> None:
    with serve(listeners=[tls_listener]) as broker:
        alice = TlsWire(broker.port)
        alice.connect("1.2")
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{broker.port}", "-tls1_2"]
        mallory = subprocess.run(command, input=b"R\nR\nR\n", capture_output=True, timeout=20, check=False)

        assert b"RENEGOTIATING" in mallory.stdout + mallory.stderr
        assert b"no renegotiation" in mallory.stderr
        assert alice.is_in_order()


# Logins


def test_guesses_of_one_address_do_not_keep_others_from_logging_in(tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text(f"[users]\n{users_line('alice', 'secret')}\n")
    authenticator = Authenticator(users=users, verifications_per_second=0.5)  # so that five may wait
    with serve(listeners=[Listener("127.0.0.1", 0, authenticator=authenticator)]) as broker:
        guesses = [Wire(broker.port) for _ in range(FLOOD)]
        for number, guess in enumerate(guesses):
            guess.say(f"CONNECT accept-version:1.2; host:h; login:alice; passcode:{number}")
        wait_until(lambda: broker.ask(lambda: len(broker.connections)) <= 6)
        alice = Wire(broker.port, source=ELSEWHERE)
        alice.say("CONNECT accept-version:1.2; host:h; login:alice; passcode:secret")

        frame = alice.next()
        assert frame is not None
        assert frame[0] == "CONNECTED"


# HTTP


def test_request_that_comes_octet_by_octet_has_no_more_time() -> None:
    listeners = [Listener("127.0.0.1", 0), Listener("127.0.0.1", 0, http=True)]
    with serve(Limits(), listeners=listeners) as broker, innocent(broker):
        broker.limit(connect_timeout=0.3)
        port = int(broker.server.urls[1].rpartition(":")[2])
        mallory = Browser(port)
        drip(mallory.socket, b"GET /stomp HTTP/1.1\r\nX-Slow: ", b"x")

        assert mallory.answer()[0] == 408


def test_slow_requests_of_one_address_leave_room_for_others() -> None:
    listeners = [Listener("127.0.0.1", 0), Listener("127.0.0.1", 0, http=True)]
    with serve(Limits(max_http_requests=4), listeners=listeners) as broker, innocent(broker):
        port = int(broker.server.urls[1].rpartition(":")[2])
        for _ in range(FLOOD):  # all but two of them are ended at once
            Browser(port).socket.sendall(b"GET")
        elsewhere = Browser(port, source=ELSEWHERE)
        elsewhere.ask("/stomp", UPGRADE)

        assert elsewhere.answer()[0] == 101


# Endless beginnings


@pytest.mark.parametrize(
    "endless",
    [b"X" * 1000, b"CONNECT\n" + b"h:v\n" * 1000, b"CONNECT\nh:" + b"v" * 10_000, b"\n" * 100_000],
    ids=["command", "headers", "header", "beats"],
)
def test_opening_without_end_is_ended_and_not_kept(endless: bytes) -> None:
    limits = Limits(max_headers=100, max_header_line_bytes=5000, connect_timeout=1.0)
    with serve(limits) as broker, innocent(broker):
        mallory = Wire(broker.port)

        def pour() -> None:
            with contextlib.suppress(OSError):
                while True:
                    mallory.send(endless)

        thread = threading.Thread(target=pour, daemon=True)
        thread.start()
        frames = mallory.rest()
        mallory.close()
        thread.join(10)

        assert not thread.is_alive()
        assert {frame[0] for frame in frames} <= {"ERROR"}  # a reset may overtake it
