"""What happened, as rows for the store, gathered into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final, NewType, cast

from nebula.broker.core.messages import DestinationKind, Head, Message, wanted_priority
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import (
    DropDelayed,
    DropDuplicate,
    DropMessage,
    DropMessages,
    DropPostponed,
    DropValue,
    PutAttempts,
    PutDelayed,
    PutDuplicate,
    PutMessage,
    PutPostponed,
    PutShared,
    PutValue,
    StoredMessage,
    Write,
    may_share,
)
from nebula.headers import REPLY_TO, SENDER

# Heads of restored messages that are remembered at most.
_KNOWN_HEADS: Final = 1024

# A run of so many drops is one statement of its own: half the work for the store. For a shorter one that
# costs more than it saves, as statements cost more than rows (docs/decisions/0010).
_LONG_RUN: Final = 64

Batch = NewType("Batch", int)
"""The number of a batch, and the ticket for what waits until it is durable. Batches commit in order."""

_Key = tuple[str | int, ...]

_Held = tuple[str, Message, int]
"""A row that is still to be made: of which queue (empty: a value), of what, and its failed deliveries."""


class _Run:
    """Messages of a line that were dropped, whose numbers follow each other without a gap."""

    __slots__ = ("after", "line", "up_to")

    def __init__(self, line: str, number: int) -> None:
        self.line = line
        self.after = number - 1
        self.up_to = number

    def rows(self) -> Sequence[Write]:
        """What the store is told of it."""
        if self.up_to - self.after >= _LONG_RUN:
            return (DropMessages(self.line, self.after, self.up_to),)
        return [DropMessage(self.line, number) for number in range(self.after + 1, self.up_to + 1)]


class Journal:
    """Gathers rows until the shell takes them as one batch.

    Of rows about one thing the last counts, and what was put and dropped in one batch never
    reaches the store. Rows are made when they are taken, so that a value that changes often costs
    one of them.

    Args:
        wall_offset: what makes wall-clock time (seconds since 1970) of the broker's own.

    Attributes:
        batch: number of the batch that is being gathered.
        taken_number: the highest number of the messages in all batches that were taken. When the last of
            those is committed, the store has all up to it.
        told: the batch that has what was told since somebody last set this to None, which is done before each
            frame; None: nothing was told. See `receipts` for what it is good for.
        backlog_bytes: of messages and values that were put and are not committed yet.
        usage_of: finds who pays for a sender's restored messages; set by the broker.
    """

    def __init__(self, wall_offset: float = 0.0) -> None:
        self.wall_offset = wall_offset
        self.batch = Batch(1)
        self.told: Batch | None = None
        self.backlog_bytes = 0
        self._taken_bytes = 0
        self.taken_number = 0
        self._last_number = 0
        self._rows: dict[_Key, Write | _Held] = {}
        # Before all rows: what is put again after it was dropped is there.
        self._runs: list[_Run] = []
        self.usage_of: Callable[[str], Usage] = Usage
        self._heads: dict[tuple[object, ...], tuple[Head, object]] = {}
        # Of `_rows` those messages that the store has already, with another count.
        self._again: set[_Key] = set()
        # By message number: the lines that it was put into, if there may be several.
        self._shared: dict[int, list[str]] = {}

    @property
    def pending_count(self) -> int:
        """Rows that wait to be taken."""
        return len(self._rows) + sum(run.up_to - run.after for run in self._runs)

    @property
    def is_empty(self) -> bool:
        """Nothing waits to be taken."""
        return not self._rows and not self._runs

    def put_message(self, queue: str, message: Message, payer: Usage) -> None:
        """A queue holds `message`, which is newer than all before it."""
        self.told = self.batch
        size_bytes = message.size_bytes
        self.backlog_bytes += size_bytes
        # `Message.disk_bytes` written out, here and below: all that is kept passes here.
        payer.disk_bytes += size_bytes + message.head.text_characters
        self._last_number = message.number
        self._rows["message", queue, message.number] = (queue, message, 0)
        if message.shared is not None:  # it has several receivers
            self._shared.setdefault(message.number, []).append(queue)

    def put_again(self, queue: str, message: Message, attempts: int) -> None:
        """A queue still holds it, after so many deliveries that failed."""
        key = ("message", queue, message.number)
        if key not in self._rows:
            self._again.add(key)
        self.told = self.batch
        if key in self._again and may_share(queue):
            # Its content may be shared with other lines, and must not be copied for this one.
            self._rows[key] = PutAttempts(queue, message.number, attempts)
        else:
            self._rows[key] = (queue, message, attempts)

    def drop_message(self, queue: str, message: Message, payer: Usage) -> None:
        """A queue holds it no more."""
        self.told = self.batch
        number = message.number
        payer.disk_bytes -= message.size_bytes + message.head.text_characters
        # Older ones are in no row, unless with another count.
        if number > self.taken_number or self._again:
            key = ("message", queue, number)
            row = self._rows.pop(key, None)
            # Only what the store has not heard of yet can be taken back. It may have come from elsewhere on
            # the disk: who settled it waits until it is known there that it has left.
            if row is not None and key not in self._again:
                self.backlog_bytes -= message.size_bytes
                return
            self._again.discard(key)
        runs = self._runs
        if runs and runs[-1].up_to == number - 1 and runs[-1].line == queue:
            runs[-1].up_to = number
        else:
            runs.append(_Run(queue, number))

    def drop_messages(self, line: str, after: int, up_to: int) -> None:
        """All that the store has of a line between these numbers is gone."""
        self.told = self.batch
        self._rows["messages", line, up_to] = DropMessages(line, after, up_to)

    def put_delayed(self, message: Message, due: float) -> None:
        """`message` is to be sent to its queue when it is due."""
        self.told = self.batch
        self.backlog_bytes += message.size_bytes
        self._rows["delayed", "", message.number] = PutDelayed(
            self._stored(message, 0), due + self.wall_offset
        )

    def drop_delayed(self, message: Message) -> None:
        """It has been sent, or never will be."""
        key = ("delayed", "", message.number)
        self.told = self.batch
        if isinstance(self._rows.pop(key, None), PutDelayed):
            self.backlog_bytes -= message.size_bytes
        else:
            self._rows[key] = DropDelayed(message.number)

    def put_postponed(self, line: str, number: int, due: float) -> None:
        """A message of a line is not to be delivered again before it is due."""
        self.told = self.batch
        self._rows["postponed", line, number] = PutPostponed(line, number, due + self.wall_offset)

    def drop_postponed(self, line: str, number: int) -> None:
        """It may be delivered again, or is gone."""
        self.told = self.batch
        # Even where its row is still to be written: the store may have an earlier one.
        self._rows["postponed", line, number] = DropPostponed(line, number)

    def put_duplicate(self, destination: str, principal: str, dedup_id: str, until: float) -> None:
        """Remember until then that this principal has used the `dedup-id` there."""
        self.told = self.batch
        row = PutDuplicate(destination, principal, dedup_id, until + self.wall_offset)
        self._rows["duplicate", destination, principal, dedup_id] = row

    def drop_duplicate(self, destination: str, principal: str, dedup_id: str) -> None:
        """It may be used again."""
        self.told = self.batch
        row = DropDuplicate(destination, principal, dedup_id)
        self._rows["duplicate", destination, principal, dedup_id] = row

    def touch(self) -> None:
        """What was asked for has happened before, maybe in a batch that is not committed: wait for that."""
        self.told = self.batch

    def put_value(self, message: Message) -> None:
        """The present value of a last-value destination."""
        self.told = self.batch
        # A value that changes often counts each time: then its publisher waits for one commit.
        self.backlog_bytes += message.size_bytes
        self._rows["value", message.head.destination, 0] = ("", message, 0)

    def drop_value(self, destination: str) -> None:
        """A last-value destination keeps nothing."""
        self.told = self.batch
        self._rows["value", destination, 0] = DropValue(destination)

    def put(self, kind: str, session: str, subscription: str, write: Write) -> None:
        """Anything else that is named by these three. `write` replaces an earlier one."""
        self.told = self.batch
        key = (kind, session, subscription)
        self._rows.pop(key, None)  # a session's row must stand behind the drop of an older one
        self._rows[key] = write

    def take(self) -> tuple[Batch, list[Write]]:
        """The batch and its number. What comes from now on is the next one."""
        number, rows, runs = self.batch, self._rows, self._runs
        self.batch = Batch(number + 1)
        self.taken_number = self._last_number
        self._taken_bytes = self.backlog_bytes
        self._rows, self._runs = {}, []
        self._again.clear()
        writes: list[Write] = list(chain.from_iterable(run.rows() for run in runs))
        if self._shared:
            writes += self._take_shared(rows)
        # A plain tuple is what is still to be made a row of; rows are tuples with a name, or none.
        writes += [
            self._row(*row) if type(row) is tuple else row  # type: ignore[misc]  # not narrowed by `type`
            for row in rows.values()
        ]
        return number, writes

    def _take_shared(self, rows: dict[_Key, Write | _Held]) -> Iterator[Write]:
        """Take the messages that are in several lines, as rows that share their content."""
        shared, self._shared = self._shared, {}
        for number, lines in shared.items():
            # Some or all of the lines may have dropped it again.
            keys = [key for line in lines if (key := ("message", line, number)) in rows]
            if len(keys) < 2:
                continue
            # Rows of this batch are not written yet.
            held = cast("list[_Held]", [rows.pop(key) for key in keys])
            yield PutShared(tuple(line for line, _, _ in held), self._stored(held[0][1], 0))
            yield from (PutAttempts(line, number, attempts) for line, _, attempts in held if attempts)

    def committed(self) -> None:
        """The store has the batch that was taken last."""
        self.backlog_bytes -= self._taken_bytes
        self._taken_bytes = 0

    def _row(self, queue: str, message: Message, attempts: int) -> Write:
        stored = self._stored(message, attempts)
        return PutMessage(queue, stored) if queue else PutValue(stored)

    def _stored(self, message: Message, attempts: int) -> StoredMessage:
        passed_on = message.head.headers[1:]
        if message.exchange is not None:
            passed_on += (message.exchange,)
        expires_at = None if message.expires_at is None else message.expires_at + self.wall_offset
        return StoredMessage(
            message.number,
            message.head.destination,
            passed_on,
            message.body,
            expires_at,
            attempts,
            message.is_request,
        )

    def begin(self, number: int) -> None:
        """The store has all messages up to this number, of earlier runs."""
        self._last_number = self.taken_number = number

    def restore(
        self,
        stored: StoredMessage,
        kind: DestinationKind,
        *,
        is_dead: bool = False,
        priority: int | None = None,
    ) -> Message:
        """The message that a row was made of.

        Args:
            is_dead: it is a dead letter, which nobody is to answer.
            priority: the level that it was kept in; None: the one that it asks for.
        """
        number, destination, headers, body, expires_at, _, is_request = stored
        # Of those that follow each other many have the same headers, which are one object then, and by far
        # the longest to compare.
        key = (kind, destination, id(headers), is_request, is_dead, priority)
        known = self._heads.get(key)
        if known is None:
            if len(self._heads) >= _KNOWN_HEADS:
                self._heads.clear()
            # With the headers, whose `id` another object would have otherwise.
            head = self._head(kind, destination, headers, is_request, is_dead, priority)
            known = self._heads[key] = head, headers
        message = Message(known[0], body, number, 0.0)
        message.expires_at = None if expires_at is None else expires_at - self.wall_offset
        return message

    def _head(
        self,
        kind: DestinationKind,
        destination: str,
        headers: tuple[tuple[str, str], ...],
        is_request: bool,
        is_dead: bool,
        priority: int | None,
    ) -> Head:
        if headers[:1] and headers[0][0] == SENDER:
            sender, passed_on = headers[0][1], headers[1:]
        else:
            sender, passed_on = "", headers
        fields = dict(passed_on)
        return Head(
            kind,
            destination,
            sender,
            passed_on,
            is_persistent=True,
            time_to_live=0.0 if is_request else None,
            # Who gets this request now may answer it, judged by who it was that asked (DESIGN 4).
            reply_to=None if is_dead else fields.get(REPLY_TO),
            priority=wanted_priority(fields) if priority is None else priority,
            usage=self.usage_of(sender),
        )
