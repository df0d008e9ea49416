"""Confinement to one broker, so that tests and embedded systems connect to no other one by accident."""

# Tests and embedded systems start brokers of their own, and code under test reads an address from its
# configuration. Without confinement a test with a wrong address would delete production's queues. So a block
# names its broker, and `check_confinement` is called in the one function that opens links to addresses.
#
# Places are compared, not addresses: `localhost`, `127.0.0.1` and `::1` are one place.

from __future__ import annotations

import ipaddress
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Final

from nebula.errors import OutsideBroker
from nebula.stomp.client.addresses import Address, parse_address
from nebula.stomp.client.ambient import AmbientBroker, BlockState, Place, ambient, ambient_broker
from nebula.stomp.client.tls import TlsOptions

__all__ = ["check_confinement", "confined", "listening_here"]

_LOOPBACK: Final = "127.0.0.1"
_ANY: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing listens by this

# Where brokers of this process listen. The same place may be in it twice, when one closes and the next opens.
_here: list[Place] = []


@contextmanager
def confined(
    url: str,
    *,
    hint: str,
    tls: TlsOptions | None = None,
    allow_outside: bool | Sequence[str] = False,
    context: bool = True,
    process: bool = False,
) -> Generator[None]:
    """Make the broker at `url` the default for the block, and refuse connections to others.

    Jobs of the block's services are kept in a temporary folder, which is removed with the outermost block.
    They do not use the folder of the environment, where live services keep theirs.

    Brokers of this process are not refused, and neither are those that an outer block allows. An error that
    leaves the block has a note about each refusal, because a service's reply says no more than `internal`.

    Args:
        url: of the broker.
        hint: how to allow others, for the text of a refusal.
        tls: TLS options for it.
        allow_outside: True allows all others; or the addresses of those that are allowed.
        context: see `ambient`.
        process: see `ambient`.

    Raises:
        SettingsError: an address cannot be used.
        TypeError: `allow_outside` is one address; they come in a list.
    """
    around = ambient_broker()
    state = around.state if around is not None and around.is_open else BlockState()
    broker = AmbientBroker(url, tls, _allowed(url, allow_outside, around), hint, state)
    try:
        with ambient(broker, context=context, process=process):
            yield
    except BaseException as error:
        for refusal in dict.fromkeys(broker.refusals):
            error.add_note(f"nebula: {refusal}")
        raise


# docs/decisions/0039: checked at each connect, because a test must not reach a broker that others use.
def check_confinement(address: Address) -> None:
    """Refuse a connection that leads out of the block that this code runs in.

    Raises:
        OutsideBroker: the broker is outside, and was not allowed.
    """
    broker = ambient_broker()
    if broker is None or broker.allowed is None or address.is_memory:
        return
    place = _place(address)
    if place in broker.allowed or place in _here:
        return
    ours = parse_address(broker.url).place
    refusal = (
        f"broker {address.place} is outside: only {ours} may be reached here, which Client() without an"
        f" address means; to allow others: {broker.hint}"
    )
    broker.refusals.append(refusal)
    raise OutsideBroker(refusal)


@contextmanager
def listening_here(urls: Iterable[str]) -> Generator[None]:
    """Register the addresses of a broker of this process for the block: no confinement refuses it."""
    places = [_place(parse_address(url)) for url in urls]
    _here.extend(places)
    try:
        yield
    finally:
        for place in places:
            _here.remove(place)


def _allowed(
    url: str, allow_outside: bool | Sequence[str], around: AmbientBroker | None
) -> frozenset[Place] | None:
    if isinstance(allow_outside, str):
        raise TypeError(f"allow_outside takes True or a list of addresses: [{allow_outside!r}]")
    if allow_outside is True or (around is not None and around.is_open and around.allowed is None):
        return None
    given = [url, *(allow_outside or ())]
    inherited = around.allowed if around is not None and around.is_open and around.allowed else frozenset()
    return inherited | {_place(parse_address(one)) for one in given}


def _place(address: Address) -> Place:
    """The place of an address; the same one for all names of this machine's loopback."""
    return (_LOOPBACK if _is_loopback(address.host) else address.host), address.port


def _is_loopback(host: str) -> bool:
    try:
        return host in _ANY or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
