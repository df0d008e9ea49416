"""Who is at the door: how many may be there at once, and how many of them from one place."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import Counter
from collections.abc import Callable

# Whoever has one address of IPv6 has its whole subnet (RFC 4291, 2.5.4).
_SUBNET_BITS = 64

# A packet or three may get lost on the way.
_KEEPALIVE_PROBES = 4


class Admission:
    """Counts those who are there, by where they come from.

    Args:
        most: how many there may be.
        most_of_one: how many of them may come from one address (IPv6: from one subnet), so that one
            machine cannot keep all others out. Peers whose principal has its own share do not count.
        evict: closes the connection of a guest that was ended or has not authenticated, to make room for a
            new one; None: no connection makes room.
    """

    def __init__(self, most: int, most_of_one: int, evict: Callable[[object], None] | None = None) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._evict = evict
        self._places: dict[object, str | None] = {}
        self._counts: Counter[str] = Counter()
        # Guests that have not authenticated, by address, oldest first.
        self._unknown: dict[str, dict[object, None]] = {}
        # Those that were ended and are not gone yet, longest first.
        self._parting: dict[object, None] = {}

    def __len__(self) -> int:
        """Those who are there."""
        return len(self._places)

    def enter(self, guest: object, address: str | None) -> str | None:
        """Count one in; who is in already stays, counted once.

        Args:
            address: where it comes from; None: this process, which there is only one of.

        Returns:
            Why it may not come in, to be told to it; None: it may, and is to `leave`.
        """
        if guest in self._places:
            return None
        place = None if address is None else place_of(address)
        if place is not None and self._counts[place] >= self._most_of_one and not self._make_room_at(place):
            return f"more than {self._most_of_one} connections from your address"
        if len(self._places) >= self._most and not self._make_room():
            return f"more than {self._most} connections"
        if place is not None:
            self._counts[place] += 1
        self._places[guest] = place
        if place is not None and self._evict is not None:
            self._unknown.setdefault(place, {})[guest] = None
        return None

    def know(self, guest: object, *, has_share: bool) -> None:
        """The guest has authenticated: it no longer makes room for others.

        Args:
            has_share: its principal has its own share, so it no longer counts for its address.
        """
        self._forget_unknown(guest)
        place = self._places.get(guest)
        if has_share and place is not None:
            self._places[guest] = None
            self._count_out(place)

    def part(self, guest: object) -> None:
        """It was ended, and may take seconds to go: before all others it makes room for a new one."""
        if guest in self._places and self._evict is not None:
            self._forget_unknown(guest)
            self._parting[guest] = None

    def _forget_unknown(self, guest: object) -> None:
        place = self._places.get(guest)
        unknown = None if place is None else self._unknown.get(place)
        if place is not None and unknown is not None:
            unknown.pop(guest, None)
            if not unknown:
                del self._unknown[place]

    def _make_room(self) -> bool:
        """End a guest that is leaving, or else the oldest unauthenticated one of the address with the most of
        them; False: there is none."""
        if self._parting:
            return self._end(next(iter(self._parting)))
        return bool(self._unknown) and self._make_room_at(
            max(self._unknown, key=lambda each: len(self._unknown[each]))
        )

    def _make_room_at(self, place: str) -> bool:
        """The same for guests of one address."""
        for guest in self._parting:
            if self._places[guest] == place:
                return self._end(guest)
        return place in self._unknown and self._end(next(iter(self._unknown[place])))

    def _end(self, guest: object) -> bool:
        if self._evict is None:
            return False
        self.leave(guest)
        self._evict(guest)
        return True

    def leave(self, guest: object) -> None:
        """Count it out, if it was in."""
        self._forget_unknown(guest)
        self._parting.pop(guest, None)
        place = self._places.pop(guest, None)
        if place is not None:
            self._count_out(place)

    def _count_out(self, place: str) -> None:
        self._counts[place] -= 1
        if not self._counts[place]:
            del self._counts[place]


def keep_alive(transport: asyncio.BaseTransport, seconds: float) -> str | None:
    """Have the system ask a peer that was silent for so long whether it is still there.

    Returns:
        Its address; None: there is no socket.
    """
    found = transport.get_extra_info("socket")
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return None
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Not all systems let it be chosen; theirs is two hours then.
    if hasattr(socket, "TCP_KEEPIDLE"):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, round(seconds)))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, round(seconds / _KEEPALIVE_PROBES)))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if peer else None


def place_of(address: str) -> str:
    """What counts as one place: an address, or a subnet of IPv6."""
    if ":" not in address:
        return address
    whole = ipaddress.IPv6Address(address.partition("%")[0])
    if whole.ipv4_mapped is not None:
        return str(whole.ipv4_mapped)  # a peer of IPv4 at a listener on `::`
    return str(ipaddress.IPv6Network((whole, _SUBNET_BITS), strict=False))
