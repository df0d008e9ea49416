"""`nebula cert` and `nebula passcode`: what they write, say and refuse; and what a broker makes of it."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import tomllib
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from nebula.broker.server.authenticator import users_line
from nebula.errors import SettingsError
from tests.cli.programs import DEADLINE, NEBULA, environment, nebula, running


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a CA."""
    assert nebula("cert", "ca", "Example site", cwd=tmp_path).returncode == 0
    return tmp_path


def read(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_what_was_made_is_told_as_json_off_a_terminal(site: Path) -> None:
    ended = nebula("cert", "client", "till-1", "--days", "30", cwd=site)

    told = json.loads(ended.stdout)
    made = read(site / "till-1.pem")
    lasts = datetime.fromisoformat(told["until"]) - datetime.fromisoformat(told["from"])
    assert told["subject"] == "till-1"
    assert told["fingerprint"] == sha256(made.public_bytes(Encoding.DER)).hexdigest()
    assert (told["certificate"], told["key"]) == ("till-1.pem", "till-1.key")
    assert lasts == timedelta(days=30, minutes=5)


def test_server_and_client_are_vouched_for_by_the_ca_in_the_folder(site: Path, tmp_path: Path) -> None:
    nebula("cert", "server", "--host", "broker.example", "--host", "192.0.2.1", "--folder", str(site))
    nebula("cert", "client", "till-1", "--folder", str(site))

    ca = read(site / "ca.pem")
    names = read(site / "server.pem").extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["broker.example"]
    assert [str(one) for one in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.1"]
    read(site / "server.pem").verify_directly_issued_by(ca)
    read(site / "till-1.pem").verify_directly_issued_by(ca)


@pytest.mark.parametrize("words", [["ca"], ["client", "till-1"]])
def test_files_are_overwritten_by_force_only(site: Path, words: list[str]) -> None:
    nebula("cert", *words, cwd=site)
    file = site / f"{words[-1]}.pem"
    before = file.read_bytes()

    refused = nebula("cert", *words, cwd=site)

    assert refused.returncode == 2
    assert refused.stderr == f"nebula: {file.name} is there already; --force overwrites it\n"
    assert file.read_bytes() == before
    assert nebula("cert", *words, "--force", cwd=site).returncode == 0
    assert file.read_bytes() != before


def test_key_without_its_certificate_is_not_overwritten_either(site: Path) -> None:
    (site / "till-1.key").write_text("precious")

    assert nebula("cert", "client", "till-1", cwd=site).returncode == 2
    assert (site / "till-1.key").read_text() == "precious"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["client", "ca", "--force"], "'ca' is the name of the CA's own files; choose another one"),
        (["server", "--host", "a", "--name", "ca"], "'ca' is the name of the CA's own files"),
        (["client", "../till"], "'../till' cannot be the name of a file here"),
        (["client", "x" * 65], "the certificate cannot be made: "),
        (["server", "--host", "ä.example"], "the certificate cannot be made: "),
        (["client", "till-1", "--folder", "gone"], "gone/ca.pem: cannot be read: No such file"),
    ],
)
def test_what_cannot_be_made_is_told_in_a_sentence(site: Path, words: list[str], complaint: str) -> None:
    ended = nebula("cert", *words, cwd=site)

    assert ended.returncode == 2
    assert ended.stderr.startswith(f"nebula: {complaint}")
    assert ended.stdout == ""


def test_folder_is_made_and_one_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert nebula("cert", "ca", "--folder", "new/site", cwd=tmp_path).returncode == 0
    assert (tmp_path / "new/site/ca.pem").exists()
    assert ": cannot be written: " in nebula("cert", "ca", "--folder", "file/x", cwd=tmp_path).stderr


# --- passcodes ---


def passcode(login: str, words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*NEBULA, "passcode", login],
        input=words,
        env=environment(),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


@pytest.mark.parametrize("login", ["alice", "alice@example", 'a "b" \\c', "ünï 🐟"])
def test_line_of_a_users_file_reads_back(login: str) -> None:
    users = tomllib.loads(f"[users]\n{users_line(login, 'secret')}\n")["users"]

    assert list(users) == [login]
    assert users[login].startswith("$argon2id$")
    assert "secret" not in users[login]


@pytest.mark.parametrize("login", ["", "anonymous", "app:shop", "0a" * 32, "a\nb"])
def test_names_that_the_broker_gives_to_others_are_refused_as_logins(login: str) -> None:
    with pytest.raises(SettingsError):
        users_line(login, "secret")


def test_passcode_is_needed(tmp_path: Path) -> None:
    ended = passcode("alice", "\n", tmp_path)

    assert ended.returncode == 2
    assert ended.stderr == "nebula: stdin holds no passcode\n"


# --- a broker that knows them ---

SETTINGS = """
[[listener]]
port = 0
tls_cert = "server.pem"
tls_key = "server.key"
client_ca = "ca.pem"

[[listener]]
port = 0
[identity]
users = "users.toml"
"""

