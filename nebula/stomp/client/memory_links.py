"""Links to brokers in this process, which have a name instead of a port: `memory://NAME`.

The code that runs a broker registers here how a link to it is opened, so clients and brokers do not know each
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from nebula.stomp.client.addresses import Address
from nebula.stomp.client.link import Link

# By name. Used from several threads: each access is one operation of a dict, which is atomic.
_listening: dict[str, OpenLink] = {}


class OpenLink(Protocol):
    """Opens a link to a broker of this process, for a task of any loop."""

    async def __call__(self, address: Address, /) -> Link:
        """A link that is not started. `OSError`: the broker accepts no more."""
        ...


@contextmanager
def listening_in_memory(name: str, open_link: OpenLink) -> Iterator[str]:
    """Register a broker under a name for the block; the value is its address.

    Args:
        name: lower case, as hosts in addresses are read.
        open_link: opens a link to the broker.

    Raises:
        ValueError: another broker has the name.
    """
    if _listening.setdefault(name, open_link) is not open_link:
        raise ValueError(f"memory://{name}: another broker of this process has the name")
    try:
        yield f"memory://{name}"
    finally:
        del _listening[name]


async def open_memory_link(address: Address) -> Link:
    """Open a link to the broker with this name.

    Raises:
        ConnectionRefusedError: no broker has the name.
    """
    open_link = _listening.get(address.host)
    if open_link is None:
        raise ConnectionRefusedError(f"no broker of this process is named {address.host!r}")
    return await open_link(address)
