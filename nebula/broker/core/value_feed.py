"""Value feed: the changes that one subscription to last values has still to receive.

A feed lines up destinations, and never values. So it is bounded by the number of destinations, however fast
they change and however slowly its subscriber reads, and whatever it sends is the present value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Generic, TypeVar

from nebula.broker.core.access import Rights
from nebula.broker.core.account import Account
from nebula.broker.core.messages import LAST_VALUE_KIND, Head, Message, ValueOwner
from nebula.broker.core.shares import Usage

# What CPython takes for one destination that a feed has to do with: places in a dictionary, in a line, in a
# snapshot. Measured: 137 bytes.
ENTRY_COST_BYTES: Final = 150

_REFERENCE_BYTES: Final = 8

_S = TypeVar("_S")
"""A subscription. A feed is told which one it feeds, and never looks into it."""


# Where a destination stands with a feed. It moves like this; one that is in no state has nothing to send:
#
#     (none) --changes--> READY --sent--> IN_FLIGHT --ACK--> (none)
#                           ^                 | changes
#                           +------ACK---- CHANGED
#
# Changes in READY and CHANGED need no note: the value is looked up when the turn comes. That is conflation.
# Plain numbers, since each value that is sent looks at them, and members of an enum are found by their
# class's attributes.
_READY: Final = 0  # it changed, and waits in the line
_IN_FLIGHT: Final = 1  # a message of it was sent and not ACKed
_CHANGED: Final = 2  # it is in flight, and has changed since


@dataclass(slots=True, eq=False, repr=False)
class LastValueTopic:
    """One last-value destination.

    Attributes:
        destination: its name.
        value: the message that was sent last; of a deletion too, while a feed has to send it.
        is_live: there is a value; otherwise it was deleted.
        owner: the session that an ephemeral value goes with, or None.
        stored: the value that the store has, whose sender pays for it; None: it has none.
        creator: who sent its first value, and pays for it as a destination.
        first_number: of the message that it began with. A feed that has seen less knows nothing of it.
        users: feeds that have still to send it, or have a message of it in flight.
    """

    destination: str
    value: Message
    creator: Usage = field(init=False)
    first_number: int = field(init=False)
    is_live: bool = False
    owner: ValueOwner | None = None
    stored: Message | None = None
    users: int = 0

    def __post_init__(self) -> None:
        self.creator = self.value.head.usage
        self.first_number = self.value.number


class ValueFeed(Generic[_S]):
    """The changes that one subscription has still to receive (D.9).

    The feed of a durable subscription outlives its connection. Each destination in a feed counts in the
    account: the entries of many eager globs over many values would take more memory than all values.

    Args:
        account: what all destinations of a broker hold together.
        pattern: the destination or glob of its subscription.
        rights: of its principal; it gets nothing else.
        owner: who pays for what is pending.
        is_durable: changes are remembered while its session is away.

    Attributes:
        subscription: the one that is fed at present; None while its session is away.
        snapshot: destinations of the snapshot that were not sent yet; None: it has no end to mark.
        marker: stands in the line for the end of a snapshot, where no value is left to mark it.
        seen_number: when its subscription went away, it may have had all messages up to this number.
        is_held: nothing may be sent yet: the RECEIPT of its SUBSCRIBE waits for the store (D.43).
        in_line: it stands among its session's feeds that have something to be sent.
    """

    # Not a dataclass: mypyc compiles none that is generic.
    def __init__(
        self, account: Account, pattern: str, rights: Rights, owner: Usage, *, is_durable: bool
    ) -> None:
        self.account = account
        self.pattern = pattern
        self.rights = rights
        self.owner = owner
        self.is_durable = is_durable
        self.subscription: _S | None = None
        self.snapshot: set[LastValueTopic] | None = None
        self.marker: LastValueTopic | None = None
        self.seen_number = 0
        self.is_held = False
        self.in_line = False
        self._walk: Iterator[LastValueTopic] | None = None
        self._walk_bytes = 0
        self._states: dict[LastValueTopic, int] = {}
        # Those that are ready, in the order in which they became so.
        self._line: deque[LastValueTopic] = deque()
        # Those in the other two states, by the number of the message that was sent.
        self._in_flight: dict[int, LastValueTopic] = {}

    @property
    def is_ready(self) -> bool:
        """There is something to be sent."""
        return bool(self._line) and not self.is_held and self._walk is None

    @property
    def is_walking(self) -> bool:
        """Its snapshot is not complete, and nothing is sent before it is; see `walk_on`."""
        return self._walk is not None

    @property
    def pending_count(self) -> int:
        """How many destinations it has to send, those in flight too."""
        return len(self._in_flight) + len(self._line)

    @property
    def holds_any(self) -> bool:
        """It has to do with some destination."""
        return bool(self._states)

    def is_free_for(self, topic: LastValueTopic) -> bool:
        """`topic` can be sent at once, if its session takes values: then nothing else waits."""
        return not (self.is_held or topic in self._states or self._walk is not None)

    def knows(self, topic: LastValueTopic) -> bool:
        """Whether `topic` has to be kept for this feed."""
        return topic in self._states

    def pending(self) -> list[LastValueTopic]:
        """All that it has to send if its session resumes, what was in flight first."""
        return [topic for topic in (*self._in_flight.values(), *self._line) if topic is not self.marker]

    def begin_walk(self, topics: Sequence[LastValueTopic], *, tells_end: bool) -> None:
        """Begin a snapshot of what is live among `topics`: `walk_on` until it is complete."""
        self._walk = iter(topics)
        # The list is held until the walk ends, and peers decide how many walks there are.
        self._walk_bytes = _REFERENCE_BYTES * len(topics)
        self.account.hold(self._walk_bytes, self.owner)
        self.snapshot = set() if tells_end else None

    def walk_on(self, count: int, is_wanted: Callable[[LastValueTopic], object]) -> bool:
        """Look at `count` more, and take those that are live and wanted; True: there are others left."""
        assert self._walk is not None
        topics = list(islice(self._walk, count))
        for topic in topics:
            if topic.is_live and is_wanted(topic):
                self.notify(topic)
                if self.snapshot is not None:
                    self.snapshot.add(topic)
        if len(topics) == count:
            return True
        self.end_walk()
        return False

    def end_walk(self) -> None:
        """What was not looked at is no part of the snapshot. Idempotent."""
        self._walk = None
        self.account.release(self._walk_bytes, self.owner)
        self._walk_bytes = 0

    def notify(self, topic: LastValueTopic) -> bool:
        """`topic` has changed. A place in the line is kept: that is what conflates (B.5).

        Returns:
            Whether the line has grown by it.
        """
        state = self._states.get(topic)
        if state is None:
            self._take_up(topic, _READY)
            self._line.append(topic)
            return True
        if state == _IN_FLIGHT:
            self._states[topic] = _CHANGED
        return False

    def take(self) -> LastValueTopic:
        """The next of the line. Follow it with `send` or `let_go`."""
        return self._line.popleft()

    def send(self, topic: LastValueTopic) -> None:
        """Its value is on its way, and will be ACKed."""
        self._states[topic] = _IN_FLIGHT
        self._in_flight[topic.value.number] = topic

    def send_at_once(self, topic: LastValueTopic) -> None:
        """As `send`, of one that it `is_free_for`."""
        self._take_up(topic, _IN_FLIGHT)
        self._in_flight[topic.value.number] = topic

    def let_go(self, topic: LastValueTopic) -> None:
        """There is nothing more to send of it."""
        del self._states[topic]
        topic.users -= 1
        self.account.release(ENTRY_COST_BYTES, self.owner)

    def _take_up(self, topic: LastValueTopic, state: int) -> None:
        self._states[topic] = state
        topic.users += 1
        self.account.hold(ENTRY_COST_BYTES, self.owner)

    def let_go_some(self, count: int) -> list[LastValueTopic]:
        """It has no subscription any more: let `count` go, whatever they wait for. Returns them."""
        topics: list[LastValueTopic] = []
        while self._states and len(topics) < count:
            topic, _ = self._states.popitem()
            topic.users -= 1
            self.account.release(ENTRY_COST_BYTES, self.owner)
            topics.append(topic)
        return topics

    def drop_waiting(self) -> list[LastValueTopic]:
        """Drop and return what is pending. What is in flight stays."""
        dropped = [topic for topic in self._line if topic is not self.marker]
        self._line = deque(topic for topic in self._line if topic is self.marker)
        for topic in dropped:
            self.let_go(topic)
        return dropped

    def settle(self, number: int) -> LastValueTopic | None:
        """A message was ACKed; the destination that this feed has let go, if it did not change since."""
        topic = self._in_flight.pop(number)
        if self._states[topic] == _IN_FLIGHT:
            self.let_go(topic)
            return topic
        # To the tail: what was notified before it and not sent yet goes first, so that all keys stay
        # about equally fresh (B.5).
        self._states[topic] = _READY
        self._line.append(topic)
        return None

    def land(self) -> None:
        """The session goes away: what was in flight has to be told anew, first."""
        pending = self.pending()
        if self.marker is not None and self.knows(self.marker):
            self.let_go(self.marker)
        self.marker = None
        self._in_flight.clear()
        self._line = deque(pending)
        self._states = dict.fromkeys(pending, _READY)

    def strike(self, topic: LastValueTopic) -> bool:
        """Strike a destination off the snapshot; whether it was the last."""
        if self.snapshot is None or topic not in self.snapshot:
            return False
        self.snapshot.remove(topic)
        if self.snapshot or self._walk is not None:
            return False
        self.snapshot = None
        return True

    def strike_silently(self, topic: LastValueTopic, next_number: Callable[[], int]) -> None:
        """As `strike`, of one that is not sent: a marker stands for the last."""
        if self.strike(topic):
            self.mark_end(next_number())

    def mark_end(self, number: int) -> None:
        """G.snapshot: no value is left to mark its end, so an empty message of this number does."""
        self.snapshot = None
        head = Head(LAST_VALUE_KIND, self.pattern, "", ())
        head.headers = (("destination", self.pattern),)  # it has no sender
        self.marker = LastValueTopic(self.pattern, Message(head, b"", number, 0.0))
        self.marker.is_live = True  # it is in no table, so nothing must be forgotten with it
        self.notify(self.marker)
