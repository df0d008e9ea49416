"""What foreign clients send."""

from __future__ import annotations

from typing import Final

EVERY_OCTET: Final = bytes(range(256))
MEBIBYTE: Final = EVERY_OCTET * 4096

# Everything that STOMP 1.1 and 1.2 escape (but for the CR, which 1.1 cannot), and more than ASCII.
HEADER_TEXT: Final = "a:b\\c\nd ✓"
HEADERS: Final = {"grüße: ✓": HEADER_TEXT}

# A wait that ends in time anywhere, for what comes at once.
DEADLINE: Final = 10.0
