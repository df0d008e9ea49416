"""STOMP over WebSocket: who is let in, what goes both ways, and how it ends."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterator

import pytest
import uvloop

from nebula.broker.core.limits import Limits
from nebula.broker.server.http import HttpListener
from tests.broker.browser import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    UPGRADE,
    Browser,
    HttpServed,
    serve_http,
    wrap,
)
from tests.broker.script import octets


@pytest.fixture(scope="module", params=[uvloop.run, asyncio.run], ids=["uvloop", "asyncio"])
def http(request: pytest.FixtureRequest) -> Iterator[HttpServed]:
    """A broker with an HTTP listener, on each kind of loop."""
    with serve_http(origins=("https://shop.example",), run_loop=request.param) as http:
        yield http


# --- who is let in ---


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ("v12.stomp, v11.stomp, v10.stomp", "v12.stomp"),
        ("v10.stomp, v11.stomp", "v11.stomp"),
        ("mqtt, v10.stomp", "v10.stomp"),
    ],
)
def test_best_version_among_the_offered_subprotocols_is_chosen(
    http: HttpServed, offered: str, chosen: str
) -> None:
    browser = Browser(http.port)

    browser.ask("/stomp?from=page", UPGRADE | {"Sec-WebSocket-Protocol": offered})

    status, headers = browser.answer()
    assert (status, headers["sec-websocket-accept"]) == (101, ACCEPT)
    assert headers["sec-websocket-protocol"] == chosen


def test_client_that_offers_no_subprotocol_is_taken_for_one_of_stomp(http: HttpServed) -> None:
    browser = Browser(http.port)

    browser.ask("/stomp", UPGRADE)

    status, headers = browser.answer()
    assert status == 101
    assert "sec-websocket-protocol" not in headers
    browser.connect()


def test_connect_settles_the_version_whatever_the_subprotocol_says(http: HttpServed) -> None:
    browser = http.browser({"Sec-WebSocket-Protocol": "v12.stomp"})

    browser.say("CONNECT accept-version:1.1; host:h")

    frame = browser.next()
    assert frame is not None
    assert frame[1]["version"] == "1.1"


def test_compression_is_not_agreed_to(http: HttpServed) -> None:
    browser = Browser(http.port)

    browser.ask("/stomp", UPGRADE | {"Sec-WebSocket-Extensions": "permessage-deflate"})

    status, headers = browser.answer()
    assert status == 101
    assert "sec-websocket-extensions" not in headers


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"Host": "h"}, 404),
        ("GET", "/stomp/", UPGRADE, 404),
        ("POST", "/stomp", UPGRADE, 405),
        ("GET", "/stomp", {"Host": "h"}, 426),
        ("GET", "/stomp", UPGRADE | {"Sec-WebSocket-Protocol": "mqtt"}, 400),
        ("GET", "/stomp", UPGRADE | {"Sec-WebSocket-Key": "short"}, 400),
        ("GET", "/stomp", UPGRADE | {"Sec-WebSocket-Version": "8"}, 400),
        ("GET", "/stomp", UPGRADE | {"Content-Length": "5"}, 400),
        ("GET", "/stomp", UPGRADE | {"Origin": "https://evil.example"}, 403),
        ("GET", "/stomp", UPGRADE | {"Origin": "null"}, 403),
        ("GET", "/stomp", {}, 400),
        ("GET", "/stomp", UPGRADE | {"Cookie": "x" * 20_000}, 431),
        ("GE T", "/stomp", UPGRADE, 400),
    ],
)
def test_what_is_no_fit_request_gets_a_status_and_the_end(
    http: HttpServed, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    browser = Browser(http.port)

    browser.ask(path, headers, method)

    assert browser.answer()[0] == status
    browser.rest()


def test_refusal_of_a_method_names_the_one_that_is_answered(http: HttpServed) -> None:
    browser = Browser(http.port)

    browser.ask("/stomp", UPGRADE, "HEAD")

    status, headers = browser.answer()
    assert (status, headers["allow"], headers["connection"]) == (405, "GET", "close")
    assert browser.rest() == b"", "a HEAD has no body in its answer"


def test_page_of_a_listed_origin_may_connect(http: HttpServed) -> None:
    browser = Browser(http.port)

    browser.ask("/stomp", UPGRADE | {"Host": "broker.example", "Origin": "https://shop.example"})

    assert browser.answer()[0] == 101


@pytest.mark.parametrize(
    ("origin", "host", "is_trusted"),
    [
        ("https://shop.example", "broker.example", True),
        ("https://SHOP.example", "broker.example", True),
        ("http://shop.example", "broker.example", False),
        ("https://shop.example:444", "broker.example", False),
        ("https://shop.example.evil.example", "broker.example", False),
        ("http://localhost:3000", "localhost:61680", True),
        ("http://127.0.0.1:3000", "127.0.0.1", True),
        ("http://[::1]:3000", "[::1]:61680", True),
        ("http://localhost", "127.0.0.1:61680", False),
        ("http://localhost.evil.example", "localhost.evil.example", False),
        # DNS rebinding: the name may point here, but it is not ours.
        ("http://evil.example:61680", "evil.example:61680", False),
        ("http://192.168.0.7", "192.168.0.7", False),
        ("null", "null", False),
        ("", "", False),
        ("http://[", "[", False),
    ],
)
def test_pages_of_listed_origins_and_of_this_machine_are_trusted(
    origin: str, host: str, *, is_trusted: bool
) -> None:
    listener = HttpListener(None, origins=["https://shop.example/"])

    assert listener.trusts(origin, host) == is_trusted


def test_second_origin_is_refused(http: HttpServed) -> None:
    browser = Browser(http.port)

    browser.ask("/stomp", UPGRADE | {"Origin": "https://shop.example", "origin": "https://evil.example"})

    assert browser.answer()[0] == 403


def test_frames_sent_before_the_upgrade_was_answered_are_refused(http: HttpServed) -> None:
    browser = Browser(http.port)
    request = "\r\n".join(["GET /stomp HTTP/1.1", *(f"{k}: {v}" for k, v in UPGRADE.items()), "", ""])

    browser.socket.sendall(request.encode() + wrap(TEXT, b"\n"))

    assert browser.answer()[0] == 400


def test_request_that_comes_octet_by_octet_is_read(http: HttpServed) -> None:
    browser = Browser(http.port)
    browser.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = "\r\n".join(["GET /stomp HTTP/1.1", *(f"{k}: {v}" for k, v in UPGRADE.items()), "", ""])

    for octet in request.encode():
        browser.socket.sendall(bytes([octet]))

    assert browser.answer()[0] == 101
    browser.connect()


def test_who_asks_nothing_in_time_is_told_so() -> None:
    with serve_http(Limits(connect_timeout=0.05)) as http:
        browser = Browser(http.port)

        assert browser.answer()[0] == 408
        browser.rest()


def test_many_who_ask_nothing_are_not_waited_for() -> None:
    with serve_http(Limits(max_http_requests=4)) as http:  # half of them from one address
        upgraded = [http.browser() for _ in range(3)]  # they have asked
        idle = [Browser(http.port) for _ in range(2)]
        third = Browser(http.port)

        assert third.rest() == b""
        idle[0].ask("/stomp", UPGRADE)
        assert idle[0].answer()[0] == 101
        for browser in [*upgraded, http.browser()]:
            browser.connect()


def test_closed_listener_ends_those_who_have_not_asked_and_no_others(http: HttpServed) -> None:
    upgraded, asking = http.browser(), Browser(http.port)
    asking.socket.sendall(b"GET /st")
    third = Browser(http.port)
    third.ask("/", {"Host": "h"})
    assert third.answer()[0] == 404  # so the broker has seen the one before, too

    http.served.ask(http.listener.close)

    assert asking.rest() == b""
    upgraded.connect()


# --- what goes both ways ---


def test_client_of_text_is_answered_in_text(http: HttpServed) -> None:
    browser = http.browser()
    browser.connect(TEXT)

    browser.say("SUBSCRIBE id:1; destination:/topic/text", "SEND destination:/topic/text | grüße")

    assert body_of(browser) == "grüße"
    assert [opcode for opcode, _ in browser.messages] == [TEXT, TEXT]


def test_client_of_octets_is_answered_in_octets(http: HttpServed) -> None:
    browser = http.browser()
    browser.connect(BINARY)

    browser.say("SUBSCRIBE id:1; destination:/topic/octets", opcode=BINARY)
    browser.say("SEND destination:/topic/octets | hello", opcode=TEXT)

    assert body_of(browser) == "hello"
    assert [opcode for opcode, _ in browser.messages] == [BINARY, BINARY], "what it used first counts"


def test_client_of_text_gets_what_is_no_text_in_octets(http: HttpServed) -> None:
    browser = http.browser()
    browser.connect(TEXT)
    browser.say("SUBSCRIBE id:1; destination:/topic/mixed")

    browser.send(BINARY, b"SEND\ndestination:/topic/mixed\ncontent-length:3\n\n\xff\x00\xfe\0")
    bodies = [body_of(browser)]
    browser.say("SEND destination:/topic/mixed | text")
    bodies.append(body_of(browser))

    assert bodies == ["\\xff\x00\\xfe", "text"]
    assert [opcode for opcode, _ in browser.messages] == [TEXT, BINARY, TEXT]


def test_frame_of_stomp_may_be_spread_over_fragments_and_messages(http: HttpServed) -> None:
    browser = http.browser()
    connect = octets("CONNECT accept-version:1.2; host:grüße")
    cut = connect.index(b"\xc3") + 1  # within a character

    browser.send(TEXT, connect[:3], fin=False)
    browser.send(PING, b"between")
    browser.send(CONTINUATION, connect[3:cut], fin=False)
    browser.send(CONTINUATION, connect[cut:-1])
    browser.send(BINARY, connect[-1:])

    assert browser.message() == (PONG, b"between")
    frame = browser.next()
    assert frame is not None
    assert frame[0] == "CONNECTED"
    assert browser.messages[0][0] == TEXT


def test_message_may_hold_many_frames_of_stomp(http: HttpServed) -> None:
    browser = http.browser()
    browser.connect()

    frames = [octets(f"SEND destination:/queue/many; receipt:{number} | x") for number in range(50)]
    browser.send(TEXT, b"".join(frames))

    receipts = [browser.next() for _ in frames]
    assert [frame[1]["receipt-id"] for frame in receipts if frame] == [str(number) for number in range(50)]


@pytest.mark.parametrize("first", [TEXT, BINARY])
def test_large_frame_arrives_whole_in_messages_that_clients_take(http: HttpServed, first: int) -> None:
    browser = http.browser()
    browser.connect(first)
    browser.say("SUBSCRIBE id:1; destination:/queue/large")
    body = "ü1" * (1024 * 1024)  # cut anywhere, it is not UTF-8 at each second place

    browser.say(f"SEND destination:/queue/large; content-length:{3 * 1024 * 1024} | {body}")

    assert browser.next_octets().partition(b"\n\n")[2] == body.encode() + b"\0\n"
    assert max(len(payload) for _, payload in browser.messages) <= 1024 * 1024


def test_upload_that_takes_many_reads_arrives_whole(http: HttpServed) -> None:
    # Each long read is followed by a pause: the broker reads on only if it asks the socket to.
    browser = http.browser()
    browser.connect(BINARY)
    body = "x" * 100_000

    browser.send(BINARY, octets(f"SEND destination:/queue/upload | {body}") * 40)
    browser.say("SEND destination:/queue/upload; receipt:last | ", opcode=BINARY)

    frame = browser.next()
    assert frame is not None
    assert (frame[0], frame[1]["receipt-id"]) == ("RECEIPT", "last")


def test_heart_beats_go_both_ways(http: HttpServed) -> None:
    browser = http.browser()
    browser.say("CONNECT accept-version:1.2; host:h; heart-beat:0,50")

    frame = browser.next()
    beat = browser.message()

    assert frame is not None
    assert frame[0] == "CONNECTED"
    assert beat == (TEXT, b"\n")


# --- how it ends ---


def test_close_of_the_client_is_answered_and_ends_the_connection(http: HttpServed) -> None:
    browser = http.browser()
    browser.connect()

    browser.send(CLOSE, struct.pack("!H", 1000) + b"bye")

    assert browser.message() == (CLOSE, struct.pack("!H", 1000) + b"bye")
    assert browser.message() is None


def test_what_came_before_the_close_counts(http: HttpServed) -> None:
    reader, writer = http.browser(), http.browser()
    reader.connect()
    reader.say("SUBSCRIBE id:1; destination:/queue/before; ack:auto")
    last = octets("CONNECT accept-version:1.2; host:h") + octets(
        "SEND destination:/queue/before | last words"
    )

    writer.socket.sendall(wrap(TEXT, last) + wrap(CLOSE, b""))

    assert body_of(reader) == "last words"


def test_disconnect_is_confirmed_before_the_close(http: HttpServed) -> None:
    browser = http.browser()
    browser.connect()

    browser.say("DISCONNECT receipt:bye")

    assert browser.next() == ("RECEIPT", {"receipt-id": "bye"})
    assert browser.close_code() == 1000
    browser.send(CLOSE, struct.pack("!H", 1000))
    assert browser.rest() == b""


def test_error_is_told_before_the_close(http: HttpServed) -> None:
    browser = http.browser()

    browser.say("NONSENSE")

    frame = browser.next()
    assert frame is not None
    assert frame[0] == "ERROR"
    assert browser.close_code() == 1000


@pytest.mark.parametrize("is_reset", [False, True], ids=["end", "reset"])
def test_lost_client_gives_back_what_it_had_not_acked(http: HttpServed, *, is_reset: bool) -> None:
    lost, other = http.browser(), http.browser()
    queue = f"/queue/lost.{is_reset}"
    lost.connect()
    lost.say(f"SUBSCRIBE id:1; destination:{queue}; ack:client", f"SEND destination:{queue} | job")
    assert body_of(lost) == "job"
    other.connect()
    other.say(f"SUBSCRIBE id:1; destination:{queue}; ack:client")

    if is_reset:
        lost.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    lost.socket.close()

    frame = other.next()
    assert frame is not None
    assert frame[1]["redelivered"] == "true"


_TOO_BIG = bytes([0x82, 0x80 | 127]) + struct.pack("!Q", 1 << 40) + b"mask"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (wrap(TEXT, b"\n", mask=False), 1002),
        (wrap(CONTINUATION, b"\n"), 1002),
        (wrap(TEXT, b"\n", fin=False) + wrap(TEXT, b"\n"), 1002),
        (wrap(3, b"\n"), 1002),
        (wrap(PING, b"x" * 126), 1002),
        (wrap(PING, b"x", fin=False), 1002),
        (wrap(CLOSE, b"x"), 1002),
        (b"\xc1" + wrap(TEXT, b"\n")[1:], 1002),
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
        (wrap(TEXT, b"\xff"), 1007),
        (wrap(TEXT, b"\xc3"), 1007),
        (wrap(CLOSE, struct.pack("!H", 1000) + b"\xff"), 1007),
        (_TOO_BIG, 1009),
    ],
)
def test_what_breaks_the_websocket_ends_it_with_a_code(http: HttpServed, sent: bytes, code: int) -> None:
    browser = http.browser()
    browser.connect()

    browser.socket.sendall(sent)

    assert browser.close_code() == code
    assert browser.rest() == b""


def test_little_is_taken_of_a_message_before_the_client_has_connected(http: HttpServed) -> None:
    browser = http.browser()
    message = wrap(BINARY, octets("CONNECT accept-version:1.2; host:h") + b"\n" * 4_000_000)

    browser.socket.sendall(message[:400_000])

    assert browser.close_code() == 1009


def test_message_as_large_is_taken_of_one_who_has_connected(http: HttpServed) -> None:
    browser = http.browser()
    browser.connect()

    browser.send(BINARY, b"\n" * 4_000_000 + octets("SEND destination:/queue/after; receipt:1 | "))

    assert browser.next() is not None


def test_broken_connections_are_counted_out() -> None:
    with serve_http() as http:
        for sent in (wrap(TEXT, b"\xff"), wrap(TEXT, b"\n", mask=False), _TOO_BIG, wrap(CLOSE, b"")):
            browser = http.browser()
            browser.connect()
            browser.socket.sendall(sent)
            browser.close_code()
            browser.socket.close()
        stays = http.browser()
        stays.connect()

        while http.connections() > 1:  # the socket's end may be under way
            stays.say("SEND destination:/queue/none; receipt:1 | ")
            stays.next()


def test_stopped_broker_tells_its_clients_why() -> None:
    with serve_http() as http:
        browser = http.browser()
        browser.connect()

        http.served.stop()

        frame = browser.next()
        assert frame is not None
        assert (frame[0], frame[1]["message"]) == ("ERROR", "the broker is shutting down")
        assert browser.close_code() == 1000


def body_of(browser: Browser) -> str:
    """The body of the MESSAGE that comes next."""
    frame = browser.next()
    assert frame is not None
    assert frame[0] == "MESSAGE"
    return str(frame[-1])
