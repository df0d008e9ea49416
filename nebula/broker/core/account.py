"""Accounting for the whole broker: resources in use, dropped messages, refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NoReturn

from nebula.broker.core.access import BROKERS_OWN, Rights
from nebula.broker.core.fixed_limits import MAX_KEPT_REFUSALS
from nebula.broker.core.limits import Limits
from nebula.broker.core.messages import Head, Message
from nebula.broker.core.notes import MESSAGES_DROPPED, SHARE_EXCEEDED, Notes
from nebula.broker.core.shares import Pool, Resource, Share, Usage, room
from nebula.broker.core.usages import Usages
from nebula.errors import Refused

_OWN_RIGHTS: Final = Rights(BROKERS_OWN, None, frozenset())
_DEAD_RIGHTS: Final = Rights(f"{BROKERS_OWN}.dead-letters", None, frozenset())


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused request, for the operator's log alone: the peer is not told why (D.5)."""

    principal: str
    session: str
    what: str
    destination: str
    verdict: str


class Account:
    """Resources in use by all principals, dropped messages, and refusals.

    Args:
        limits: how much there is of each resource.
        shares: what single principals may use, by pattern.

    Attributes:
        stored_bytes: memory in use by messages, values, transactions, subscriptions and names.
        watermark_bytes: up to this much in use, no principal can have exceeded a share of the memory, so
            shares are not checked.
        own: the broker itself; pays for what has other bounds.
        dead: pays for dead letters. It has an ordinary share, so that they cannot take the reserve or the
            whole disk.
        heads_bytes: by payer, the memory of heads that messages share, once nothing more can share them.
        pools: all other resources.
        dropped: messages that were not delivered, by reason.
        is_disk_low: only writes that free something are allowed.
        judged: the message that a queue is to take now, as there was memory for it when it was judged. What
            is done before may take more than was foreseen, such as a new queue or a dead letter.
        notes: events for the operator's log.
    """

    def __init__(self, limits: Limits, shares: Sequence[Share] = ()) -> None:
        self.max_bytes = limits.max_memory_bytes
        self.reserved_bytes = int(limits.max_memory_bytes * limits.operator_reserve)
        self.stored_bytes = 0
        self.usages = Usages(shares, limits.principal_share)
        self.watermark_bytes = self.usages.lowest(Resource.MEMORY, self.max_bytes - self.reserved_bytes)
        self.own = self.usages.of(_OWN_RIGHTS)
        self.dead = self.usages.of(_DEAD_RIGHTS)
        self.pools = {
            resource: Pool(resource, limit, int(limit * limits.operator_reserve))
            for resource, limit in (
                (Resource.DESTINATIONS, limits.max_destinations),
                (Resource.SUBSCRIPTIONS, limits.max_subscriptions_in_all),
                (Resource.GLOBS, limits.max_globs),
                (Resource.SESSIONS, limits.max_durable_sessions),
                (Resource.DURABLES, limits.max_durable_subscriptions),
                (Resource.DELAYED, limits.max_delayed_messages),
                (Resource.DEDUP_IDS, limits.max_dedup_ids),
                (Resource.CONNECTIONS, limits.max_connections),
            )
        }
        self.heads_bytes: Counter[Usage] = Counter()
        self.refusals: Counter[Resource] = Counter()
        self.dropped: Counter[str] = Counter()
        self.is_disk_low = False
        self.judged: Message | None = None
        self.notes = Notes()
        self._refusals: list[Refusal] = []
        self._uncounted = 0
        self._unheard: list[Refusal] = []

    def drop(self, head: Head, reason: str) -> None:
        """Count a dropped message, and note it for the log."""
        self.count_dropped(reason, head.sender, head.destination)

    def count_dropped(self, reason: str, principal: str, destination: str, session: str = "") -> None:
        """As `drop`, where there is no head, or the session of the sender is known."""
        self.dropped[reason] += 1
        self.notes.add(MESSAGES_DROPPED, reason, principal, session, destination)

    def refuse(self, refusal: Refusal) -> None:
        """Keep a refusal for the log, or only count it if there are too many."""
        if len(self._refusals) < MAX_KEPT_REFUSALS:
            self._refusals.append(refusal)
        else:
            self._uncounted += 1

    def take_refusals(self) -> tuple[list[Refusal], int]:
        """The refusals since the last call, and the number of those that were only counted."""
        taken = self._refusals, self._uncounted
        self._refusals, self._uncounted = [], 0
        return taken

    def note_unheard(self, refusal: Refusal) -> bool:
        """Keep for the log that a SEND without a receipt was rejected.

        Returns:
            False if too many are kept already: call it again for the sender's next one.
        """
        if len(self._unheard) >= MAX_KEPT_REFUSALS:
            return False
        self._unheard.append(refusal)
        return True

    def take_unheard(self) -> list[Refusal]:
        """The refusals kept by `note_unheard` since the last call."""
        taken, self._unheard = self._unheard, []
        return taken

    # --- memory ---

    def is_nearly_full(self, usage: Usage) -> bool:
        """Whether memory is so full that publishers that wait for room keep waiting."""
        most_bytes = usage.memory_bytes + self.room_bytes(usage)
        return self.stored_bytes * 8 >= self.max_bytes * 7 or usage.memory_bytes * 8 >= most_bytes * 7

    def has_room_for(self, size_bytes: int, usage: Usage) -> bool:
        """Whether a principal may use this much more memory."""
        # One comparison for nearly all messages: shares cannot be exceeded below the watermark.
        if self.stored_bytes + size_bytes <= self.watermark_bytes:
            return True
        return size_bytes <= self.room_bytes(usage)

    def is_overdrawn(self, usage: Usage) -> bool:
        """Whether a principal uses all the memory that it may, or more: some costs are counted
        but never refused."""
        return self.stored_bytes >= self.watermark_bytes and not self.room_bytes(usage)

    def need_memory(self, usage: Usage, what: str, session: str = "") -> None:
        """Refuse a request of a principal that has used up its memory.

        Raises:
            Refused: there is no room for `what`.
        """
        if self.is_overdrawn(usage):
            self.exceed(Resource.MEMORY, usage, session)
            raise Refused("memory", f"the broker has no room for {what}")

    def room_bytes(self, usage: Usage) -> int:
        """How much more memory a principal may use."""
        return room(Resource.MEMORY, usage, self.max_bytes - self.stored_bytes, self.reserved_bytes)

    def hold(self, size_bytes: int, usage: Usage) -> None:
        """Charge memory to a principal, whether there is room for it or not."""
        self.stored_bytes += size_bytes
        usage.memory_bytes += size_bytes

    def release(self, size_bytes: int, usage: Usage) -> None:
        """Undo `hold` for this much."""
        self.stored_bytes -= size_bytes
        usage.memory_bytes -= size_bytes

    def hold_head(self, head: Head, usage: Usage) -> None:
        """A principal pays for a head until no message has it any more."""
        self.hold(head.own_bytes, usage)
        self.heads_bytes[usage] += head.own_bytes
        head.on_gone = partial(self._release_head, head.own_bytes, usage)

    def _release_head(self, size_bytes: int, usage: Usage) -> None:
        self.release(size_bytes, usage)
        self.heads_bytes[usage] -= size_bytes

    # --- disk ---

    def note_disk(self, free_bytes: int, *, is_low: bool) -> None:
        """Share out the free space of the disk. Call it at intervals.

        Args:
            is_low: nothing more may be written.
        """
        self.is_disk_low = is_low
        newcomer = self.usages.newcomer
        newcomer.most_disk_bytes = self._most_disk_bytes(newcomer, free_bytes)
        for usage in self.usages.all:
            was_full = usage.is_disk_full
            usage.most_disk_bytes = self._most_disk_bytes(usage, free_bytes)
            if usage.is_disk_full and not was_full:
                self.exceed(Resource.DISK, usage)

    @staticmethod
    def _most_disk_bytes(usage: Usage, free_bytes: int) -> int:
        # Half of it until the next call: new data is in the store's log first, and then in its tables as
        # well.
        return usage.disk_bytes + (room(Resource.DISK, usage, free_bytes) + 1) // 2

    # --- everything else ---

    def has_room(self, resource: Resource, usage: Usage) -> bool:
        """Whether a principal may have one more of a resource."""
        return self.pools[resource].room_for(usage) > 0

    def allows(self, resource: Resource, usage: Usage, session: str = "") -> bool:
        """As `has_room`, for a request. A refusal is counted and noted."""
        if self.has_room(resource, usage):
            return True
        self.exceed(resource, usage, session)
        return False

    def need(self, resource: Resource, usage: Usage, session: str) -> None:
        """Refuse a request for one more of a resource where there is no room.

        Raises:
            Refused: no room is left.
        """
        if not self.has_room(resource, usage):
            self.refuse_more(resource, usage, session)

    def refuse_more(self, resource: Resource, usage: Usage, session: str) -> NoReturn:
        """Refuse it. The codes are `too-many-` connections, destinations, globs, sessions and subscriptions.

        Raises:
            Refused: always.
        """
        self.exceed(resource, usage, session)
        words = resource.value.replace("-", " ")
        raise Refused(f"too-many-{words.split()[-1]}", f"the broker has no room for more of your {words}")

    def take(self, resource: Resource, usage: Usage, cost_bytes: int = 0) -> None:
        """Charge one more to a principal, with the memory that it costs, whether there is room or not."""
        # Not refused here: the caller has asked before, or takes what an earlier run has stored.
        self.pools[resource].used += 1
        usage.counts[resource] = usage.counts.get(resource, 0) + 1
        self.hold(cost_bytes, usage)

    def give_back(self, resource: Resource, usage: Usage, cost_bytes: int = 0) -> None:
        """Undo `take` for one."""
        self.pools[resource].used -= 1
        usage.counts[resource] -= 1
        self.release(cost_bytes, usage)

    def exceed(self, resource: Resource, usage: Usage, session: str = "") -> None:
        """Count, and note for the log, that a principal was refused because its share is used up.

        Args:
            session: of the principal, where it is known.
        """
        self.refusals[resource] += 1
        usage.refusals += 1
        self.notes.add(SHARE_EXCEEDED, resource.value, usage.name, session)
