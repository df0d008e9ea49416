"""Parsing of command-line words: parameters of verbs, and services named as MODULE:NAME."""

from __future__ import annotations

import importlib
import json
import re
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from nebula import version
from nebula.cli.exits import BrokenModule
from nebula.errors import SettingsError
from nebula.nearest import did_you_mean, nearest
from nebula.rpc.service.responder import Responder

# Files of the import system, of this package, and of what dataclasses generate in it.
_NOT_USERS: Final = (
    "<frozen importlib",
    "<string>",
    str(Path(importlib.__file__).parent),
    str(Path(version.__file__).parent),
)

# The name ends at the first `=`: the value may contain more. DOTALL: it may have several lines, as in
# text="$(cat FILE)".
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
        # `qty=2` is a text: guessing the type would turn a customer's id into a number.
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

    `prices.py:app` and `./services/prices.py` are understood as well; without a name it is the module's only
    service, or the one that is called `app`.

    Raises:
        SettingsError: no such module, or no service of that name in it.
        BrokenModule: it raised while it was imported.
    """
    place, _, name = target.partition(":")
    module_name = _module_of(place, target)
    # With the installed script the working directory is not on Python's path, with `python -m` it is. `nebula
    # run prices:app` finds prices.py in both cases.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that the service itself misses is the service's mistake and keeps its traceback.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise BrokenModule(target, _traceback_of_users(error)) from error
        near = _near_module(module_name)
        raise SettingsError(f"{target}: no module {error.name!r} here or installed{near}") from None
    # Not BaseException: a module may call `sys.exit`.
    except Exception as error:
        raise BrokenModule(target, _traceback_of_users(error)) from error
    known = [member for member, value in vars(module).items() if isinstance(value, Responder)]
    name = name or _only(known, module_name, target)
    # A name of something else gets the same error, such as `prices:quote`, a handler.
    app = getattr(module, name, None)
    if not isinstance(app, Responder):
        near_app = nearest(name, known)
        meant = known if near_app is None else [near_app]
        hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
        raise SettingsError(f"{target}: {name!r} is not a Responder{hint}")
    return app


def _near_module(name: str) -> str:
    """A suggestion for a module that does not exist; other programs write `prices:app` as `prices.app`."""
    here = sorted(file.stem for file in Path.cwd().glob("*.py"))
    module, dot, app = name.rpartition(".")
    return f"; did you mean '{module}:{app}'?" if dot and module in here else did_you_mean(name, here)


def _module_of(place: str, target: str) -> str:
    """The module of a name or a file: `./services/prices.py` is `services.prices`."""
    if "/" not in place and not place.endswith(".py"):
        if not place or place.startswith("."):
            raise SettingsError(f"{target!r} is not of the form module:name, for example prices:app")
        return place
    here = Path.cwd()
    file = (here / place).resolve()
    # Modules are imported from this folder, so the file has to be in it.
    if not file.is_relative_to(here.resolve()):
        raise SettingsError(f"{target}: it is not in this folder: run the command in the one of your code")
    return ".".join(file.relative_to(here.resolve()).with_suffix("").parts)


def _only(known: Sequence[str], module_name: str, target: str) -> str:
    if "app" in known or len(known) == 1:
        return "app" if "app" in known else known[0]
    if not known:
        raise SettingsError(
            f"{target}: there is no Responder in {module_name}; write app = Responder({module_name!r})"
        )
    raise SettingsError(f"{target}: say which: {' or '.join(f'{module_name}:{one}' for one in known)}")


def _traceback_of_users(error: BaseException) -> str:
    """A traceback without the frames of the import system and of this package."""
    told = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = told
    while each is not None:
        users = [frame for frame in each.stack if not frame.filename.startswith(_NOT_USERS)]
        each.stack = traceback.StackSummary.from_list(users)
        # Causes too, or they would show the frames that were removed here.
        each = each.__cause__ or each.__context__
    return "".join(told.format())
