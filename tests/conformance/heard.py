"""What peers hear, written as a line of a transcript."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tests.broker.script import Received

# Headers that are new in each run: a line that is written afresh does not name their values.
_FRESH = frozenset({"ack", "message-id", "server", "session", "timestamp"})

# Text that a line of a transcript cannot hold.
_UNWRITABLE = re.compile(r"[\r\n]|; | \| |\\[xu]")


@dataclass
class Names:
    """The names of one transcript: `$first` for a header's value, `$good` for a body."""

    values: dict[str, str] = field(default_factory=dict)
    bodies: dict[str, bytes] = field(default_factory=dict)

    def fill(self, text: str) -> str:
        """The text with the values of its names."""
        return re.sub(r"\$(\w+)", lambda name: self.value(name[1]), text)

    def value(self, name: str) -> str:
        """The value that an earlier line kept."""
        assert name in self.values, f"no earlier line keeps ${name}"
        return self.values[name]


def line_of(frame: Received, expected: str, names: Names) -> str:
    """The line that a frame ought to have.

    Returns:
        `expected` itself if it is true of the frame. Otherwise it is changed where it is wrong; headers that
        it does not name stay out, and a frame of another command is written whole.
    """
    command, headers, *rest = frame
    body = "".join(rest)
    start, _, wanted_body = expected.partition(" | ")
    wanted_command, _, wanted_headers = start.partition(" ")
    if command != wanted_command:
        return _joined(command, _all_items(headers, names), _writable(body))
    wanted = [item for item in re.split(r"; |(?:^| )(?=!)", wanted_headers) if item]
    items = [_item(item, headers, names) for item in wanted]
    is_same_body = wanted_body == "*" or _body(wanted_body, names) == body
    if is_same_body and items == wanted:
        return expected
    return _joined(command, items, wanted_body if is_same_body else _writable(body))


def _item(item: str, headers: Mapping[str, str], names: Names) -> str:
    """`name:value` or `!name`, as it is in these headers."""
    name, _, value = item.removeprefix("!").partition(":")
    if name not in headers:
        return f"!{name}"
    heard = headers[name]
    if item.startswith("!"):
        return f"{name}:{_named(heard, names)}"
    if re.fullmatch(r"\$\w+", value):
        names.values.setdefault(value[1:], heard)
    return item if value == "*" or names.fill(value) == heard else f"{name}:{_named(heard, names)}"


def _all_items(headers: Mapping[str, str], names: Names) -> Iterator[str]:
    for name, value in headers.items():
        yield f"{name}:{'*' if name in _FRESH else _named(value, names)}"


def _named(value: str, names: Names) -> str:
    kept = (f"${name}" for name, each in names.values.items() if each == value)
    return next(kept, _writable(value))


def _body(text: str, names: Names) -> str:
    return names.bodies[text].decode(errors="backslashreplace") if text in names.bodies else text


def _writable(text: str) -> str:
    return "*" if _UNWRITABLE.search(text) else text


def _joined(command: str, items: Iterator[str] | list[str], body: str) -> str:
    # Headers that are absent stand together: `x:1; !y !z`.
    headers = re.sub(r"(![\w-]+);(?= !)", r"\1", "; ".join(items))
    start = " ".join(part for part in (command, headers) if part)
    return f"{start} | {body}" if body else start
