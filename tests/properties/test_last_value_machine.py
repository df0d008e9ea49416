"""Last values against a model: publishers, readers, drops, restarts and rights in any order.

The model knows of each subscription which keys it must still be told of (`due`), which ones it may be
told of besides, what is in flight, and what is left of its snapshot. Everything that is told is the
present value, or its deletion; and when all is ACKed nothing is due. The harness checks the broker's
own invariants after every step.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from nebula.broker.core.access import Capability, Grants
from nebula.broker.core.limits import Limits
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.script import Received
from tests.depth import SECONDS, machine_settings
from tests.properties.last_values import Subscribed, Value

SELDOM = st.integers(0, 4)  # 0: now
KEYS = ("X/a", "X/b", "X/c", "X/d.e")
PATTERNS = ("X/a", "X/*", "X/[!a]*", "X/**")
READERS = ("r0", "r1", "r2")
FORBIDDEN = "X/c"  # to r2, while its right is withdrawn
WINDOW = 2
EXPIRY_SECONDS = 60.0
WHO = st.integers(0, 1)  # of the publishers
LIMITS = Limits(max_unacked_values=WINDOW, session_expiry_seconds=EXPIRY_SECONDS)


def grants(*, withdrawn: bool) -> Grants:
    capabilities = {
        "publish": Capability(publish=("X/**",)),
        "all": Capability(subscribe=("X/**",)),
        "some": Capability(subscribe=("X/[!c]*",)),
    }
    read = dict.fromkeys(READERS, ("all",)) | {"r2": ("some",) if withdrawn else ("all",)}
    return Grants(capabilities, {"publisher": ("publish",), **read})


class LastValueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryDisk()
        self.is_withdrawn = False
        self.values: dict[str, Value] = {}
        self.subscribed: dict[tuple[str, str], Subscribed] = {}
        self.away_since: dict[str, float] = {}
        self.count = 0
        self.result: dict[str, str] | None = None  # of the UNSUBSCRIBE at hand
        self.start()

    def start(self) -> None:
        store = MemoryStore(self.disk)
        self.broker = BrokerHarness(LIMITS, store=store, grants=grants(withdrawn=self.is_withdrawn))
        self.publishers = [self.publisher() for _ in range(2)]
        self.readers: dict[str, Peer] = {}
        self.away_since = dict.fromkeys(READERS, 0.0)

    def publisher(self) -> Peer:
        self.count += 1
        return self.broker.connect(name=f"p{self.count}", principal="publisher")

    # Publishers

    @rule(who=WHO, keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4), ephemeral=st.booleans())
    def publish(self, who: int, keys: list[str], *, ephemeral: bool) -> None:
        for key in keys:
            self.count += 1
            value = Value(f"v{self.count}", self.publishers[who] if ephemeral else None)
            self.change(key, value)
            self.publishers[who].publish(key, value.body, headers=["ephemeral:true"] if ephemeral else [])
            self.collect()

    @rule(who=WHO, key=st.sampled_from(KEYS))
    def delete(self, who: int, key: str) -> None:
        self.change(key, None)
        self.publishers[who].say(f"SEND destination:{key}; content-length:0")
        self.collect()

    @rule(who=WHO)
    def lose_publisher(self, who: int) -> None:
        self.lose_owner(self.publishers[who])
        self.publishers[who] = self.publisher()
        self.collect()

    def lose_owner(self, peer: Peer) -> None:
        for key in [key for key, value in self.values.items() if value.owner is peer]:
            self.change(key, None)
        peer.lose()

    # Readers

    @initialize()
    def begin(self) -> None:
        self.publish(0, list(KEYS), ephemeral=False)
        for reader, durable in zip(READERS, (False, True, True), strict=True):
            self.connect(reader)
            self.subscribe(reader, "s", "X/**", "client", durable=durable, eager=True, receipt=True)

    @rule(reader=st.sampled_from(READERS), seldom=SELDOM)
    def come(self, reader: str, seldom: int) -> None:
        if reader not in self.readers or not seldom:
            self.connect(reader)

    def connect(self, reader: str) -> None:
        """Come, come again, or take over."""
        former = self.readers.get(reader)
        self.part(reader)
        self.count += 1
        self.readers[reader] = self.broker.connect(
            name=f"{reader}.{self.count}", principal=reader, client_id=reader
        )
        assert former is None or former.is_closed
        self.collect()

    @rule(reader=st.sampled_from(READERS), ending=st.sampled_from(["lose", "disconnect"]), seldom=SELDOM)
    def leave(self, reader: str, ending: str, seldom: int) -> None:
        peer = self.readers.get(reader)
        if peer is not None and not seldom:
            self.part(reader)
            if ending == "lose":
                peer.lose()
            else:
                peer.disconnect()
            self.collect()

    def part(self, reader: str) -> None:
        if self.readers.pop(reader, None) is not None:
            self.away_since[reader] = self.broker.now
        for each, subscribed in list(self.subscribed.items()):
            if each[0] == reader and not subscribed.is_durable:
                del self.subscribed[each]
            elif each[0] == reader and not subscribed.is_away:
                subscribed.land()

    @rule(
        reader=st.sampled_from(READERS),
        id_=st.sampled_from(["s", "t"]),
        pattern=st.sampled_from(PATTERNS),
        ack=st.sampled_from(["auto", "client", "client-individual", "client-individual"]),
        durable=st.booleans(),
        eager=st.sampled_from([True, True, False]),
        receipt=st.booleans(),
    )
    def subscribe(
        self, reader: str, id_: str, pattern: str, ack: str, *, durable: bool, eager: bool, receipt: bool
    ) -> None:
        former = self.subscribed.get((reader, id_))
        peer = self.readers.get(reader)
        if peer is None or not (former is None or former.is_away):
            return
        if former is None or former.pattern != pattern:  # D.32: otherwise it goes on, said or not
            former = Subscribed(reader, pattern, ack, durable)
        subscribed = self.subscribed[reader, id_] = former
        subscribed.ack, subscribed.is_away, subscribed.is_receipted = ack, False, not receipt
        headers = [f"ack:{ack}"]
        headers += ["durable:true"] * durable + [f"receipt:{id_}"] * receipt
        if eager:
            live = {key for key in self.values if self.may(subscribed, key)}
            subscribed.due |= live
            subscribed.snapshot, subscribed.owes_marker = (live, False) if live else (None, True)
            headers += ["eager:true", "snapshot:true"]
        peer.subscribe(pattern, *headers, id=id_)
        self.collect()

    @rule(reader=st.sampled_from(READERS), id_=st.sampled_from(["s", "t"]), remove=st.booleans())
    def unsubscribe(self, reader: str, id_: str, *, remove: bool) -> None:
        peer, subscribed = self.readers.get(reader), self.subscribed.get((reader, id_))
        if peer is None:
            return
        self.result = {"result": "ignored"}
        if subscribed is not None and (remove or not subscribed.is_durable):
            del self.subscribed[reader, id_]
            self.result = {"result": "removed"} if subscribed.is_durable else {}
        elif subscribed is not None and not subscribed.is_away:
            subscribed.land()
            self.result = {"result": "paused"}
        peer.say(f"UNSUBSCRIBE id:{id_}; receipt:u" + "; durable:true" * remove)
        self.collect()
        assert self.result is None

    @precondition(lambda self: any(each.in_flight for each in self.subscribed.values()))
    @rule(which=st.integers(0, 99))
    def ack(self, which: int) -> None:
        held = [(each, key) for each in self.subscribed.values() for key in each.in_flight]
        subscribed, key = held[which % len(held)]
        frame = subscribed.in_flight[key]
        keys = list(subscribed.in_flight)
        for each in keys[: keys.index(key) + 1] if subscribed.ack == "client" else [key]:
            del subscribed.in_flight[each]
        self.readers[subscribed.reader].ack(frame)
        self.collect()

    # The rest of the world

    @rule()
    def change_rights(self) -> None:
        self.is_withdrawn = not self.is_withdrawn
        for subscribed in self.subscribed.values():
            if self.is_withdrawn and subscribed.reader == "r2" and subscribed.matches(FORBIDDEN):
                # What waits is given up when its turn comes, unless the right has come back by then.
                subscribed.possible |= subscribed.due & {FORBIDDEN}
                subscribed.due -= {FORBIDDEN}
                self.strike(subscribed, FORBIDDEN)
        self.broker.broker.review(grants(withdrawn=self.is_withdrawn), self.broker.now)
        self.broker.settle()
        self.collect()

    @rule(seldom=SELDOM, clean=st.booleans(), readers_first=st.booleans())
    def restart_seldom(self, seldom: int, *, clean: bool, readers_first: bool) -> None:
        if not seldom:
            self.restart(clean=clean, readers_first=readers_first)

    def restart(self, *, clean: bool, readers_first: bool) -> None:
        if clean:
            self.end_all(readers_first=readers_first)
            self.broker.stop()
        for reader in list(self.readers):
            self.part(reader)
        if not clean:
            self.forget_by_crash()
        self.start()
        self.collect()

    def end_all(self, *, readers_first: bool) -> None:
        if not readers_first:
            for publisher in self.publishers:
                self.lose_owner(publisher)
            self.collect()
        for reader, peer in list(self.readers.items()):
            self.part(reader)
            peer.lose()
        if readers_first:
            for publisher in self.publishers:
                self.lose_owner(publisher)

    def forget_by_crash(self) -> None:
        """After a restart nobody is told of ephemeral values that are gone (G.ephemeral)."""
        gone = {key for key, value in self.values.items() if value.owner is not None}
        for key in gone:
            del self.values[key]
        for subscribed in self.subscribed.values():
            subscribed.due -= gone
            subscribed.possible = set(KEYS)  # too much rather than too little
            for key in gone:
                subscribed.told.pop(key, None)

    @rule(seconds=st.sampled_from([1.0, 1.0, 1.0, 1.0, EXPIRY_SECONDS + 1]))
    def advance(self, seconds: float) -> None:
        self.broker.advance(seconds)
        for reader, since in self.away_since.items():
            if reader not in self.readers and since + EXPIRY_SECONDS <= self.broker.now:
                for each in [each for each in self.subscribed if each[0] == reader]:
                    del self.subscribed[each]
        self.collect()

    def teardown(self) -> None:
        for _ in range(100):
            held = [each for each in self.subscribed.values() if each.in_flight]
            if not held:
                break
            self.readers[held[0].reader].ack(next(iter(held[0].in_flight.values())))
            held[0].in_flight.pop(next(iter(held[0].in_flight)))
            self.collect()
        for subscribed in self.subscribed.values():
            assert subscribed.is_away or not (subscribed.due or subscribed.snapshot), self.broker.transcript
            assert not subscribed.owes_marker, self.broker.transcript

    # The model

    def may(self, subscribed: Subscribed, key: str) -> bool:
        is_forbidden = self.is_withdrawn and subscribed.reader == "r2" and key == FORBIDDEN
        return subscribed.matches(key) and not is_forbidden

    def change(self, key: str, value: Value | None) -> None:
        former = self.values.get(key)
        for subscribed in self.subscribed.values():
            if not subscribed.matches(key):
                continue
            if value is None:
                self.strike(subscribed, key)
            if not self.may(subscribed, key):
                subscribed.told.pop(key, None)
            elif subscribed.is_away:
                self.remember(subscribed, key, former, value)
            else:
                subscribed.due.add(key)
        self.values.pop(key, None)
        if value is not None:
            self.values[key] = value

    def remember(self, away: Subscribed, key: str, former: Value | None, value: Value | None) -> None:
        """G.ephemeral: what is kept for a durable subscription that is away."""
        is_ephemeral = value is not None and value.owner is not None
        if former is not None and former.owner is None:
            away.due.add(key)  # an ordinary value has changed
        elif value is not None and not is_ephemeral:
            away.due.add(key)
        elif value is None and former is not None and away.told.get(key):
            away.due.add(key)  # what it believes has come to an end
        elif value is None:
            away.possible.add(key)

    def strike(self, subscribed: Subscribed, key: str) -> bool:
        """Silently; True: it was the last."""
        if subscribed.snapshot is not None and key in subscribed.snapshot:
            subscribed.snapshot.remove(key)
            if not subscribed.snapshot:
                subscribed.snapshot = None
                subscribed.owes_marker = True
                return True
        return False

    def collect(self) -> None:
        """Read what all readers were told, and see that it is what the model wants."""
        try:
            early = self.read_all()
            self.broker.commit()
            self.read_all()
            assert not early & {id(each) for each in self.subscribed.values() if not each.is_receipted}
            for subscribed in self.subscribed.values():
                assert subscribed.is_receipted or subscribed.is_away
                self.check_nothing_is_kept_back(subscribed)
        except AssertionError as error:
            error.add_note("\n".join(self.broker.transcript))
            raise

    def read_all(self) -> set[int]:
        told = set()
        for reader, peer in self.readers.items():
            for frame in peer.received():
                for subscribed in self.named_by(reader, frame):
                    told.add(id(subscribed))
        return told

    def named_by(self, reader: str, frame: Received) -> Iterator[Subscribed]:
        command, headers, *bodies = frame
        if command == "RECEIPT" and headers["receipt-id"] == "u":
            assert headers == {"receipt-id": "u", **(self.result or {})}
            self.result = None
            return
        if command == "RECEIPT":
            self.subscribed[reader, headers["receipt-id"]].is_receipted = True
            return
        assert command == "MESSAGE", frame
        subscribed = self.subscribed[reader, headers["subscription"]]
        assert subscribed.is_receipted, "told before the RECEIPT of its SUBSCRIBE (D.43)"
        self.read(subscribed, frame, headers, "".join(bodies))
        yield subscribed

    def read(self, subscribed: Subscribed, frame: Received, headers: dict[str, str], body: str) -> None:
        key = headers["destination"]
        ends = headers.get("snapshot") == "end"
        if ends and not body:
            assert subscribed.owes_marker, "a marker that nobody owes"
            assert key == subscribed.pattern
            subscribed.owes_marker = False
            key = ""
        else:
            assert key in subscribed.due | subscribed.possible, "told of what did not change"
            assert self.may(subscribed, key)
            assert body == (self.values[key].body if key in self.values else ""), "not the present value"
            subscribed.due.discard(key)
            subscribed.possible.discard(key)
            subscribed.told[key] = body
            is_last = bool(body) and self.strike(subscribed, key)
            assert ends == is_last, "the snapshot's end is told wrongly"
            subscribed.owes_marker = subscribed.owes_marker and not is_last
        if subscribed.ack != "auto":
            assert key not in subscribed.in_flight, "two of a key in flight"
            subscribed.in_flight[key] = frame
        assert self.in_flight_of(subscribed.reader) <= WINDOW

    def in_flight_of(self, reader: str) -> int:
        return sum(len(each.in_flight) for each in self.subscribed.values() if each.reader == reader)

    def check_nothing_is_kept_back(self, subscribed: Subscribed) -> None:
        if subscribed.is_away:
            return
        in_flight = self.in_flight_of(subscribed.reader)
        assert in_flight == WINDOW or not subscribed.owes_marker
        assert in_flight == WINDOW or subscribed.due <= set(subscribed.in_flight), "something is kept back"


TestLastValues = pytest.mark.deep(pytest.mark.timeout(SECONDS)(LastValueMachine.TestCase))
TestLastValues.settings = machine_settings(50, 80)
