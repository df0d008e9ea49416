"""Cures of wrong settings: what a message says to write, done literally."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_COMPLAINT: Final = re.compile(
    r"[^:]+: (?:\[\[(?P<tables>\w+)\]\] (?P<number>\d+):? |\[(?P<table>\w+)\]:? |top level: )?(?P<rest>.*)"
)


@dataclass
class _Place:
    """What a complaint is about: a setting of a table, or an entry of its list or table."""

    tree: dict[str, Any]
    table: dict[str, Any]
    name: str
    entry: str

    def put(self, value: Any) -> None:
        old = self.table.get(self.name)
        if self.entry and isinstance(old, list):
            old[int(self.entry)] = value
        elif self.entry:
            self.table[self.name][self.entry] = value
        else:
            self.table[self.name] = value

    def name_it(self, word: str) -> None:
        """Write one of the words that are allowed: as the value, or as the name of an entry."""
        if self.entry:
            self.table[self.name][word] = self.table[self.name].pop(self.entry)
        else:
            self.put(word)

    def move(self, word: str, target: str, empty: Any) -> None:
        """Take a setting to another table."""
        tables = self.tree.setdefault(target, empty)
        (tables[0] if isinstance(tables, list) else tables)[word] = self.table.pop(word)

    def begin_tables(self, name: str) -> None:
        old = self.tree.get(name)
        self.tree[name] = [old if isinstance(old, dict) else {}]


def _value(text: str) -> Any:
    return tomllib.loads(f"x = {text}")["x"]


# What a message says, by the words at its end; the first one that is found counts.
_CURES: Final[dict[str, Callable[..., Any]]] = {
    r'unknown setting "(\w+)"; did you mean "(\w+)"\?$': lambda at, old, new: at.table.update(
        {new: at.table.pop(old)}
    ),
    r'unknown setting "(\w+)"; remove it: ': lambda at, word: at.table.pop(word),
    r'unknown setting "(\w+)"; it belongs into \[(\w+)\]': lambda at, word, to: at.move(word, to, {}),
    r'unknown setting "(\w+)"; it belongs into \[\[(\w+)\]\]': lambda at, word, to: at.move(word, to, [{}]),
    r'did you mean "([^"]+)"\?$': lambda at, word: at.name_it(word),
    r" is not one of ([\w-]+)[^;]*$": lambda at, word: at.name_it(word),
    r" is not at (?:least|most) ([^ ]+)$": lambda at, bound: at.put(_value(bound)),
    r" is not (true) or false$": lambda at, value: at.put(_value(value)),
    r" begin its pattern with (/queue/)$": lambda at, prefix: at.table.update(
        pattern=re.sub("^/topic/", prefix, at.table["pattern"])
    ),
    r': write "(.(.).)" for the character itself$': lambda at, group, character: at.put(
        at.table[at.name].replace(character, group)
    ),
    r'"(\S+)", which runs backwards: write "(\S+)"$': lambda at, old, new: at.put(
        at.table[at.name].replace(old, new)
    ),
    r" remove (\w+)$": lambda at, word: at.table.pop(word),
    r": write \[\[(\w+)\]\]$": lambda at, name: at.begin_tables(name),
    r": write \[(\w+)\]$": lambda at, name: at.tree.update({name: {}}),
    r": write (\w+ = [^=]+) and (\w+ = [^=]+)$": lambda at, *lines: at.table.update(
        tomllib.loads("\n".join(lines))
    ),
    r": write (\w+ = .+)$": lambda at, line: at.table.update(tomllib.loads(line)),
    r"; write ([^;]+), for example$": lambda at, value: at.put(_value(value)),
}


def apply_cure(tree: dict[str, Any], complaint: str) -> None:
    """Do to the settings of a file literally what a complaint about it says."""
    found = _COMPLAINT.fullmatch(complaint)
    assert found is not None, complaint
    table = tree
    if found["tables"]:
        tables = tree[found["tables"]]
        table = tables[int(found["number"]) - 1]
    elif found["table"] and isinstance(tree[found["table"]], dict):
        table = tree[found["table"]]
    name, _, entry = found["rest"].partition(" ")[0].partition(".")
    for pattern, cure in _CURES.items():
        if match := re.search(pattern, found["rest"]):
            cure(_Place(tree, table, name, entry), *match.groups())
            return
    raise AssertionError(f"no cure: {complaint}")
