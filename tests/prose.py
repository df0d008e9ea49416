"""Words that make prose read like a translation. `make check` fails if there are any.

    python -m tests.prose               checks documentation, messages, docstrings and comments
    python -m tests.prose docs/how-to   checks these alone

A line that needs such a word, in a quotation for example, goes into `ALLOWED`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent
PLACES: Final = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "GOVERNANCE.md", "SECURITY.md"),
    *("docs", "nebula", "services", "benchmarks", "website", "packages", "deploy", "console/src"),
)

SUFFIXES: Final = frozenset({".py", ".md", ".toml", ".yaml", ".yml", ".js", ".ts", ".tsx"})

BANNED: Final = {
    r"\bwho (?:has|reads|asks|sends|wants|does|needs|knows|comes|calls|writes)\b": "name the subject",
    r"\bwhoever\b|\bwhomever\b": "name the subject: a client, a caller, the user",
    r"\b(?:nobody|somebody|anybody|everybody)(?:'s)?\b": "name the subject: no client, another caller",
    r"\boctets?\b(?!-stream)": "byte",
    r"\bin vain\b": "without success",
    r"\bso (?:many|much|often|long)\b(?! (?:as|that))": "a number of, a limit, how often",
    r"\bbeside\b": "next to, besides, with, in addition to",
    r"\bwhence\b": "from where",
    r"\bthe while\b": "meanwhile, during this",
    r"\b(?:is|are|was|were) to be\b": "must be, will be",
    r"\bbears?\b": "has, carries",
    r"\b(?:tells?|told) of\b": "reports, describes",
    r"\bsa(?:ys|id) of\b": "says about",
    r"\botherwise than\b": "differently from",
    r"\bthere (?:is|are) none\b": "there is no NOUN",
    r"\bof (?:ours|theirs)\b": "our NOUN, Nebula's NOUN",
    r"\bin the way of\b": "the way that",
    r"\bas if it was\b": "as if it were",
    r"\bfor (?:who|whom)\b": "for users who",
}
"""What is not written, as a pattern in any case, and what to write instead."""

ALLOWED: Final[dict[str, tuple[str, ...]]] = {
    # The wire is described in octets, as the texts of STOMP do.
    "docs/reference/protocol.md": ("octet",),
    # What the commands show: "nobody listens on /queue/...".
    "docs/how-to/command-line.md": ("nobody",),
    "docs/how-to/jobs.md": ("nobody",),
    # A media type.
    "nebula/cli/sending.py": ("octet",),
    # A message of the shop, which its tests compare: "nobody sells hats".
    "services/shop/prices.py": ("nobody",),
    "services/shop/tests/test_orders.py": ("nobody",),
    "services/shop/tests/test_prices.py": ("nobody",),
    # Code: a variable, and `for who in`.
    "services/venue/acts.py": ("beside", "for who"),
    "services/venue/site.py": ("for who",),
}
"""By file, the words that it may have."""

_BANNED: Final = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead in BANNED.items()]


class Finding(NamedTuple):
    """A word that is not written.

    Attributes:
        path: relative to the repository.
        line: from 1.
        word: as it stands there.
        instead: what to write.
    """

    path: str
    line: int
    word: str
    instead: str


def findings(places: Sequence[str] = PLACES) -> Iterator[Finding]:
    """What files, and all files of folders, have of it."""
    for place in places:
        root = ROOT / place
        files = [root] if root.is_file() else sorted(root.rglob("*"))
        for path in files:
            if path.suffix in SUFFIXES and "node_modules" not in path.parts:
                yield from _findings(path)


def _findings(path: Path) -> Iterator[Finding]:
    name = str(path.relative_to(ROOT))
    allowed = ALLOWED.get(name, ())
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        for pattern, instead in _BANNED:
            for found in pattern.finditer(line):
                if not found[0].lower().startswith(allowed):
                    yield Finding(name, number, found[0], instead)


def main(places: Sequence[str]) -> int:
    """Print what is found; the program's exit status."""
    found = list(findings(places or PLACES))
    for each in found:
        print(f'{each.path}:{each.line}: "{each.word}"; write: {each.instead}')
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
