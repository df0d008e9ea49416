"""The broker and its store against a model: commits and pages are late, and it crashes at any moment.

The model (`kept`) knows in which batch of the store each message came and went, and so what a crash has to
leave. The store in memory has a twin on disk (`twin_store`), which has to hold the same. Checked after every
step: the rows on disk are exactly those of unsettled persistent messages; no receipt is said before what it
promises is on disk; nothing waits while a subscription has credit, unless a page is on its way or a commit is
waited for; nothing is delivered that is not there, or twice, or out of order; and what is promised once not
before its commit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from nebula.broker.core.policies import WhenFull
from nebula.headers import DEAD_LETTER_QUEUE
from tests.broker.harness import WALL_OFFSET
from tests.properties.kept import Entry, Used
from tests.properties.store_peers import BROAD, WHO, StorePeers
from tests.properties.store_world import (
    DEDUP_SECONDS,
    DROPPING,
    KEYS,
    LIFE_SECONDS,
    LIMITS,
    MOST,
    PLAIN,
    QUEUES,
    RECORD,
    SHEDDING,
    TICK,
    TOPIC,
    Promise,
)

COMMANDS = st.sampled_from(["ack", "ack", "nack", "drop"])


class StoreMachine(StorePeers):
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
                level = priority if self.has_levels(queue) else 4
                entry = self.put(queue, is_persistent=persistent, priority=level)
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
            batch = self.broker.batch
            entry.once_in = batch if persistent else None
            peer.say(self.send(peer, PLAIN, entry, f"dedup-id:{dedup_id}"))
            self.collect()
            if entry.body in self.model.line(PLAIN).entries:  # else it was refused
                until = self.broker.now + DEDUP_SECONDS
                self.model.used[PLAIN, dedup_id] = Used(until, batch, is_kept=persistent)

    @rule(who=WHO, queue=st.sampled_from(list(SHEDDING)), persistent=st.booleans())
    def publish_to_full(self, who: int, queue: str, *, persistent: bool) -> None:
        """Where there is no room what waits longest makes some."""
        if self.is_narrow and queue != DROPPING:
            return
        for peer in self.chosen(who):
            line = self.model.line(queue)
            waits, depth = line.waiting, line.depth
            entry = self.put(queue, is_persistent=persistent)
            said = self.send(peer, queue, entry)
            promise = list(self.promises.values())[-1]
            if promise.in_doubt is None and depth >= MOST:
                self.make_room(queue, waits, promise)
            peer.say(said)
            self.collect()

    def make_room(self, queue: str, waits: list[Entry], promise: Promise) -> None:
        """A queue is full before what is promised."""
        line = self.model.line(queue)
        front = self.front(queue)
        if not waits:
            # All are un-ACKed: there is room for what is consumed at once alone.
            self.doubt(promise, line)
        for entry in waits[:front]:
            if line.depth > MOST:
                self.model.end(entry, self.broker.batch)
                if SHEDDING[queue] is WhenFull.DEAD_LETTER:
                    self.model.bury(entry, self.broker.batch, self.broker.now)

    @BROAD
    @rule(who=WHO)
    def publish_to_topic(self, who: int) -> None:
        if self.account.is_disk_low:
            return  # it is lost, counted, to whoever does not consume it at once
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
            if self.account.is_disk_low and (key == "X/copied" or not deletes):
                promise.verdict = {"disposition": "rejected-full"}
                peer.publish(key, body, headers=[self.promise(promise)])
                self.collect()
                return
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
            promise = Promise(peer, self.broker.batch, {})
            word, is_refused = "COMMIT" if ends else "ABORT", self.account.is_disk_low and bool(queues)
            if ends and is_refused:
                promise.verdict, ends = {"disposition": "rejected-full"}, False
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
                    there = [entry, *self.copies_of(entry)]
                    for each in there:
                        each.once_in = self.broker.batch
                    promise.there += there
            peer.say(f"{word} transaction:{name}; {self.promise(promise)}")
            self.collect()

    @rule(which=WHO)
    def purge(self, which: int) -> None:
        """What waits is dropped, in memory and on disk; not where an expired one may be dead already."""
        queue = self.queues[which % len(self.queues)]
        line, there = self.model.line(queue), self.broker.broker.queues.get(queue)
        if there is None or any(entry.place == "expired" for entry in line.entries.values()):
            return
        in_memory = {message.body.decode() for message in there.store.line.in_memory()}
        assert there.store.begin_purge("purged") == len(line.waiting)
        for entry in line.waiting:
            if entry.body in in_memory:
                entry.place = "doomed"
            else:
                self.model.end(entry, self.broker.batch)
        self.doomed.append((there, line))
        self.purge_on()

    @precondition(lambda self: self.doomed)
    @rule()
    def purge_on(self) -> None:
        """What was taken out is forgotten bit by bit; until then a crash would leave it."""
        there, line = self.doomed[0]
        if there.store.purged:
            self.model.end(line.entries[there.store.purged[0].body.decode()], self.broker.batch)
        if not there.store.purge_some("purged", 1):
            self.doomed.remove((there, line))
            self.broker.broker.queues.forget_if_idle(there, self.broker.now)
        self.broker.settle()
        self.collect()

    @BROAD
    @rule()
    def turn_disk(self) -> None:
        """It runs low, or there is room again."""
        self.account.is_disk_low = not self.account.is_disk_low

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
        self.take_pages()

    @rule(ticks=st.sampled_from([1, 2, 4, 8]))
    def advance(self, ticks: int) -> None:
        for _ in range(ticks):
            self.broker.advance(TICK)
            self.model.pass_time(self.broker.now, self.broker.batch)
            self.collect()

    @rule(seldom=st.integers(0, 3), clean=st.booleans(), changes=st.booleans())
    def restart_seldom(self, seldom: int, *, clean: bool, changes: bool) -> None:
        if not seldom:
            self.restart(clean=clean, changes=changes)

    def restart(self, *, clean: bool, changes: bool) -> None:
        """Stop or crash, and start again, with other policies maybe."""
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
        self.is_ranked = self.is_ranked != changes
        self.start(self.broker.now)
        for _ in range(2):
            self.connect()
        self.advance(1)

    def teardown(self) -> None:
        """Nothing is missing in the end: all comes that waits, and all that is dead is among the dead."""
        self.advance(12)
        while self.doomed:
            self.purge_on()
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
                there = [body for body, entry in expected.items() if entry.place != "gone"]
                assert Counter(found) == Counter(there), self.broker.transcript
                ranks = [expected[body].priority for body in found]
                assert self.is_narrow or ranks == sorted(ranks, reverse=True), self.broker.transcript
                for rank in set(ranks):
                    places = [
                        expected[body].place_in_line for body in found if expected[body].priority == rank
                    ]
                    known = [place for place in places if place is not None]
                    assert known == sorted(known), self.broker.transcript
        expired = [
            each.body for _, each in self.model.entries() if each.place == "expired" and not each.is_request
        ]
        dead = Counter([*expired, *(entry.body for entry in self.model.dead)])
        self.broker.commit()  # what was read from the disk just now may have died at that
        assert Counter(self.drain(reader, DEAD_LETTER_QUEUE)) == dead, self.broker.transcript
        self.broker.commit()
        self.disk.close()
