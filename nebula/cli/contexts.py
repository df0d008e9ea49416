"""Contexts: named brokers in a file of the user, so that `--broker venue` is an address with certificates."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from nebula.environment import ClientEnvironment, CommandEnvironment
from nebula.errors import SettingsError
from nebula.nearest import did_you_mean
from nebula.stomp.client.addresses import parse_address

# Variables of TLS, by the names that contexts have for them.
_TLS: Final = {
    name: variable.name for name, variable in ClientEnvironment.variables().items() if name != "broker"
}

# `localhost:61613`, `[::1]:61613`.
_PLACE: Final = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")

# All permissions of the group and of others, which ssh refuses for private keys too.
_OTHERS_MAY_READ: Final = 0o077

# Pydantic builds a model's validator together with the class, at the start of every command. Deferred, it is
# built when there is a file to read.
_DEFERRED: Final = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Context(BaseModel):
    """One broker, and how to connect to it: `broker` is its address, the others are as `TlsOptions` has them.

    Files are named from the folder that the file of contexts is in.
    """

    model_config = _DEFERRED

    broker: str
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    pin: str | None = None
    verify_host: bool = True

    def environment(self, folder: Path) -> dict[str, str]:
        """Its TLS settings as environment variables."""
        files = {"ca": self.ca, "cert": self.cert, "key": self.key}
        given = {name: str(folder / file.expanduser()) for name, file in files.items() if file is not None}
        if self.pin is not None:
            given["pin"] = self.pin
        if not self.verify_host:
            given["verify_host"] = "false"
        return {_TLS[name]: value for name, value in given.items()}


class Contexts(BaseModel):
    """The whole file: contexts by name, and which of them counts where none is named."""

    model_config = _DEFERRED

    default: str | None = None
    contexts: dict[str, Context] = {}

    def get(self, name: str, file: Path) -> Context:
        """The context of that name.

        Raises:
            SettingsError: there is no such context.
        """
        context = self.contexts.get(name)
        if context is None:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise SettingsError(
                f"{name!r} is neither an address nor a context of {file} (it has {known})"
                f"{did_you_mean(name, self.contexts)}"
            )
        return context


def read_contexts(file: Path) -> Contexts:
    """Read the file; one that is not there has no contexts.

    Raises:
        SettingsError: it cannot be read or used, or shows a passcode to other users.
    """
    try:
        text = file.read_text("utf-8")
    except FileNotFoundError:
        return Contexts.model_construct()  # without a validator: most users have no such file
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        raise SettingsError(f"{file}: cannot be read: {reason}") from None
    try:
        found = Contexts.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{file}: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        # Not what is there: it may be an address with a passcode.
        raise SettingsError(f"{file}: {where}: {first['msg']}") from None
    _check_secrecy(found, file)
    return found


def _check_secrecy(contexts: Contexts, file: Path) -> None:
    has_secrets = False
    for name, context in contexts.contexts.items():
        try:
            has_secrets |= parse_address(context.broker).passcode is not None
        except SettingsError as error:
            raise SettingsError(f"{file}: contexts.{name}.broker: {error}") from None
    # Refused, because a warning is overlooked and the passcode stays readable.
    if has_secrets and file.stat().st_mode & _OTHERS_MAY_READ:
        raise SettingsError(f"{file}: other users may read it, and it holds a passcode: chmod 600 {file}")


def find_broker(named: str | None) -> str | None:
    """The address that a command uses; TLS settings of a context go into the environment.

    TLS settings in the environment win over those of a context, unless the context is named here: then it
    counts whole, so that no certificate and no leniency meant for another broker is used for this one.

    Args:
        named: an address, `HOST:PORT` or a context's name, as `--broker` has it; None: as `NEBULA_BROKER`
            says, else the default context.

    Returns:
        None: no address is given, so the usual one counts.

    Raises:
        SettingsError: it is neither, or the file cannot be used.
    """
    wanted = named or ClientEnvironment.read().broker or None
    # An address needs no file, so a broken file does not matter.
    if wanted is not None and "://" in wanted:
        return wanted
    file = CommandEnvironment.read().contexts_file
    contexts = read_contexts(file)
    name = wanted or contexts.default
    if name is None:
        return None
    # A context may be called `here:1`, and comes first.
    if name not in contexts.contexts and _PLACE.fullmatch(name):
        return f"stomp://{name}"
    context = contexts.get(name, file)
    if named:
        for variable in _TLS.values():
            # Variables and not arguments: `Client`, `StompClient` and the recorder read their TLS options
            # there, and so do the workers that `nebula run` starts.
            os.environ.pop(variable, None)
    for variable, value in context.environment(file.parent).items():
        os.environ.setdefault(variable, value)
    return context.broker


def complete_names(incomplete: str) -> list[str]:
    """Contexts whose names have this prefix, for completion by the shell; none if the file is not usable.

    A name that is not printable is left out: it cannot be typed, and a shell would write it to the terminal.
    """
    try:
        names = read_contexts(CommandEnvironment.read().contexts_file).contexts
    except SettingsError:
        return []
    # Asks no broker, unlike `nebula.cli.completing`.
    return sorted(name for name in names if name.startswith(incomplete) and name.isprintable())
