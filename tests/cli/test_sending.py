"""`nebula send` and `nebula pub`, as a shell sees them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from nebula import sync
from tests.cli.programs import DEADLINE, NEBULA, environment

Ask = Callable[..., CompletedProcess[str]]


def taken(url: str, destination: str) -> tuple[str, bytes, dict[str, str]]:
    """The first message that waits there."""
    with (
        sync.Client(url) as client,
        client.subscribe(destination, eager=destination.startswith("X/")) as found,
    ):
        message = next(iter(found))
        return message.headers["content-type"], message.body, dict(message.headers)


@pytest.mark.parametrize(
    ("body", "kind"),
    [('{"n": 1}', "application/json"), ("hello", "text/plain"), ("", "text/plain")],
)
def test_published_message_waits_in_its_queue(ask: Ask, url: str, body: str, kind: str) -> None:
    done = ask("pub", "/queue/pub.a", body, "-H", "color:red")

    assert json.loads(done.stdout) == {"destination": "/queue/pub.a", "bytes": len(body)}
    content_type, data, headers = taken(url, "/queue/pub.a")
    assert (content_type, data.decode(), headers["color"]) == (kind, body, "red")


def test_file_and_stdin_are_sent_as_they_are(ask: Ask, url: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\xff\x00")
    assert ask("pub", "/queue/pub.b", "-f", str(tmp_path / "data")).returncode == 0
    assert taken(url, "/queue/pub.b")[:2] == ("application/octet-stream", b"\xff\x00")

    words = [*NEBULA, "pub", "X/pub.c", "-", "--content-type", "text/csv"]
    told = environment({"NEBULA_BROKER": url})
    subprocess.run(words, env=told, input=b"a,b\n", timeout=DEADLINE, check=True, capture_output=True)
    assert taken(url, "X/pub.c")[:2] == ("text/csv", b"a,b\n")


def test_two_bodies_and_a_header_without_a_value_are_wrong_usage(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "body").touch()

    both = ask("pub", "/queue/pub.d", "x", "-f", str(tmp_path / "body"))
    assert both.returncode == 2
    assert "not both" in both.stderr
    assert ask("pub", "/queue/pub.d", "x", "-H", "nothing").returncode == 2
    folder = ask("pub", "/queue/pub.d", "-f", str(tmp_path))
    assert (folder.returncode, "Traceback" in folder.stderr) == (2, False)
    assert "is a directory" in folder.stderr


def test_refused_message_ends_with_the_status_of_what_was_not_reached(ask: Ask) -> None:
    done = ask("pub", "/queue/nebula.inbox.nobody", "x")

    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_sent_request_is_run_and_not_answered(ask: Ask, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    done = ask("send", "shop", "nap", "seconds:=0", f"begun={begun}")

    assert json.loads(done.stdout) == {"service": "shop", "verb": "nap"}
    # Answered after what was sent before it, as there is one connection to the service.
    while not begun.exists():
        assert ask("call", "shop", "price", "item=cup").returncode == 0


def test_request_waits_for_a_service_that_is_away(ask: Ask, url: str) -> None:
    assert ask("send", "away", "remind", "customer:=7", "--expires-in", "600").returncode == 0

    content_type, body, headers = taken(url, "/queue/away")
    assert content_type == "application/json"
    assert json.loads(body)["verb"] == "remind"
    assert headers["neb-no-reply"] == "true"
