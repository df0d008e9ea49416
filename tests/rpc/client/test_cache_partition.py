"""Cache partitions: which clients count as the same for the same broker."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from nebula.errors import SettingsError
from nebula.rpc.client.cache_partition import cache_partition_of
from nebula.stomp.client.tls import TlsOptions

A = "stomp://alice:secret@a.example"


def token(subject: str, number: int) -> str:
    """An unsigned JWT."""
    claims = base64.urlsafe_b64encode(json.dumps({"sub": subject, "n": number}).encode()).decode()
    return f"e30.{claims.rstrip('=')}.x"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([A], ["stomp://alice:other@a.example:61613"]),
        ([A, "stomp://b.example"], ["stomp://b.example", A]),
        ([f"stomp://x:{token('alice', 1)}@a"], [f"stomp://x:{token('alice', 2)}@a"]),
        (["stomp://127.0.0.1"], [None]),
    ],
)
def test_same_principal_of_the_same_broker_is_one(one: list[str], other: list[str]) -> None:
    assert cache_partition_of(one, None) == cache_partition_of(other, None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([A], ["stomp://bob:secret@a.example"]),
        ([A], ["stomp://a.example"]),
        ([A], ["stomp://alice:secret@b.example"]),
        ([A], ["stomp://alice:secret@a.example:61614"]),
        ([A], ["stomp://alice:secret@a.example/staging"]),
        ([A], [A, "stomp://b.example"]),
        ([f"stomp://x:{token('alice', 1)}@a"], [f"stomp://x:{token('bob', 1)}@a"]),
        (["memory://a"], ["stomp://a"]),
    ],
)
def test_other_principals_and_brokers_are_others(one: list[str], other: list[str]) -> None:
    assert cache_partition_of(one, None) != cache_partition_of(other, None)


@pytest.mark.parametrize("url", ["stomp://127.0.0.1", "ws://localhost", "stomp://[::1]", "memory://a"])
def test_address_of_this_machine_is_another_one_on_another(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = cache_partition_of([url], None), cache_partition_of([A], None)
    monkeypatch.setattr("socket.gethostname", lambda: "another")

    assert cache_partition_of([url], None) != here[0]
    assert cache_partition_of([A], None) == here[1]


@pytest.mark.parametrize("passcode", ["a.b.c", "", "..", "a.W10.c", "a.e30.c", "é.ü.ö"])
def test_passcode_that_is_no_token_says_nothing(passcode: str) -> None:
    assert cache_partition_of([f"stomp://alice:{passcode}@a.example"], None) == cache_partition_of([A], None)


def test_certificate_identifies_the_client_that_shows_it(tmp_path: Path) -> None:
    certificates = [tmp_path / name for name in ("alice.pem", "bob.pem")]
    for one in certificates:
        one.write_text(one.name)
    alice, bob = (TlsOptions(cert=one) for one in certificates)

    assert cache_partition_of(["stomps://a"], alice) != cache_partition_of(["stomps://a"], bob)
    assert cache_partition_of(["stomp://a"], alice) == cache_partition_of(["stomp://a"], bob)
    with pytest.raises(SettingsError, match=r"nobody\.pem"):
        cache_partition_of(["stomps://a"], TlsOptions(cert=tmp_path / "nobody.pem"))
