"""Module for web pages: `nebula.js`, an ES module on top of @stomp/stompjs."""

from pathlib import Path
from typing import Final

__all__ = ["MODULE", "TYPES"]

# Part of this package and not on npm, so that a page gets the version of its broker.
MODULE: Final = Path(__file__).parent / "nebula.js"
"""The JavaScript module; `python -m nebula.browser --copy .` copies it next to a page."""

TYPES: Final = MODULE.with_suffix(".d.ts")
"""Its type declarations, which compilers and editors find next to it."""