SHOP = """
from nebula import Request, Responder

app = Responder("shop")


@app.verb
def who(request: Request) -> str:
    return str(request.principal)
"""


def test_commands_reach_a_broker_that_asks_who_they_are(site: Path) -> None:
    nebula("cert", "server", "--host", "127.0.0.1", cwd=site)
    told = json.loads(nebula("cert", "client", "till-1", cwd=site).stdout)
    (site / "users.toml").write_text("[users]\n" + passcode("alice", "secret\n", site).stdout)
    (site / "nebula.toml").write_text(SETTINGS)
    (site / "shop.py").write_text(SHOP)
    own = {"NEBULA_CERT": "till-1.pem", "NEBULA_KEY": "till-1.key", "NEBULA_CA": "ca.pem"}

    with running("broker", "--app", "shop:app", cwd=site) as (process, line):
        assert process.stdout is not None
        plain = json.loads(process.stdout.readline())["url"]
        by_login = plain.replace("//", "//alice:secret@")

        def who(url: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
            return nebula("call", "-b", url, "shop", "who", env=env, cwd=site)

        assert json.loads(who(line["url"], own).stdout) == told["fingerprint"]
        assert json.loads(who(by_login, {}).stdout) == "alice"
        assert who(plain, {}).returncode == 3
        assert who(by_login.replace("secret", "wrong"), {}).returncode == 3
        assert who(line["url"], {"NEBULA_CA": "ca.pem"}).returncode == 3
        mistrust = who(line["url"], own | {"NEBULA_CA": ""})
    assert mistrust.returncode == 3
    assert "its certificate cannot be trusted: " in mistrust.stderr
    assert "is a broker running" not in mistrust.stderr


def test_broker_takes_up_a_deny_list_and_a_certificate_on_sighup(site: Path) -> None:
    nebula("cert", "server", "--host", "127.0.0.1", cwd=site)
    nebula("cert", "client", "till-1", cwd=site)
    denied = json.loads(nebula("cert", "client", "till-2", cwd=site).stdout)["fingerprint"]
    (site / "deny.txt").write_text("")
    (site / "nebula.toml").write_text(
        '[[listener]]\nport = 0\ntls_cert = "server.pem"\ntls_key = "server.key"\nclient_ca = "ca.pem"\n'
        'deny = "deny.txt"\n'
    )

    with running("broker", cwd=site) as (process, line):
        stays, goes = (connect(line["url"], site, name) for name in ("till-1", "till-2"))
        nebula("cert", "server", "--host", "127.0.0.1", "--force", cwd=site)
        (site / "deny.txt").write_text(denied)

        process.send_signal(signal.SIGHUP)

        assert goes.recv(4096).startswith(b"ERROR\n")
        stays.sendall(b"SEND\ndestination:/queue/a\nreceipt:r\n\n\0")
        assert stays.recv(4096).startswith(b"RECEIPT\n")
        late = connect(line["url"], site, "till-1")
        assert late.getpeercert(binary_form=True) == read(site / "server.pem").public_bytes(Encoding.DER)
        assert late.getpeercert(binary_form=True) != stays.getpeercert(binary_form=True)
        for peer in (stays, goes, late):
            peer.close()


def test_broken_file_keeps_no_other_from_being_taken_up(site: Path) -> None:
    nebula("cert", "server", "--host", "127.0.0.1", cwd=site)
    denied = json.loads(nebula("cert", "client", "till-2", cwd=site).stdout)["fingerprint"]
    (site / "deny.txt").write_text("")
    (site / "rights.toml").write_text("")
    (site / "nebula.toml").write_text(
        'rights = ["rights.toml"]\n[[listener]]\nport = 0\ntls_cert = "server.pem"\ntls_key = "server.key"\n'
        'client_ca = "ca.pem"\ndeny = "deny.txt"\n'
    )

    with running("broker", cwd=site) as (process, line):
        goes = connect(line["url"], site, "till-2")
        (site / "rights.toml").write_text("no toml at all")
        (site / "deny.txt").write_text(denied)

        process.send_signal(signal.SIGHUP)

        assert goes.recv(4096).startswith(b"ERROR\n")
        goes.close()


def connect(url: str, site: Path, name: str) -> ssl.SSLSocket:
    """A session of the bearer of a certificate."""
    parts = urlsplit(url)
    context = ssl.create_default_context(cafile=site / "ca.pem")
    context.load_cert_chain(site / f"{name}.pem", site / f"{name}.key")
    peer = context.wrap_socket(
        socket.create_connection((parts.hostname, parts.port), timeout=DEADLINE),
        server_hostname=parts.hostname,
    )
    peer.sendall(b"CONNECT\naccept-version:1.2\nhost:/\n\n\0")
    assert peer.recv(4096).startswith(b"CONNECTED\n")
    return peer


def test_program_starts_without_loading_what_makes_certificates() -> None:
    program = "import sys, nebula.cli; print('cryptography' in sys.modules, 'argon2' in sys.modules)"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE, check=True
    )

    assert ended.stdout == "False False\n"
