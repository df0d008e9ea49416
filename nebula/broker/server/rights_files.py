"""Rights files: capabilities and principals in TOML, merged from several files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from nebula.broker.core.access import Capability, Grants, check_grant
from nebula.errors import SettingsError
from nebula.settings import Settings, load
from nebula.settings_words import did_you_mean, fields_of

# TOML writes a key with anything else in it in quotes.
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
# A SHA-256 as OpenSSL and browsers show it.
_FINGERPRINT = re.compile(r"(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}")


class _RightsFile(Settings):
    """The tables of a file. What is in them is named by its author, so it is checked below, by hand."""

    capability: Any = Field(default_factory=dict)
    identity: Any = Field(default_factory=dict)


def load_grants(files: Sequence[Path]) -> Grants:
    """Merge the files: each capability stands in one of them, an identity may stand in several.

    An identity has what all files together give it, in their order.

    Raises:
        SettingsError: a line for each mistake in each file: file, place, what is wrong, what is right.
    """
    draft = _Draft()
    for file in files:
        draft.add(file)
    return draft.finish()


class _Draft:
    """What was read so far, and what was wrong with it."""

    def __init__(self) -> None:
        self._problems: list[str] = []
        self._capabilities: dict[str, Capability] = {}
        # Bad ones too: their name is known, and one mistake is told once.
        self._origins: dict[str, Path] = {}
        self._identities: list[tuple[Path, str, tuple[str, ...]]] = []

    def add(self, file: Path) -> None:
        try:
            # What is read is a file alone: no variable stands for a table of rights.
            tables = load(_RightsFile, env_prefix="", file=file, environ={}).value
        except SettingsError as error:
            self._problems.append(str(error))
            return
        for name, value in self._entries(file, "capability", tables.capability):
            self._add_capability(file, name, value)
        for identity, value in self._entries(file, "identity", tables.identity):
            self._add_identity(file, identity, value)

    def finish(self) -> Grants:
        identities: dict[str, dict[str, None]] = {}
        for file, identity, names in self._identities:
            for name in names:
                if name not in self._origins:
                    near = did_you_mean(name, self._origins) if self._origins else "; no file defines any"
                    self._complain(
                        file, _identity(identity), f"no capability is called {_quoted(name)}{near}"
                    )
            identities.setdefault(identity, {}).update(dict.fromkeys(names))
        if self._problems:
            raise SettingsError("\n".join(self._problems))
        return Grants(self._capabilities, {identity: tuple(names) for identity, names in identities.items()})

    def _complain(self, file: Path, place: str, what: str) -> None:
        self._problems.append(f"{file}: {place}: {what}")

    def _entries(self, file: Path, table: str, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, dict):
            yield from value.items()
        else:
            self._complain(file, f"[{table}]", f"{_shown(value)} is not a table")

    def _add_capability(self, file: Path, name: str, table: Any) -> None:
        place = f"[capability.{name if _BARE_KEY.fullmatch(name) else _quoted(name)}]"
        if name in self._origins:
            self._complain(file, place, f"is in {self._origins[name]} too: keep one of them, or rename one")
            return
        self._origins[name] = file
        if not isinstance(table, dict):
            self._complain(file, place, f"{_shown(table)} is not a table")
            return
        known = fields_of(Capability)
        unknown = sorted(table.keys() - known.keys())
        for key in unknown:
            self._complain(file, place, f"unknown setting {_quoted(key)}{did_you_mean(key, known)}")
        globs = {
            key: self._texts(file, f"{place} {key}", value, _fault_of_glob)
            for key, value in table.items()
            if key in known
        }
        # A misspelled key is one mistake; that the capability is empty without it is no second one.
        if not unknown:
            self._make(file, place, name, globs)

    def _make(self, file: Path, place: str, name: str, globs: dict[str, tuple[str, ...] | None]) -> None:
        good = {key: texts for key, texts in globs.items() if texts is not None}
        if len(good) < len(globs):
            return
        try:
            self._capabilities[name] = Capability(**good)
        except ValueError as error:
            self._complain(file, place, str(error))

    def _add_identity(self, file: Path, identity: str, value: Any) -> None:
        if _FINGERPRINT.fullmatch(identity):
            spelled = identity.replace(":", "").lower()
            if spelled != identity:
                # It would match no certificate, without any message.
                self._complain(file, _identity(identity), f'a fingerprint is written "{spelled}"')
        names = self._texts(file, _identity(identity), value, _fault_of_text)
        if names is not None:
            self._identities.append((file, identity, names))

    def _texts(
        self, file: Path, place: str, value: Any, fault_of: Callable[[Any], str | None]
    ) -> tuple[str, ...] | None:
        """A list of texts, or None after a complaint."""
        if not isinstance(value, list):
            self._complain(file, place, f"{_shown(value)} is not a list")
            return None
        faults = [(number, text, fault_of(text)) for number, text in enumerate(value, 1)]
        for number, text, fault in faults:
            if fault is not None:
                self._complain(file, f"{place} {number}", f"{_shown(text)} {fault}")
        return None if any(fault for _, _, fault in faults) else tuple(value)


def _fault_of_text(text: Any) -> str | None:
    if not isinstance(text, str):
        return "is not a text in quotes"
    return None if text else "is empty"


def _fault_of_glob(text: Any) -> str | None:
    if fault := _fault_of_text(text):
        return fault
    try:
        check_grant(text)
    except ValueError as error:
        return str(error)
    return None


def _identity(identity: str) -> str:
    return f"[identity] {_quoted(identity)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "(a table)" if isinstance(value, dict) else "(a list)"
    return json.dumps(value, default=str, ensure_ascii=False)
