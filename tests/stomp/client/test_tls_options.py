"""TLS options of clients: combinations that check nothing, mistakes in files, the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.broker.operations.certificates import make_authority
from nebula.errors import SettingsError
from nebula.stomp.client import StompClient
from nebula.stomp.client.tls import TlsOptions

URL = "stomps://127.0.0.1:1"


def test_host_is_not_looked_at_only_with_a_ca_or_a_pin() -> None:
    with pytest.raises(SettingsError, match="any public certificate would be trusted: name your own CA"):
        TlsOptions(verify_host=False)

    assert not TlsOptions(verify_host=False, ca=Path("ca.pem")).verify_host
    assert not TlsOptions(verify_host=False, pin="0" * 64).verify_host


def test_key_needs_its_certificate() -> None:
    with pytest.raises(SettingsError, match="a key without its certificate"):
        TlsOptions(key=Path("till.key"))


@pytest.mark.parametrize("pin", ["", "0" * 40, "0" * 63 + "g"])
def test_pin_is_a_sha_256(pin: str) -> None:
    with pytest.raises(SettingsError, match=f"pin {pin!r} is not a SHA-256 fingerprint of 64 hex digits"):
        TlsOptions(pin=pin)


@pytest.mark.parametrize("scheme", ["stomp", "ws"])
def test_options_for_an_address_without_tls_are_a_mistake(scheme: str) -> None:
    with pytest.raises(SettingsError, match=f"TLS options have no effect there; write {scheme}s://"):
        StompClient(f"{scheme}://127.0.0.1", tls=TlsOptions(pin="0" * 64))


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    till = make_authority("site", days=1).issue_client("till-1", days=1)
    cert, key = till.write(tmp_path, "till-1")
    other, _ = make_authority("other", days=1).certificate.write(tmp_path, "other")
    gone = tmp_path / "gone.pem"

    with pytest.raises(SettingsError, match=r"ca .*gone\.pem: cannot be read: No such file"):
        StompClient(URL, tls=TlsOptions(ca=gone))
    with pytest.raises(SettingsError, match=r"ca .*till-1\.key: holds no certificate in PEM form"):
        StompClient(URL, tls=TlsOptions(ca=key))
    for options in (TlsOptions(cert=gone, key=key), TlsOptions(cert=cert, key=gone)):
        with pytest.raises(SettingsError, match=r"gone\.pem: cannot be read: No such file"):
            StompClient(URL, tls=options)
    for options in (TlsOptions(cert=other, key=key), TlsOptions(cert=cert), TlsOptions(cert=key, key=cert)):
        with pytest.raises(SettingsError, match="a PEM certificate is needed, and its own key without"):
            StompClient(URL, tls=options)


def test_key_with_a_passphrase_is_told_and_none_is_asked_for(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

    till = make_authority("site", days=1).issue_client("till-1", days=1)
    cert, key = till.write(tmp_path, "till-1")
    key.write_bytes(till.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))

    with pytest.raises(SettingsError, match="its own key without a passphrase"):
        StompClient(URL, tls=TlsOptions(cert=cert, key=key))


def test_environment_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULA_CA", "ca.pem")
    monkeypatch.setenv("NEBULA_CERT", "till.pem")
    monkeypatch.setenv("NEBULA_KEY", "till.key")
    monkeypatch.setenv("NEBULA_PIN", "0" * 64)
    monkeypatch.setenv("NEBULA_VERIFY_HOST", "False")

    assert TlsOptions.from_environment() == TlsOptions(
        ca=Path("ca.pem"), cert=Path("till.pem"), key=Path("till.key"), pin="0" * 64, verify_host=False
    )


def test_empty_variables_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CA", "CERT", "KEY", "PIN", "VERIFY_HOST"):
        monkeypatch.setenv(f"NEBULA_{name}", "")

    assert TlsOptions.from_environment() == TlsOptions()


def test_environment_counts_where_nothing_is_given_and_only_for_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULA_CA", "/nowhere/ca.pem")

    StompClient("stomp://127.0.0.1")
    StompClient(URL, tls=TlsOptions(pin="0" * 64))
    with pytest.raises(SettingsError, match=r"/nowhere/ca\.pem: cannot be read"):
        StompClient(URL)


def test_verify_host_that_is_neither_yes_nor_no_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEBULA_VERIFY_HOST", "maybe")

    with pytest.raises(SettingsError, match="NEBULA_VERIFY_HOST: 'maybe' is neither true nor false"):
        TlsOptions.from_environment()
