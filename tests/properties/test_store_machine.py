"""The broker and its store against a model: commits and pages are late, and it crashes at any moment.

The model (`kept`) knows in which batch of the store each message came and went, and so what a crash has to
leave. Checked after every step: the rows on disk are exactly those of unsettled persistent messages; no
receipt is said before what it promises is on disk; nothing waits while a subscription has credit, unless a
page is on its way; and nothing is delivered that is not there, or twice, or out of order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from nebula.broker.policies import WhenFull
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import WALL_OFFSET, Peer
from tests.properties.examples import SECONDS, many
from tests.properties.kept import Entry, Kept, Subscribed, Used
from tests.properties.store_world import (
    CLIENTS,
    DEDUP_SECONDS,
    KEYS,
    LIFE_SECONDS,
    LIMITS,
    MOST,
    PLAIN,
    QUEUES,
    RANKED,
    READ,
    RECORD,
    SHEDDING,
    TICK,
    TOPIC,
    Promise,
    StoreWorld,
)

WHO = st.integers(0, 9)
ACKS = st.sampled_from(["auto", "client", "client-individual", "client-individual"])
COMMANDS = st.sampled_from(["ack", "ack", "nack", "drop"])


# What the machine of deep queues leaves to the other one.
BROAD = precondition(lambda self: not self.is_focused)


class StoreMachine(StoreWorld):
    is_focused = False
    queues: tuple[str, ...] = QUEUES
    read: tuple[str, ...] = READ

    @initialize(window=st.sampled_from([None, 700, 1_500]))
    def begin(self, window: int | None) -> None:
        if self.is_focused:
            window = 700
        if window is not None:
            self.is_narrow = True
            self.limits = replace(LIMITS, queue_window_bytes=window)
        self.start()
        for _ in range(2):
            self.connect()
        self.subscribe(0, 0, "client-individual", 2)

    # Peers

    @precondition(lambda self: len(self.peers) < 4)
    @rule()
    def connect(self) -> None:
        peer = self.broker.connect(name=f"peer{self.number()}")
        # Who consumes is never held back, so that each SEND takes effect at once.
        peer.subscribe(f"/queue/own.{self.count}", id="own")
        self.peers.append(peer)

    @BROAD
    @rule(client=st.sampled_from(CLIENTS), ack=ACKS, prefetch=st.integers(1, 3))
    def come(self, client: str, ack: str, prefetch: int) -> None:
        """A client with a durable subscription."""
        if any(peer.name.startswith(client) for peer in self.peers):
            return
        peer = self.broker.connect(name=f"{client}.{self.number()}", client_id=client)
        self.peers.append(peer)
        name = f"\0{client}\0s"
        line = self.model.lines.get(name)
        if line is None:
            line = self.model.lines[name] = Kept(name, came_in=self.broker.batch)
        promise = Promise(peer, self.broker.batch, {}, line=line)
        self.subscribed.append(Subscribed(peer, "s", line, ack, prefetch))
        receipt = self.promise(promise)
        peer.subscribe(TOPIC, f"ack:{ack}", f"prefetch-count:{prefetch}", "durable:true", receipt, id="s")
        self.collect()

    @precondition(lambda self: len(self.subscribed) < 6)
    @rule(who=WHO, which=WHO, ack=ACKS, prefetch=st.integers(1, 3))
    def subscribe(self, who: int, which: int, ack: str, prefetch: int) -> None:
        queue = self.read[which % len(self.read)]
        for peer in self.chosen(who):
            subscribed = Subscribed(peer, f"s{self.number()}", self.model.line(queue), ack, prefetch)
            self.subscribed.append(subscribed)
            peer.subscribe(queue, f"ack:{ack}", f"prefetch-count:{prefetch}", id=subscribed.id)
            self.collect()

    @precondition(lambda self: self.subscribed)
    @rule(which=WHO, removes=st.booleans())
    def unsubscribe(self, which: int, *, removes: bool) -> None:
        subscribed = self.subscribed[which % len(self.subscribed)]
        self.end(subscribed, counted=False)
        durable = subscribed.id == "s"
        receipt = ""
        if durable:
            if removes:
                self.model.remove(subscribed.line.name, self.broker.batch)
            result = {"result": "removed" if removes else "paused"}
            entries = list(subscribed.line.entries.values()) if removes else []
            receipt = f"; {self.promise(Promise(subscribed.peer, self.broker.batch, result, gone=entries))}"
        subscribed.peer.say(
            f"UNSUBSCRIBE id:{subscribed.id}" + "; durable:true" * (durable and removes) + receipt
        )
        self.collect()

    @rule(who=WHO, ending=st.sampled_from(["lose", "disconnect"]))
    def go(self, who: int, ending: str) -> None:
        for peer in self.chosen(who):
            self.part(peer, counted=ending == "lose")
            if ending == "lose":
                peer.lose()
            else:
                peer.say("DISCONNECT")  # the broker closes when its receipts were said
            self.collect()

    def part(self, peer: Peer, *, counted: bool) -> None:
        for subscribed in [each for each in self.subscribed if each.peer is peer]:
            self.end(subscribed, counted=counted)
        self.peers.remove(peer)
        if counted:
            self.promises = {name: each for name, each in self.promises.items() if each.peer is not peer}

    def end(self, subscribed: Subscribed, *, counted: bool) -> None:
        self.subscribed.remove(subscribed)
        for body in subscribed.held:
            entry = subscribed.line.entries[body]
            self.model.give_back(entry, self.broker.batch, self.broker.now, counted=counted)

    # Messages

    @rule(
        who=WHO,
        which=WHO,
        many=st.sampled_from([1, 1, 2, 6]),
        persistent=st.sampled_from([True, True, False]),
        priority=st.sampled_from([4, 4, 0, 9]),
        ends=st.sampled_from(["", "", "", "expires", "neb-timeout"]),
    )
    def publish(self, who: int, which: int, many: int, *, persistent: bool, priority: int, ends: str) -> None:
        queue = self.queues[which % len(self.queues)]
        for peer in self.chosen(who):
            lines = []
            for number in range(many):
                headers = [f"priority:{priority}"] if priority != 4 else []
                entry = self.put(queue, is_persistent=persistent, priority=priority if queue == RANKED else 4)
                if ends and number % 2 == 0:
                    entry.expires_at = self.broker.now + LIFE_SECONDS
                    entry.is_request = ends == "neb-timeout"
                    at = (
                        round(LIFE_SECONDS * 1000)
                        if entry.is_request
                        else round((WALL_OFFSET + entry.expires_at) * 1000)
                    )
                    headers.append(f"{ends}:{at}")
                lines.append(self.send(peer, queue, entry, *headers))
            peer.say(*lines)
            self.collect()

    @BROAD
    @rule(who=WHO, seconds=st.sampled_from([0.25, 1.0, 2.0]), persistent=st.booleans())
    def publish_for_later(self, who: int, seconds: float, *, persistent: bool) -> None:
        for peer in self.chosen(who):
            entry = self.put(PLAIN, is_persistent=persistent)
            entry.place, entry.deliver_at = "delayed", self.broker.now + seconds
            peer.say(self.send(peer, PLAIN, entry, f"delay:{round(seconds * 1000)}"))
            self.collect()

    @BROAD
    @rule(who=WHO, dedup_id=st.sampled_from("xy"), persistent=st.booleans())
    def publish_once(self, who: int, dedup_id: str, *, persistent: bool) -> None:
        for peer in self.chosen(who):
            if self.model.is_known(PLAIN, dedup_id, self.broker.now):
                verdict = {"disposition": "accepted", "duplicate": "true"}
                receipt = self.promise(Promise(peer, self.broker.batch, verdict))
                peer.say(f"SEND destination:{PLAIN}; dedup-id:{dedup_id}; {receipt} | again")
                self.collect()
                return
            entry = self.put(PLAIN, is_persistent=persistent)
            peer.say(self.send(peer, PLAIN, entry, f"dedup-id:{dedup_id}"))
            batch = self.broker.batch
            self.collect()
            until = self.broker.now + DEDUP_SECONDS
            self.model.used[PLAIN, dedup_id] = Used(until, batch, is_kept=persistent)

    @precondition(lambda self: not self.is_narrow)
    @rule(who=WHO, queue=st.sampled_from(list(SHEDDING)), persistent=st.booleans())
    def publish_to_full(self, who: int, queue: str, *, persistent: bool) -> None:
        """Where there is no room what waits longest makes some."""
        for peer in self.chosen(who):
            line = self.model.line(queue)
            consumes = any(each.line is line and each.ack == "auto" for each in self.subscribed)
            waits, is_full = line.waiting, line.depth >= MOST and not consumes
            entry = self.put(queue, is_persistent=persistent)
            said = self.send(peer, queue, entry)
            if is_full and waits:
                self.shed(waits[0], SHEDDING[queue])
            elif is_full:
                del line.entries[entry.body]  # all are un-ACKed
                promise = list(self.promises.values())[-1]
                promise.there, promise.verdict = [], {"disposition": "rejected-full"}
            peer.say(said)
            self.collect()

    def shed(self, entry: Entry, when: WhenFull) -> None:
        self.model.end(entry, self.broker.batch)
        if when is WhenFull.DEAD_LETTER:
            self.model.bury(entry, self.broker.batch, self.broker.now)

    @BROAD
    @rule(who=WHO)
    def publish_to_topic(self, who: int) -> None:
        for peer in self.chosen(who):
            body = f"m{self.number()}"
            promise = Promise(peer, self.broker.batch, {"disposition": "accepted"})
            for line in self.model.lines.values():
                if line.name.startswith("\0"):
                    line.entries[body] = entry = Entry(body, is_persistent=True, came_in=self.broker.batch)
                    promise.there.append(entry)
            peer.publish(TOPIC, body, headers=[self.promise(promise)])
            self.collect()

    @BROAD
    @rule(who=WHO, key=st.sampled_from(KEYS), deletes=st.booleans())
    def publish_value(self, who: int, key: str, *, deletes: bool) -> None:
        for peer in self.chosen(who):
            body = f"m{self.number()}"
            promise = Promise(peer, self.broker.batch, {"disposition": "accepted"})
            if key == "X/copied":
                copy = Entry(body, is_persistent=True, came_in=self.broker.batch)
                self.model.line(RECORD).entries[body] = copy
                promise.there.append(copy)
            elif deletes:
                body = ""
            # Who deletes what is not there is told so at once.
            promise.is_value = bool(body) or key in self.model.values.at(self.broker.batch)
            self.model.values.set(key, body or None, self.broker.batch)
            peer.publish(key, body, headers=[self.promise(promise)])
            self.collect()

    @precondition(lambda self: any(each.held for each in self.subscribed))
    @rule(which=st.integers(0, 99), command=COMMANDS)
    def settle(self, which: int, command: str) -> None:
        held = [(each, body) for each in self.subscribed for body in each.held]
        subscribed, body = held[which % len(held)]
        frame = subscribed.held[body]
        gone = self.model.settle(subscribed, body, command, self.broker.batch, self.broker.now)
        promise = Promise(subscribed.peer, self.broker.batch, {}, gone=gone if command != "nack" else [])
        self.say(subscribed, frame, command, self.promise(promise))
        self.collect()

    @BROAD
    @rule(who=WHO, queues=st.lists(st.sampled_from(QUEUES), max_size=3), command=COMMANDS, ends=st.booleans())
    def transact(self, who: int, queues: list[str], command: str, *, ends: bool) -> None:
        """SENDs and what may be settled, all at once or not at all."""
        for peer in self.chosen(who):
            name = f"t{self.number()}"
            peer.say(f"BEGIN transaction:{name}")
            mine = [each for each in self.subscribed if each.peer is peer and each.held]
            promise = Promise(peer, self.broker.batch, {"disposition": "accepted"} if ends else {})
            for subscribed in mine[:1]:
                body, frame = next(iter(subscribed.held.items()))
                self.say(subscribed, frame, command, f"transaction:{name}")
                if ends:
                    gone = self.model.settle(subscribed, body, command, self.broker.batch, self.broker.now)
                    promise.gone = gone if command != "nack" else []
            for queue in queues:
                headers = [f"transaction:{name}", "persistent:true"]
                entry = self.put(queue, is_persistent=True) if ends else None
                peer.publish(queue, entry.body if entry else "never", headers=headers)
                if entry is not None:
                    promise.there += [entry, *self.copies_of(entry)]
            peer.say(f"{'COMMIT' if ends else 'ABORT'} transaction:{name}; {self.promise(promise)}")
            self.collect()

    @rule(which=WHO)
    def purge(self, which: int) -> None:
        """What waits is dropped, in memory and on disk; not where an expired one may be dead already."""
        queue = self.queues[which % len(self.queues)]
        line, there = self.model.line(queue), self.broker.broker.queues.get(queue)
        if there is None or any(entry.place == "expired" for entry in line.entries.values()):
            return
        count = there.clear("purged")
        assert count == len(line.waiting)
        for entry in line.waiting:
            self.model.end(entry, self.broker.batch)
        self.broker.broker.queues.forget_if_idle(there, self.broker.now)
        self.broker.settle()
        self.collect()

    # The store, time, and the end of a broker

    @rule()
    def begin_commit(self) -> None:
        self.broker.begin_commit()
        self.collect()

    @rule()
    def write(self) -> None:
        self.broker.write()
        self.collect()

    @rule()
    def end_commit(self) -> None:
        self.broker.end_commit()
        self.collect()

    @precondition(lambda self: self.broker.pages)
    @rule()
    def read_pages(self) -> None:
        self.broker.read_pages()

    @precondition(lambda self: self.broker.pages)
    @rule()
    def hand_in_pages(self) -> None:
        self.broker.hand_in_pages()
        self.collect()

    @rule(ticks=st.sampled_from([1, 2, 4, 8]))
    def advance(self, ticks: int) -> None:
        for _ in range(ticks):
            self.broker.advance(TICK)
            self.model.pass_time(self.broker.now)
            self.collect()

    @rule(seldom=st.integers(0, 3), clean=st.booleans())
    def restart_seldom(self, seldom: int, *, clean: bool) -> None:
        if not seldom:
            self.restart(clean=clean)

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.broker.end_commit()
            self.collect()
            for peer in list(self.peers):
                self.part(peer, counted=True)
                peer.lose()
                self.collect()  # what one of them gives back may go to the next
            kept = self.broker.batch
            self.broker.stop()
        else:
            kept = self.broker.kept
            for peer in list(self.peers):
                self.part(peer, counted=False)
        self.promises.clear()
        self.model.crash(kept, self.broker.now)
        self.start(self.broker.now)
        for _ in range(2):
            self.connect()
        self.advance(1)

    def teardown(self) -> None:
        """Nothing is missing in the end: all comes that waits, and all that is dead is among the dead."""
        self.advance(12)
        for peer in list(self.peers):
            self.part(peer, counted=False)
            peer.say("DISCONNECT")
            self.collect()
        self.settle_all()
        assert not self.promises, self.broker.transcript
        reader = self.broker.connect(name="reader")
        for name, line in self.model.lines.items():
            if not name.startswith("\0"):
                expected = {entry.body: entry for entry in line.waiting}
                found = self.drain(reader, name)
                assert Counter(found) == Counter(expected.keys()), self.broker.transcript
                ranks = [expected[body].priority for body in found]
                assert self.is_narrow or ranks == sorted(ranks, reverse=True), self.broker.transcript
        expired = [
            each.body for _, each in self.model.entries() if each.place == "expired" and not each.is_request
        ]
        dead = Counter([*expired, *(entry.body for entry in self.model.dead)])
        assert Counter(self.drain(reader, DEAD_LETTER_QUEUE)) == dead, self.broker.transcript


TestStore = pytest.mark.timeout(SECONDS)(StoreMachine.TestCase)
TestStore.settings = many(100, 50)
