"""The files of the console, with the headers that they are served with.

They are built and committed: docs/decisions/0070 says why.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "assets"
"""What `npm run build` writes."""

PATH: Final = "/console/"
"""Where the console is served."""

REDIRECTED: Final = {"/": "console/", "/console": "console/"}
"""Paths that lead to the console, with the relative address of it."""

WRONG_HOST: Final = (
    "the console is not served under this host name; the listener's `hosts` name those that it may have"
)

# Everything comes from the origin of the page, and the page connects to no other. Inline scripts and styles
# are refused, and so are frames of other pages around it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_COMMON: Final = (
    ("content-security-policy", _POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("vary", "accept-encoding"),
)

# The names of these files hold a hash of their content.
_FOR_GOOD: Final = ("cache-control", "public, max-age=31536000, immutable")
_ALWAYS_NEW: Final = ("cache-control", "no-store")

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_INDEX: Final = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file of the console.

    Attributes:
        body: as it is.
        compressed: by gzip.
        content_type: its media type.
        headers: the other headers of its response.
    """

    body: bytes
    compressed: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...]

    def encoded(self, *, takes_gzip: bool) -> tuple[bytes, tuple[tuple[str, str], ...]]:
        """The body and the headers for a client that takes gzip, or does not."""
        if not takes_gzip:
            return self.body, self.headers
        return self.compressed, (*self.headers, ("content-encoding", "gzip"))


@cache
def page_about(broker: str) -> Asset:
    """The page with the address of a broker, for the calls that users copy from it. It is made once.

    Args:
        broker: its address, without login and passcode. The page shows it to everyone.
    """
    page = assets()[PATH]
    # An element, because the page's policy allows no inline script, and a file would take another request.
    told = f'<meta name="nebula-broker" content="{escape(broker)}">'
    body = page.body.replace(b"</head>", told.encode() + b"</head>", 1)
    return replace(page, body=body, compressed=gzip.compress(body, mtime=0))


@cache
def assets() -> Mapping[str, Asset]:
    """All files of the console, by path. They are read once."""
    found = {}
    for file in sorted(FOLDER.rglob("*")):
        if file.is_file():
            name = file.relative_to(FOLDER).as_posix()
            found[PATH if name == _INDEX else PATH + name] = _asset(file, is_index=name == _INDEX)
    return found


def _asset(file: Path, *, is_index: bool) -> Asset:
    body = file.read_bytes()
    rule = _ALWAYS_NEW if is_index else _FOR_GOOD
    return Asset(body, gzip.compress(body, mtime=0), _TYPES[file.suffix], (*_COMMON, rule))
