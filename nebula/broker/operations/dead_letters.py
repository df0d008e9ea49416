"""Dead letters: looking at messages without consuming them, putting them back, dropping them."""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from itertools import chain, islice
from math import inf
from typing import Final, Literal

from nebula import headers as names
from nebula.broker.core.broker import Broker
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.messages import QUEUE_KIND, Head, Message, Verdict, wanted_priority
from nebula.broker.operations.administration import Steps
from nebula.broker.operations.rows import Arrivals, at_hand
from nebula.broker.operations.views import DeadLetter, MessageView
from nebula.errors import Refused
from nebula.milliseconds import seconds_of

# Put back, or looked at, in one piece of work: some milliseconds.
_PUT_BACK_AT_ONCE: Final = 200
# More than are put back, because looking at one costs a comparison, and putting one back a new message.
_LOOKED_AT_AT_ONCE: Final = 2_000

# Of headers and bodies: a page of messages stays far below `max_body_bytes`. One is always shown.
_MOST_PAGE_BYTES: Final = 512 * 1024

_DEAD_LETTER_PREFIX: Final = "dead-letter-"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which dead letters.

    Attributes:
        numbers: these; None: all that the rest lets through.
        source: sent to this destination.
        reason: that died of this.
        after: with a higher number; from the newest on, with a lower one. 0: all.
    """

    numbers: Collection[int] | None = None
    source: str | None = None
    reason: str | None = None
    after: int = 0

    def lets_through(self, message: Message) -> bool:
        """Whether the message is one of them, where it is behind `after`."""
        # `at_hand` has skipped what is not behind `after`.
        return (
            (self.numbers is None or message.number in self.numbers)
            and (self.source is None or message.header(names.DEAD_LETTER_FROM) == self.source)
            and (self.reason is None or message.header(names.DEAD_LETTER_REASON) == self.reason)
        )

    def comes_before(self, number: int) -> bool:
        """Whether a newest-first list that goes on from `after` includes this number."""
        return not self.after or number < self.after


@dataclass(frozen=True, slots=True)
class Letters:
    """Dead letters of a list.

    Attributes:
        rows: in its order.
        on_disk: on disk alone, and not looked at. In a list from the oldest on, all that are there. In one
            from the newest on, older ones, where reading stopped early: at most this many, and mostly 0.
    """

    rows: list[DeadLetter]
    on_disk: int


@dataclass(frozen=True, slots=True)
class Purged:
    """How many were dropped; and how many are on disk alone, which were not looked at."""

    purged: int
    on_disk: int


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay of dead letters.

    Attributes:
        replayed: are where they came from.
        full: found no room there, and are still dead letters.
        without_queue: came from topics, whose messages go to many, or were sent here in the first place: they
            are still dead letters, and can be put into a queue that is named.
        not_permitted: likewise where their sender may not send any more (D.36).
        on_disk: dead letters on disk alone, which were not looked at: they come when those before them go.
    """

    replayed: int
    full: int
    without_queue: int
    not_permitted: int
    on_disk: int


def peek(
    queue: Queue,
    arrivals: Arrivals,
    now: float,
    *,
    after: int = 0,
    limit: int = 10,
    max_bytes: int = 1_000,
    from_disk: Iterable[tuple[Message, int]] = (),
    up_to: float = inf,
) -> list[MessageView]:
    """The first messages that wait, in order of arrival; nothing happens to them.

    Args:
        after: begin behind this number.
        limit: how many at most; fewer where they are large.
        max_bytes: of each body.
        from_disk: those of a deep queue that were read for this, with their deliveries that failed.
        up_to: what has a higher number is not shown: there may be others before it that were not read.
    """
    # Numbers rise along a line, so its first ones are enough: a queue may hold half a million in memory.
    # The page is in order of arrival over all lines (levels of priority), so it may need the first `limit` of
    # each.
    firsts = (
        islice((each for each in line.in_memory() if each.number > after), limit)
        for line in queue.store.line.lines
    )
    in_memory = ((each, queue.store.attempts.get(each.number, 0)) for each in chain.from_iterable(firsts))
    known = (each for each in chain(in_memory, from_disk) if each[0].number <= up_to)
    # A message that was paged in since the read is found twice, hence the doubled limit, and shown once.
    found = {each[0].number: each for each in nsmallest(2 * limit, known, key=lambda each: each[0].number)}
    shown = islice(found.values(), limit)
    return list(_fit(view(message, attempts, arrivals, now, max_bytes) for message, attempts in shown))


