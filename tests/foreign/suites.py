"""Runs modules of tests that were written against our broker against another one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

# A test that takes none of these never meets a broker, and would only be run twice.
_REACHES_THE_BROKER = {
    "broker_url", "caller", "client", "cut", "orders", "serving", "shop", "stranger", "url",
}  # fmt: skip


def suite_of(module: ModuleType, *, without: Mapping[str, str]) -> dict[str, Any]:
    """`suites_of` a module, without some of its tests.

    Args:
        module: as there.
        without: tests that mean nothing on the other broker, each with its reason; those of other
            modules are no matter.
    """
    return {name: thing for name, thing in suites_of(module).items() if name not in without}


def suites_of(*modules: ModuleType) -> dict[str, Any]:
    """The names of test modules, for `globals().update`: their tests over the broker and what these need.

    Args:
        modules: their tests reach the broker through the fixture `broker_url` alone.
    """
    names: dict[str, Any] = {}
    for module in modules:
        own = {name: thing for name, thing in vars(module).items() if _counts(name, thing)}
        # A test, or a fixture of a test, would not be what its module says that it is.
        twice = [
            name
            for name, thing in own.items()
            if _is_pytests(name, thing) and names.get(name, thing) != thing
        ]
        assert not twice, f"{module.__name__} is not the first with {twice}"
        names |= own
    return names


def _counts(name: str, thing: Any) -> bool:
    is_apart = name.startswith("test_") and inspect.isfunction(thing) and not _reaches_the_broker(thing)
    return not (name.startswith("_") or name == "pytestmark" or is_apart)


def _reaches_the_broker(test: Any) -> bool:
    return bool(_REACHES_THE_BROKER & inspect.signature(test).parameters.keys())


def _is_pytests(name: str, thing: Any) -> bool:
    return name.startswith("test_") or type(thing).__name__ == "FixtureFunctionDefinition"
