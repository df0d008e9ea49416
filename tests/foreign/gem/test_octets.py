"""The double says what the gem says, octet by octet, and fails where the gem fails (C.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.foreign.gem.double import SESSION, Gem, Raised, Recorder, header, playing, recording
from tests.foreign.install import install_package
from tests.rpc import gem as octets

# The first one waits for the stomp gem to be installed.
pytestmark = [pytest.mark.foreign, pytest.mark.timeout(300)]

_TARGET = {"name": "shop", "sendQueue": "/queue/out", "receiveQueue": "/queue/in"}
_PING = {"verb": "ping", "params": {"a": 1}}
_BODY = '{"verb":"ping","parameters":{"a":1}}'
_SUCCESS = '{"verb":"success","parameters":[],"description":""}'
_CONNECTED = f"CONNECTED\nsession:{SESSION}\n\n\0"


@pytest.fixture(scope="module", autouse=True)
def _stomp_gem() -> None:
    install_package("ruby-stomp")


@pytest.fixture(scope="module")
def gem() -> Iterator[Gem]:
    with playing() as one:
        yield one


def message(number: int, body: str, headers: str = "") -> str:
    """A MESSAGE of the recording broker."""
    return (
        f"MESSAGE\nmessage-id:m{number}\nack:a{number}\ndestination:/queue/x\n{headers}"
        f"content-length:{len(body.encode())}\n\n{body}\0"
    )


class Answering:
    """The recording broker's part: CONNECTED, the boo, a stranger's answer, the gem's own.

    Args:
        body: of the answer; with `headers`.
        connected: what CONNECT is answered with.
    """

    def __init__(
        self,
        body: str = _SUCCESS,
        headers: str = "content-type:application/json\n",
        connected: str = _CONNECTED,
    ) -> None:
        self._answer = (body, headers)
        self._connected = connected
        self._reply_id = ""

    def __call__(self, command: str, frame: str) -> str:
        if command == "CONNECT":
            return self._connected
        if command == "SEND" and "\nneb-reply-id:" in frame:
            self._reply_id = header(frame, "neb-reply-id")
        if command != "SUBSCRIBE":
            return ""
        body, headers = self._answer
        stranger = message(1, _SUCCESS, "neb-in-reply-to:somebody\n")
        return message(0, "boo") + stranger + message(2, body, f"neb-in-reply-to:{self._reply_id}\n{headers}")


def ask(gem: Gem, recorder: Recorder, **words: Any) -> Any:
    words = {"target": _TARGET, "message": _PING} | words
    return gem.do("ask", port=recorder.port, **words)


def without_times(octets: bytes) -> str:
    """What was recorded, with the time of C.4 in place of the gem's own."""
    return re.sub(rf"({SESSION})_\d+\.\d+", r"\1_1795165882.3711545", octets.decode())


def test_requester_says_octet_by_octet_what_the_gem_says(gem: Gem) -> None:
    with recording(Answering()) as recorder:
        answer = ask(gem, recorder)

    assert answer["verb"] == "success"
    assert without_times(recorder.octets) == "".join(
        (
            octets.CONNECT,
            octets.REQUEST.format(
                content_type="application/json",
                session=SESSION,
                replies="/queue/out",
                queue="/queue/in",
                length=36,
                body=_BODY,
            ),
            octets.BOO.format(queue="/queue/out"),
            octets.SUBSCRIBE.format(queue="/queue/out"),
            octets.ACK.format(message_id="m0"),
            octets.ACK.format(message_id="m2"),
            octets.UNSUBSCRIBE.format(queue="/queue/out"),
            octets.DISCONNECT,
        )
    )


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_requester_of_a_later_version_names_its_subscription(gem: Gem, version: str) -> None:
    connected = f"CONNECTED\nsession:{SESSION}\nversion:{version}\n\n\0"
    with recording(Answering(connected=connected)) as recorder:
        ask(gem, recorder, connect_headers={"accept-version": version, "host": "localhost"})

    frames = recorder.frames()
    ids = header(frames[3], "id")
    ack = octets.ACK_1_1 if version == "1.1" else octets.ACK_1_2
    assert frames[0] == octets.CONNECT_SINCE_1_1.format(version=version)
    assert 0 <= int(ids) <= 9999
    assert frames[3:] == [
        octets.SUBSCRIBE_SINCE_1_1.format(queue="/queue/out", id=ids),
        ack.format(id=ids, message_id="m0", ack="a0"),
        ack.format(id=ids, message_id="m2", ack="a2"),
        octets.UNSUBSCRIBE_SINCE_1_1.format(queue="/queue/out", id=ids),
        octets.DISCONNECT,
    ]


