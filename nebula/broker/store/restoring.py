"""Restoring: a broker's queues, values and sessions from what an earlier run left in the store."""

from __future__ import annotations

from nebula.broker.core.account import Account
from nebula.broker.core.broker import Broker
from nebula.broker.core.destinations.line import level_name, queue_name
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.duplicates import DedupKey
from nebula.broker.core.journal import Journal
from nebula.broker.core.messages import (
    DEFAULT_PRIORITY,
    LAST_VALUE_KIND,
    PRIORITIES,
    QUEUE_KIND,
    Content,
    Message,
)
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import StoredMessage
from nebula.broker.core.tables import POSTPONED
from nebula.broker.store.store import Snapshot
from nebula.headers import SENDER


def restore(broker: Broker, kept: Snapshot, now: float) -> None:
    """Fill a broker that has a journal with what was stored, before anything else happens."""
    journal = broker.journal
    assert journal is not None
    _restore_sessions_and_values(broker, journal, kept, now)
    _restore_schedule(broker, journal, kept)
    broker.values.sweep()
    _restore_queues(broker, journal, kept, now)
    # What did not fit into the window was on disk alone, and is so again.
    # All messages up to this number are in the store, and may leave memory.
    journal.begin(kept.first_number - 1)
    broker.queues.page_out(journal.taken_number)


def _restore_sessions_and_values(broker: Broker, journal: Journal, kept: Snapshot, now: float) -> None:
    # A session that was connected to the end has been away for the shortest time.
    for session in sorted(kept.sessions, key=lambda each: each.away_since or float("inf")):
        rights = broker.access.rights_of(session.principal)
        broker.durable_sessions.restore(session, rights, broker.account.usages.of(rights), now)
    for value in kept.values:
        policy = broker.context.policies.lookup(value.destination)
        check = None if policy is None else policy.check
        is_tombstone = check is not None and check(value.body) is Content.TOMBSTONE
        deletes = is_tombstone or not value.body
        broker.values.restore(journal.restore(value, LAST_VALUE_KIND), deletes=deletes)
    for row in kept.subscriptions:
        # After an unclean end `pending` may be incomplete. With None a subscription gets all that changed.
        pending = kept.pending.get((row.session, row.id), ()) if kept.is_clean else None
        broker.subscriptions.restore(row, broker.context.kind_of(row.destination), pending)


def _restore_schedule(broker: Broker, journal: Journal, kept: Snapshot) -> None:
    """Delayed messages, and the `dedup-id`s of the current window."""
    for message, deliver_at in kept.delayed:
        # Rows have wall-clock times; the core's clock begins again with each run.
        broker.routing.delayed.restore(journal.restore(message, QUEUE_KIND), deliver_at - journal.wall_offset)
    for row in kept.duplicates:
        key = DedupKey(row.destination, row.principal, row.id)
        usage = journal.usage_of(row.principal)
        broker.routing.duplicates.know(key, row.until - journal.wall_offset, usage, is_kept=True)


def _restore_queues(broker: Broker, journal: Journal, kept: Snapshot, now: float) -> None:
    # At last: what is restored before has to be in memory, and of these messages none has to.
    # All queues first: they need room as well.
    queues = {name: _queue_of(broker, journal, name, kept) for name in kept.lines}
    for name, line in kept.lines.items():
        page = broker.messages_of(name, line.first)
        queues[name].store.restore(line, name, _fitting(broker.account, page))
    for postponed in kept.postponed:
        # Rows have times of the wall clock, and the core the clock of the loop, which begins anew.
        due, name = postponed.due - journal.wall_offset, postponed.line
        if name in queues and due > now:
            queues[name].restore_postponed(postponed.number, name, due)
        else:
            # The message may be gone, and the removal of this row lost in a crash. Or the delay is over, and
            # the message waits in its line like any other.
            journal.drop(POSTPONED, name, postponed.number)


def _fitting(account: Account, page: list[tuple[Message, int]]) -> list[tuple[Message, int]]:
    """The messages of a line's first page that may be in memory: up to half of it for all lines together, and
    one of each line as long as there is room at all. The others stay on disk until it is their turn."""
    # The other half is for what arrives before the consumers have come back.
    room_bytes = account.max_bytes // 2 - account.stored_bytes
    taken: list[tuple[Message, int]] = []
    for message, attempts in page:
        room_bytes -= message.size_bytes
        if room_bytes < 0 and (taken or not account.has_room_for(message.size_bytes, account.own)):
            break
        taken.append((message, attempts))
    return taken


def _queue_of(broker: Broker, journal: Journal, line: str, kept: Snapshot) -> Queue:
    queue = broker.subscriptions.queue_of(line)
    if queue is not None:
        return queue
    name = queue_name(line)
    # It had priorities, which its policy may have lost since.
    levels = (level for level in range(PRIORITIES) if level != DEFAULT_PRIORITY)
    has_levels = any(level_name(name, level) in kept.lines for level in levels)
    owner = _owner_of(broker, journal, name, kept.lines[line].first)
    return broker.queues.create(name, owner, has_levels=has_levels)


def _owner_of(broker: Broker, journal: Journal, name: str, rows: list[StoredMessage]) -> Usage:
    """The principal that pays for a queue: the sender of its first message, where that is known."""
    # The dead-letter queue is the broker's own.
    if not rows or name == broker.queues.dead_letter:
        return broker.account.own
    return journal.usage_of(dict(rows[0].headers).get(SENDER, ""))
