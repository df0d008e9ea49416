"""From words of the command line to values: parameters, and the services that programs name."""

from __future__ import annotations

import difflib
import importlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from nebula.errors import SettingsError
from nebula.rpc.responder import Responder

_PARAMETER = re.compile(r"(?P<name>[^=:]+)(?P<kind>:?=)(?P<value>.*)", re.DOTALL)


def parse_parameters(words: Iterable[str]) -> dict[str, Any]:
    """Read `name=text` and `name:=json` words into one mapping.

    Raises:
        SettingsError: a word of another form, broken JSON, or a name that comes twice.
    """
    parameters: dict[str, Any] = {}
    for word in words:
        match = _PARAMETER.fullmatch(word)
        if match is None:
            raise SettingsError(f"{word!r} is not a parameter: write name=text or name:=json")
        name, kind, value = match["name"], match["kind"], match["value"]
        if name in parameters:
            raise SettingsError(f"parameter {name!r} is given twice")
        parameters[name] = value if kind == "=" else _parse_json(name, value)
    return parameters


def _parse_json(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError as error:
        raise SettingsError(
            f"{name}:={value} is not JSON ({error}); for a text write {name}={value}"
        ) from None


def find_app(target: str) -> Responder:
    """Import the service that `module:name` names, from the working directory or what is installed.

    Raises:
        SettingsError: no such module, or no service of that name in it.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise SettingsError(f"{target!r} is not of the form module:name, for example prices:app")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the service itself misses is the service's mistake and keeps its traceback.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise SettingsError(f"{target}: no module {error.name!r} here or installed") from None
    app = getattr(module, name, None)
    if not isinstance(app, Responder):
        raise SettingsError(f"{target}: {name!r} is not a Responder{_known_apps(name, vars(module))}")
    return app


def _known_apps(name: str, members: Mapping[str, Any]) -> str:
    known = [member for member, value in members.items() if isinstance(value, Responder)]
    near = difflib.get_close_matches(name, known, n=1) or known
    return f"; did you mean {' or '.join(near)}?" if near else ""
