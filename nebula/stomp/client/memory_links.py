"""Brokers of this process, which are reached by a name instead of a port: `memory://NAME`.

Whoever runs a broker says here how a link to it is opened. Clients and brokers do not know each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from nebula.stomp.addresses import Address
from nebula.stomp.client.link import Link

# By name. One operation on it at a time, which a dict bears from several threads.
_listening: dict[str, OpenLink] = {}


class OpenLink(Protocol):
    """Opens a link to a broker of this process, for a task of any loop."""

    async def __call__(self, address: Address, /) -> Link:
        """A link that is not started. `OSError`: there is none to be had any more."""
        ...


@contextmanager
def listening_in_memory(name: str, open_link: OpenLink) -> Iterator[str]:
    """Be found under a name, for the block; the value is the address.

    Args:
        name: lower case, as hosts in addresses are read.
        open_link: opens what carries the octets.

    Raises:
        ValueError: somebody is found under that name already.
    """
    if _listening.setdefault(name, open_link) is not open_link:
        raise ValueError(f"memory://{name}: another broker of this process has the name")
    try:
        yield f"memory://{name}"
    finally:
        del _listening[name]


async def open_memory_link(address: Address) -> Link:
    """Open a link to the broker that has the name.

    Raises:
        ConnectionRefusedError: none has.
    """
    open_link = _listening.get(address.host)
    if open_link is None:
        raise ConnectionRefusedError(f"no broker of this process is named {address.host!r}")
    return await open_link(address)
