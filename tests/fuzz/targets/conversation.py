"""The broker and four peers who say any octets at all, while sockets block, time moves and stores are late.

An input is a first octet that says how the broker is set up, then turns that 0xFF parts, an octet
that no header can hold. A turn's first octet says whose it is, its second what happens, the rest is
what is said. In letters: `a>SEND…` is said as a whole and `b.SEND…` octet by octet, `a<` is lost, `a!`
blocks or unblocks, `a~X` lets quarters of a second pass, `a$` lets the store have what it is to keep, and
`a#` is a crash of the broker.

The harness checks all invariants after every step. Beyond them: whoever is well behaved is answered,
whatever the others do; what each peer hears is frames; and that hangs on what was said alone, not on how
its octets came.
"""

from __future__ import annotations

from typing import Final

from nebula.broker.core.limits import Limits
from nebula.broker.core.policies import DestinationPolicy, SlowSubscriber, WhenFull
from nebula.broker.core.profiles import MAXAM, STANDARD
from tests.broker.harness import BrokerHarness, Peer
from tests.broker.memory_store import MemoryDisk, MemoryStore
from tests.broker.script import Received
from tests.fuzz.targets.pieces import cut

_SEPARATOR = b"\xff"
_NAMES = "abcd"
_MOST_TURNS = 60
_MOST_QUARTERS = 40
_OWN_QUEUE = "/queue/witness.own"

_TIGHT: Final = Limits(
    max_headers=12,
    max_header_line_bytes=200,
    max_body_bytes=300,
    max_subscriptions=4,
    default_prefetch=2,
    max_prefetch=3,
    outbox_high_water_bytes=2_000,
    max_outbox_bytes=6_000,
    max_queue_messages=5,
    max_queue_bytes=20_000,
    max_memory_bytes=60_000,
    max_pause_seconds=1.0,
    max_deliveries=2,
    max_transactions=2,
    max_transaction_frames=4,
    max_transaction_bytes=5_000,
    max_unacked_values=2,
    max_durable_sessions=2,
    max_durable_subscriptions=3,
    session_expiry_seconds=8.0,
    max_destinations=12,
    queue_window_bytes=1_000,
    max_delayed_messages=2,
    max_dedup_ids=2,
    dedup_seconds=2.0,
)
_POLICIES: Final = [
    DestinationPolicy(pattern=_OWN_QUEUE, max_messages=100),
    DestinationPolicy(pattern="/queue/p*", has_priorities=True),
    DestinationPolicy(pattern="/queue/t*", time_to_live=1.0),
    DestinationPolicy(pattern="/queue/d*", max_messages=2, when_full=WhenFull.DROP_OLDEST),
    DestinationPolicy(pattern="/queue/l*", max_messages=2, when_full=WhenFull.DEAD_LETTER),
    DestinationPolicy(pattern="/queue/c*", copy_to="/queue/record"),
    DestinationPolicy(pattern="X/c*", copy_to="/queue/record"),
    DestinationPolicy(pattern="/topic/s*", slow_subscriber=SlowSubscriber.DROP_OLDEST),
]


def talk(data: bytes) -> object:
    """See the module."""
    if not data:
        return None
    turns = [turn for turn in data[1:].split(_SEPARATOR) if len(turn) > 1][:_MOST_TURNS]
    whole = _Talk(data[0], turns, size=0)
    if sum(map(len, turns)) < 1_500:
        # Each octet alone would cost ten times as much; the codec's own target cuts so.
        pieces = _Talk(data[0], turns, size=11)
        assert pieces.heard() == whole.heard(), "what is heard hangs on how octets come"
    return whole.octets()


class _Talk:
    """A broker, its peers, and one who only wants to be answered.

    Args:
        setup: bits: a store, the profile maxam, tight limits.
        turns: what happens.
        size: of the pieces in which octets come; 0: as they were said.
    """

    def __init__(self, setup: int, turns: list[bytes], *, size: int) -> None:
        self._disk = MemoryDisk() if setup & 1 else None
        self._profile = MAXAM if setup & 2 else STANDARD
        self._limits = _TIGHT if setup & 4 else None
        self._size = size
        self._heard: dict[str, list[Received]] = {}
        self._all_peers: list[Peer] = []
        self._count = 0
        self._begin()
        for turn in turns:
            self._take_turn(_NAMES[turn[0] % 4], turn[1:2], turn[2:])
        self._end()

    def heard(self) -> dict[str, list[Received]]:
        """What each peer was told, by its name; of the ERROR only that there was one."""
        # Which of two faults of one frame is told may hang on the split.
        return {
            name: [frame if frame[0] != "ERROR" else ("ERROR", {}) for frame in frames]
            for name, frames in self._heard.items()
        }

    def octets(self) -> list[bytes]:
        """All bytes that were written to each peer, in the order in which the peers came."""
        return [peer.octets for peer in self._all_peers]

    def _begin(self) -> None:
        self._broker = BrokerHarness(
            self._limits,
            _POLICIES,
            store=None if self._disk is None else MemoryStore(self._disk),
        )
        self._peers: dict[str, Peer] = {}
        self._witness = self._broker.connect(name=f"witness{self._count}", principal="witness")
        self._all_peers.append(self._witness)

    def _peer(self, name: str) -> Peer:
        peer = self._peers.get(name)
        if peer is None or peer.is_closed:
            self._count += 1
            who = f"{name}{self._count}"
            peer = self._peers[name] = self._broker.accept(who, principal=name, profile=self._profile)
            self._all_peers.append(peer)
            self._heard[who] = []
        return peer

    def _take_turn(self, name: str, action: bytes, octets: bytes) -> None:
        match action:
            case b"<":
                self._peer(name).lose()
            case b"!":
                peer = self._peer(name)
                (peer.unblock if peer.is_blocked else peer.block)()
            case b"~":
                self._broker.advance(min(sum(octets[:1]), _MOST_QUARTERS) / 4)
            case b"$":
                self._commit()
            case b"#":
                self._crash()
            case _:
                size = 1 if action == b"." and len(octets) < 100 else self._size
                peer = self._peer(name)
                for piece in cut(octets, size):
                    peer.feed(piece)
        self._listen()

    def _commit(self) -> None:
        if self._disk is not None:
            self._broker.commit()

    def _crash(self) -> None:
        if self._disk is not None:
            self._listen()
            self._begin()

    def _listen(self) -> None:
        for peer in self._peers.values():
            self._heard[peer.name] += peer.received()

    def _end(self) -> None:
        """Whoever is well behaved is answered; and nothing is left of those who go."""
        self._witness.received()
        self._witness.publish(_OWN_QUEUE, "hello", headers=["receipt:sent"])
        self._commit()
        (answer,) = self._witness.received()
        assert answer[:1] == ("RECEIPT",)
        assert answer[1]["receipt-id"] == "sent"
        for peer in list(self._peers.values()):
            if not peer.is_closed:
                peer.lose()
        self._listen()
        for peer in self._peers.values():
            kinds = [frame[0] for frame in self._heard[peer.name]]
            assert "ERROR" not in kinds[:-1], "something is said after an ERROR"
        assert not self._broker.broker.receipts.waiting or self._disk is not None
        assert set(self._broker.broker.sessions) == {self._witness.session.id}
