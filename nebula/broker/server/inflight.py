"""A global cap on in-flight bytes. Ends the largest connections when it is exceeded.

In flight is what waits between the broker and its peers: outboxes, write buffers of transports, and input
that is incomplete or waits its turn. Each connection has limits of its own, but ten thousand connections a
little below theirs would still fill any memory.

Theory. The exact number is expensive, because a message that a thousand peers receive is in memory once: its
bytes have to be counted once, no matter how many outboxes refer to them. So there are two measures:

1. The plain sum counts shared bytes for each peer. It is an upper bound and cheap: one addition for each
   connection that was read or written since the last look, or that still has something in flight. Idle
   connections cost nothing. As long as this sum is below the cap, nothing else happens.
2. The exact sum visits each delivery of each outbox and finds shared bodies by identity. Its cost grows with
   the number of deliveries, so it is repeated after a pause in proportion to that number (a twentieth of the
   time at most), or earlier if half the cap was added meanwhile.

If the exact sum is above the cap, connections are ended until a quarter of the cap is free, so that the next
message does not end the next connection. The choice is fair between principals, not connections: the
principal with the largest burden loses its largest connection, again and again. The burden of a shared body
is split evenly between the connections that refer to it, and its bytes are free when the last one is gone.

The caller looks a few times a second. A burst between two looks announces itself through `grows_too_fast`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from nebula.broker.core.fixed_limits import LARGE_BODY_BYTES

if TYPE_CHECKING:
    from nebula.broker.core.subscription import Delivery

# The cost of a delivery in an outbox: a tuple, its place in the list, numbers.
_DELIVERY_COST_BYTES = 100

# The exact sum visits each delivery. It waits at least this long per delivery until the next one, so that
# it takes a twentieth of the time at most.
_SECONDS_PER_DELIVERY = 2e-6


@dataclass(frozen=True, slots=True)
class Load:
    """The in-flight bytes of one connection.

    Attributes:
        own_bytes: held for this connection alone.
        shared: bytes that other connections may refer to as well, by the identity of the object.
        deliveries: the number of deliveries that were visited.
    """

    own_bytes: int
    shared: Mapping[int, int]
    deliveries: int = 0


def load_of(own_bytes: int, large: Iterable[bytes], outbox: Sequence[Delivery | bytes]) -> Load:
    """The load of a connection.

    Args:
        own_bytes: held for this connection alone, without its outbox.
        large: bodies that its transport holds without a copy.
        outbox: of its session.
    """
    # By `id`: the outbox and the transport keep these objects alive while the sum is made.
    shared = {id(body): len(body) for body in large}
    for item in outbox:
        if isinstance(item, bytes):
            own_bytes += len(item)
            continue
        message = item[1]
        own_bytes += _DELIVERY_COST_BYTES
        # None: the message has a single receiver, as nearly all have.
        if message.shared is None:
            own_bytes += message.size_bytes
        else:
            # Equal small bodies may be one object by chance, such as `b""`. From `LARGE_BODY_BYTES` on,
            # bodies are passed on without a copy, so the same object means a shared body.
            what = message.body if message.size_bytes >= LARGE_BODY_BYTES else message
            shared[id(what)] = message.size_bytes
    return Load(own_bytes, shared, len(outbox))


class MeasuredPeer(Protocol):
    """The far end of a connection, as `InFlightBytes` measures it."""

    @property
    def most_in_flight_bytes(self) -> int:
        """An upper bound, with shared bytes counted as its own. Cheap."""
        ...

    def load(self) -> Load:
        """The exact numbers."""
        ...


class Measured(Protocol):
    """A connection, as `InFlightBytes` sees it."""

    @property
    def payer(self) -> str:
        """The principal or address whose connections are judged together."""
        ...

    @property
    def peer(self) -> MeasuredPeer:
        """The far end."""
        ...


_L = TypeVar("_L", bound=Measured)


# Large bodies are not copied for each subscriber, so their bytes need one limit, see docs/decisions/0016.
class InFlightBytes(Generic[_L]):
    """The in-flight bytes of all connections together, and their cap.

    Args:
        max_bytes: the cap.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Of the last exact sum: how large the plain one was then, and when the next exact one may be made.
        self._looked_at_bytes = 0
        self._not_before = 0.0
        # Since the last look, for `grows_too_fast`.
        self._added_bytes = 0
        self._touched: set[_L] = set()
        # The bound method itself, because it is called for each read and write.
        self.touch: Callable[[_L], None] = self._touched.add
        """Call it when a connection was read or written."""
        self.bytes = 0
        """The plain sum at the last look."""

    def grows_too_fast(self, added_bytes: int) -> bool:
        """Whether an eighth of the cap was added since the last call of `excess`, which should be called now.

        May count too much.
        """
        self._added_bytes += added_bytes
        # An eighth: small enough to notice a burst early, large enough to make extra looks rare.
        return self._added_bytes >= self._max_bytes // 8

    def excess(self, now: float) -> list[_L]:
        """The connections to end: the largest ones of the principals with the largest burden, until a
        quarter of the cap is free.

        Call it a few times a second, and when `grows_too_fast` says so.
        """
        self._added_bytes = 0
        # `_touched`, not all connections: idle ones cost nothing here.
        sizes = {each: each.peer.most_in_flight_bytes for each in self._touched}
        self.bytes = sum(sizes.values())
        # What is empty now is looked at again when it is touched.
        self._touched.difference_update([each for each, size in sizes.items() if not size])
        if self.bytes <= self._max_bytes:
            return []
        # Or else half the limit was added since.
        if now < self._not_before and self.bytes < self._looked_at_bytes + self._max_bytes // 2:
            return []
        loads = [(each, each.peer.load()) for each in self._touched]
        self._looked_at_bytes = self.bytes
        self._not_before = now + _SECONDS_PER_DELIVERY * sum(load.deliveries for _, load in loads)
        return self._choose(loads)

    def _choose(self, loads: list[tuple[_L, Load]]) -> list[_L]:
        # How many connections refer to each shared body; it falls as they are chosen.
        users: Counter[int] = Counter()
        sizes: dict[int, int] = {}
        for _, load in loads:
            users.update(load.shared.keys())
            sizes.update(load.shared)
        total = sum(sizes.values()) + sum(load.own_bytes for _, load in loads)
        if total <= self._max_bytes:
            return []

        def burden(load: Load) -> float:
            return load.own_bytes + sum(size / users[key] for key, size in load.shared.items())

        # Each burden is computed once, as `users` changes below. The largest connection of a principal is its
        # last.
        by_payer: dict[str, list[tuple[float, int]]] = {}
        for place, (connection, load) in enumerate(loads):
            by_payer.setdefault(connection.payer, []).append((burden(load), place))
        heaviest = []
        for payer, held in by_payer.items():
            held.sort()
            heaviest.append((-sum(size for size, _ in held), payer))
        heapify(heaviest)
        ended: list[_L] = []
        # A heap of principals, heaviest first: with ten thousand connections a search for each would take
        # seconds, just when the broker has no time.
        while heaviest and total > self._max_bytes * 3 // 4:
            negative, payer = heappop(heaviest)
            size, place = by_payer[payer].pop()
            if by_payer[payer]:
                # `negative` is minus the principal's burden, which the removed connection makes lighter.
                heappush(heaviest, (negative + size, payer))
            connection, load = loads[place]
            ended.append(connection)
            total -= load.own_bytes
            for key, shared_bytes in load.shared.items():
                # A shared body is freed by the last connection that refers to it, not before.
                users[key] -= 1
                if not users[key]:
                    total -= shared_bytes
        return ended
