"""What web pages are given: `nebula.js`, an ES module on top of @stomp/stompjs."""

from pathlib import Path
from typing import Final

__all__ = ["MODULE", "TYPES"]

MODULE: Final = Path(__file__).parent / "nebula.js"
"""The file, to be put beside a page: `python -m nebula.browser --copy .`"""

TYPES: Final = MODULE.with_suffix(".d.ts")
"""Its types, which compilers and editors look for beside it."""
