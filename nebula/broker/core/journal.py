"""Journal of what happened, as rows gathered into batches.

Group commit, the core's half. Everything that must survive a crash passes here as a row; the shell takes all
rows at once as one batch and hands it to the store (`nebula.broker.store.writer` is the other half). Two
things make a batch cheap. Rows are keyed by table and key, so that of several changes to one thing only the
last is written, and a message that was sent and acknowledged between two batches never reaches the disk. And
rows are made when the batch is taken: until then the journal has a reference to the message, and no more.

`batch` numbers the batches. A RECEIPT for something persistent is held with the number of the batch that was
being gathered, and sent when the shell says that this batch is committed.

This module is part of the core, and not of `nebula.broker.store`: every destination calls it, it is pure, and
the core does not import the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final, NewType, cast

from nebula.broker.core.messages import DestinationKind, Head, Message, wanted_priority
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import StoredMessage
from nebula.broker.core.tables import (
    BODIES,
    DELAYED,
    MESSAGES,
    POSTPONED,
    SHARED_MESSAGES,
    VALUES,
    Drop,
    DropRange,
    Headers,
    PostponedRow,
    Put,
    SetAttempts,
    Table,
    Write,
    may_share,
    tables_of,
)
from nebula.headers import REPLY_TO, SENDER
from nebula.stomp import header_lines

# Heads of restored messages that are remembered at most.
_KNOWN_HEADS: Final = 1024

# Rows of messages are made as plain tuples, in half the time of their named ones.

# A run of this many drops is one statement of its own: half the work for the store. For a shorter one that
# costs more than it saves, as statements cost more than rows (docs/decisions/0010).
_LONG_RUN: Final = 64

Batch = NewType("Batch", int)
"""The number of a batch, and the ticket for what waits until it is durable. Batches commit in order."""

_RowKey = tuple[Any, ...]
"""A table, and the key of a row in it."""

_Held = tuple[str, Message, int]
"""A row that is still to be made: of which line (empty: a value), of what, and its failed deliveries."""


class _Run:
    """Messages of a line that were dropped, whose numbers follow each other without a gap."""

    __slots__ = ("after", "line", "up_to")

    def __init__(self, line: str, number: int) -> None:
        self.line = line
        self.after = number - 1
        self.up_to = number

    def writes(self) -> Sequence[Write]:
        """The writes that it becomes."""
        line, after, up_to = self.line, self.after, self.up_to
        if up_to - after >= _LONG_RUN:
            return [DropRange(table, line, after, up_to) for table in tables_of(line)]
        keys = ((line, up_to),) if up_to - after == 1 else [(line, n) for n in range(after + 1, up_to + 1)]
        drops: list[Write] = [Drop(MESSAGES, key) for key in keys]
        if line[:1] == "\0":  # `may_share` inlined
            drops += [Drop(SHARED_MESSAGES, key) for key in keys]
        return drops


class Journal:
    """Gathers rows until the shell takes them as one batch.

    Args:
        wall_offset: add it to the broker's own time to get wall-clock time (seconds since 1970).

    Attributes:
        batch: number of the batch that is being gathered.
        taken_number: the highest message number in all batches that were taken. When the last of those is
            committed, the store has everything up to it.
        told: the batch that has what was told since this was last set to None, which is done before each
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
        self._rows: dict[_RowKey, Write | _Held] = {}
        # Taken before all rows: a message that is put again after it was dropped stays.
        self._runs: list[_Run] = []
        self.usage_of: Callable[[str], Usage] = Usage
        self._heads: dict[tuple[object, ...], tuple[Head, object]] = {}
        # The messages in `_rows` that the store has already, with other attempts.
        self._again: set[_RowKey] = set()
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
        """A line holds `message`, which is newer than all before it. `payer` pays for its place on disk."""
        self.told = self.batch
        size_bytes = message.size_bytes
        self.backlog_bytes += size_bytes
        # `Message.disk_bytes` written out, here and below: all that is kept passes here.
        payer.disk_bytes += size_bytes + message.head.text_characters
        self._last_number = message.number
        self._rows[MESSAGES, queue, message.number] = (queue, message, 0)
        if message.shared is not None:  # it has several receivers
            self._shared.setdefault(message.number, []).append(queue)

    def put_again(self, queue: str, message: Message, attempts: int) -> None:
        """A line still holds `message`; `attempts` deliveries have failed."""
        number = message.number
        key = (MESSAGES, queue, number)
        if key not in self._rows:
            self._again.add(key)
        self.told = self.batch
        if key in self._again and may_share(queue):
            # Its content may be shared with other lines, and must not be copied for this one.
            for table in (MESSAGES, SHARED_MESSAGES):
                self._rows[table, queue, number] = SetAttempts(table, (queue, number), attempts)
        else:
            self._rows[key] = (queue, message, attempts)

    def drop_message(self, queue: str, message: Message, payer: Usage) -> None:
        """A line no longer holds `message`."""
        self.told = self.batch
        number = message.number
        payer.disk_bytes -= message.size_bytes + message.head.text_characters
        # Older ones are in no row, unless they were put again.
        if number > self.taken_number or self._again:
            key = (MESSAGES, queue, number)
            row = self._rows.pop(key, None)
            # Only a row that the store does not have can be left out. A message that was put again is on the
            # disk, and its receiver waits until it is gone from there.
            if row is not None and key not in self._again:
                self.backlog_bytes -= message.size_bytes
                return
            if key in self._again:
                self._again.remove(key)
                self._rows.pop((SHARED_MESSAGES, queue, number), None)
        runs = self._runs
        if runs and runs[-1].up_to == number - 1 and runs[-1].line == queue:
            runs[-1].up_to = number
        else:
            runs.append(_Run(queue, number))

    def dropped(self, line: str, after: int) -> set[int]:
        """What this batch drops of a line, behind `after`. Until its commit the store has those rows."""
        runs = (range(max(run.after, after) + 1, run.up_to + 1) for run in self._runs if run.line == line)
        return set(chain.from_iterable(runs))

    def drop_messages(self, line: str, after: int, up_to: int) -> None:
        """Everything that the store has of a line with `after < number <= up_to` is gone."""
        self.told = self.batch
        for table in tables_of(line):
            self._rows["range", table, line, up_to] = DropRange(table, line, after, up_to)

    def put_delayed(self, message: Message, due: float) -> None:
        """`message` is sent to its queue when it is due."""
        self.backlog_bytes += message.size_bytes
        row = (message.number, message.head.destination, due + self.wall_offset)
        self.put(Put(DELAYED, row + self._content(message, 0)))

    def drop_delayed(self, message: Message) -> None:
        """It has been sent, or never will be."""
        key = (DELAYED, message.number)
        self.told = self.batch
        if isinstance(self._rows.pop(key, None), Put):
            self.backlog_bytes -= message.size_bytes
        else:
            self._rows[key] = Drop(DELAYED, (message.number,))

    def put_postponed(self, line: str, number: int, due: float) -> None:
        """A message of a line is not delivered again before it is due."""
        self.put(Put(POSTPONED, PostponedRow(line, number, due + self.wall_offset)))

    def put_value(self, message: Message) -> None:
        """The present value of a last-value destination."""
        self.told = self.batch
        # A value that changes often counts each time: then its publisher waits for one commit.
        self.backlog_bytes += message.size_bytes
        self._rows[VALUES, message.head.destination] = ("", message, 0)

    def put(self, write: Put | Drop) -> None:
        """A row of any table, as it will be written. It replaces an earlier write to the same row."""
        self.told = self.batch
        table, values = write
        self._rows[(table, *values[: table.key_width])] = write

    def drop(self, table: Table, *key: str | int) -> None:
        """A row of any table is gone. Also where it is still to be written: the store may have an earlier
        one."""
        self.put(Drop(table, key))

    def touch(self) -> None:
        """What was asked for has happened before, maybe in a batch that is not committed: wait for that."""
        self.told = self.batch

    def take(self) -> tuple[Batch, list[Write]]:
        """The batch and its number. What comes from now on is the next one."""
        number, rows, runs = self.batch, self._rows, self._runs
        self.batch = Batch(number + 1)
        self.taken_number = self._last_number
        self._taken_bytes = self.backlog_bytes
        self._rows, self._runs = {}, []
        self._again.clear()
        writes: list[Write] = list(chain.from_iterable(run.writes() for run in runs))
        if self._shared:
            writes += self._take_shared(rows)
        # A plain tuple is a row that is still to be made; writes are tuples with a name.
        writes += [
            self._put(*row) if type(row) is tuple else row  # type: ignore[misc]  # not narrowed by `type`
            for row in rows.values()
        ]
        return number, writes

    def _take_shared(self, rows: dict[_RowKey, Write | _Held]) -> Iterator[Write]:
        """Take the messages that are in several lines, as rows that share their content."""
        shared, self._shared = self._shared, {}
        for number, lines in shared.items():
            # Some or all of the lines may have dropped it again.
            keys = [key for line in lines if (key := (MESSAGES, line, number)) in rows]
            if len(keys) < 2:
                continue
            # None of them has reached the store, so that none is a write yet.
            held = cast("list[_Held]", [rows.pop(key) for key in keys])
            message = held[0][1]
            headers, body, expires_at, _, is_request = self._content(message, 0)
            yield Put(BODIES, (number, message.head.destination, headers, body, expires_at, is_request))
            for line, _, attempts in held:
                yield Put(SHARED_MESSAGES, (line, number, attempts))

    def committed(self) -> None:
        """The store has the batch that was taken last."""
        self.backlog_bytes -= self._taken_bytes
        self._taken_bytes = 0

    def _put(self, line: str, message: Message, attempts: int) -> Put:
        content, destination = self._content(message, attempts), message.head.destination
        if line:
            return Put(MESSAGES, (line, message.number, destination) + content)  # noqa: RUF005 (2x as fast)
        return Put(VALUES, (destination, message.number) + content)  # noqa: RUF005

    def _content(self, message: Message, attempts: int) -> tuple[Headers, bytes, float | None, int, bool]:
        """The last columns of a row: headers, body, when it expires, failed deliveries, and `is_request`."""
        headers = message.head.headers[1:] + header_lines.read(message.unread)
        expires_at = message.expires_at
        if expires_at is not None:
            expires_at += self.wall_offset
        return headers, message.body, expires_at, attempts, message.is_request

    def begin(self, number: int) -> None:
        """The store has all messages up to this number, from earlier runs."""
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
            is_dead: it is a dead letter, which has no right to a reply.
            priority: the level that it was stored in; None: the one that it asks for.
        """
        number, destination, headers, body, expires_at, _, is_request = stored
        # Many messages in a row have equal headers, which the store hands over as one object. Comparing the
        # object's id spares comparing the headers.
        key = (kind, destination, id(headers), is_request, is_dead, priority)
        head, _ = self._heads.get(key, (None, None))
        if head is None:
            has_sender = headers[:1] and headers[0][0] == SENDER
            sender, passed_on = (headers[0][1], headers[1:]) if has_sender else ("", headers)
            fields = dict(passed_on)
            head = Head(
                kind,
                destination,
                sender,
                passed_on,
                is_persistent=True,
                time_to_live=0.0 if is_request else None,
                # The receiver may reply, with the rights of the one who asked.
                reply_to=None if is_dead else fields.get(REPLY_TO),
                priority=wanted_priority(fields) if priority is None else priority,
                usage=self.usage_of(sender),
            )
            if len(self._heads) >= _KNOWN_HEADS:
                self._heads.clear()
            # Together with the headers: while they live, no other object has their `id`.
            self._heads[key] = head, headers
        message = Message(head, body, number, 0.0)
        message.expires_at = None if expires_at is None else expires_at - self.wall_offset
        return message
