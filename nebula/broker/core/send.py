"""The judgement of SENDs: who may send what where, what waits for room, and a COMMIT's SENDs together.

`Broker.send` handles most messages by itself, on a short path. All others come here: the sender's rights are
looked at (once for all messages of a head, until the rights change), then the reply right where a grant is
missing, the body, the form of what is asked for, and the room. A publisher for whose message there is no room
is held back for a while if that promises anything, and refused otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nebula.broker.core.account import Refusal
from nebula.broker.core.capacity import Rooms
from nebula.broker.core.context import CoreContext
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.duplicates import DedupKey
from nebula.broker.core.fixed_limits import MAX_OWN_REQUEST_BYTES
from nebula.broker.core.messages import (
    ACCEPTED,
    HEAD_COST_BYTES,
    MESSAGE_COST_BYTES,
    PRIORITIES,
    Content,
    Head,
    Message,
    Verdict,
)
from nebula.broker.core.notes import PUBLISHERS_PAUSED
from nebula.broker.core.reply_rights import ReplyRight, Requester
from nebula.broker.core.routing import Routing, dedup_key
from nebula.broker.core.session import Session
from nebula.broker.core.shares import Resource, Usage
from nebula.broker.core.subscription import Subscription
from nebula.headers import BROKER_QUEUE, IN_REPLY_TO, INBOX_PREFIX, RESERVED_QUEUE_PREFIX
from nebula.stomp import header_lines

_IN_REPLY_TO: Final = header_lines.start_of(IN_REPLY_TO)

# Levels of the broker's own queue: of callers of its verbs, and of all others.
_OPERATORS: Final = PRIORITIES - 1
_OTHERS: Final = 0


@dataclass(frozen=True, slots=True)
class HeldSend:
    """A SEND of a transaction. The receipt is kept, to be named if the SEND is refused."""

    head: Head
    body: bytes
    unread: bytes
    receipt: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a COMMIT: the verdict, and the receipt of the first SEND that was refused."""

    verdict: Verdict
    failed_receipt: str | None = None


