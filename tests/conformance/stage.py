"""The words of the transcripts, and what each does in a world. README.md explains them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.broker.script import octets
from tests.conformance.cases import SET_UP
from tests.conformance.envelopes import envelope
from tests.conformance.heard import Names, line_of
from tests.conformance.worlds import InMemory, Rights, World

# What a word does. It returns the lines that are true; None: the line itself is.
Word = Callable[..., list[str] | None]


class Stage:
    """One case on its way: the peers, their rights and the names that the case uses."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._peers: dict[str, None] = {}
        self._rights = Rights()
        self._names = Names()

    def perform(self, line: str) -> list[str]:
        """Do what a line says.

        Returns:
            The line as it happened: itself, unless something else was heard.
        """
        for word, do in WORDS.items():
            if match := word.fullmatch(line):
                happened = do(self, *match.groups())
                return [line] if happened is None else happened
        raise AssertionError("no word of this language")

    def left_over(self) -> list[str]:
        """The lines of what peers heard and no line expects."""
        return [line for name in self._peers for line in self._waiting(name)]

    # The words

    def skip(self) -> None:
        """A remark, an empty line, or a line that was read before the broker began."""

    def accept(self, name: str, who: str | None) -> None:
        self._names.values[who or name] = self._world.accept(name, who or name)
        self._peers[name] = None

    def connect(self, name: str, version: str, who: str | None, more: str | None) -> list[str] | None:
        self.accept(name, who)
        offer = "login:guest" if version == "1.0" else f"accept-version:{version}"
        if version != "1.0" and "heart-beat:" not in (more or ""):
            offer += f"; {self._world.offer}"
        frame, connected = f"CONNECT {offer}; {more or ''}", "CONNECTED session:*"
        self.say(name, frame)
        heard = self.hear(name, connected)
        if heard == [f"{name}< {connected}"]:
            return None
        return [f"accept {name} as {who}" if who else f"accept {name}", f"{name}> {frame}", *heard]

    def name_body(self, name: str, text: str) -> None:
        self._names.bodies[name] = envelope(text)

    def say(self, name: str, frame: str) -> None:
        start, _, body = frame.partition(" | ")
        if body in self._names.bodies:
            data = self._names.bodies[body]
            head = octets(self._names.fill(f"{start}; content-length:{len(data)}"))
            self._world.send(name, head.removesuffix(b"\0") + data + b"\0")
        else:
            self._world.send(name, octets(self._names.fill(frame)))

    def say_bytes(self, name: str, text: str) -> None:
        self._world.send(name, _unescaped(self._names.fill(text)))

    def hear(self, name: str, expected: str) -> list[str]:
        if expected == "nothing":
            return self._waiting(name) or [f"{name}< nothing"]
        heard = self._world.hear(name)
        if isinstance(heard, str):
            # A peer that hears no frame has no line; that the broker closed the connection is a line.
            return [f"{name}< closed"] if heard == "closed" else []
        lines = [f"{name}< {line_of(heard, expected, self._names)}"]
        return [*lines, *self.hear(name, expected)] if expected == "closed" else lines

    def hear_beat(self, name: str) -> list[str]:
        waiting = self._waiting(name)
        return [*waiting, f"{name}< {'beat' if self._in_memory.has_beaten(name) else 'silence'}"]

    def saw(self, name: str, never: str | None, text: str) -> list[str]:
        has_seen = _unescaped(text) in self._world.octets(name)
        return [f"{name} saw {text}" if has_seen else f"{name} never saw {text}"]

    def lose(self, name: str) -> list[str]:
        waiting = self._waiting(name)
        self._world.lose(name)
        del self._peers[name]
        return [*waiting, f"lose {name}"]

    def grant(self, name: str, action: str, globs: str) -> None:
        self._rights.grant(name, action, globs.split())
        self._world.let(self._rights)

    def withdraw(self, name: str, action: str, globs: str) -> None:
        self._rights.withdraw(name, action, globs.split())
        self._world.let(self._rights)

    def advance(self, seconds: str) -> None:
        self._in_memory.advance(float(seconds))

    def block(self, name: str) -> None:
        self._in_memory.set_blocked(name, is_blocked=True)

    def unblock(self, name: str) -> None:
        self._in_memory.set_blocked(name, is_blocked=False)

    # What they share

    @property
    def _in_memory(self) -> InMemory:
        assert isinstance(self._world, InMemory), "this world has a clock of its own"
        return self._world

    def _waiting(self, name: str) -> list[str]:
        return list(self._all_waiting(name))

    def _all_waiting(self, name: str) -> Iterator[str]:
        while not self._world.hears_nothing(name):
            heard = self._world.hear(name)
            assert not isinstance(heard, str), heard
            yield f"{name}< {line_of(heard, '', self._names)}"


WORDS: dict[re.Pattern[str], Word] = {
    re.compile(rf"(?:#.*|(?:{'|'.join(SET_UP)}) .*)?"): Stage.skip,
    re.compile(r"accept (\w+)(?: as (\w+))?"): Stage.accept,
    re.compile(r"connect (\w+) (1\.[012])(?: as (\w+))?(?: with (.*))?"): Stage.connect,
    re.compile(r"(\$\w+) = (.+)"): Stage.name_body,
    re.compile(r"(\w+)> (.+)"): Stage.say,
    re.compile(r"(\w+)>> (.*)"): Stage.say_bytes,
    re.compile(r"(\w+)< (?:beat|silence)"): Stage.hear_beat,
    re.compile(r"(\w+)< (.+)"): Stage.hear,
    re.compile(r"(\w+) (never )?saw (.*)"): Stage.saw,
    re.compile(r"lose (\w+)"): Stage.lose,
    re.compile(r"(\w+) may not (\w+) (.+)"): Stage.withdraw,
    re.compile(r"(\w+) may (\w+) (.+)"): Stage.grant,
    re.compile(r"advance ([\d.]+)"): Stage.advance,
    re.compile(r"block (\w+)"): Stage.block,
    re.compile(r"unblock (\w+)"): Stage.unblock,
}


def _unescaped(text: str) -> bytes:
    """Bytes that were written with Python's escapes, `<3 times x>` for `xxx`."""
    text = re.sub(r"<(\d+) times (.*?)>", lambda times: times[2] * int(times[1]), text)
    return text.encode().decode("unicode_escape").encode("latin-1")
