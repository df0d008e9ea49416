"""Restoring: what an earlier run left in the store, and pages of what is on disk alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nebula.broker.core.context import CoreContext
from nebula.broker.core.destinations.line import level_name, level_of, queue_name
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.journal import Journal
from nebula.broker.core.messages import (
    DEFAULT_PRIORITY,
    LAST_VALUE_KIND,
    PRIORITIES,
    QUEUE_KIND,
    Content,
    Message,
)
from nebula.broker.core.routing import Routing
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import PageRequest, Snapshot, StoredMessage
from nebula.broker.core.subscribe import Subscriptions
from nebula.headers import SENDER


class Restoring:
    """Makes messages, values and sessions of rows.

    Args:
        context: what all parts of the core share.
        journal: made the rows.
        routing, subscriptions: take what is restored.
    """

    def __init__(
        self, context: CoreContext, journal: Journal, routing: Routing, subscriptions: Subscriptions
    ) -> None:
        self._context = context
        self._account = context.account
        self._journal = journal
        self._routing = routing
        self._queues = routing.queues
        self._subscriptions = subscriptions

    def restore(self, kept: Snapshot, now: float) -> None:
        """Take up what an earlier run has left, before anything else happens."""
        context, values = self._context, self._routing.values
        # A session that was connected to the end has been away for the shortest time.
        for session in sorted(kept.sessions, key=lambda each: each.away_since or float("inf")):
            rights = context.access.rights_of(session.principal)
            self._subscriptions.standing.restore(session, rights, self._account.usages.of(rights), now)
        for value in kept.values:
            message = self._journal.restore(value, LAST_VALUE_KIND)
            check = context.check_of(value.destination)
            is_tombstone = check is not None and check(value.body) is Content.TOMBSTONE
            values.restore(message, deletes=is_tombstone or not value.body)
        for row in kept.subscriptions:
            known = kept.pending.get((row.session, row.id), ()) if kept.is_clean else None
            self._subscriptions.restore(row, context.kind_of(row.destination), known)
        self._routing.restore(
            [
                (self._journal.restore(message, QUEUE_KIND), deliver_at)
                for message, deliver_at in kept.delayed
            ],
            kept.duplicates,
        )
        values.sweep()
        # At last, for what is above has to be in memory, and of these none has to.
        # All queues first: they need room as well.
        queues = {name: self._queue_of(name, kept) for name in kept.lines}
        for name, line in kept.lines.items():
            queues[name].store.restore(line, name, self._fitting(self._restored(name, line.first)))
        for postponed in kept.postponed:
            due, name = postponed.due - self._journal.wall_offset, postponed.line
            if name in queues and due > now:
                queues[name].restore_postponed(postponed.number, name, due)
            else:
                self._journal.drop_postponed(name, postponed.number)
        # What did not fit into the window was on disk alone, and is so again.
        self._journal.begin(kept.first_number - 1)
        self._queues.page_out(self._journal.taken_number)

    def _fitting(self, page: Iterable[tuple[Message, int]]) -> list[tuple[Message, int]]:
        """Of a line's first page what may be in memory: of all together half of that, but one of each line
        as long as there is room at all. The others stay on disk until it is their turn."""
        account = self._account
        room_bytes = account.max_bytes // 2 - account.stored_bytes
        taken: list[tuple[Message, int]] = []
        for message, attempts in page:
            room_bytes -= message.size_bytes
            if room_bytes < 0 and (taken or not account.has_room_for(message.size_bytes, account.own)):
                break
            taken.append((message, attempts))
        return taken

    def _queue_of(self, line: str, kept: Snapshot) -> Queue:
        name = queue_name(line)
        queue = self._subscriptions.queue_of(name) or self._queues.get(name)
        if queue is None:
            # It had priorities, which its policy may have lost since.
            has_levels = any(
                level_name(name, level) in kept.lines
                for level in range(PRIORITIES)
                if level != DEFAULT_PRIORITY
            )
            owner = self._owner_of(name, kept.lines[line].first)
            queue = self._queues.create(name, owner, has_levels=has_levels)
        return queue

    def _owner_of(self, name: str, rows: Sequence[StoredMessage]) -> Usage:
        """Who pays for the place of a queue: whoever sent what waits there first, as far as that is known."""
        if not rows or name == self._queues.dead_letter:
            return self._account.own
        return self._journal.usage_of(dict(rows[0].headers).get(SENDER, ""))

    def _restored(self, line: str, rows: Iterable[StoredMessage]) -> Iterator[tuple[Message, int]]:
        restore = self._journal.restore
        is_dead = line == self._queues.dead_letter
        level = level_of(line)
        return ((restore(row, QUEUE_KIND, is_dead=is_dead, priority=level), row.attempts) for row in rows)

    def page_after(self, request: PageRequest, rows: Sequence[StoredMessage]) -> PageRequest | None:
        """What else is to be read, at once, while `take_page` is called with what was."""
        queue = self._asker(request)
        return None if queue is None or not rows else queue.store.page_after(request, rows[-1].number)

    def take_page(self, request: PageRequest, rows: Sequence[StoredMessage], now: float) -> None:
        """Go on with a page that the store has read."""
        queue = self._asker(request)
        if queue is not None:
            queue.take_page(request, list(self._restored(request.line, rows)), now)

    def _asker(self, request: PageRequest) -> Queue | None:
        """The queue that wants a page; None: it is gone."""
        name = queue_name(request.line)
        queue = self._subscriptions.queue_of(name) or self._queues.get(name)
        return queue if queue is not None and queue.store is request.purpose else None
