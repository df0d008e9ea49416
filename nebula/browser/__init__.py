"""What web pages are given: `nebula.js`, an ES module on top of @stomp/stompjs."""

from pathlib import Path
from typing import Final

__all__ = ["MODULE"]

MODULE: Final = Path(__file__).parent / "nebula.js"
"""The file, to be put beside a page: `cp "$(python -m nebula.browser)" .`"""
