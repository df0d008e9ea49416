"""What a broker that was killed owes: of each message, whether it must, may or must not be there.

No I/O: the traffic says what it did and heard, the inspection says what it found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

_MOST_SHOWN = 8


class Ledger:
    """The account of one line: a queue, or a durable subscription to a topic.

    A message is a number that rises. Each step of its life is told here at the right moment: what we ask
    for *before* it is written to the socket, what we are told *after* it was read.

    Args:
        name: of the line.
        is_ordered: its messages come in the order of their numbers and keep their ids; delayed ones get
            both when they are due.

    Attributes:
        last: the highest number that was sent.
        unanswered: what was sent before the last kill without a RECEIPT, and nobody has touched: a careful
            sender sends it again.
        troubles: what went wrong while the broker ran, in words.
    """

    def __init__(self, name: str, *, is_ordered: bool = True) -> None:
        self.name = name
        self.last = 0
        self.troubles: list[str] = []
        self.unanswered: list[int] = []
        self._is_ordered = is_ordered
        # Sent, and not known to be settled. Of these those with a RECEIPT, those whose ACK was
        # written, those whose NACK was written, and those whose NACK has its RECEIPT.
        self._open: set[int] = set()
        self._receipted: set[int] = set()
        self._acked: set[int] = set()
        self._nacked: set[int] = set()
        self._dead: set[int] = set()
        # Of `unanswered` those that the last kill took.
        self._vanished: set[int] = set()
        self._ids: dict[int, str] = {}

    @property
    def depth(self) -> int:
        """Messages that may be there."""
        return len(self._open)

    @property
    def owed(self) -> set[int]:
        """Messages that must be there: receipted, and nobody has tried to settle them."""
        return self._receipted - self._acked

    def is_settled(self, number: int) -> bool:
        """Somebody has settled it, or tried to."""
        return number in self._acked or number not in self._open

    def send(self) -> int:
        """A SEND is about to be written; its number."""
        self.last += 1
        self._open.add(self.last)
        return self.last

    def send_again(self, number: int) -> None:
        """One of `unanswered` is about to be written again, with the same id."""
        # One that was found is a duplicate: it stays what it is, or what it has become by now.
        if number in self._vanished:
            self._open.add(number)

    def receipted(self, number: int) -> None:
        """The RECEIPT of its SEND, or of its COMMIT, has come."""
        if number in self._open:
            self._receipted.add(number)

    def delivered(self, number: int, message_id: str) -> None:
        """A MESSAGE has come."""
        if number not in self._open:
            self.troubles.append(f"{self.name}: {number} was delivered, and settled long ago")
        # D.20: equal on every delivery, also after a restart.
        if self._is_ordered and self._ids.setdefault(number, message_id) != message_id:
            self.troubles.append(f"{self.name}: {number} was {self._ids[number]} and is {message_id}")

    def ack(self, number: int) -> None:
        """An ACK is about to be written."""
        self._acked.add(number)

    def settled(self, number: int) -> None:
        """The RECEIPT of its ACK has come."""
        self._forget(number)

    def bury(self, number: int) -> None:
        """A NACK with `requeue:false` is about to be written."""
        self._nacked.add(number)

    def buried(self, number: int) -> None:
        """The RECEIPT of that NACK has come."""
        self._dead.add(number)

    def differences(self, found: Sequence[int], dead: Sequence[int] = ()) -> list[str]:
        """What is wrong with what a broker holds after a restart, a line each.

        Args:
            found: the numbers that wait in the line, in order of delivery.
            dead: those of the dead-letter queue that came from it.
        """
        there = Counter([*found, *dead])
        wrong: dict[str, Collection[int]] = {
            "lost": self.owed - there.keys(),
            "came back": there.keys() - self._open,
            "there twice": [number for number, count in there.items() if count > 1],
            "not dead any more": self._dead & set(found),
            "dead for no reason": set(dead) - self._nacked,
            "before its elders": [
                one for one, following in pairwise(found) if one > following and self._is_ordered
            ],
        }
        lines = [f"{self.name}: {what}: {_shown(numbers)}" for what, numbers in wrong.items() if numbers]
        return self.troubles + lines

    def adopt(self, found: Iterable[int]) -> None:
        """What was found was read from the disk: it is there, and all else is not."""
        kept = set(found)
        self.unanswered = sorted(self._open - self._receipted - self._acked - self._nacked)
        self._vanished = set(self.unanswered) - kept
        for number in self._open - kept:
            self._forget(number)
        self._receipted |= kept
        self._acked.clear()
        self._nacked.clear()

    def _forget(self, number: int) -> None:
        for numbers in (self._open, self._receipted, self._acked, self._nacked, self._dead):
            numbers.discard(number)
        self._ids.pop(number, None)


State: TypeAlias = int | None
"""Of a last value: the number of its SEND, or None: there is no value."""


class ValueLedger:
    """The account of last values: of each key, the states that may be found, oldest first.

    And of one durable subscription to them: what it was told of last, as far as the broker knows.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._last = 0
        self._possible: dict[str, list[State]] = {}
        # By key, oldest first: of the last ACK with a RECEIPT, and of those after it.
        self._told: dict[str, list[State]] = {}

    @property
    def owed(self) -> int:
        """Values that must be there."""
        return sum(len(states) == 1 and states[0] is not None for states in self._possible.values())

    def send(self, key: str, *, deletes: bool = False) -> int:
        """A SEND is about to be written; its number."""
        self._last += 1
        self._possible.setdefault(key, [None]).append(None if deletes else self._last)
        return self._last

    def receipted(self, key: str) -> None:
        """The next RECEIPT has come of those for SENDs to this key: what was before is no more."""
        del self._possible[key][0]

    def ack(self, key: str, state: State) -> None:
        """An ACK of the durable subscription is about to be written."""
        self._told.setdefault(key, [None]).append(state)

    def settled(self, key: str, state: State) -> None:
        """The RECEIPT of that ACK has come: what was acked before is of no account."""
        told = self._told[key]
        del told[: told.index(state)]

    def untold(self, found: Mapping[str, int], heard: Mapping[str, State]) -> list[str]:
        """What the durable subscription was not told of after a restart, a line each.

        Deliveries do not wait for the disk: of a value that had no RECEIPT it may know what
        nobody else does, if that went with the crash.

        Args:
            found: the values that there are.
            heard: what it was told when it came back.
        """
        lines = []
        for key, (_, *doubtful) in sorted(self._possible.items()):
            state, told = found.get(key), self._told.get(key, [None])
            is_told = key in heard and heard[key] == state
            if not is_told and state not in told and told[0] not in doubtful:
                lines.append(f"{self.name}: {key} is {state}, its durable subscription knows {told[0]}")
        return lines

    def differences(self, found: Mapping[str, int]) -> list[str]:
        """What is wrong with the values after a restart, a line each."""
        return [
            f"{self.name}: {key} is {found.get(key)}, may be {self._possible.get(key, [None])}"
            for key in sorted(self._possible.keys() | found.keys())
            if found.get(key) not in self._possible.get(key, [None])
        ]

    def adopt(self, found: Mapping[str, int]) -> None:
        """What was found was read from the disk."""
        for key, (_, *doubtful) in self._possible.items():
            if self._told.get(key, [None])[0] in doubtful:
                # What it knows of went, or is here: the broker tells it only of what changes from now on.
                self._told[key] = [found.get(key)]
        self._possible = {key: [found.get(key)] for key in self._possible}


Group: TypeAlias = Sequence[tuple[Ledger, int]]
"""The messages of one transaction."""


def torn(group: Group, found: Mapping[str, Collection[int]]) -> list[str]:
    """A line if only a part of a transaction is there (D.24: all or nothing).

    Args:
        group: as it was sent.
        found: by ledger's name.
    """
    # A consumer may have had one of them, and acked it, before any of this reached the disk.
    are_there = {number in found[ledger.name] for ledger, number in group if not ledger.is_settled(number)}
    if len(are_there) < 2:
        return []
    return [
        "there in part: the transaction of " + ", ".join(f"{each.name} {number}" for each, number in group)
    ]


def _shown(numbers: Collection[int]) -> str:
    few = ", ".join(map(str, sorted(numbers)[:_MOST_SHOWN]))
    return f"{len(numbers)} ({few}{', …' if len(numbers) > _MOST_SHOWN else ''})"