def view(message: Message, attempts: int, arrivals: Arrivals, now: float, max_bytes: int) -> MessageView:
    """A message as it is shown, with the beginning of its body.

    Args:
        attempts: its deliveries that failed.
    """
    head = message.head
    shown = dict(reversed(message.headers))  # of a name that comes twice the first counts
    body, encoding = _text(message.body[:max_bytes], is_cut=len(message.body) > max_bytes)
    expires_at = message.expires_at
    # Reversed twice, so that names are in the order in which they came.
    return MessageView(
        message.number,
        head.destination,
        head.sender,
        dict(reversed(shown.items())),
        body,
        encoding,
        len(message.body),
        len(message.body) > max_bytes,
        head.is_persistent,
        attempts,
        arrivals.age_of(message.number, now),
        None if expires_at is None else expires_at - now,
    )


# Theory. Dead letters are messages of an ordinary queue: they are stored, paged and consumed like others, and
# a consumer may take some while an operator works. The walks below visit only messages in memory that precede
# all those on disk (`at_hand`), because only their order of arrival is known. The others are paged in when
# those before them are gone, and each reply counts them. Nothing happens within a step, so what was found is
# still there when it is dropped or put back.
class DeadLetters:
    """The dead-letter queue of a broker.

    What a consumer of it has un-ACKed is out of reach until it comes back.
    """

    def __init__(self, broker: Broker, arrivals: Arrivals) -> None:
        self._broker = broker
        self._arrivals = arrivals

    @property
    def _queue(self) -> Queue | None:
        return self._broker.queues.get(self._broker.queues.dead_letter)

    def rows(self, wanted: Filter, limit: int) -> Steps[Letters]:
        """The first of those that are wanted, in order of arrival."""
        rows: list[DeadLetter] = []
        after = wanted.after
        while len(rows) < limit:
            found, after = yield from self._next(wanted, after, limit - len(rows))
            if not found:
                break
            rows += map(dead_letter, found)
        return Letters(rows, self._on_disk)

    def newest(self, wanted: Filter, limit: int) -> Steps[list[DeadLetter]]:
        """The last of those in memory that are wanted, the newest first; `after` is the number below which to
        begin, 0 for the newest.
        """
        rows: list[DeadLetter] = []
        for line in () if self._queue is None else self._queue.store.line.lines:
            for part in line.parts:
                # Copied, because others change it between the steps: a millisecond for a hundred thousand.
                letters, found = list(reversed(part)), 0
                for first in range(0, len(letters), _LOOKED_AT_AT_ONCE):
                    for each in letters[first : first + _LOOKED_AT_AT_ONCE]:
                        if found < limit and wanted.comes_before(each.number) and wanted.lets_through(each):
                            rows.append(dead_letter(each, is_at_hand=part is line.front))
                            found += 1
                    if found >= limit:
                        break
                    yield
        return nlargest(limit, rows, key=lambda row: row.number)

    def show(self, number: int, now: float, max_bytes: int) -> MessageView:
        """One dead letter in memory, with the beginning of its body.

        Raises:
            Refused: none has this number.
        """
        queue = self._queue
        # Linear, but operators ask rarely.
        for message in () if queue is None else queue.store.line.in_memory():
            if message.number == number:
                assert queue is not None
                return view(
                    message, queue.store.attempts.get(message.number, 0), self._arrivals, now, max_bytes
                )
        raise Refused("not-found", f"there is no dead letter {number}")

    def drop(self, wanted: Filter, limit: int, now: float) -> Steps[Purged]:
        """Drop those that are wanted, and count them as purged."""
        purged, after = 0, wanted.after
        while purged < limit:
            found, after = yield from self._next(wanted, after, min(_PUT_BACK_AT_ONCE, limit - purged))
            if not found:
                break
            # In the same step as the search, so that no consumer can have received them.
            self._take_out(found, now)
            self._broker.account.dropped["purged"] += len(found)
            purged += len(found)
            yield
        return Purged(purged, self._on_disk)

    def replay(self, wanted: Filter, limit: int, now: float, *, to: str | None = None) -> Steps[Replayed]:
        """Put those that are wanted back where they came from, or into another queue.

        Each is moved in one batch of the store, and delivered when that is committed: a crash neither loses
        nor duplicates it. It is a new message there, without the dead-letter headers and without an expiry,
        and as persistent as it was.
        What a piece of work has put back stays so, whatever becomes of the others.

        Raises:
            Refused: `to` is no queue, or reserved, or the dead-letter queue itself.
        """
        if to is not None:
            self._check_target(to)
        counts = dict.fromkeys(("replayed", "full", "without_queue", "not_permitted"), 0)
        left, after = limit, wanted.after
        # What is put back may push others out of a full queue, to here: they are not this work's.
        last = self._broker.values.next_number()
        while left:
            letters, after = yield from self._next(wanted, after, min(_PUT_BACK_AT_ONCE, left))
            found = [each for each in letters if each.number <= last]
            if not found:
                break
            left -= len(found)
            outcomes = [self._put_back(letter, to, now) for letter in found]
            for outcome in outcomes:
                counts[outcome] += 1
            done = [each for each, outcome in zip(found, outcomes, strict=True) if outcome == "replayed"]
            # In the same step as the sends, so that one batch of the store has both.
            self._take_out(done, now)
            yield
        return Replayed(**counts, on_disk=self._on_disk)

    @property
    def _on_disk(self) -> int:
        return 0 if self._queue is None else self._queue.store.paging.paged_count

    def _next(self, wanted: Filter, after: int, count: int) -> Steps[tuple[list[Message], int]]:
        """The next of those that are wanted; nothing happens between this and what is done to them.

        Returns:
            None or up to `count` of them, and the number behind which to go on.
        """
        while (queue := self._queue) is not None:
            # Copied, because `at_hand` iterates over the queue, which the caller changes.
            looked_at = list(islice(at_hand(queue, after), _LOOKED_AT_AT_ONCE))
            found = list(islice(filter(wanted.lets_through, looked_at), count))
            if found:
                return found, found[-1].number
            if looked_at:
                after = looked_at[-1].number
            # Messages on disk are read when those in memory are gone: wait for a page that is being read.
            elif not queue.store.paging.is_awaited:
                break
            yield
        return [], after

    def _take_out(self, letters: Collection[Message], now: float) -> None:
        queue = self._queue
        if letters and queue is not None:
            queue.store.withdraw(letters)
            self._broker.queues.forget_if_idle(queue, now)

    def _check_target(self, to: str) -> None:
        is_queue = self._broker.context.kind_of(to).holds_messages
        if (
            not is_queue
            or to.startswith(names.RESERVED_QUEUE_PREFIX)
            or to == self._broker.queues.dead_letter
        ):
            raise Refused("bad-target", f"{to[:200]!r} is not a queue that dead letters can be put into")

    def _put_back(self, letter: Message, to: str | None, now: float) -> str:
        broker = self._broker
        target = to or letter.header(names.DEAD_LETTER_FROM) or ""
        if not target or not broker.context.kind_of(target).holds_messages:
            return "without_queue"
        # The sender's present rights count, not those at the time of its SEND (D.36). A target that an
        # operator names needs no right of the sender.
        if to is None and not broker.access.rights_of(letter.head.sender).may_publish(target):
            return "not_permitted"
        queue = broker.queues.get(target) or broker.queues.create(target, letter.head.usage)
        message = Message(_head_again(letter, target), letter.body, broker.values.next_number(), now)
        if queue.send_once(message, now) is Verdict.ACCEPTED:
            return "replayed"
        # The queue may have been created above for this letter.
        broker.queues.forget_if_idle(queue, now)
        return "full"


