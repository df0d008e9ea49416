"""`nebula cert ca|server|client`, and `nebula passcode`: certificates and passcodes for peers of a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from typer import Argument, Option

from nebula.cli.options import AsJson
from nebula.cli.render import Output
from nebula.cli.terminal import ask_passcode, write_redirectable
from nebula.errors import SettingsError

if TYPE_CHECKING:
    from nebula.broker.operations.certificates import Authority, Certificate

Folder: TypeAlias = Annotated[
    Path, Option("--folder", metavar="DIR", help="Folder of the CA's files, and of the new ones.")
]
# By default ten years for a CA, whose file all peers have, and one year for certificates.
Days: TypeAlias = Annotated[int, Option(min=1, help="How long it is valid.")]
Force: TypeAlias = Annotated[bool, Option("--force", help="Overwrite existing files.")]

_HERE = Path()
_CA = "ca"

cert = typer.Typer(
    name="cert",
    help="Make a certificate authority (CA) of your own, and certificates signed by it.",
    no_args_is_help=True,
)


@cert.command()
def ca(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the CA, for people.")] = "nebula",
    *,
    folder: Folder = _HERE,
    days: Days = 3650,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a CA: ca.pem, which all peers need, and ca.key, which only you may read.

    Certificates signed by an earlier CA are not valid under a new one.

    Example: nebula cert ca "Example site"
    """
    from nebula.broker.operations.certificates import make_authority

    # Checked first, because an overwritten key of a CA cannot be restored.
    _check_free(folder, _CA, force=force)
    _write(lambda: make_authority(name, days).certificate, folder, _CA, as_json=as_json)


@cert.command()
def server(
    host: Annotated[list[str], Option("--host", help="Name or IP address that clients use; repeatable.")],
    *,
    folder: Folder = _HERE,
    stem: Annotated[str, Option("--name", metavar="NAME", help="Name of the files.")] = "server",
    days: Days = 365,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a broker's certificate: server.pem and server.key.

    Example: nebula cert server --host broker.example --host 192.0.2.1
    """
    _issue(lambda ca: ca.issue_server(host, days), folder, stem, force=force, as_json=as_json)


@cert.command()
def client(
    name: Annotated[str, Argument(metavar="NAME", help="Name of the client, for people, and of the files.")],
    *,
    folder: Folder = _HERE,
    days: Days = 365,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Make a client's certificate: NAME.pem and NAME.key. The broker knows the client by its fingerprint.

    Example: nebula cert client till-1
    """
    _issue(lambda ca: ca.issue_client(name, days), folder, name, force=force, as_json=as_json)


def passcode(
    login: Annotated[str, Argument(metavar="LOGIN", help="The login that gets the passcode.")],
    *,
    as_json: Annotated[bool, Option("--json", help="The line as a JSON object.")] = False,
) -> None:
    """Read a passcode, from the terminal or a line of stdin, and show its line for a users file.

    The file's first line is [users], and the broker's setting is users = "FILE" under [identity].

    Example: nebula passcode alice >> users.toml
    """
    from nebula.broker.server.authenticator import users_line

    is_typed = sys.stdin.isatty()
    # By stdin, because stdout usually goes to the users file. From a pipe one line is read, without its line
    # end.
    words = ask_passcode("Passcode") if is_typed else sys.stdin.readline().rstrip("\r\n")
    if not words:
        raise SettingsError("stdin holds no passcode")
    line = users_line(login, words)
    if as_json:
        Output(as_json=True).json_line({"login": login, "line": line})
    else:
        # As it is, also off a terminal: it is there to be redirected.
        write_redirectable(f"{line}\n")


def _check_free(folder: Path, stem: str, *, force: bool) -> None:
    # `../till` would be written outside of the folder.
    if Path(stem).name != stem:
        raise SettingsError(f"{stem!r} cannot be the name of a file here")
    for file in (folder / f"{stem}.pem", folder / f"{stem}.key"):
        if file.exists() and not force:
            raise SettingsError(f"{file} is there already; --force overwrites it")


def _issue(
    make: Callable[[Authority], Certificate], folder: Path, stem: str, *, force: bool, as_json: bool
) -> None:
    from nebula.broker.operations.certificates import Authority

    # `nebula cert client ca --force` would overwrite the key that all certificates depend on.
    if stem == _CA:
        raise SettingsError(f"{stem!r} is the name of the CA's own files; choose another one")
    _check_free(folder, stem, force=force)
    authority = Authority.load(folder / f"{_CA}.pem", folder / f"{_CA}.key")
    _write(lambda: make(authority), folder, stem, as_json=as_json)


def _write(make: Callable[[], Certificate], folder: Path, stem: str, *, as_json: bool) -> None:
    try:
        made = make()
    except ValueError as error:
        # A name that is too long, or of characters that certificates cannot hold.
        raise SettingsError(f"the certificate cannot be made: {error}") from None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        certificate, key = made.write(folder, stem)
    except OSError as error:
        raise SettingsError(f"{error.filename}: cannot be written: {error.strerror}") from None
    Output(as_json=as_json).value(
        {
            "subject": made.subject,
            "from": made.x509.not_valid_before_utc.isoformat(),
            "until": made.x509.not_valid_after_utc.isoformat(),
            "fingerprint": made.fingerprint,
            "certificate": str(certificate),
            "key": str(key),
        }
    )
