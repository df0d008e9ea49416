"""Admission: a cap on the connections of the whole broker, and of one network address.

The cap protects memory and file descriptors, so it has to hold before a peer has authenticated, when all that
is known of it is its address. Two dangers follow:

- One machine opens connections until the cap is reached and locks all others out. So an address may have a
  part of the cap only. An owner of an IPv6 address owns its whole /64 subnet: the subnet counts as one
  address. Peers whose principal has a share of its own stop counting here once they have authenticated:
  thousands of them may stand behind one NAT.
- Many machines hold connections open that never authenticate. So a full house makes room: a new connection
  takes the place of one that is already closing, or else of the oldest unauthenticated one of the address
  with most of them. An attacker therefore displaces its own connections first, and a peer that logs in at
  once is out of danger. Authenticated connections are never displaced.

A guest is any hashable object: a connection, or a TLS handshake that is not a connection yet.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable

from nebula.broker.core.fixed_limits import SUBNET_BITS


class Admission:
    """The guests that were admitted, by address.

    Args:
        most: the cap of all guests together.
        most_of_one: the cap of one address (IPv6: of one /64 subnet). Guests whose principal has a share of
            its own do not count.
        evict: closes the connection of a guest that is closing or has not authenticated, to make room for a
            new one; None: no guest makes room.
    """

    def __init__(self, most: int, most_of_one: int, evict: Callable[[object], None] | None = None) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._evict = evict
        # None: the guest does not count for any address, because it is in this process or its principal has a
        # share of its own.
        self._places: dict[object, str | None] = {}
        self._counts: Counter[str] = Counter()
        # Guests that have not authenticated, by address, oldest first.
        self._unknown: dict[str, dict[object, None]] = {}
        # Guests that are closing, longest first.
        self._lingering: dict[object, None] = {}

    def __len__(self) -> int:
        """The number of guests."""
        return len(self._places)

    def enter(self, guest: object, address: str | None) -> str | None:
        """Admit a guest. One that is in already is counted once.

        Args:
            address: of its peer; None: this process.

        Returns:
            Why it is refused, as the peer is told; None: it is in, until `leave`.
        """
        # A TLS guest enters before its handshake and again in `connection_made`, as the same object.
        if guest in self._places:
            return None
        place = None if address is None else place_of(address)
        # First the address, then the house: a guest of a full address makes room among its own, and does not
        # end one of another address.
        if place is not None and self._counts[place] >= self._most_of_one and not self._make_room_at(place):
            return f"more than {self._most_of_one} connections from your address"
        if len(self._places) >= self._most and not self._make_room():
            return f"more than {self._most} connections"
        if place is not None:
            self._counts[place] += 1
        self._places[guest] = place
        # A guest of this process needs no proof of its identity.
        if place is not None and self._evict is not None:
            self._unknown.setdefault(place, {})[guest] = None
        return None

    def know(self, guest: object, *, has_share: bool) -> None:
        """The guest has authenticated: it no longer makes room for others.

        Args:
            has_share: its principal has its own share, so it no longer counts for its address.
        """
        # Anonymous peers too: a peer that has sent its CONNECT no longer holds a place in silence.
        self._forget_unknown(guest)
        place = self._places.get(guest)
        if has_share and place is not None:
            self._places[guest] = None
            self._count_out(place)

    def linger(self, guest: object) -> None:
        """The guest is closing, which may take seconds: it is the first to make room for a new one."""
        if guest in self._places and self._evict is not None:
            self._forget_unknown(guest)
            self._lingering[guest] = None

    def _forget_unknown(self, guest: object) -> None:
        place = self._places.get(guest)
        unknown = None if place is None else self._unknown.get(place)
        if place is not None and unknown is not None:
            unknown.pop(guest, None)
            if not unknown:
                del self._unknown[place]

    def _make_room(self) -> bool:
        """End a guest that is leaving, or else the oldest unauthenticated one of the address with the most of
        them; False: no guest can be ended."""
        # A guest that is leaving loses least: its ERROR may remain unread.
        if self._lingering:
            # Dicts keep the order of insertion: the first one has had the most time to read its ERROR.
            return self._end(next(iter(self._lingering)))
        return bool(self._unknown) and self._make_room_at(
            # Linear in the addresses with unauthenticated guests. This runs only when the house is full.
            max(self._unknown, key=lambda each: len(self._unknown[each]))
        )

    def _make_room_at(self, place: str) -> bool:
        """Make room as `_make_room` does, among the guests of one address."""
        for guest in self._lingering:
            if self._places[guest] == place:
                return self._end(guest)
        return place in self._unknown and self._end(next(iter(self._unknown[place])))

    def _end(self, guest: object) -> bool:
        if self._evict is None:
            return False
        # Counted out first: closing takes a moment, and the new guest needs the room now.
        self.leave(guest)
        self._evict(guest)
        return True

    def leave(self, guest: object) -> None:
        """Count a guest out. Does nothing if it is not in."""
        self._forget_unknown(guest)
        self._lingering.pop(guest, None)
        place = self._places.pop(guest, None)
        if place is not None:
            self._count_out(place)

    def _count_out(self, place: str) -> None:
        self._counts[place] -= 1
        # Strangers come from any number of addresses; those that are gone must take no memory.
        if not self._counts[place]:
            del self._counts[place]


def place_of(address: str) -> str:
    """The key under which an address is counted: itself, or its /64 subnet for IPv6."""
    # Only IPv6 addresses have colons; each IPv4 address counts alone.
    if ":" not in address:
        return address
    # `%eth0`, the scope of a link-local address, is no part of the number.
    whole = ipaddress.IPv6Address(address.partition("%")[0])
    if whole.ipv4_mapped is not None:
        return str(whole.ipv4_mapped)  # a peer of IPv4 at a listener on `::`
    return str(ipaddress.IPv6Network((whole, SUBNET_BITS), strict=False))
