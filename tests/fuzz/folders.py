"""Where inputs lie: of each target those to begin with, and those that have found something once."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def corpus(target: str) -> Path:
    """Inputs that a fuzzer begins with."""
    return HERE / "corpus" / target


def findings(target: str) -> Path:
    """Inputs that have found something once."""
    return HERE / "findings" / target


def inputs(target: str) -> list[Path]:
    """All of them, in order of name."""
    return sorted(file for folder in (corpus(target), findings(target)) for file in folder.glob("*"))
