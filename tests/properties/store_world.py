"""What the machine of the store plays in: broker, peers and model, and what has to hold after each step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis.stateful import RuleBasedStateMachine

from nebula.broker.core.account import Account
from nebula.broker.core.destinations.line import queue_name
from nebula.broker.core.destinations.queue import Queue
from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy, WhenFull
from tests.broker.harness import Peer
from tests.broker.script import Received
from tests.properties.kept import MAX_DELIVERIES, Entry, Kept, Model, Subscribed
from tests.properties.late_broker import LateBroker
from tests.properties.twin_store import TwinDisk, TwinStore

PLAIN, RANKED, SHORT = "/queue/a", "/queue/ranked", "/queue/short"
COPIED, RECORD = "/queue/copied", "/queue/record"
DROPPING = "/queue/drops"
SHEDDING = {DROPPING: WhenFull.DROP_OLDEST, "/queue/buries": WhenFull.DEAD_LETTER}
MOST = 3  # messages in those
QUEUES = (PLAIN, PLAIN, RANKED, COPIED, SHORT)
READ = (*QUEUES, RECORD, *SHEDDING)
LIFE_SECONDS = 1.0
TOPIC = "/topic/t"
KEYS = ("X/a", "X/b", "X/copied")
CLIENTS = ("c", "d", "e")
TICK = 0.25
DEDUP_SECONDS = 2.0
LIMITS = Limits(max_deliveries=MAX_DELIVERIES, dedup_seconds=DEDUP_SECONDS)
POLICIES = [
    DestinationPolicy(pattern=COPIED, copy_to=RECORD),
    DestinationPolicy(pattern="X/copied", copy_to=RECORD),
    DestinationPolicy(pattern=SHORT, time_to_live=LIFE_SECONDS),
    *(DestinationPolicy(pattern=name, max_messages=MOST, when_full=when) for name, when in SHEDDING.items()),
]


@dataclass(eq=False)
class Promise:
    """A RECEIPT that is to come: what it says is there, and what it says is gone.

    Attributes:
        in_doubt: is accepted where it is consumed at once, and refused where it would have to be kept.
    """

    peer: Peer
    said_in: int
    verdict: dict[str, str]
    there: list[Entry] = field(default_factory=list)
    gone: list[Entry] = field(default_factory=list)
    line: Kept | None = None
    is_value: bool = False
    in_doubt: tuple[Kept, Entry] | None = None

    def resolve(self) -> None:
        """What comes of it is known now."""
        if self.in_doubt is not None:
            line, entry = self.in_doubt
            self.in_doubt = None
            if entry.place != "gone":
                del line.entries[entry.body]
                self.there, self.verdict = [], {"disposition": "rejected-full"}


class StoreWorld(RuleBasedStateMachine):
    """The broker, its peers and the model. What may happen to them is for the machine."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = TwinDisk()
        self.model = Model()
        self.peers: list[Peer] = []
        self.subscribed: list[Subscribed] = []
        self.promises: dict[str, Promise] = {}
        self.count = 0
        self.limits = LIMITS
        self.is_narrow = False
        self.is_ranked = True
        self.doomed: list[tuple[Queue, Kept]] = []

    def start(self, now: float = 0.0) -> None:
        page = 2 if self.is_narrow else None
        policies = [*POLICIES, DestinationPolicy(pattern=RANKED, has_priorities=self.is_ranked)]
        self.broker = LateBroker(
            self.limits, policies, self.disk, now=now, page_messages=page, new_store=TwinStore
        )
        self.doomed.clear()

    # The broker's side

    @property
    def account(self) -> Account:
        return self.broker.broker.account

    def has_levels(self, name: str) -> bool:
        """Whether the queue has priorities: what it was made with, while it lives."""
        queue = self.broker.broker.queues.get(name)
        return name == RANKED and (self.is_ranked if queue is None else len(queue.store.line.lines) > 1)

    def front(self, name: str) -> int:
        """How many messages of a queue without priorities could make room."""
        queue = self.broker.broker.queues.get(name)
        return 0 if queue is None else len(queue.store.line.lines[0].front)

    def take_page(self) -> None:
        """Give the broker the first of the pages that were asked for."""
        lost = self.account.dropped["full"]
        self.broker.hand_in_page()
        # What a queue took beyond its limit, while what waits longest was on its way.
        for entry in self.model.lines.get(DROPPING, Kept(DROPPING)).waiting[
            : self.account.dropped["full"] - lost
        ]:
            self.model.end(entry, self.broker.batch)

    def take_pages(self) -> None:
        """Give the broker the pages that were asked for until now."""
        for _ in range(len(self.broker.pages)):
            self.take_page()
            self.collect()

    def number(self) -> int:
        self.count += 1
        return self.count

    # The model's side

    def chosen(self, who: int) -> Iterator[Peer]:
        if self.peers:
            yield self.peers[who % len(self.peers)]

    def put(self, queue: str, *, is_persistent: bool, priority: int = 4) -> Entry:
        body = f"m{self.number()}"
        entry = Entry(body, is_persistent, self.broker.batch, priority=priority)
        entry.expires_at = self.broker.now + LIFE_SECONDS if queue == SHORT else None
        self.model.line(queue).entries[body] = entry
        if queue == COPIED:
            self.model.line(RECORD).entries[body] = Entry(body, is_persistent=True, came_in=self.broker.batch)
        return entry

    def copies_of(self, entry: Entry) -> list[Entry]:
        copy = self.model.line(RECORD).entries.get(entry.body)
        return [] if copy is None else [copy]

    def send(self, peer: Peer, queue: str, entry: Entry, *headers: str) -> str:
        there = [entry, *self.copies_of(entry)]
        promise = Promise(peer, self.broker.batch, {"disposition": "accepted"}, there)
        if self.account.is_disk_low and any(each.is_persistent for each in there):
            self.doubt(promise, self.model.line(queue))
        receipt = self.promise(promise)
        persistent = ["persistent:true"] if entry.is_persistent else []
        return "; ".join([f"SEND destination:{queue}", *persistent, *headers, receipt]) + f" | {entry.body}"

    def doubt(self, promise: Promise, line: Kept) -> None:
        """Of what is to be sent nothing is kept: it is consumed at once, or refused."""
        entry, *copies = promise.there
        promise.in_doubt = line, entry
        entry.place = "refused" if copies or entry.place == "delayed" else "in doubt"
        for copy in copies:
            del self.model.line(RECORD).entries[copy.body]

    def promise(self, promise: Promise) -> str:
        receipt = f"r{self.number()}"
        self.promises[receipt] = promise
        return f"receipt:{receipt}"

    def say(self, subscribed: Subscribed, frame: Received, command: str, *headers: str) -> None:
        say = subscribed.peer.ack if command == "ack" else subscribed.peer.nack
        say(frame, *(["requeue:false"] if command == "drop" else []), *headers)

    # What peers are told, and what lies on disk

    def collect(self) -> None:
        try:
            self.read_all()
            for promise in self.promises.values():
                assert promise.said_in > self.broker.told, "a RECEIPT is missing"
            paged = {queue_name(page.line) for page, _ in self.broker.pages}
            for each in self.subscribed:
                assert len(each.held) <= each.prefetch
                may_wait = each.line.name in paged or each.line.once_in > self.broker.told
                idle = each.has_credit and not may_wait
                assert not (idle and each.line.waiting), "something waits while a subscription has credit"
            self.model.check_rows(self.rows(), self.broker.kept)
            values = {key: row.body.decode() for key, row in self.disk.values.items() if row.body}
            assert values == self.model.values.at(self.broker.kept), "other last values are on disk"
        except AssertionError as error:
            error.add_note("\n".join(self.broker.transcript))
            raise

    def rows(self) -> Counter[tuple[str, str]]:
        rows = Counter((queue_name(line), row.body.decode()) for (line, _), row in self.disk.messages.items())
        rows.update((row.destination, row.body.decode()) for row in self.disk.delayed.values())
        return rows

    def read_all(self) -> None:
        peers = {*self.peers, *(promise.peer for promise in self.promises.values())}
        frames = [(peer, frame) for peer in peers for frame in peer.received()]
        firsts: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
        delivered = [
            self.read_message(peer, frame, firsts) for peer, frame in frames if frame[0] == "MESSAGE"
        ]
        self.model.check_order(delivered)
        for promise in self.promises.values():
            promise.resolve()
        for peer, frame in frames:
            if frame[0] != "MESSAGE":
                self.read_receipt(peer, frame)
        for (name, priority), numbers in firsts.items():
            last = self.model.lines[name].last_first
            assert min(numbers) > last.get(priority, 0), "not first in, first out"
            last[priority] = max(numbers)

    def read_receipt(self, peer: Peer, frame: Received) -> None:
        command, headers = frame[:2]
        assert command == "RECEIPT", frame
        promise = self.promises.pop(headers["receipt-id"])
        assert promise.peer is peer
        told = {name: headers[name] for name in ("disposition", "duplicate", "result") if name in headers}
        assert told == promise.verdict, frame
        kept = self.broker.kept
        assert not promise.is_value or promise.said_in <= kept, "a last value is not on disk yet"
        assert promise.line is None or promise.line.came_in <= kept, "a subscription is not on disk yet"
        if len(promise.there) == 1 and not promise.there[0].is_persistent:
            assert headers.get("durable") == "false", "a RECEIPT promises too much"
        for entry in promise.there:
            is_safe = not entry.is_persistent or entry.place in ("gone", "expired") or entry.survives(kept)
            assert is_safe, "a RECEIPT came before its message was on disk"
        for entry in promise.gone:
            assert not entry.survives(kept), "a RECEIPT came before its end was on disk"

    def read_message(
        self, peer: Peer, frame: Received, firsts: defaultdict[tuple[str, int], list[int]]
    ) -> tuple[Kept, Entry]:
        headers, body = frame[1], "".join(frame[2:])
        (subscribed,) = (
            each for each in self.subscribed if (each.peer, each.id) == (peer, headers["subscription"])
        )
        line = subscribed.line
        entry = line.entries[body]
        may_come = entry.place == "waiting" or (entry.place == "in doubt" and subscribed.ack == "auto")
        assert may_come, f"{body} is {entry.place}, and delivered"
        assert entry.was_due or (entry.once_in or 0) <= self.broker.told, "a delivery overtook its commit"
        assert not entry.has_expired(self.broker.now)
        count = int(headers.get("delivery-count", 0))
        if entry.is_restored:
            entry.attempts = count or None
        assert headers.get("redelivered", "false") == ("false" if entry.attempts is None else "true")
        assert count == (entry.attempts or 0)
        if not entry.was_back:
            number = int(headers["message-id"].rpartition("-")[2])
            firsts[line.name, entry.priority].append(number)
        if subscribed.ack == "auto":
            self.model.end(entry, self.broker.batch)
        else:
            entry.place = "held"
            subscribed.held[body] = frame
        return line, entry

    def settle_all(self) -> None:
        for _ in range(100):
            self.broker.commit()
            if not self.broker.pages:
                break
            self.take_pages()
        self.collect()

    def drain(self, reader: Peer, queue: str) -> list[str]:
        """All that waits in a queue. The model knows of it as read."""
        line, bodies = self.model.lines.get(queue, Kept(queue)), []
        reader.subscribe(queue)
        while True:
            for body in reader.bodies():
                bodies.append(body)
                if body in line.entries:
                    line.entries[body].place = "read"
            if not self.broker.pages:
                break
            self.take_page()
        reader.say("UNSUBSCRIBE id:s")
        return bodies
