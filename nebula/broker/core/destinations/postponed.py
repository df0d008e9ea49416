"""Messages of one queue that are not to be delivered again before their time (`redelivery-delay`).

A postponed message belongs to its queue as an un-ACKed one does: it counts against the same limits, its payer
is the same, and it is in no line. When it is due it goes back to its place there, before all that came later.

What an earlier run has postponed begins in its line, or on disk alone, and is put apart when its turn comes
before its time: so what is apart was always at the front once, and no page brings it a second time.
"""

from __future__ import annotations

from heapq import heappop, heappush

from nebula.broker.core.messages import Message


class Postponed:
    """What a queue has put apart, and until when.

    Attributes:
        apart: the messages, by number.
        due: of these, and of those that are still in their line: when, and the name of the line.
    """

    __slots__ = ("_heap", "apart", "due")

    def __init__(self) -> None:
        self.apart: dict[int, Message] = {}
        self.due: dict[int, tuple[float, str]] = {}
        # What is forgotten stays here until its time.
        self._heap: list[tuple[float, int]] = []

    def add(self, message: Message, line: str, due: float) -> None:
        """Put a message apart until then."""
        self.due[message.number] = due, line
        self.put_apart(message)

    def put_apart(self, message: Message) -> None:
        """Put a message apart whose time is known already."""
        self.apart[message.number] = message
        heappush(self._heap, (self.due[message.number][0], message.number))

    def take_due(self, now: float, most: int) -> list[Message]:
        """Take what is apart and due, in the order of that, so many at most."""
        taken: list[Message] = []
        while self._heap and self._heap[0][0] <= now and len(taken) < most:
            due, number = heappop(self._heap)
            # It may have been forgotten, and postponed anew.
            if number in self.apart and self.due[number][0] == due:
                taken.append(self.apart.pop(number))
        return taken