class Requesting:
    """The recording broker's part towards a listener: the boo, and one request."""

    def __init__(self, body: str, headers: str) -> None:
        self._request = message(1, body, headers)

    def __call__(self, command: str, frame: str) -> str:
        if command == "CONNECT":
            return _CONNECTED
        return message(0, "boo") + self._request if command == "SUBSCRIBE" else ""


_ASKED = "neb-reply-to:/queue/out\nneb-reply-id:R1\n"


def heard(request: Callable[[str, str], str], *, frames: int) -> list[str]:
    """What a listener says to so many frames of its own; its program ends then."""
    with recording(request) as recorder, playing() as gem:
        gem.do("listen", port=recorder.port, queue="/queue/in")
        recorder.wait_for(frames)
    return recorder.frames()


@pytest.mark.parametrize(
    ("content_type", "body", "answer"),
    [
        ("application/json", _BODY, _SUCCESS),
        ("text/plain", "verb: ping\n\n", "verb: success\nparameters: []\ndescription: \n\n"),
        (
            "application/json",
            '{"verb":"fail"}',
            '{"verb":"error","parameters":["a","b"],"description":"it failed"}',
        ),
        (
            "text/plain",
            "verb: fail\n",
            'verb: error\nparameters: ["a", "b"]\ndescription: it failed\n\n',
        ),
        ("application/json", '{"verb":"free","params":"x"}', '"x"'),
        ("text/plain", "verb: free\nparams: x\n\n", "x"),
    ],
)
def test_listener_says_octet_by_octet_what_the_gem_says(content_type: str, body: str, answer: str) -> None:
    said = heard(Requesting(body, f"content-type:{content_type}\n{_ASKED}"), frames=6)

    assert said == [
        octets.CONNECT,
        octets.BOO.format(queue="/queue/in"),
        octets.SUBSCRIBE.format(queue="/queue/in"),
        octets.ACK.format(message_id="m0"),
        octets.ACK.format(message_id="m1"),
        octets.REPLY.format(
            content_type=content_type,
            reply_id="R1",
            reply_to="/queue/out",
            length=len(answer),
            body=answer,
        ),
    ]


@pytest.mark.parametrize("asked", ["neb-reply-id:R1\n", "neb-reply-to:/queue/out\n"])
def test_listener_cannot_answer_without_queue_or_id_and_has_acked_all_the_same(asked: str) -> None:
    said = heard(Requesting(_BODY, f"content-type:application/json\n{asked}"), frames=5)

    assert said[4:] == [octets.ACK.format(message_id="m1")]


def test_request_whose_body_is_boo_is_lost_to_a_listener() -> None:
    said = heard(Requesting("boo", _ASKED), frames=5)

    assert said[3:] == [octets.ACK.format(message_id=f"m{number}") for number in (0, 1)]


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_listener_of_a_later_version_dies_without_a_word(version: str) -> None:
    def answer(command: str, frame: str) -> str:
        return f"CONNECTED\nsession:{SESSION}\nversion:{version}\n\n\0" if command == "CONNECT" else ""

    headers = {"accept-version": version, "host": "localhost"}
    with recording(answer) as recorder, playing() as gem:
        is_alive = gem.do("listen", port=recorder.port, queue="/queue/in", connect_headers=headers, watch=20)

    assert not is_alive
    assert [frame.partition("\n")[0] for frame in recorder.frames()] == ["CONNECT", "SEND"]


def test_second_reply_id_of_a_connection_grows_out_of_the_first(gem: Gem) -> None:
    with recording(Answering()) as recorder:
        first, second = gem.do("reply ids", port=recorder.port, count=2)

    assert re.fullmatch(rf"{SESSION}_\d+\.\d+", first)
    assert re.fullmatch(rf"{first}_\d+\.\d+", second)


@pytest.mark.parametrize(
    ("connected", "kind", "text"),
    [
        ("CONNECTED\nversion:1.2\n\n\0", "NoMethodError", ""),
        (
            "ERROR\nmessage:no\n\nwho are you?\0",
            "NebulousStomp::ConnectionError",
            "Connect Error: who are you?",
        ),
    ],
    ids=["without a session", "an ERROR"],
)
def test_requester_fails_on_such_an_answer_to_connect(gem: Gem, connected: str, kind: str, text: str) -> None:
    with recording(Answering(connected=connected)) as recorder, pytest.raises(Raised) as caught:
        ask(gem, recorder)

    assert caught.value.kind == kind
    assert text in str(caught.value)