class Sends:
    """Judges SENDs, and knows the publishers that wait for room.

    Attributes:
        paused: sessions that are held back until there is room: the queue, the bytes wanted, how long they
            wait at most, and whether the same SEND has waited before.
    """

    def __init__(self, context: CoreContext, routing: Routing) -> None:
        self._context = context
        self._account = context.account
        self._limits = context.limits
        self._access = context.access
        self._next_number = context.numbers.next
        self._routing = routing
        self._queues = routing.queues
        self._find_queue = routing.queues.get
        self.paused: dict[Session, tuple[Queue, int, float, bool]] = {}
        self._stalled: set[Usage] = set()

    def send(
        self, session: Session, head: Head, body: bytes, now: float, unread: bytes, *, may_wait: bool
    ) -> Verdict:
        """Judge a message and hand it to its destination; see `Broker.send`."""
        verdict, right = self._judge(session, head, body, unread, now)
        if verdict is not ACCEPTED:
            return self.refuse(verdict, session, head.destination)
        if head.wishes is not None and self._routing.is_duplicate(head, now):
            return Verdict.DUPLICATE
        message = Message(head, body, self._next_number(), now, unread)
        full = self._routing.put(message, now)
        if full is not None:
            # A copy takes as much again.
            size_bytes = (
                message.size_bytes if head.copy_to is None else 2 * (message.size_bytes + HEAD_COST_BYTES)
            )
            may_wait = may_wait and len(self._routing.delayed) < self._limits.max_delayed_messages
            verdict = self.wait_or_refuse(session, full, size_bytes, now, may_wait=may_wait)
            if right is not None and verdict is Verdict.FULL and session.usage is self._account.own:
                # The broker's own service does not repeat a reply to a peer that reads none.
                session.reply_rights.spend(right, now)
            return verdict
        if right is not None:
            session.reply_rights.spend(right, now, goes_on=head.is_stream)
        if head.destination == BROKER_QUEUE:
            session.own_requests.append((message.number, message.size_bytes))
        return ACCEPTED

    def judge_held(self, session: Session, send: HeldSend, now: float) -> Verdict:
        """Judge a SEND of a transaction on arrival: what would be refused now is not held.

        It reserves nothing and counts nothing; the COMMIT judges it again, together with the others. Only the
        COMMIT judges whether there are consumers (D.24).
        """
        head, body, unread = send.head, send.body, send.unread
        queue = self._find_queue(head.destination) if head.kind.holds_messages else None
        if head.free_in == self._access.epoch and queue is not None and not self._account.is_disk_low:
            size_bytes = MESSAGE_COST_BYTES + head.cost_bytes + len(body)
            if not unread and queue.store.is_ready_for(size_bytes, session.usage):
                return ACCEPTED  # the common case: there is room enough
        verdict, _ = self._judge(session, head, body, unread, now, is_held=True)
        if verdict is not ACCEPTED or self._routing.knows(head, now):
            return verdict
        cost_bytes, uses = head.cost_bytes, head.uses
        message = Message(head, body, 0, now, unread)
        head.cost_bytes, head.uses = cost_bytes, uses  # this message is not kept
        has_room = Rooms(self._context, self._routing, session.usage, now).take(message)
        return ACCEPTED if has_room else Verdict.FULL

    def judge_together(self, session: Session, sends: list[HeldSend], now: float) -> Outcome | list[Message]:
        """Judge the SENDs of a transaction together: what refuses the first one refuses all (D.24).

        Returns:
            Why not, or the messages, to be `deliver`ed at once.
        """
        messages: list[Message] = []
        spent = []
        keys: set[DedupKey] = set()
        rooms = Rooms(self._context, self._routing, session.usage, now)
        for send in sends:
            head = send.head
            verdict, right = self._judge(session, head, send.body, send.unread, now, is_checked=True)
            if verdict is not Verdict.ACCEPTED:
                break
            message = Message(head, send.body, self._next_number(), now, send.unread)
            messages.append(message)
            key = dedup_key(head)
            if self._routing.knows(head, now) or key in keys:
                continue  # it has no effect, so it needs neither right nor room
            if key is not None:
                keys.add(key)
            if right is not None:
                spent.append(session.reply_rights.spend(right, now, goes_on=head.is_stream))
            if not rooms.take(message):
                verdict = Verdict.FULL
                break
        else:
            return messages
        for taken in filter(None, reversed(spent)):
            session.reply_rights.give_back(taken)
        return Outcome(self.refuse(verdict, session, head.destination), send.receipt)

    def deliver(self, message: Message, now: float) -> None:
        """Hand over a message of `judge_together`. There is room for it."""
        head = message.head
        if self._routing.is_duplicate(head, now):
            return
        # Others may have got numbers since it was judged, and each line must rise.
        message.number = self._next_number()
        if head.kind.holds_messages:
            self._account.judged = message
        full = self._routing.put(message, now)
        self._account.judged = None
        if full is not None:
            # What the transaction itself has caused elsewhere took the room.
            self._queues.make_dead_letter(message, "full")
            self._queues.forget_if_idle(full, now)
        elif self._context.note_flow is not None:
            self._context.note_flow(head.sender, head.destination)

    def dead_letter(self, head: Head, body: bytes, unread: bytes, now: float) -> None:
        """Keep a message that had no room as a dead letter, if it was for a queue: its sender is not told."""
        if head.kind.holds_messages and not head.destination.startswith(RESERVED_QUEUE_PREFIX):
            message = Message(head, body, self._next_number(), now, unread)
            self._queues.make_dead_letter(message, "full")

    def take_resumed(self, now: float) -> list[tuple[Session, bool]]:
        """Sessions that need not wait any longer, in the order of their deadlines; True: no room was
        found."""
        resumed = []
        for session, (queue, size_bytes, until, is_again) in list(self.paused.items()):
            has_room = queue.store.is_ready_for(size_bytes, session.usage)
            if has_room or until <= now:
                # If it has waited before, there was room meanwhile, and others took it.
                if not (has_room or is_again):
                    # Its consumers took too long: no publisher waits for them again until they make progress.
                    queue.is_stalled = True
                    # Nor does this principal wait for memory, if that is the reason; see `advance`.
                    if self._account.is_nearly_full(session.usage):
                        session.usage.is_stalled = True
                        self._stalled.add(session.usage)
                del self.paused[session]
                session.waited_until = until
                resumed.append((session, not has_room))
        return sorted(resumed, key=lambda each: each[0].waited_until)

    def wait_on(self, session: Session) -> None:
        """The SEND that waits has waited before: keep its deadline."""
        queue, size_bytes, _, _ = self.paused[session]
        self.paused[session] = queue, size_bytes, session.waited_until, True

    def advance(self) -> None:
        """Let time pass: where memory has come free, publishers wait for it again."""
        for usage in list(self._stalled):
            usage.is_stalled = self._account.is_nearly_full(usage)
            if not usage.is_stalled:
                self._stalled.remove(usage)

    def _judge(
        self,
        session: Session,
        head: Head,
        body: bytes,
        unread: bytes,
        now: float,
        *,
        is_held: bool = False,
        is_checked: bool = False,
    ) -> tuple[Verdict, ReplyRight | None]:
        """Judge a SEND by everything except the room for it.

        Args:
            is_held: a transaction is to hold it, so consumers may still subscribe.
            is_checked: its body was judged before.

        Returns:
            The verdict, and the right to `spend` when the message is taken: the sender has no grant, but
            replies to a request.
        """
        right = None
        queue = self._find_queue(head.destination) if head.kind.holds_messages else None
        if head.judged_in != self._access.epoch and not self._review(session, head):
            return Verdict.UNAUTHORISED, None
        if not head.is_permitted:
            if queue is None and head.destination.startswith(INBOX_PREFIX):
                return Verdict.NO_CONSUMER, None  # D.48: only its SUBSCRIBE creates it
            owner = None if queue is None or not queue.is_inbox else queue.consumers.exclusive
            # A connection may always send to its own inbox.
            if owner is None or owner.session is not session:
                # None on last-value destinations: a reply would replace the value that others read.
                if not head.kind.holds_value:
                    reply_id = header_lines.find(unread, _IN_REPLY_TO) or head.header(IN_REPLY_TO, unread)
                    right = session.reply_rights.find(head.destination, reply_id, now)
                if right is None or not self._is_theirs(right[1], head.destination, owner):
                    return Verdict.UNAUTHORISED, None
        # An empty body deletes a last value. Elsewhere it is a body like any other.
        has_content = bool(body) or not head.kind.holds_value
        if head.check is not None and has_content and not is_checked and head.check(body) is Content.INVALID:
            return Verdict.INVALID, None
        if head.wishes is not None and self._is_too_late(head.destination, head.wishes.due(now) - now):
            return Verdict.INVALID, None
        if head.kind.holds_value:
            return self._judge_value(session, head, body, unread), right
        if head.kind.holds_messages:
            return self._judge_for_queue(session, head, body, queue, now, is_held=is_held), right
        return ACCEPTED, right

    def _judge_for_queue(
        self, session: Session, head: Head, body: bytes, queue: Queue | None, now: float, *, is_held: bool
    ) -> Verdict:
        if head.requires_consumers and not is_held and (queue is None or not queue.consumers.subscriptions):
            return Verdict.NO_CONSUMER
        if queue is not None:
            is_own = head.destination == BROKER_QUEUE
            return self._judge_own(session, head, body, queue, now) if is_own else ACCEPTED
        has_place = self._account.allows(Resource.DESTINATIONS, session.usage, session.id)
        return ACCEPTED if has_place else Verdict.FULL

    def _is_too_late(self, destination: str, delay: float) -> bool:
        """Whether it is delayed too long, or at all to an inbox, which ends with its connection."""
        return delay > self._limits.max_delay_seconds or (delay > 0 and destination.startswith(INBOX_PREFIX))

    def _review(self, session: Session, head: Head) -> bool:
        """Judge what all messages with this head have in common, until the rights change.

        Returns:
            Whether it may name the addresses that it names.
        """
        if not all(self._may_name(session, name, is_notify) for name, is_notify in head.addresses):
            head.judged_in = head.free_in = -1  # the inbox may exist the next time
            return False
        head.judged_in = self._access.epoch
        rights = session.rights
        # The requester chose where a reply goes, so the grants of its sender must not count.
        is_borne = not head.is_response or rights.is_open
        head.is_permitted = is_borne and rights.may_publish(head.destination)
        is_own = head.destination == BROKER_QUEUE
        if is_own:
            head.priority = _OPERATORS if session.rights.may_call_any else _OTHERS
        is_plain = head.check is None and head.wishes is None and head.copy_to is None
        is_free = head.is_permitted and is_plain and not is_own
        # Only for the kinds that `Broker.send` handles itself.
        head.free_in = head.judged_in if is_free and (head.kind.holds_messages or head.kind.fans_out) else -1
        return True

    def _may_name(self, session: Session, address: str, is_notify: bool) -> bool:
        """Whether a sender may have others send to an address that it names (G.reply-address).

        They send by their own rights, which the sender must not borrow. An inbox belongs to its connection,
        even if all principals may send everywhere else.
        """
        rights = session.rights
        if address.startswith(INBOX_PREFIX):
            inbox = self._find_queue(address)
            owner = None if inbox is None else inbox.consumers.exclusive
            return rights.is_open if owner is None else owner.session is session
        if rights.is_open:
            return True
        if address.startswith(RESERVED_QUEUE_PREFIX):
            return False
        if is_notify and rights.may_publish(address):
            return True
        # A message to a last value replaces what others read: to read it oneself is no reason for that.
        return not self._context.kind_of(address).holds_value and rights.may_subscribe(address)

    def _judge_own(self, session: Session, head: Head, body: bytes, queue: Queue, now: float) -> Verdict:
        """A request of the broker itself: all principals may send one, so each may have few waiting."""
        if head.transaction is not None or (head.wishes is not None and head.wishes.due(now) > now):
            return Verdict.INVALID  # many could come there at once, past what is looked at here
        store, asked, limits = queue.store, session.own_requests, self._limits
        line = store.line.lines[head.priority]
        # Numbers rise along a line: what is below the first that waits is being answered, or was.
        while asked and line.paged is None and (not line.front or asked[0][0] < line.front[0].number):
            asked.popleft()
        has_share = len(asked) < limits.max_own_requests_per_session and (
            not asked or sum(size_bytes for _, size_bytes in asked) + len(body) <= MAX_OWN_REQUEST_BYTES
        )
        leaves_room = head.priority == _OPERATORS or store.stored_bytes * 2 <= store.rules.max_memory_bytes
        has_room = len(line) < limits.max_own_requests and leaves_room
        return Verdict.ACCEPTED if has_share and has_room else Verdict.FULL

    def _judge_value(self, session: Session, head: Head, body: bytes, unread: bytes) -> Verdict:
        if not body and session.profile.needs_explicit_length and not head.deletes_explicitly:
            return Verdict.INVALID  # D.28
        is_disk_full = self._account.is_disk_low or session.usage.is_disk_full
        if body and is_disk_full and head.ephemeral_owner is None:
            return Verdict.FULL  # values are always kept on disk
        topic = self._routing.values.topics.get(head.destination)
        more = MESSAGE_COST_BYTES + head.cost_bytes + len(body) + len(unread)
        if topic is None:
            # Also a deletion of nothing is kept, while a slow feed has to send it.
            has_place = self._account.has_room(Resource.DESTINATIONS, session.usage)
            has_room = has_place and self._account.has_room_for(more, session.usage)
        else:
            former = topic.value
            released = former.size_bytes if former.head.usage is session.usage else 0
            has_room = not body or self._account.has_room_for(more - released, session.usage)
        return Verdict.ACCEPTED if has_room else Verdict.FULL

    def _is_theirs(self, requester: Requester, destination: str, owner: Subscription | None) -> bool:
        """Whether a requester can receive the reply at the destination that it named (G.reply-right).

        Args:
            owner: of the inbox that this is; None: it is no inbox.
        """
        principal, origin = requester
        if owner is None:
            return self._access.rights_of(principal).may_subscribe(destination)
        if isinstance(origin, int):
            # An inbox that existed when the request came has had the same owner since.
            return owner.session.principal == principal and owner.began_at < origin
        return owner.session.origin is origin

    def wait_or_refuse(
        self, session: Session, queue: Queue, size_bytes: int, now: float, *, may_wait: bool
    ) -> Verdict:
        """There is no room in a queue: WAIT if the session is held back until there is, else FULL."""
        usage = queue.store.payer or session.usage
        is_memory_full = not self._account.has_room_for(size_bytes, usage)
        self._queues.forget_if_idle(queue, now)
        # A consumer is never held back: its ACKs come by the same stream.
        is_consumer = bool(session.subscriptions or session.parted)
        may_wait = may_wait and not is_consumer and queue.store.could_hold(size_bytes)
        waits_for_memory = is_memory_full and not usage.is_stalled
        is_consumed = bool(queue.consumers.subscriptions) and not queue.is_stalled
        if may_wait and (is_consumed or waits_for_memory):
            self.paused[session] = (queue, size_bytes, now + self._limits.max_pause_seconds, False)
            why = "the broker's memory is full" if is_memory_full else "the queue is full"
            self._account.notes.add(PUBLISHERS_PAUSED, why, session.principal, session.id, queue.name)
            return Verdict.WAIT
        if is_memory_full:
            self._account.exceed(Resource.MEMORY, usage, session.id)
        return self.refuse(Verdict.FULL, session, queue.name)

    def refuse(self, verdict: Verdict, session: Session, destination: str) -> Verdict:
        """Count a SEND that came to nothing, and tell the operator if it was not for want of room."""
        self._account.count_dropped(verdict.value, session.principal, destination, session.id)
        if verdict is Verdict.UNAUTHORISED or verdict is Verdict.INVALID:
            self._account.refuse(Refusal(session.principal, session.id, "SEND", destination, verdict.value))
        return verdict
