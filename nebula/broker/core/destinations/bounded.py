"""The room that a queue has, and what it loses where it has none."""

from __future__ import annotations

from collections.abc import Sequence

from nebula.broker.core.destinations.queue_store import Holding
from nebula.broker.core.messages import Message
from nebula.broker.core.policies import WhenFull
from nebula.broker.core.shares import Usage
from nebula.broker.core.storage import PageRequest


class Bounded(Holding):
    """The messages of a queue, within its limits and those of the broker."""

    __slots__ = ()

    def has_room_for(self, size_bytes: int, sender: Usage) -> bool:
        """Whether a sender that waits may go on: with a margin, so that they do not flutter."""
        payer = self.payer or sender
        return (
            (self.stored_bytes + self.paged_bytes) * 8 < self.max_bytes * 7
            and self.stored_bytes * 8 < self.rules.max_memory_bytes * 7
            and self.depth * 8 < self.max_messages * 7
            and not self._account.is_nearly_full(payer)
            # A message may be larger than the margin. What else could go to make room has gone already.
            and self._has_room(1, size_bytes)
            and not self._account.is_disk_low
            and self._account.has_room_for(size_bytes, payer)
        )

    @property
    def loses_oldest(self) -> bool:
        """Whether the oldest message makes room for a new one."""
        return self.rules.when_full is not WhenFull.REJECT

    def could_take(self, messages: int, size_bytes: int) -> bool:
        """Whether so much more would find room, or make some."""
        return self._has_room(messages, size_bytes) or (
            self.loses_oldest and self._could_make_room(messages, size_bytes)
        )

    def _could_make_room(self, messages: int, size_bytes: int) -> bool:
        """Whether dropping waiting messages makes enough room; un-ACKed ones stay."""
        if self.is_deep:
            # It is dropped when it comes from the disk.
            return not self._account.is_disk_low
        messages += self.depth - self.max_messages
        memory_bytes = size_bytes + self.stored_bytes - self.rules.max_memory_bytes
        size_bytes += self.stored_bytes + self.paged_bytes - self.max_bytes
        # Mostly the first one or two are enough.
        for message in self._line.in_memory():
            if messages <= 0 and size_bytes <= 0 and memory_bytes <= 0:
                return True
            messages -= 1
            size_bytes -= message.size_bytes
            memory_bytes -= message.size_bytes
        return messages <= 0 and size_bytes <= 0 and memory_bytes <= 0

    def could_keep(self, message: Message) -> bool:
        """Whether it may be written to the disk, if it is to be."""
        account, payer = self._account, self.payer or message.head.usage
        if not (account.is_disk_low or payer.is_disk_full) or self._journal is None:
            return True
        # A message that becomes a dead letter frees its sender's share: without this the sender could fill
        # the disk.
        stays_paid = account.is_disk_low or payer is not account.dead
        return (message.head.is_moved and stays_paid) or not self._keeps(message)

    def _has_room(self, messages: int, size_bytes: int) -> bool:
        return (
            self.stored_bytes + self.paged_bytes + size_bytes <= self.max_bytes
            and self.stored_bytes + size_bytes <= self.rules.max_memory_bytes
            and self.depth + messages <= self.max_messages
        )

    def could_accept(self, message: Message, beside: Message) -> bool:
        """Whether `message` would find room here when `beside` has taken some elsewhere."""
        return (
            self.could_take(1, message.size_bytes)
            and self.could_hold(message.size_bytes)
            and self.could_keep(message)
            and self._account.has_room_for(message.size_bytes + beside.size_bytes, message.head.usage)
        )

    def could_hold(self, size_bytes: int) -> bool:
        """Whether there would be room for it if nothing else were held."""
        return size_bytes <= min(self.max_bytes, self.rules.max_memory_bytes, self._account.max_bytes)

    def _is_full(self, message: Message) -> bool:
        size_bytes = message.size_bytes
        stored_bytes = self.stored_bytes + size_bytes
        account, payer = self._account, self.payer or message.head.usage
        return (
            stored_bytes + self.paged_bytes > self.max_bytes
            or stored_bytes > self.rules.max_memory_bytes
            or (
                account.stored_bytes + size_bytes > account.watermark_bytes
                and not self._has_memory_for(message)
            )
            or len(self._line) + self._unacked_count >= self.max_messages
            # `Usage.is_disk_full` written out: all that is sent passes here.
            or (
                (account.is_disk_low or payer.disk_bytes >= payer.most_disk_bytes)
                and not self.could_keep(message)
            )
        )

    def _make_room(self, message: Message, now: float) -> bool:
        """Lose what waits longest, where that is the way of this queue, and helps."""
        if (
            self.rules.when_full is WhenFull.REJECT
            or not self.could_hold(message.size_bytes)
            or not self.could_keep(message)
            or not self._could_free(message)
        ):
            return False
        while self._line.front and self._is_full(message) and self._may_push_out(message):
            self._lose_oldest(now)
        if self.is_deep:
            self._refill()
        # What waits longest may be on disk: it is lost when it comes from there.
        return not self._is_full(message) or (
            self.is_deep and self._has_memory_for(message) and not self._account.is_disk_low
        )

    def _may_push_out(self, message: Message) -> bool:
        """Whether the oldest may be dropped for it: a sender whose share is used up replaces only its own."""
        payer = self.payer or message.head.usage
        return self._has_memory_for(message) or (self.payer or self._line.front[0].head.usage) is payer

    def _could_free(self, message: Message) -> bool:
        """Whether the broker's memory would have room if this queue lost what it holds."""
        # What is dead is still held, by another queue.
        freed_bytes = self.stored_bytes if self.rules.when_full is WhenFull.DROP_OLDEST else 0
        return self._has_memory_for(message, freed_bytes)

    def _has_memory_for(self, message: Message, freed_bytes: int = 0) -> bool:
        """Whether its payer has room for it in the broker's memory; it has if that was said before."""
        account = self._account
        return message is account.judged or account.has_room_for(
            message.size_bytes - freed_bytes, self.payer or message.head.usage
        )

    def _trim(self, now: float) -> None:
        """Lose what was kept beyond the limits while it was on disk, where that is the way of this queue.

        Any other keeps what it has promised: it may take more room in memory than it did on disk, and its
        limits may be lower than they were.
        """
        if self.rules.when_full is WhenFull.REJECT:
            return
        while self._line.front and (
            self.stored_bytes + self.paged_bytes > self.max_bytes or self.depth > self.max_messages
        ):
            self._lose_oldest(now)

    def _lose_oldest(self, now: float) -> None:
        message = self._line.shed()
        attempts = self._attempts.get(message.number, 0)
        if self.rules.when_full is WhenFull.DEAD_LETTER:
            self._let_die(message, "full", attempts, now)
        else:
            self._drop([message], "full")

    def take_page(self, request: PageRequest, page: Sequence[tuple[Message, int]], now: float) -> None:
        """Go on with a page that was asked for."""
        self.put_page(request, page)
        self._trim(now)
        self._refill()