def test_requester_that_wants_beats_fails_where_connected_has_none(gem: Gem) -> None:
    connected = f"CONNECTED\nsession:{SESSION}\nversion:1.2\n\n\0"
    headers = {"accept-version": "1.2", "host": "localhost", "heart-beat": "1000,1000"}
    with recording(Answering(connected=connected), hangs_up=True) as recorder, pytest.raises(Raised):
        ask(gem, recorder, connect_headers=headers)


def test_nobody_listening_is_a_connection_error(gem: Gem, free_port: int) -> None:
    with pytest.raises(Raised) as caught:
        gem.do("ask", port=free_port, target=_TARGET, message=_PING)

    assert caught.value.kind == "NebulousStomp::ConnectionError"


def test_requester_gives_up_after_its_time_and_takes_its_leave(gem: Gem) -> None:
    def answer(command: str, frame: str) -> str:
        return _CONNECTED if command == "CONNECT" else ""

    with recording(answer) as recorder, pytest.raises(Raised) as caught:
        ask(gem, recorder, timeout=0.1)

    assert caught.value.kind == "NebulousStomp::NebulousTimeout"
    assert recorder.frames()[-2:] == [octets.UNSUBSCRIBE.format(queue="/queue/out"), octets.DISCONNECT]


@pytest.mark.parametrize(
    ("target", "message", "kind"),
    [
        (_TARGET | {"timeout": 1}, _PING, "ArgumentError"),
        (_TARGET, {"body": "no verb"}, "ArgumentError"),
    ],
)
def test_misuse_is_an_argument_error(gem: Gem, target: Any, message: Any, kind: str) -> None:
    with pytest.raises(Raised) as caught:
        gem.do("ask", port=1, target=target, message=message)

    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("application/json", '{"verb":"a","params":1,"desc":"d"}', {"verb": "a", "params": 1, "desc": "d"}),
        ("application/hal+json", '{"verb":7}', {"verb": 7}),
        ("JSON", '{"verb":""}', {"verb": "", "body": None}),
        ("application/json", '{"verb":null,"parameters":1}', {"verb": None, "params": None}),
        ("application/json;charset=utf-8", _SUCCESS, {"verb": None}),
        ("application/json", "[1,2]", {"verb": None, "body": [1, 2]}),
        ("application/json", "false", {"verb": None, "body": None}),
        ("application/json", "not JSON", {"verb": None, "body": "not JSON"}),
        ("application/json", '{"verb":"é"}', {"verb": "Ã©"}),
        ("application/json", '{"verb":"\\u00e9"}', {"verb": "é"}),
        (
            "text/plain",
            "verb: ping\r\nparameters: a b\r\ndescription: hello: world\r\n\r\n",
            {"verb": "ping", "params": "a b", "desc": "hello: world"},
        ),
        ("text/plain", "verb: ping\nhello\n", {"verb": None, "body": "verb: ping\nhello\n"}),
        ("text/plain", "verb: ping\nverb: pong\n", {"verb": None, "body": "verb: ping\nverb: pong\n"}),
        ("text/plain", "http://example.com/x", {"verb": None, "body": {"http": "//example.com/x"}}),
        ("text/plain", "\n\n", {"verb": None, "body": {}}),
        ("text/plain", "verb:\n", {"verb": ""}),
    ],
)
def test_requester_reads_an_answer_as_the_gem_does(
    gem: Gem, content_type: str, body: str, expected: dict[str, Any]
) -> None:
    with recording(Answering(body, f"content-type:{content_type}\n")) as recorder:
        answer = ask(gem, recorder)

    assert expected.items() <= answer.items()


def test_cached_answer_is_asked_for_once_whatever_the_target_even_if_it_is_an_error(gem: Gem) -> None:
    wanted = {"message": {"verb": "cached"}, "cached": True}
    with recording(Answering('{"verb":"error","description":"é"}')) as recorder:
        first = ask(gem, recorder, clear=True, **wanted)
    # Nobody is there any more who could answer.
    second = ask(gem, recorder, **wanted | {"target": _TARGET | {"receiveQueue": "/queue/other"}})

    assert first["verb"] == second["verb"] == "error"


def test_empty_entry_of_the_cache_is_an_argument_error(gem: Gem) -> None:
    gem.do("spoil", key='{"verb":"spoilt"}')

    with pytest.raises(Raised) as caught:
        gem.do("ask", port=1, target=_TARGET, message={"verb": "spoilt"}, cached=True)

    assert caught.value.kind == "ArgumentError"
