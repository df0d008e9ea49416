"""What happened, as rows for the store, gathered into batches."""

from __future__ import annotations

from nebula.broker.messages import Head, Kind, Message
from nebula.broker.store import (
    DropMessage,
    DropValue,
    PutMessage,
    PutValue,
    StoredMessage,
    Write,
)
from nebula.headers import REPLY_TO, SENDER

_Key = tuple[str, str, str | int]

_Held = tuple[str, Message, int]
"""A row that is still to be made: of which queue (empty: a value), of what, and its failed deliveries."""


class Journal:
    """Gathers rows until the shell takes them as one batch.

    Of rows about one thing the last counts, and what was put and dropped in one batch never
    reaches the store. Rows are made when they are taken, so that a value that changes often costs
    one of them.

    Args:
        wall_offset: what makes wall-clock time (seconds since 1970) of the broker's own.

    Attributes:
        batch: number of the batch that is being gathered.
        count: rises with every change: who compares it knows whether an input left any.
    """

    def __init__(self, wall_offset: float = 0.0) -> None:
        self.wall_offset = wall_offset
        self.batch = 1
        self.count = 0
        self._rows: dict[_Key, Write | _Held] = {}
        # Of `_rows` those messages that the store has already, with another count.
        self._again: set[_Key] = set()

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be taken."""
        return not self._rows

    def put_message(self, queue: str, message: Message) -> None:
        """A queue holds `message`."""
        self.count += 1
        self._rows["message", queue, message.number] = (queue, message, 0)

    def put_again(self, queue: str, message: Message, attempts: int) -> None:
        """A queue still holds it, after so many deliveries that failed."""
        key = ("message", queue, message.number)
        if key not in self._rows:
            self._again.add(key)
        self.count += 1
        self._rows[key] = (queue, message, attempts)

    def drop_message(self, queue: str, message: Message) -> None:
        """A queue holds it no more."""
        key = ("message", queue, message.number)
        if self._rows.pop(key, None) is None or key in self._again:
            self._again.discard(key)
            self.count += 1
            self._rows[key] = DropMessage(queue, message.number)

    def put_value(self, message: Message) -> None:
        """The present value of a last-value destination."""
        self.count += 1
        self._rows["value", message.head.destination, 0] = ("", message, 0)

    def drop_value(self, destination: str) -> None:
        """A last-value destination keeps nothing."""
        self.count += 1
        self._rows["value", destination, 0] = DropValue(destination)

    def put(self, kind: str, session: str, subscription: str, write: Write) -> None:
        """Anything else that is named by these three. `write` replaces an earlier one."""
        self.count += 1
        key = (kind, session, subscription)
        self._rows.pop(key, None)  # a session's row must stand behind the drop of an older one
        self._rows[key] = write

    def take(self) -> tuple[int, list[Write]]:
        """The batch and its number. What comes from now on is the next one."""
        number, rows = self.batch, self._rows
        self.batch += 1
        self._rows = {}
        self._again.clear()
        return number, [row if not isinstance(row, tuple) else self._row(*row) for row in rows.values()]

    def _row(self, queue: str, message: Message, attempts: int) -> Write:
        stored = self._stored(message, attempts)
        return PutMessage(queue, stored) if queue else PutValue(stored)

    def _stored(self, message: Message, attempts: int) -> StoredMessage:
        passed_on = message.head.headers[1:]
        if message.exchange is not None:
            passed_on += (message.exchange,)
        expires_at = None if message.expires_at is None else message.expires_at + self.wall_offset
        return StoredMessage(
            message.number, message.head.destination, passed_on, message.body, expires_at, attempts
        )

    def restore(self, stored: StoredMessage, kind: Kind, *, is_dead: bool = False) -> Message:
        """The message that a row was made of.

        Args:
            is_dead: it is a dead letter, which nobody is to answer.
        """
        (_, sender), *passed_on = (
            stored.headers
            if stored.headers[:1] and stored.headers[0][0] == SENDER
            else ((SENDER, ""), *stored.headers)
        )
        # Who gets this request now may answer it, judged by who it was that asked (DESIGN 4).
        answers = [value for name, value in passed_on if name == REPLY_TO and not is_dead]
        head = Head(
            kind,
            stored.destination,
            sender,
            tuple(passed_on),
            is_persistent=True,
            reply_to=answers[0] if answers else None,
        )
        message = Message(head, stored.body, stored.number, 0.0)
        if stored.expires_at is not None:
            message.expires_at = stored.expires_at - self.wall_offset
        return message
