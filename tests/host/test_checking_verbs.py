"""`broker.machine` and `rights.check`: what a broker reports about its machine and its grants."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nebula.broker.core.limits import Limits
from nebula.broker.server.authenticator import users_line
from nebula.errors import RemoteError
from nebula.sync import Client
from tests.cli.programs import running

RIGHTS = """
[capability.Operate]
call = ["*", "dlq.*"]
publish = ["/queue/**"]

[capability.Own]
publish = ["X/places.{identity}.*", "X/rooms.{identity}"]
subscribe = ["/queue/exact", "/queue/missing", "/topic/none.*"]

[capability.Guest]
call = ["broker.status", "queue.nothing"]

[capability.Spare]
subscribe = ["/queue/**"]

[identity]
ops = ["Operate", "Own"]
anonymous = ["Guest"]
"""
SETTINGS = """
rights = ["rights.toml"]

[[listener]]
port = 0
anonymous = true

[identity]
users = "users.toml"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    (folder / "nebula.toml").write_text(SETTINGS)
    (folder / "rights.toml").write_text(RIGHTS)
    lines = "".join(f"{users_line(name, 'secret')}\n" for name in ("ops", "idle"))
    (folder / "users.toml").write_text(f"[users]\n{lines}")
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with running("broker", "--data", "data", cwd=folder) as (_, line):
        yield line["url"]


@pytest.fixture
def ops(url: str) -> Iterator[Client]:
    with Client(url.replace("://", "://ops:secret@")) as client:
        yield client


def ask(client: Client, verb: str) -> Any:
    return client.call("nebula.broker", verb, {}, timeout=20)


def test_grants_are_compared_with_verbs_and_with_destinations_that_exist(ops: Client) -> None:
    ops.publish("/queue/exact", 1)
    ops.publish("X/places.ops.bar", 1)

    told = ask(ops, "rights.check")

    assert (told["is_open"], told["capabilities"], told["identities"]) == (False, 4, 2)
    assert told["unused_capabilities"] == ["Spare"]
    assert told["unknown_verbs"] == ["Guest: queue.nothing"]
    # `{identity}` stands for any principal. Spare has a glob that matches, although no principal has it.
    unmatched = ["Own: X/rooms.{identity}", "Own: /queue/missing", "Own: /topic/none.*"]
    assert told["unmatched"] == unmatched
    assert told["anonymous_verbs"] == ["broker.status"]


def test_users_without_a_capability_are_named_and_hosted_services_are_not(ops: Client) -> None:
    assert ask(ops, "rights.check")["without_rights"] == ["idle"]


def test_machine_is_reported_without_paths(ops: Client, folder: Path) -> None:
    before = time.time()
    told = ask(ops, "broker.machine")

    assert before - 1 <= told["time"] <= time.time() + 1
    assert told["wanted_files"] > Limits().max_connections
    assert told["counted_bytes"] == Limits().max_memory_bytes + Limits().max_transit_bytes
    assert told["dead_letter"] == "/queue/DLQ"
    assert told["store"]["free_bytes"] > 0
    assert told["stale_files"] == []
    assert str(folder) not in str(told)


def test_listeners_are_reported_with_their_addresses(ops: Client, url: str) -> None:
    (listener,) = ask(ops, "broker.machine")["listeners"]

    assert listener == {
        "url": url,
        "is_loopback": True,
        "is_anonymous": True,
        "certificate_ends_at": None,
        "client_ca_ends_at": None,
    }


@pytest.mark.parametrize("verb", ["broker.machine", "rights.check"])
def test_each_verb_needs_its_right(url: str, verb: str) -> None:
    with Client(url) as guest, pytest.raises(RemoteError, match="not-allowed"):
        ask(guest, verb)


def test_file_that_is_gone_counts_as_changed(ops: Client, folder: Path) -> None:
    users = (folder / "users.toml").read_text()
    (folder / "users.toml").unlink()
    try:
        assert ask(ops, "broker.machine")["stale_files"] == ["[identity] users"]
    finally:
        (folder / "users.toml").write_text(users)
