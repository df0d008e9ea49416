"""What is on its way between the broker and all its peers together, and who gives way to the others.

Each connection has limits of its own; ten thousand connections a little below theirs would still fill
any memory. Most of what is on its way to many is there once (a message that a thousand are to receive), so
that a plain sum counts too much: it only says when to look closely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from nebula.broker.protocol.encoding import LARGE_BYTES

if TYPE_CHECKING:
    from nebula.broker.core.session import Delivery

# A delivery in an outbox: a tuple, its place in the list, numbers.
_DELIVERY_COST_BYTES = 100

# Looking closely goes over each delivery: this long per delivery at least until it is done again, so
# that it takes a twentieth of the time at most.
_SECONDS_PER_DELIVERY = 2e-6


@dataclass(frozen=True, slots=True)
class Load:
    """What is on its way to and from one peer.

    Attributes:
        own_bytes: held for it alone.
        shared: what others may be told too, by its identity: octets.
        deliveries: how many there were to look at.
    """

    own_bytes: int
    shared: Mapping[int, int]
    deliveries: int = 0


def load_of(own_bytes: int, large: Iterable[bytes], outbox: Sequence[Delivery | bytes]) -> Load:
    """What is on its way to a peer.

    Args:
        own_bytes: held for it alone, beside its outbox.
        large: bodies that were handed to its transport as they are.
        outbox: of its session.
    """
    shared = {id(body): len(body) for body in large}
    for item in outbox:
        if isinstance(item, bytes):
            own_bytes += len(item)
            continue
        message = item[1]
        own_bytes += _DELIVERY_COST_BYTES
        if message.shared is None:
            own_bytes += message.size_bytes
        else:
            # Small bodies may be the same object by chance.
            what = message.body if message.size_bytes >= LARGE_BYTES else message
            shared[id(what)] = message.size_bytes
    return Load(own_bytes, shared, len(outbox))


class LoadedLink(Protocol):
    """The way to a peer, as far as a `Transit` asks."""

    @property
    def most_transit_bytes(self) -> int:
        """What is on its way to and from it, what it shares with others counted as its own. Cheap."""
        ...

    def load(self) -> Load:
        """The same, told apart."""
        ...


class Loaded(Protocol):
    """What a `Transit` knows of a connection."""

    @property
    def payer(self) -> str:
        """Who pays: all connections of one payer are judged together."""
        ...

    @property
    def link(self) -> LoadedLink:
        """The way to its peer."""
        ...


_L = TypeVar("_L", bound=Loaded)


class Transit(Generic[_L]):
    """Keeps what is on its way to and from all connections together below a limit.

    Args:
        max_bytes: the limit.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._looked_at_bytes = 0
        self._not_before = 0.0
        self._added_bytes = 0
        self._touched: set[_L] = set()
        self.touch: Callable[[_L], None] = self._touched.add
        """To be called when a connection was read or written."""
        self.bytes = 0
        """What it was at the last look: the plain sum."""

    def grows_too_fast(self, added_bytes: int) -> bool:
        """So much was added that the next look should not be waited for. May count too much."""
        self._added_bytes += added_bytes
        return self._added_bytes >= self._max_bytes // 8

    def excess(self, now: float) -> list[_L]:
        """The connections to end so that the others can go on: the largest ones of the principals that hold
        most in total, until a quarter is free.

        Call it some times a second, or when much has been added. Mostly it only sums up, and only those
        who were touched since the last look or have something: the idle cost nothing.
        """
        self._added_bytes = 0
        sizes = {each: each.link.most_transit_bytes for each in self._touched}
        self.bytes = sum(sizes.values())
        self._touched.difference_update([each for each, size in sizes.items() if not size])
        if self.bytes <= self._max_bytes:
            return []
        # Or else half the limit was added since.
        if now < self._not_before and self.bytes < self._looked_at_bytes + self._max_bytes // 2:
            return []
        loads = [(each, each.link.load()) for each in self._touched]
        self._looked_at_bytes = self.bytes
        self._not_before = now + _SECONDS_PER_DELIVERY * sum(load.deliveries for _, load in loads)
        return self._who_gives_way(loads)

    def _who_gives_way(self, loads: list[tuple[_L, Load]]) -> list[_L]:
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
        while heaviest and total > self._max_bytes * 3 // 4:
            negative, payer = heappop(heaviest)
            size, place = by_payer[payer].pop()
            if by_payer[payer]:
                heappush(heaviest, (negative + size, payer))
            connection, load = loads[place]
            ended.append(connection)
            total -= load.own_bytes
            for key, shared_bytes in load.shared.items():
                users[key] -= 1
                if not users[key]:
                    total -= shared_bytes
        return ended
