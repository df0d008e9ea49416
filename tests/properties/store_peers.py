"""What peers of the store's machine do beside sending: they come, subscribe, unsubscribe and go."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tests.broker.harness import Peer
from tests.properties.kept import Kept, Subscribed
from tests.properties.store_world import CLIENTS, QUEUES, READ, TOPIC, Promise, StoreWorld

WHO = st.integers(0, 9)
ACKS = st.sampled_from(["auto", "client", "client-individual", "client-individual"])

# What the machine of deep queues leaves to the other one.
BROAD = precondition(lambda self: not self.is_focused)


class StorePeers(StoreWorld):
    """The rules of connections and subscriptions."""

    is_focused = False
    queues: tuple[str, ...] = QUEUES
    read: tuple[str, ...] = READ

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
        peer.subscribe(f"/queue/own.{self.count}", id="own")
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