def _head_again(letter: Message, target: str) -> Head:
    """The head of a dead letter as it was before it died."""
    # Without the reasons of its death, which the next one would repeat.
    passed_on = tuple(each for each in letter.headers if not each[0].startswith(_DEAD_LETTER_PREFIX))
    # Who consumes it now may answer, judged by who it was that asked, as after a restart.
    reply_to = next((value for name, value in passed_on if name == names.REPLY_TO), None)
    return Head(
        QUEUE_KIND,
        target,
        letter.head.sender,
        passed_on,
        is_persistent=letter.head.is_persistent,
        reply_to=reply_to,
        priority=wanted_priority(dict(passed_on)),
        usage=letter.head.usage,
    )


def dead_letter(message: Message, *, is_at_hand: bool = True) -> DeadLetter:
    """The row of a dead letter."""
    return DeadLetter(
        message.number,
        message.header(names.DEAD_LETTER_FROM) or "",
        message.header(names.DEAD_LETTER_REASON) or "",
        seconds_of(message.header(names.DEAD_LETTER_AT) or "") or 0.0,
        int(message.header(names.DEAD_LETTER_DELIVERIES) or 0),
        message.head.sender,
        len(message.body),
        message.head.is_persistent,
        message.header(names.DEAD_LETTER_CODE) or "",
        message.header(names.DEAD_LETTER_TEXT) or "",
        message.header(names.DEAD_LETTER_HANDLER) or "",
        is_at_hand,
    )


def _text(data: bytes, *, is_cut: bool) -> tuple[str, Literal["text", "base64"]]:
    try:
        return data.decode(), "text"
    except UnicodeDecodeError as error:
        # The cut may go through a character, which has at most four bytes.
        if is_cut and error.end == len(data) and error.start >= len(data) - 3:
            return data[: error.start].decode(), "text"
        return base64.b64encode(data).decode(), "base64"


def _fit(views: Iterable[MessageView]) -> Iterator[MessageView]:
    size_bytes = 0
    for each in views:
        # Headers count as well: a page of messages without bodies may still be large.
        size_bytes += len(each.body) + sum(len(name) + len(value) for name, value in each.headers.items())
        # Yielded before the check, so that a message larger than the page is shown.
        yield each
        if size_bytes > _MOST_PAGE_BYTES:
            return
