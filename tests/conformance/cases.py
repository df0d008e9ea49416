"""The cases of the transcripts: their names, what they are about, and where they can be played."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from nebula.avro import Registry
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Content, ContentCheck
from nebula.broker.core.policies import DestinationPolicy
from nebula.broker.core.profiles import PROFILES, Profile
from nebula.broker.keys import key_function
from nebula.broker.server.content import check_for
from tests.conformance.envelopes import SCHEMAS

TRANSCRIPTS = Path(__file__).parent

# How lines are written that tell of the case instead of its peers, by their first word.
SET_UP = {
    "only": re.compile(r"only (\w+)"),
    "limit": re.compile(r"limit (\w+) (\d+)"),
    "policy": re.compile(r"policy (\S+) (\w+) (\d+)"),
    "avro": re.compile(r"avro (\S+) (\w+)"),
    "checked": re.compile(r"checked (\S+)"),
    "keys": re.compile(r"keys (\S+)"),
    "switch": re.compile(r"switch (\w+)"),
    "except": re.compile(r"except (rabbitmq|activemq): (.+)"),
    "example": re.compile(r"example ([\w ]+): (.+?\. .+)"),
}

_EXCEPT = re.compile(r"except |#")
_TITLE = re.compile(r"^## (.+)\n", re.MULTILINE)
# What only our broker can be told, and what only our broker has: last values.
_OURS = re.compile(r"^(limit|policy|avro|checked|keys|switch) |\bX/", re.MULTILINE)
_IN_MEMORY_ONLY = re.compile(r"^(advance|block|unblock) |^\w+< (beat|silence)$", re.MULTILINE)
_NAMES_WHO = re.compile(r"^(accept|connect) .* as \w+|^\w+ may ", re.MULTILINE)
_SPEAKS_1_0 = re.compile(r"^connect \w+ 1\.0", re.MULTILINE)


@dataclass(frozen=True)
class Case:
    """One case of a transcript.

    Attributes:
        name: what stands behind `## `: what it is about, a colon, a sentence.
        text: its lines.
        path: the file that it stands in.
    """

    name: str
    text: str
    path: Path

    @property
    def subjects(self) -> list[str]:
        """What it is about: `E 41`, `D 5`, `A.11.3`, `G ephemeral`."""
        return self.name.partition(": ")[0].split(", ")

    @cached_property
    def profiles(self) -> tuple[str, ...]:
        """The profiles that it holds in: both, unless it says `only` or speaks 1.0 (D.1)."""
        if only := self._said("only"):
            return tuple(name for (name,) in only)
        return tuple(PROFILES)[:1] if _SPEAKS_1_0.search(self.text) else tuple(PROFILES)

    @property
    def limits(self) -> Limits:
        """What its `limit` lines say."""
        return Limits(**{name: int(number) for name, number in self._said("limit")})

    @property
    def policies(self) -> list[DestinationPolicy]:
        """What its `policy`, `avro` and `checked` lines say."""
        numbers: list[dict[str, Any]] = [
            {"pattern": glob, name: int(number)} for glob, name, number in self._said("policy")
        ]
        checks: list[tuple[str, ContentCheck]] = [(glob, _check) for (glob,) in self._said("checked")]
        for glob, name in self._said("avro"):
            checks.append((glob, check_for(Registry(SCHEMAS), name, is_bare=False)))
        return [
            *(DestinationPolicy(**each) for each in numbers),
            *(DestinationPolicy(pattern=glob, check=check) for glob, check in checks),
        ]

    @property
    def key_of(self) -> Callable[[str], str] | None:
        """What its `keys` lines say."""
        return key_function(("X/",), [pattern for (pattern,) in self._said("keys")])

    def profile(self, name: str) -> Profile:
        """The profile of this name, changed as its `switch` lines say."""
        switches: dict[str, Any] = {switch: True for (switch,) in self._said("switch")}
        return replace(PROFILES[name], **switches)

    @property
    def needs_memory(self) -> bool:
        """It moves time or blocks a socket."""
        return bool(_IN_MEMORY_ONLY.search(self.text))

    @property
    def names_who(self) -> bool:
        """It says who a peer is, so that it needs a world where peers have identities."""
        return bool(_NAMES_WHO.search(self.text))

    @property
    def is_of_stomp(self) -> bool:
        """It is about STOMP itself, and any broker can play it."""
        is_plain = "standard" in self.profiles and not self.needs_memory and not self.names_who
        return is_plain and self.subjects[0].startswith(("A.", "E ")) and not _OURS.search(self.text)

    @property
    def exceptions(self) -> list[tuple[str, str]]:
        """What its `except` lines say: a foreign broker, and in which way that differs."""
        return [(broker, why) for broker, why in self._said("except")]

    @property
    def example(self) -> tuple[str, str] | None:
        """What its `example` line says: a section of the page of examples; a title and an introduction."""
        return next(((section, text) for section, text in self._said("example")), None)

    def departure(self, broker: str) -> int | None:
        """The number of the line that is different on a foreign broker: the one below `except BROKER: …`."""
        lines = self.text.rstrip("\n").split("\n")
        for number, line in enumerate(lines):
            if line.startswith(f"except {broker}: "):
                below = [at for at, each in enumerate(lines) if at > number and not _EXCEPT.match(each)]
                return (below[0] if below else len(lines)) + 1
        return None

    def _said(self, word: str) -> list[tuple[str, ...]]:
        """What the lines say that begin with a word of `SET_UP`."""
        lines = [line for line in self.text.splitlines() if line.startswith(f"{word} ")]
        matches = [SET_UP[word].fullmatch(line) for line in lines]
        assert all(matches), f"{self.name}: {lines} are not all written as they should be"
        return [match.groups() for match in matches if match]


def _check(body: bytes) -> Content:
    """A schema that everybody can write bodies for."""
    if body == b"gone":
        return Content.TOMBSTONE
    return Content.VALID if body.startswith(b"good") else Content.INVALID


def read_cases(folder: Path) -> list[Case]:
    """All cases of a folder's transcripts, in order."""
    found: dict[str, Case] = {}
    for file in sorted(folder.glob("*.txt")):
        _, *parts = _TITLE.split(file.read_text())
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            assert name not in found, name
            found[name] = Case(name, text, file)
            assert set(found[name].profiles) <= set(PROFILES), name
    return list(found.values())


def replace_case(case: Case, text: str) -> None:
    """Write other lines for a case into its file; no other byte of it changes."""
    start, *parts = _TITLE.split(case.path.read_text())
    texts = dict(zip(parts[::2], parts[1::2], strict=True)) | {case.name: text}
    case.path.write_text(start + "".join(f"## {name}\n{lines}" for name, lines in texts.items()))
