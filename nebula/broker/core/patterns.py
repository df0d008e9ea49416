"""Index of subscribed patterns by destination: which literal names and globs match one.

The matches of a destination are cached, so a lookup usually costs one dictionary access. A destination that
is not cached is not tried with every glob. Each glob is filed under a run of plain characters that all names
it matches contain, such as `M000123.` for `X/EGM.*.GM000123.*`. A destination is tried only with the globs
that are filed under a part of its own text, so a glob with other text in it costs nothing.

A pattern may have several runs. It is filed under the one with the fewest globs, so it does not matter
whether similar patterns differ at their beginning, their end or in between. Globs with the same plain
characters, such as `X/?` and `X/[ab]`, share a run and are tried one by one: a lookup is linear in those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import Final, Generic, TypeVar

from nebula.broker.core.fixed_limits import (
    MAX_KNOWN_CHARACTERS,
    MAX_KNOWN_DESTINATIONS,
    MAX_KNOWN_MATCHES,
    MAX_LATEST_GLOBS,
)
from nebula.globs import compile_glob, is_glob, plain_runs

T = TypeVar("T")

_by_number: Final = attrgetter("number")

# Only the last characters of a run are used: names mostly differ at the end. Each length in use costs a
# lookup for each character of a destination.
_MAX_RUN_CHARACTERS: Final = 8


@dataclass(slots=True, eq=False, repr=False)
class _Glob(Generic[T]):
    """A glob of the table.

    Attributes:
        number: its place in the order of insertion.
        run: the characters that it is filed under.
        is_gone: it was removed.
    """

    number: int
    matches: Callable[[str], object]
    run: str
    thing: T
    is_gone: bool = False


@dataclass(slots=True, eq=False, repr=False)
class _Match(Generic[T]):
    """The patterns that one destination matches, and those that reach a subscriber, as far as is known."""

    version: int = -1
    everything: list[T] = field(default_factory=list)
    globs: list[_Glob[T]] = field(default_factory=list)
    additions: int = 0
    removals: int = 0
    changes: int = -1
    reached: list[T] = field(default_factory=list)
    reaching: list[_Glob[T]] = field(default_factory=list)


class PatternTable(Generic[T]):
    """Things by the literal destination or glob that they belong to.

    A lookup costs a dictionary access, however many patterns and destinations there are, once a
    destination is warm. A new glob is tried on a destination when that is looked up next, and
    then only that glob; so neither subscribing nor leaving touches destinations without messages.

    Args:
        reaches: whether a subscriber at a thing may receive what is sent to a destination; for `reached`.

    Attributes:
        things: all of them, by pattern; changed here alone.
        globs: the patterns that are no plain names, as they are at any time.
    """

    def __init__(self, reaches: Callable[[T, str], bool] | None = None) -> None:
        self._reaches = reaches
        self._changes = 0
        self._changed: deque[_Glob[T]] = deque(maxlen=MAX_LATEST_GLOBS)
        self.things: dict[str, T] = {}
        # In the order of insertion.
        self._globs: dict[str, _Glob[T]] = {}
        # A live view, looked at for each message to a topic: made once.
        self.globs: Collection[str] = self._globs.keys()
        self._latest: deque[_Glob[T]] = deque(maxlen=MAX_LATEST_GLOBS)
        # By the length of the run, then by the run.
        self._by_run: dict[int, dict[str, dict[int, _Glob[T]]]] = {}
        self._version = 0
        self._additions = 0
        self._removals = 0
        self._warm: dict[str, _Match[T]] = {}
        # How many globs match those, all together.
        self._warm_matches = 0

    def add(self, pattern: str, thing: T) -> None:
        """Put `thing` under a pattern that is new.

        Raises:
            ValueError: the glob is malformed or too long; the text may be shown to a peer.
        """
        if is_glob(pattern):
            self._file(pattern, thing)
        self.things[pattern] = thing
        self.note_change(pattern)

    def remove(self, pattern: str) -> None:
        """Take it out again."""
        self.note_change(pattern)
        del self.things[pattern]
        glob = self._globs.pop(pattern, None)
        if glob is None:
            return
        glob.is_gone = True
        # Destinations that are not looked up again still remember it, and what was compiled takes kilobytes.
        glob.matches = lambda _: False
        length = len(glob.run)
        bucket = self._by_run[length][glob.run]
        del bucket[glob.number]
        if not bucket:
            del self._by_run[length][glob.run]
            if not self._by_run[length]:
                del self._by_run[length]
        self._removals += 1
        self._version += 1

    def matching(self, destination: str) -> Sequence[T]:
        """Everything whose pattern matches, each once: the literal one, then globs in the order of insertion.

        Do not change or keep the result.
        """
        if not self._globs:
            literal = self.things.get(destination)
            return () if literal is None else (literal,)
        match = self._warm.get(destination)
        if match is None or match.version != self._version:
            match = self._match_anew(destination, match)
        return match.everything

    def reached(self, destination: str) -> Sequence[T]:
        """As `matching`, without what reaches no subscriber.

        It is remembered too: what people subscribe to who may receive nothing of it must not cost each SEND.
        """
        match = self._warm.get(destination)
        if match is None or match.changes != self._changes:
            match = self._reach_anew(destination, match)
        return match.reached

    def note_change(self, pattern: str) -> None:
        """The thing of this pattern may reach others than before."""
        glob = self._globs.get(pattern)
        if glob is None:
            # No other destination is affected.
            match = self._warm.get(pattern)
            if match is not None:
                match.version = match.changes = -1
        else:
            self._changes += 1
            self._changed.append(glob)

    def forget_reached(self) -> None:
        """Everything may reach others than before."""
        # More than is looked at one by one.
        self._changes += MAX_LATEST_GLOBS + 1

    def _reach_anew(self, destination: str, match: _Match[T] | None) -> _Match[T]:
        assert self._reaches is not None
        reaches, count = self._reaches, self._changes
        changed_count = count if match is None or match.changes < 0 else count - match.changes
        if match is None or match.changes < 0 or changed_count > len(self._changed):
            if match is None or match.version != self._version:
                match = self._match_anew(destination, match)
            match.reaching = [each for each in match.globs if reaches(each.thing, destination)]
        else:
            # Few patterns have changed since: only these are judged again, not all that match.
            changed = set(islice(reversed(self._changed), changed_count))
            match.reaching = [each for each in match.reaching if each not in changed]
            match.reaching += [
                each
                for each in changed
                if not each.is_gone and each.matches(destination) and reaches(each.thing, destination)
            ]
            match.reaching.sort(key=_by_number)
        match.reached = self._with_literal(destination, match.reaching)
        match.changes = count
        return match

    def _file(self, pattern: str, thing: T) -> None:
        matches = compile_glob(pattern)
        run = min(
            (each[-_MAX_RUN_CHARACTERS:] for each in plain_runs(pattern)),
            key=lambda each: (len(self._by_run.get(len(each), {}).get(each, ())), -len(each)),
            default="",
        )
        self._additions += 1
        self._version += 1
        glob = self._globs[pattern] = _Glob(self._additions, matches, run, thing)
        self._latest.append(glob)
        self._by_run.setdefault(len(run), {}).setdefault(run, {})[glob.number] = glob

    def _match_anew(self, destination: str, match: _Match[T] | None) -> _Match[T]:
        if match is None:
            match = _Match()
            # Names are the senders': a longer one is matched each time, and costs no memory.
            if len(destination) <= MAX_KNOWN_CHARACTERS:
                self._warm[destination] = match
        before = len(match.globs)
        if match.removals != self._removals:
            match.removals = self._removals
            match.globs = [each for each in match.globs if not each.is_gone]
        if match.additions != self._additions:
            new = [
                each
                for each in self._candidates(destination, self._additions - match.additions)
                if each.number > match.additions and not each.is_gone and each.matches(destination)
            ]
            match.globs += sorted(new, key=_by_number)
            match.additions = self._additions
        match.everything = self._with_literal(destination, match.globs)
        match.version = self._version
        if self._warm.get(destination) is match:
            self._warm_matches += len(match.globs) - before
            while len(self._warm) > MAX_KNOWN_DESTINATIONS or self._warm_matches > MAX_KNOWN_MATCHES:
                oldest = self._warm.pop(next(iter(self._warm)))
                self._warm_matches -= len(oldest.globs)
        return match

    def _with_literal(self, destination: str, globs: Iterable[_Glob[T]]) -> list[T]:
        literal, things = self.things.get(destination), [each.thing for each in globs]
        return things if literal is None else [literal, *things]

    def _candidates(self, destination: str, new_count: int) -> Iterable[_Glob[T]]:
        """Candidates among the latest globs: all that match the destination, and perhaps others."""
        if new_count <= len(self._latest):
            return islice(reversed(self._latest), new_count)
        # Looking up a part of the name costs about half as much as trying a glob.
        if 2 * len(self._globs) <= len(destination) * len(self._by_run):
            return self._globs.values()
        return self._filed(destination)

    def _filed(self, destination: str) -> Iterator[_Glob[T]]:
        for length, buckets in self._by_run.items():
            ends = range(length, len(destination) + 1) if length else (0,)
            # A set, so that a name with repetitions does not try a glob twice.
            for part in buckets.keys() & {destination[end - length : end] for end in ends}:
                yield from buckets[part].values()
