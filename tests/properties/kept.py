"""What the model of the store's machine knows: each message in its line, and what a crash leaves of it.

Everything that happens goes into the batch that is being gathered, and of each batch a crash leaves all or
nothing. So it is enough to know of a message in which batch it came and in which one it went.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import Peer
from tests.broker.script import Received

MAX_DELIVERIES = 3
_NEXT_PLACE = count(1).__next__


@dataclass(eq=False)
class Entry:
    """One message in one line."""

    body: str
    is_persistent: bool
    came_in: int
    place: str = "waiting"  # or "delayed", "held", "gone"; "expired": to be a dead letter, at any time
    went_in: int | None = None
    attempts: int | None = None  # None: it was never given back
    is_restored: bool = False  # its count is what it is: it need not be exact
    was_back: bool = False
    priority: int = 4
    expires_at: float | None = None
    is_request: bool = False
    deliver_at: float | None = None
    place_in_line: int | None = field(default_factory=_NEXT_PLACE)  # None: a crash left it open
    waits_since: int = 0  # the look of `check_order` before which it came, or came back
    once_in: int | None = None  # the batch that it waits for, where it is promised once
    was_due: bool = False  # before a restart: it may be in its line on disk, and wait for no batch

    def survives(self, kept: int) -> bool:
        """Whether a crash would leave it, now that these batches are on disk."""
        return self.is_persistent and self.came_in <= kept and (self.went_in is None or self.went_in > kept)

    def has_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now


@dataclass(eq=False)
class Kept:
    """A queue, or a durable subscription to topics: what it holds, and the batches of its own life."""

    name: str
    entries: dict[str, Entry] = field(default_factory=dict)
    came_in: int = 0
    went_in: int | None = None
    last_first: dict[int, int] = field(default_factory=dict)  # message numbers, by priority

    @property
    def waiting(self) -> list[Entry]:
        return [entry for entry in self.entries.values() if entry.place == "waiting"]

    def survives(self, kept: int) -> bool:
        """Whether a crash would leave it."""
        return self.came_in <= kept and (self.went_in is None or self.went_in > kept)

    @property
    def once_in(self) -> int:
        """The last batch that anything here waits for, and what comes behind that."""
        return max((entry.once_in or 0 for entry in self.entries.values()), default=0)

    @property
    def depth(self) -> int:
        return sum(entry.place in ("waiting", "held") for entry in self.entries.values())


@dataclass
class Used:
    """A `dedup-id` that is not to be used again for a while."""

    until: float
    came_in: int
    is_kept: bool


class Values:
    """Last values: what each key was set to (None: deleted), and in which batch."""

    def __init__(self) -> None:
        self._told: dict[str, list[tuple[int, str | None]]] = {}

    def set(self, key: str, body: str | None, batch: int) -> None:
        self._told.setdefault(key, []).append((batch, body))

    def at(self, kept: int) -> dict[str, str]:
        """What there is of what came up to this batch."""
        last = {key: [body for batch, body in told if batch <= kept][-1:] for key, told in self._told.items()}
        return {key: bodies[0] for key, bodies in last.items() if bodies and bodies[0] is not None}

    def crash(self, kept: int) -> None:
        self._told = {key: [(0, body)] for key, body in self.at(kept).items()}


@dataclass(eq=False)
class Subscribed:
    """What the model knows of one subscription."""

    peer: Peer
    id: str
    line: Kept
    ack: str
    prefetch: int
    held: dict[str, Received] = field(default_factory=dict)  # by body, in the order of delivery

    @property
    def has_credit(self) -> bool:
        return self.ack == "auto" or len(self.held) < self.prefetch


class Model:
    """All messages, live and dead."""

    def __init__(self) -> None:
        self.lines: dict[str, Kept] = {}
        self.removed: list[Kept] = []  # durable subscriptions, whose ends may not be on disk yet
        self.dead: list[Entry] = []
        self.values = Values()
        self.used: dict[tuple[str, str], Used] = {}  # by destination and dedup-id
        self.looks = 0

    def line(self, name: str) -> Kept:
        return self.lines.setdefault(name, Kept(name))

    def entries(self) -> Iterator[tuple[Kept, Entry]]:
        for line in (*self.lines.values(), *self.removed):
            for entry in line.entries.values():
                yield line, entry

    def remove(self, name: str, batch: int) -> None:
        """A durable subscription is gone for good."""
        line = self.lines.pop(name)
        line.went_in = batch
        for entry in line.entries.values():
            if entry.place != "gone":
                self.end(entry, batch)
        self.removed.append(line)

    def is_known(self, destination: str, dedup_id: str, now: float) -> bool:
        used = self.used.get((destination, dedup_id))
        return used is not None and used.until > now

    def settle(self, subscribed: Subscribed, body: str, command: str, batch: int, now: float) -> list[Entry]:
        """An ACK or NACK of `body` takes effect. Returns what it was about."""
        bodies = list(subscribed.held)
        scope = bodies[: bodies.index(body) + 1] if subscribed.ack == "client" else [body]
        for each in scope:
            entry = subscribed.line.entries[each]
            del subscribed.held[each]
            if command == "nack":
                self.give_back(entry, batch, now, counted=True)
            else:
                self.end(entry, batch)
                if command == "drop":
                    self.bury(entry, batch, now)
        return [subscribed.line.entries[each] for each in scope]

    def give_back(self, entry: Entry, batch: int, now: float, *, counted: bool) -> None:
        entry.attempts = (entry.attempts or 0) + counted
        entry.is_restored, entry.was_back = False, True
        entry.place, entry.waits_since = "waiting", self.looks
        if entry.attempts >= MAX_DELIVERIES:
            self.end(entry, batch)
            self.bury(entry, batch, now)
        elif entry.has_expired(now):
            self.expire(entry)

    def end(self, entry: Entry, batch: int) -> None:
        entry.place, entry.went_in = "gone", batch

    def bury(self, entry: Entry, batch: int, now: float) -> None:
        if not (entry.is_request and entry.has_expired(now)):
            self.dead.append(Entry(entry.body, entry.is_persistent, batch))

    def expire(self, entry: Entry) -> None:
        """When exactly it goes the peers cannot know."""
        entry.place = "expired"

    def pass_time(self, now: float, batch: int) -> None:
        due = [
            (entry.deliver_at, entry.place_in_line or 0, entry)
            for _, entry in self.entries()
            if entry.place == "delayed" and entry.deliver_at is not None and entry.deliver_at <= now
        ]
        for *_, entry in sorted(due, key=lambda each: each[:2]):
            entry.place, entry.waits_since = "waiting", self.looks
            entry.once_in = batch if entry.is_persistent else None
            if entry.place_in_line is not None:
                entry.place_in_line = _NEXT_PLACE()
        for _, entry in self.entries():
            if entry.place == "waiting" and entry.has_expired(now):
                self.expire(entry)

    def check_order(self, delivered: list[tuple[Kept, Entry]]) -> None:
        """Nothing that was delivered since the last look has overtaken what waited all the time."""
        for line, entry in delivered:
            for other in line.waiting:
                assert (
                    other.priority != entry.priority
                    or other.waits_since == self.looks
                    or other.place_in_line is None
                    or entry.place_in_line is None
                    or other.place_in_line > entry.place_in_line
                ), f"{entry.body} has overtaken {other.body}"
        self.looks += 1

    def crash(self, kept: int, now: float) -> None:
        """All batches up to `kept` are on disk, and nothing else."""
        there = [line for line in (*self.lines.values(), *self.removed) if line.survives(kept)]
        self.lines = {line.name: line for line in there}
        assert len(self.lines) == len(there)
        self.removed = []
        for line in there:
            line.came_in, line.went_in = 0, None
            line.last_first.clear()
        for _, entry in self.entries():
            self._crash_entry(entry, kept, now)
        self.values.crash(kept)
        self.dead = [entry for entry in self.dead if entry.survives(kept)]
        for entry in self.dead:
            entry.came_in = 0
        self.used = {key: used for key, used in self.used.items() if used.is_kept and used.came_in <= kept}
        for used in self.used.values():
            used.came_in = 0

    def check_rows(self, rows: Counter[tuple[str, str]], kept: int) -> None:
        """The store has exactly what the model says: all persistent messages that are not settled.

        Args:
            rows: how many there are, by line and body.
        """
        left = rows.copy()
        for name, entry in [*((line.name, each) for line, each in self.entries()), *self._dead()]:
            if entry.survives(kept):
                here, dead = (name, entry.body), (DEAD_LETTER_QUEUE, entry.body)
                # What has expired is in the one or the other, or where it was a request may be gone.
                is_elsewhere = entry.place == "expired" and not left[here]
                if not (is_elsewhere and entry.is_request):
                    left[dead if is_elsewhere else here] -= 1
        assert not any(left.values()), f"on disk too often (or, below 0, missing): {+left} {-left}"

    def _dead(self) -> list[tuple[str, Entry]]:
        return [(DEAD_LETTER_QUEUE, entry) for entry in self.dead]

    def _crash_entry(self, entry: Entry, kept: int, now: float) -> None:
        if not entry.survives(kept):
            entry.place, entry.went_in = "gone", 0
            return
        entry.came_in, entry.went_in = 0, None
        entry.is_restored, entry.was_back, entry.once_in = True, False, None
        entry.place = "waiting" if entry.deliver_at is None else "delayed"
        if entry.deliver_at is not None:
            entry.was_due = entry.deliver_at <= now
            entry.place_in_line = None  # it was put into its line before the crash, or will be now
        if entry.has_expired(now):
            self.expire(entry)
