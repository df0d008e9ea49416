"""Postponed messages: not delivered again before the delay that a NACK asked for is over.

A postponed message counts against the same limits as an un-ACKed one, its payer is the same, and it is in no
line. When it is due it goes back to its place there, before all messages that came later.

Messages that an earlier run has postponed begin in their line, or on disk alone, and are put apart when their
turn comes before their time. So whatever is apart was at the front once, and no page brings it a second time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from nebula.broker.core.messages import Message


# The broker delays failed messages, so that others keep their order and a crash loses no delay, see
# docs/decisions/0044.
@dataclass(slots=True, eq=False, repr=False)
class Postponed:
    """The postponed messages of one queue.

    Attributes:
        apart: the messages that are in no line, by number.
        due: of these, and of those that are still in their line: when, and the name of the line for which the
            store has a row of this; empty: it has none.
    """

    apart: dict[int, Message] = field(default_factory=dict)
    due: dict[int, tuple[float, str]] = field(default_factory=dict)
    # By time. A message that is forgotten leaves its entry here until then: to find it would take longer.
    _heap: list[tuple[float, int]] = field(default_factory=list)

    def put_apart(self, message: Message, at: float, line: str) -> None:
        """Put a message apart until then."""
        self.apart[message.number] = message
        self.due[message.number] = at, line
        heappush(self._heap, (at, message.number))

    def is_early(self, message: Message, now: float) -> bool:
        """Whether the time of a message has not come."""
        time = self.due.get(message.number)
        return time is not None and time[0] > now

    def take_due(self, now: float, most: int) -> list[Message]:
        """Take at most `most` messages that are apart and due, in the order of their times."""
        taken: list[Message] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            due, number = heappop(self._heap)
            # It may have been forgotten, and postponed anew.
            if number in self.apart and self.due[number][0] == due:
                taken.append(self.apart.pop(number))
        return taken
