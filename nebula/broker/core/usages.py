"""The usages of all principals, each for as long as something refers to it.

Not compiled: native classes have no weak references, but a subclass that is interpreted may have them.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

from nebula.broker.core.access import ANONYMOUS, Rights
from nebula.broker.core.shares import Resource, Share, Usage
from nebula.globs import compile_glob


class _KnownUsage(Usage):
    __slots__ = ("__weakref__",)


class Usages:
    """The usages of all principals that use something.

    Args:
        shares: what principals may use; the first that matches counts.
        fraction: for principals that no share matches.
    """

    def __init__(self, shares: Sequence[Share] = (), fraction: float = 1.0) -> None:
        self._shares = tuple((compile_glob(share.pattern), share) for share in shares)
        self._usual = Share(fraction=fraction)
        self.newcomer = Usage("", None, self._usual)
        """The usage of a principal that is not known yet."""
        # A usage that is no longer used is forgotten, so that invented names cost nothing.
        self._by_name: WeakValueDictionary[str, _KnownUsage] = WeakValueDictionary()

    def of(self, rights: Rights, place: str = "") -> Usage:
        """The usage of a principal; there is only one.

        Args:
            rights: of the principal.
            place: the address of the peer, which tells anonymous peers apart.
        """
        name = f"{ANONYMOUS}@{place}" if place and rights.principal == ANONYMOUS else rights.principal
        usage = self._by_name.get(name)
        if usage is None:
            share = next((share for matches, share in self._shares if matches(name)), self._usual)
            usage = self._by_name[name] = _KnownUsage(name, rights, share)
            usage.most_disk_bytes = self.newcomer.most_disk_bytes
        return usage

    @property
    def all(self) -> list[Usage]:
        """All usages that are in use."""
        return list(self._by_name.values())

    def lowest(self, resource: Resource, limit: int) -> int:
        """Up to this much in total, no principal can have exceeded a share."""
        shares = (self._usual, *(share for _, share in self._shares))
        return min(min(int(share.fraction * limit), share.most.get(resource, limit)) for share in shares)
