"""`nebula sub`, as a shell sees it."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest

from nebula import sync
from nebula.cli.sub import facts_of, line_of
from nebula.stomp.client import Message
from tests.cli.programs import DEADLINE, nebula, running


def send(url: str, destination: str, body: Any, **headers: str) -> None:
    with sync.Client(url) as client:
        client.publish(destination, body, headers=headers)


def test_values_that_are_there_come_first_and_changes_follow(url: str) -> None:
    send(url, "X/sub.a", {"n": 1})
    with running("sub", "X/sub.*", "--eager", "--ack", env={"NEBULA_BROKER": url}) as (process, first):
        send(url, "X/sub.b", b"\xff\0")
        send(url, "X/sub.a", b"")
        assert process.stdout is not None
        second, third = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)

        assert process.wait(DEADLINE) == 130
    assert (first["destination"], first["body"]) == ("X/sub.a", '{"n":1}')
    assert first["headers"]["content-type"] == "application/json"
    assert (second["destination"], second["body_base64"]) == ("X/sub.b", "/wA=")
    assert (third["destination"], third["deleted"], third["body"]) == ("X/sub.a", True, "")


def test_durable_reader_goes_on_where_it_left(url: str) -> None:
    words = ("sub", "X/sub.news", "--durable", "reader", "--client-id", "sub-test")
    environment = {"NEBULA_BROKER": url}
    send(url, "X/sub.news", "old")
    with running(*words, "--eager", env=environment) as (process, old):
        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE)
    send(url, "X/sub.news", "missed")
    with running(*words, env=environment) as (_, missed):
        pass

    assert (old["body"], missed["body"]) == ('"old"', '"missed"')


@pytest.mark.parametrize("words", [("--durable", "reader"), ("--client-id", "me")])
def test_durable_name_needs_its_session(url: str, words: tuple[str, ...]) -> None:
    ended = nebula("sub", "X/a", *words, env={"NEBULA_BROKER": url})

    assert ended.returncode == 2
    assert "go together" in ended.stderr


def test_refused_subscription_exits_3(url: str) -> None:
    ended = nebula("sub", "/queue/nebula.secret", env={"NEBULA_BROKER": url})

    assert ended.returncode == 3
    assert "ignored" in ended.stderr


def shown(destination: str, body: bytes) -> tuple[str, dict[str, Any]]:
    headers = {"destination": destination, "message-id": "1"}
    listener: Any = None  # It is not ACKed.
    message = Message(headers, body, listener)
    return line_of(message), facts_of(message)


@pytest.mark.parametrize(
    ("destination", "body", "line"),
    [
        ("X/a", b"", "X/a  (deleted)"),
        ("/queue/a", b"", "/queue/a  "),
        ("/queue/a", b"one\ntwo", '/queue/a  "one\\ntwo"'),
        ("/queue/a", b"\x1b[31mred", "/queue/a  (8 bytes)"),
        ("/queue/\x1b[31m", b"caf\xc3\xa9", '"/queue/\\u001b[31m"  café'),
    ],
)
def test_people_see_one_line_that_does_nothing_to_their_terminal(
    destination: str, body: bytes, line: str
) -> None:
    assert shown(destination, body)[0] == line


def test_programs_see_text_as_it_is_and_bytes_as_base64() -> None:
    assert shown("/queue/a", b"one\ntwo")[1]["body"] == "one\ntwo"
    assert shown("/queue/a", b"\x1b[31m")[1]["body_base64"] == "G1szMW0="
    assert "deleted" not in shown("/queue/a", b"")[1]
