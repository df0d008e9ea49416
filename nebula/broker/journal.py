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
        self._rows: dict[_Key, Write | tuple[str, Message]] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be taken."""
        return not self._rows

    def put_message(self, queue: str, message: Message) -> None:
        """A queue holds `message`."""
        self.count += 1
        self._rows["message", queue, message.number] = (queue, message)

    def drop_message(self, queue: str, message: Message) -> None:
        """A queue holds it no more."""
        key = ("message", queue, message.number)
        if self._rows.pop(key, None) is None:
            self.count += 1
            self._rows[key] = DropMessage(queue, message.number)

    def put_value(self, message: Message) -> None:
        """The present value of a last-value destination."""
        self.count += 1
        self._rows["value", message.head.destination, 0] = ("", message)

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
        return number, [row if not isinstance(row, tuple) else self._row(*row) for row in rows.values()]

    def _row(self, queue: str, message: Message) -> Write:
        stored = self._stored(message)
        return PutMessage(queue, stored) if queue else PutValue(stored)

    def _stored(self, message: Message) -> StoredMessage:
        passed_on = message.head.headers[1:]
        if message.exchange is not None:
            passed_on += (message.exchange,)
        expires_at = None if message.expires_at is None else message.expires_at + self.wall_offset
        return StoredMessage(message.number, message.head.destination, passed_on, message.body, expires_at)

    def restore(self, stored: StoredMessage, kind: Kind) -> Message:
        """The message that a row was made of."""
        (_, sender), *passed_on = (
            stored.headers
            if stored.headers[:1] and stored.headers[0][0] == SENDER
            else ((SENDER, ""), *stored.headers)
        )
        # Who gets this request now may answer it, judged by who it was that asked (DESIGN 4).
        reply_to = next((value for name, value in passed_on if name == REPLY_TO), None)
        head = Head(kind, stored.destination, sender, tuple(passed_on), is_persistent=True, reply_to=reply_to)
        message = Message(head, stored.body, stored.number, 0.0)
        if stored.expires_at is not None:
            message.expires_at = stored.expires_at - self.wall_offset
        return message
