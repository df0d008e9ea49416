"""Broker addresses: what they say, and what is said of those that cannot be used."""

from __future__ import annotations

import pytest

from nebula.errors import SettingsError
from nebula.stomp.client.addresses import Address, parse_address
from nebula.stomp.client.ambient import broker_address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("stomp://broker", Address("broker", 61613)),
        ("stomp://broker:1234", Address("broker", 1234)),
        ("stomp://broker:1234/", Address("broker", 1234)),
        ("STOMP://broker", Address("broker", 61613)),
        ("stomp://127.0.0.1:61613", Address("127.0.0.1", 61613)),
        ("stomp://[::1]:61613", Address("::1", 61613)),
        ("stomp://me@broker", Address("broker", 61613, login="me")),
        ("stomp://me:secret@broker", Address("broker", 61613, login="me", passcode="secret")),
        ("stomp://m%40e:s%3A%2F%40@broker", Address("broker", 61613, login="m@e", passcode="s:/@")),
        ("stomp://broker/orders", Address("broker", 61613, virtual_host="orders")),
        ("stomps://broker", Address("broker", 61614, is_tls=True)),
        ("stomps://me@broker:7/v", Address("broker", 7, login="me", virtual_host="v", is_tls=True)),
        ("stomp://broker/%2F", Address("broker", 61613, virtual_host="/")),
        ("ws://broker", Address("broker", 80, path="/stomp")),
        ("ws://broker:61680/", Address("broker", 61680, path="/stomp")),
        ("ws://me:secret@broker/ws", Address("broker", 80, login="me", passcode="secret", path="/ws")),
        ("wss://broker/a%2Fb/ü", Address("broker", 443, is_tls=True, path="/a%2Fb/%C3%BC")),
        ("memory://broker", Address("broker", 0, is_memory=True)),
        ("memory://ada@Broker", Address("broker", 0, login="ada", is_memory=True)),
    ],
)
def test_address_names_host_port_login_and_virtual_host(url: str, address: Address) -> None:
    assert parse_address(url) == address


def test_default_is_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEBULA_BROKER", raising=False)

    assert broker_address() == Address("127.0.0.1", 61613)


def test_environment_names_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULA_BROKER", "stomp://elsewhere:7")

    assert broker_address() == Address("elsewhere", 7)
    assert broker_address("stomp://here") == Address("here", 61613)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "not a scheme"),
        ("broker", "not a scheme"),
        ("broker:61613", "not a scheme"),
        ("http://broker", "'http' is not a scheme"),
        ("stomp:", "no host"),
        ("memory://", "no host"),
        ("memory://broker:61613", "a name and no port"),
        ("stomp://", "no host"),
        ("stomp://:61613", "no host"),
        ("stomp://broker:port", "cannot be read"),
        ("stomp://broker:99999", "cannot be read"),
        ("stomp://broker:0", "port 0"),
        ("stomp://[::1", "cannot be read"),
        ("stomp://bro ker", "blank"),
        ("stomp://broker\n", "blank"),
        ("stomp://broker?a=b", "query"),
        ("stomp://broker#a", "fragment"),
    ],
)
def test_address_that_cannot_be_used_says_what_is_wrong_and_what_is_right(url: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        parse_address(url)

    assert "for example stomp://127.0.0.1:61613" in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://me:secret@broker", "stomp://me:secret@bro\u2100ker", "stomp://me:secret@broker:x"]
)
def test_passcode_never_appears_in_an_error(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_address(url)

    assert "secret" not in str(caught.value)


def test_passcode_never_appears_in_a_repr() -> None:
    assert "secret" not in repr(parse_address("stomp://me:secret@broker"))


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("stomp://me:secret@broker", "broker:61613"),
        ("wss://broker/stomp", "broker:443"),
        ("memory://ada@broker", "memory://broker"),
    ],
)
def test_place_is_for_people_and_shows_no_login(url: str, place: str) -> None:
    assert parse_address(url).place == place
