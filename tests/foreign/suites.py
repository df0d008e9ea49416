"""Runs a module of tests that was written against our broker against another one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import ModuleType
from typing import Any

# A test that takes none of these never meets a broker, and would only be run twice.
_REACHES_THE_BROKER = {"broker_url", "client", "serving", "shop", "stranger"}


def suite_of(module: ModuleType, *, without: Mapping[str, str]) -> dict[str, Any]:
    """A test module's names, for `globals().update`: its tests over the broker and what they need.

    Args:
        module: its tests reach the broker through the fixture `broker_url` alone.
        without: tests that mean nothing on the other broker, each with its reason; those of other
            modules are no matter.
    """
    return {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and name not in {"pytestmark", *without}
        and not (name.startswith("test_") and _is_apart_from_the_broker(thing))
    }


def _is_apart_from_the_broker(test: Any) -> bool:
    return not _REACHES_THE_BROKER & inspect.signature(test).parameters.keys()
