"""The broker against a model: peers come, go, block, ack and give back in any order that Hypothesis finds.

They do so at once or in transactions. The model knows of each message whether it waits, is held, is
gone, or lies in the dead-letter queue, and how often it failed. The
harness checks the broker's own invariants after every step; what is checked here is what peers see.
A failure prints the transcript of its steps, to be pasted into tests/conformance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.script import Received
from tests.depth import SECONDS, machine_settings

QUEUES = ("/queue/a", "/queue/b")
TOPIC = "/topic/t"
MAX_DELIVERIES = 3
MAX_PEERS = 5
MAX_SUBSCRIPTIONS = 6
LIMITS = Limits(max_deliveries=MAX_DELIVERIES, outbox_high_water_bytes=5000)
POLICIES = [
    DestinationPolicy(pattern=DEAD_LETTER_QUEUE, max_messages=10_000),
    DestinationPolicy(pattern="/queue/*", max_messages=6),
]
COMMANDS = ["ack", "ack", "nack", "nack", "drop"]


@dataclass(eq=False)
class Entry:
    """What the model knows of one message on one queue (a subscription's own one for topics)."""

    body: str
    place: str = "sent"  # then "waiting", "held", and at last "gone"
    attempts: int | None = None  # None: it was never given back
    expires_at: float | None = None
    may_vanish: bool = False  # its time to live began at a moment that peers cannot know


@dataclass(eq=False)
class Subscribed:
    """What the model knows of one subscription."""

    peer: Peer
    id: str
    destination: str
    ack: str
    prefetch: int
    entries: dict[str, Entry]  # of its queue, shared with the queue's other subscriptions
    expected: list[str] = field(default_factory=list)  # of a topic, in the mode auto
    held: dict[str, Received] = field(default_factory=dict)  # by body, in the order of delivery

    def scope(self, body: str) -> list[str]:
        """What an ACK or NACK of `body` speaks of."""
        bodies = list(self.held)
        return bodies[: bodies.index(body) + 1] if self.ack == "client" else [body]


@dataclass(eq=False)
class Opened:
    """What the model knows of one transaction: its SENDs, and what it settles, in order."""

    peer: Peer
    name: str
    actions: list[tuple[str, str] | tuple[Subscribed, str, str]] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        """A SEND was refused when it came. Peers are told at the COMMIT only, so the broker is asked."""
        return self.peer.harness.broker.transactions.of(self.peer.session)[self.name].failure is not None

    def claimed(self, subscribed: Subscribed) -> set[str]:
        """What it has of a subscription: that stays when the subscription ends."""
        return {
            each
            for action in self.actions
            if action[0] is subscribed and action[1] in subscribed.held
            for each in subscribed.scope(action[1])
        }

    def may_settle(self, subscribed: Subscribed) -> bool:
        """What it gives back comes again at once, so that what is settled behind that depends on luck."""
        return not any(action[0] is subscribed and action[2:] == ("nack",) for action in self.actions)


PEER = st.integers(0, MAX_PEERS - 1)


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.broker = BrokerHarness(LIMITS, POLICIES)
        self.peers: list[Peer] = []
        self.subscribed: list[Subscribed] = []
        self.parted: list[Subscribed] = []  # ended, but for what open transactions have
        self.queues: dict[str, dict[str, Entry]] = {name: {} for name in QUEUES}
        self.opened: list[Opened] = []
        self.committed: dict[str, Opened] = {}  # by the receipt of the COMMIT
        self.dead: list[str] = []
        self.perhaps_dead: list[str] = []
        self.last_first: defaultdict[int, int] = defaultdict(int)
        self.count = 0

    # What peers do

    @initialize()
    def begin(self) -> None:
        for version in ("1.1", "1.2", "1.2"):
            self.connect(version)
        self.subscribe(0, QUEUES[0], "client", 2)
        self.subscribe(1, QUEUES[0], "client-individual", 1)

    @precondition(lambda self: len(self.peers) < MAX_PEERS)
    @rule(version=st.sampled_from(["1.1", "1.2"]))
    def connect(self, version: str) -> None:
        self.count += 1
        self.peers.append(self.broker.connect(version, name=f"peer{self.count}"))

    @precondition(lambda self: len(self.subscribed) < MAX_SUBSCRIPTIONS)
    @rule(
        who=PEER,
        destination=st.sampled_from([*QUEUES, TOPIC]),
        ack=st.sampled_from(["auto", "client", "client", "client-individual", "client-individual"]),
        prefetch=st.integers(1, 3),
    )
    def subscribe(self, who: int, destination: str, ack: str, prefetch: int) -> None:
        for peer in self.chosen(who, reads=True):
            self.count += 1
            entries = self.queues.get(destination, {})
            subscribed = Subscribed(peer, f"s{self.count}", destination, ack, prefetch, entries)
            self.subscribed.append(subscribed)
            peer.subscribe(destination, f"ack:{ack}", f"prefetch-count:{prefetch}", id=subscribed.id)
            self.collect()

    @rule(who=PEER, which=st.integers(0, 9))
    def unsubscribe(self, who: int, which: int) -> None:
        for peer in self.chosen(who, reads=True):
            # What a blocked peer was told already still reaches it, after the end.
            theirs = [each for each in self.subscribed if each.peer is peer and not peer.is_blocked]
            # Rather one of which a transaction has something.
            theirs = [each for each in theirs if self.claimed(each)] or theirs
            for subscribed in theirs and [theirs[which % len(theirs)]]:
                self.subscribed.remove(subscribed)
                if subscribed.destination in self.queues:
                    self.parted.append(subscribed)
                    self.part()
                peer.say(f"UNSUBSCRIBE id:{subscribed.id}")
                self.collect()

    @rule(
        who=PEER,
        destination=st.sampled_from(QUEUES),
        many=st.integers(1, 4),
        seconds=st.sampled_from([None, None, 1, 3]),
    )
    def publish(self, who: int, destination: str, many: int, seconds: int | None) -> None:
        for peer in self.chosen(who):
            lines = []
            for _ in range(many):
                self.count += 1
                entry = self.queues[destination][f"m{self.count}"] = Entry(f"m{self.count}")
                timeout = ""
                if seconds is not None:
                    timeout = f"; neb-timeout:{seconds * 1000}"
                    entry.expires_at = self.broker.now + seconds
                lines.append(f"SEND destination:{destination}; receipt:{entry.body}{timeout} | {entry.body}")
                entry.may_vanish = seconds is not None and peer.is_held_back
            peer.say(*lines)
            if peer.is_held_back and seconds is not None:
                for entry in list(self.queues[destination].values())[-many:]:
                    entry.may_vanish = True
            self.collect()

    @rule(who=PEER)
    def publish_to_topic(self, who: int) -> None:
        for peer in self.chosen(who, reads=True):
            self.count += 1
            body = f"m{self.count}"
            self.accept(TOPIC, body)
            peer.publish(TOPIC, body)
            self.collect()

    @precondition(lambda self: any(each.held for each in self.subscribed))
    @rule(which=st.integers(0, 99), command=st.sampled_from(COMMANDS))
    def settle(self, which: int, command: str) -> None:
        held = [(each, body) for each in self.subscribed for body in each.held]
        subscribed, body = held[which % len(held)]
        frame = subscribed.held[body]
        self.settled(subscribed, body, command)
        self.say(subscribed, frame, command)
        self.collect()

    @precondition(lambda self: any(each.held for each in self.subscribed))
    @rule(which=st.integers(0, 99), first=st.integers(0, 99), most=st.integers(2, 4), rises=st.booleans())
    def ack_several(self, which: int, first: int, most: int, *, rises: bool) -> None:
        holders = [each for each in self.subscribed if each.held]
        subscribed = holders[which % len(holders)]
        bodies = [*subscribed.held][first % len(subscribed.held) :][:most]
        if not rises:
            bodies.reverse()
        frames = [subscribed.held[body] for body in bodies]
        for body in bodies:
            if body in subscribed.held:  # in the mode client, not yet with another one
                self.settled(subscribed, body, "ack")
        others = ",".join(frame[1]["message-id"] for frame in frames[1:])
        subscribed.peer.ack(frames[0], f"message-ids:{others}")
        self.collect()

    # Transactions

    @precondition(lambda self: len(self.opened) < MAX_PEERS)
    @rule(who=PEER)
    def open(self, who: int) -> None:
        for peer in self.chosen(who, reads=True):
            self.count += 1
            self.opened.append(Opened(peer, f"t{self.count}"))
            peer.say(f"BEGIN transaction:t{self.count}")

    @precondition(lambda self: self.opened)
    @rule(which=PEER, destination=st.sampled_from([*QUEUES, TOPIC]), many=st.integers(1, 3))
    def publish_in_transaction(self, which: int, destination: str, many: int) -> None:
        for opened in self.chosen_transaction(which):
            for _ in range(many):
                self.count += 1
                opened.actions.append((destination, f"m{self.count}"))
                headers = [f"transaction:{opened.name}", f"receipt:held-{self.count}"]
                opened.peer.publish(destination, f"m{self.count}", headers=headers)
            if opened.has_failed:
                # Of what it held nothing will happen; that it was for a queue is to be seen at the COMMIT.
                opened.actions = [action for action in opened.actions if len(action) == 2]
                self.part()
            self.collect()

    @precondition(lambda self: self.opened)
    @rule(which=PEER, message=st.integers(0, 99), command=st.sampled_from(COMMANDS))
    def settle_in_transaction(self, which: int, message: int, command: str) -> None:
        for opened in self.chosen_transaction(which):
            theirs = [each for each in self.subscribed if each.peer is opened.peer]
            held = [(each, body) for each in theirs if opened.may_settle(each) for body in each.held]
            if opened.has_failed:
                return  # it holds nothing any more
            for subscribed, body in held and [held[message % len(held)]]:
                opened.actions.append((subscribed, body, command))
                self.say(subscribed, subscribed.held[body], command, f"transaction:{opened.name}")
                self.collect()

    @precondition(lambda self: self.opened)
    @rule(which=PEER, does=st.sampled_from(["COMMIT", "COMMIT", "ABORT"]))
    def close(self, which: int, does: str) -> None:
        for opened in self.chosen_transaction(which):
            if opened.peer.is_blocked:
                continue  # its RECEIPT would come too late to know what others are told
            self.opened.remove(opened)
            if does == "COMMIT":
                self.committed[f"committed-{opened.name}"] = opened
            else:
                self.part()
            opened.peer.say(f"{does} transaction:{opened.name}; receipt:committed-{opened.name}")
            self.collect()

    @precondition(lambda self: len(self.peers) > 2)
    @rule(who=PEER, ending=st.sampled_from(["lose", "disconnect"]))
    def go(self, who: int, ending: str) -> None:
        for peer in self.chosen(who, reads=ending == "disconnect"):
            for subscribed in [each for each in self.subscribed if each.peer is peer]:
                self.end(subscribed, counted=ending == "lose")
            self.peers.remove(peer)
            self.opened = [each for each in self.opened if each.peer is not peer]
            self.part(counted=ending == "lose")
            leave: Callable[[], None] = getattr(peer, ending)
            leave()
            self.collect()

    @rule(who=PEER)
    def block_or_unblock(self, who: int) -> None:
        for peer in self.chosen(who):
            (peer.unblock if peer.is_blocked else peer.block)()
            self.collect()

    @rule(seconds=st.sampled_from([0.25, 1, 3]))
    def advance(self, seconds: float) -> None:
        self.broker.advance(seconds)
        self.collect()

    def teardown(self) -> None:
        for peer in self.peers:
            if peer.is_blocked:
                peer.unblock()
        self.collect()
        self.broker.advance(6)  # who is held back waits in vain, or goes on
        self.collect()
        for peer in list(self.peers):
            self.go(self.peers.index(peer), "lose")
        reader = self.broker.connect(name="reader")
        for queue, entries in self.queues.items():
            reader.subscribe(queue)
            left = reader.bodies()
            reader.say("UNSUBSCRIBE id:s")
            waiting = {each.body: each for each in entries.values() if each.place == "waiting"}
            must = {body for body, each in waiting.items() if not (each.may_vanish or self.has_expired(each))}
            may = {body for body, each in entries.items() if each.place == "sent" or body in waiting}
            assert must <= set(left) <= may, self.broker.transcript
            assert len(left) == len(set(left)), self.broker.transcript
        reader.subscribe(DEAD_LETTER_QUEUE)
        dead = [body for body in reader.bodies() if body not in self.perhaps_dead]
        assert sorted(dead) == sorted(self.dead), self.broker.transcript
        reader.disconnect()
        assert self.broker.destinations == {}
        assert self.broker.broker.account.stored_bytes == 0

    # The model

    def chosen(self, who: int, *, reads: bool = False) -> Iterator[Peer]:
        """The peer of that place, if there is one (and, where asked, the broker reads it)."""
        for peer in self.peers and [self.peers[who % len(self.peers)]]:
            if not (reads and peer.is_held_back):
                yield peer

    def chosen_transaction(self, which: int) -> Iterator[Opened]:
        """The transaction of that place, if its peer is read."""
        opened = self.opened[which % len(self.opened)]
        if not opened.peer.is_held_back:
            yield opened

    def say(self, subscribed: Subscribed, frame: Received, command: str, *headers: str) -> None:
        say = subscribed.peer.ack if command == "ack" else subscribed.peer.nack
        say(frame, *(["requeue:false"] if command == "drop" else []), *headers)

    def has_expired(self, entry: Entry) -> bool:
        return entry.expires_at is not None and entry.expires_at <= self.broker.now

    def end(self, subscribed: Subscribed, *, counted: bool) -> None:
        self.subscribed.remove(subscribed)
        for body in subscribed.held:
            self.give_back(subscribed, body, counted=counted)

    def claimed(self, subscribed: Subscribed) -> set[str]:
        """What open transactions have of a subscription."""
        return set().union(*(opened.claimed(subscribed) for opened in self.opened))

    def part(self, *, counted: bool = False) -> None:
        """What no open transaction has any longer of subscriptions that have ended goes back."""
        for subscribed in list(self.parted):
            kept = self.claimed(subscribed)
            for body in [each for each in subscribed.held if each not in kept]:
                del subscribed.held[body]
                self.give_back(subscribed, body, counted=counted)
            if not subscribed.held:
                self.parted.remove(subscribed)

    def accept(self, destination: str, body: str) -> None:
        """A message without a time to live was accepted."""
        if destination in self.queues:
            self.queues[destination][body] = Entry(body, "waiting")
        for each in self.subscribed:
            if each.destination == destination == TOPIC and each.ack == "auto":
                each.expected.append(body)
            elif each.destination == destination == TOPIC:
                each.entries[body] = Entry(body, "waiting")

    def settled(self, subscribed: Subscribed, body: str, command: str) -> None:
        """An ACK or NACK of `body` takes effect."""
        for each in subscribed.scope(body):
            del subscribed.held[each]
            if command == "nack":
                self.give_back(subscribed, each, counted=True)
            else:
                subscribed.entries[each].place = "gone"
                if command == "drop":
                    self.bury(subscribed, each)

    def give_back(self, subscribed: Subscribed, body: str, *, counted: bool) -> None:
        entry = subscribed.entries[body]
        entry.attempts = (entry.attempts or 0) + counted
        entry.place = "waiting"
        if entry.attempts >= MAX_DELIVERIES:
            entry.place = "gone"
            self.bury(subscribed, body)

    def bury(self, subscribed: Subscribed, body: str) -> None:
        """Only queues have dead letters, subscriptions to topics have none; nor has what is over."""
        if subscribed.destination in self.queues:
            entry = subscribed.entries[body]
            if not self.has_expired(entry):
                self.dead.append(body)
            elif entry.may_vanish:  # its time began when there was room for it, which we do not know
                self.perhaps_dead.append(body)

    def commit(self, opened: Opened) -> None:
        """All of a transaction takes effect, in order."""
        for action in opened.actions:
            if len(action) == 2:
                self.accept(*action)
                continue
            subscribed, body, command = action
            # It may have been settled in another way meanwhile, which is no fault.
            if subscribed in (*self.subscribed, *self.parted) and body in subscribed.held:
                self.settled(subscribed, body, command)

    def collect(self) -> None:
        """Read what all peers were told, and see that it is what the model allows."""
        try:
            frames = [(peer, frame) for peer in self.peers for frame in peer.received()]
            for _, frame in frames:
                if frame[0] == "RECEIPT":
                    self.read_receipt(frame)
            firsts: dict[int, list[int]] = defaultdict(list)
            for peer, frame in frames:
                if frame[0] != "RECEIPT":
                    self.read_message(peer, frame, firsts)
            for queue, numbers in firsts.items():
                assert min(numbers) > self.last_first[queue], "not first in, first out"
                self.last_first[queue] = max(numbers)
            for each in self.subscribed:
                assert each.peer.is_blocked or not each.expected, "a topic's message is missing"
                assert len(each.held) <= each.prefetch
        except AssertionError as error:
            error.add_note("\n".join(self.broker.transcript))
            raise

    def read_receipt(self, frame: Received) -> None:
        body, verdict = frame[1]["receipt-id"], frame[1].get("disposition")
        if body in self.committed:
            opened = self.committed.pop(body)
            if verdict is None:
                self.commit(opened)
            else:
                assert verdict == "rejected-full"
                assert any(action[0] in self.queues for action in opened.actions if len(action) == 2)
            self.part()
            return
        if verdict is None:
            assert body.startswith(("held-", "committed-")), "only what is held or committed has no verdict"
            return
        (entry,) = (entries[body] for entries in self.queues.values() if body in entries)
        if verdict == "accepted":
            if entry.place == "sent":
                entry.place = "waiting"
        else:
            assert (entry.place, verdict) == ("sent", "rejected-full")
            entry.place = "gone"

    def read_message(self, peer: Peer, frame: Received, firsts: dict[int, list[int]]) -> None:
        command, headers, *bodies = frame
        assert command == "MESSAGE", frame
        (body,) = bodies
        (subscribed,) = (
            each for each in self.subscribed if (each.peer, each.id) == (peer, headers["subscription"])
        )
        if subscribed.destination == TOPIC and subscribed.ack == "auto":
            assert subscribed.expected.pop(0) == body
            return
        entry = subscribed.entries[body]
        assert entry.place in ("sent", "waiting"), f"{body} is {entry.place}, and delivered"
        assert entry.may_vanish or not self.has_expired(entry), "an expired message is delivered"
        assert headers.get("redelivered", "false") == ("false" if entry.attempts is None else "true")
        assert int(headers.get("delivery-count", 0)) == (entry.attempts or 0)
        if entry.attempts is None:
            firsts[id(subscribed.entries)].append(int(headers["message-id"].removeprefix("m-")))
        entry.place = "gone" if subscribed.ack == "auto" else "held"
        if subscribed.ack != "auto":
            subscribed.held[body] = frame


TestBroker = pytest.mark.deep(pytest.mark.timeout(SECONDS)(BrokerMachine.TestCase))
TestBroker.settings = machine_settings(50, 60)
