"""What is subscribed to, by pattern; and which patterns a destination matches, remembered for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Generic, TypeVar

from nebula.broker.globs import compile_glob, is_glob

T = TypeVar("T")

# Destinations whose matches are remembered; beyond it the oldest are worked out anew.
_MAX_WARM = 100_000

# Senders choose the names: those that are absurdly long are worked out each time.
_MAX_WARM_CHARACTERS = 256


class _Match(Generic[T]):
    """The patterns that one destination matches, as far as they were looked at."""

    __slots__ = ("additions", "everything", "globs", "removals", "version")

    def __init__(self) -> None:
        self.version = -1
        self.everything: list[T] = []
        self.globs: list[tuple[str, T]] = []
        self.additions = 0
        self.removals = 0


class PatternTable(Generic[T]):
    """Things by the literal destination or glob that they belong to.

    A lookup costs a dictionary access, however many patterns and destinations there are, once a
    destination is warm. A new glob is tried on a destination when that is looked up next, and
    then only that glob; so neither subscribing nor leaving touches what nobody sends to.
    """

    def __init__(self) -> None:
        self._things: dict[str, T] = {}
        # Globs in the order in which they came, each with its place in it.
        self._globs: dict[str, tuple[int, Callable[[str], object]]] = {}
        self._version = 0
        self._additions = 0
        self._removals = 0
        self._warm: dict[str, _Match[T]] = {}

    @property
    def things(self) -> Mapping[str, T]:
        """All of them, by pattern."""
        return self._things

    @property
    def globs(self) -> Collection[str]:
        """The patterns that are no plain names, as they are at any time."""
        return self._globs.keys()

    @property
    def has_globs(self) -> bool:
        """Whether a destination may match more than its own name."""
        return bool(self._globs)

    def get(self, pattern: str) -> T | None:
        """What belongs to exactly this pattern."""
        return self._things.get(pattern)

    def add(self, pattern: str, thing: T) -> None:
        """Put `thing` under a pattern that is new.

        Raises:
            ValueError: the glob is malformed or too long; the text may be shown to a peer.
        """
        if is_glob(pattern):
            matches = compile_glob(pattern)
            self._additions += 1
            self._globs[pattern] = (self._additions, matches)
        self._things[pattern] = thing
        self._version += 1

    def remove(self, pattern: str) -> None:
        """Take it out again."""
        del self._things[pattern]
        self._version += 1
        if self._globs.pop(pattern, None) is not None:
            self._removals += 1

    def matching(self, destination: str) -> Sequence[T]:
        """Everything whose pattern matches, each once. Not to be changed, nor kept."""
        if not self._globs:
            literal = self._things.get(destination)
            return () if literal is None else (literal,)
        match = self._warm.get(destination)
        if match is None or match.version != self._version:
            match = self._match_anew(destination, match)
        return match.everything

    def _match_anew(self, destination: str, match: _Match[T] | None) -> _Match[T]:
        if match is None:
            match = _Match()
            if len(destination) <= _MAX_WARM_CHARACTERS:
                if len(self._warm) >= _MAX_WARM:
                    del self._warm[next(iter(self._warm))]
                self._warm[destination] = match
        if match.removals != self._removals:
            match.removals = self._removals
            match.globs = [each for each in match.globs if self._things.get(each[0]) is each[1]]
        if match.additions != self._additions:
            self._look_at_new(destination, match)
        literal = self._things.get(destination)
        match.everything = [thing for _, thing in match.globs]
        if literal is not None:
            match.everything.insert(0, literal)
        match.version = self._version
        return match

    def _look_at_new(self, destination: str, match: _Match[T]) -> None:
        # Newest first, until those that this destination knows already.
        for pattern in reversed(self._globs):
            number, matches = self._globs[pattern]
            if number <= match.additions:
                break
            if matches(destination):
                match.globs.append((pattern, self._things[pattern]))
        match.additions = self._additions
