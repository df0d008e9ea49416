"""The picture of the layers and the contracts that `make check` proves are one and the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = re.findall(
    r"^```text\n(.*?)^```$", (ROOT / "docs/explanation/layers.md").read_text(), re.MULTILINE | re.DOTALL
)


def contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(settings["tool"]["importlinter"]["contracts"])


CONTAINERS = ["nebula", "nebula.broker", "nebula.broker.core", "nebula.rpc", "nebula.rpc.jobs"]


@pytest.mark.parametrize(("container", "picture"), list(zip(CONTAINERS, PICTURES, strict=True)))
def test_picture_shows_the_layers_as_they_are_checked(container: str, picture: str) -> None:
    shown = [re.split(r"\s{2,}", line)[0] for line in picture.splitlines()]

    (contract,) = [one for one in contracts() if one.get("containers") == [container]]
    assert shown == contract["layers"]
    assert contract["exhaustive"] is True
