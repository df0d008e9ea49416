"""The client without `await` has the methods and signatures of the async one."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

from nebula import sync
from tests.typing.sync_signatures import MODULES, PAIRS, derived

# What belongs to the loop's thread, or is there for other modules of Nebula.
_ASYNC_ONLY = {
    "Client": {"stomp", "start_on"},
    "JobHandle": {"pages"},
    "Subscription": {"push", "open", "close", "detach", "attach"},
}


def _public(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_signatures_are_those_of_the_async_classes(module: ModuleType) -> None:
    assert module.__file__ is not None

    assert Path(module.__file__).read_text() == derived(module), (
        "run python -m tests.typing.test_sync_signatures"
    )


@pytest.mark.parametrize("name", sync.__all__)
def test_each_class_has_all_methods_of_its_async_class(name: str) -> None:
    owner = getattr(sync, name)

    missing = _public(PAIRS[owner]) - _public(owner)

    assert missing == _ASYNC_ONLY.get(name, set())


def main() -> None:
    """Write the signatures."""
    for module in MODULES:
        assert module.__file__ is not None
        Path(module.__file__).write_text(derived(module))


if __name__ == "__main__":
    main()
