"""Detection of instances of a service whose contracts differ."""

from __future__ import annotations

from typing import Final

from nebula.errors import NebulaError, OtherContract
from nebula.logs import get_logger
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import present
from nebula.stomp.client import StompClient

__all__ = ["OtherContracts", "difference"]

_log = get_logger(__name__)

# Timeout for the list of instances.
_SECONDS: Final = 5.0

# Maximum number of verbs in a message.
_MOST_VERBS: Final = 5


class OtherContracts:
    """Looks for other instances of a service whose contract differs from this one's.

    Each one is logged once, however often the connection is re-established.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    async def warn(self, client: StompClient, mine: Instance) -> None:
        """Log the instances with a different contract that the broker shows."""
        try:
            found = await _found(client, mine)
        except NebulaError as error:
            _log.debug("other instances not seen", service=mine.service, reason=str(error))
            return
        for one in found:
            if one.name not in self._told:
                self._told.add(one.name)
                _log.warning(
                    "other contract seen",
                    service=mine.service,
                    instance=one.name,
                    version=one.version,
                    difference=difference(mine, one),
                )

    async def refuse(self, client: StompClient, mine: Instance) -> None:
        """Check that no other instance has a different contract.

        Raises:
            OtherContract: one has.
            Refused: the broker does not list instances.
            ConnectionLost, ServerError: the connection ended.
        """
        for one in await _found(client, mine):
            who = f"{one.name}, version {one.version}" if one.version else one.name
            raise OtherContract(
                f"service {mine.service!r} already runs with another contract (instance {who}: "
                f"{difference(mine, one)}); stop that one, or give one of them another name"
            )


async def _found(client: StompClient, mine: Instance) -> list[Instance]:
    there = await present(client, mine.service, _SECONDS)
    return [one for one in there if one.name != mine.name and one.is_unlike(mine)]


def difference(mine: Instance, other: Instance) -> str:
    """How the other contract differs, in a few words."""
    parts = [
        f"{words} {_listed(sorted(verbs))}"
        for words, verbs in (
            ("it has", set(other.verbs) - set(mine.verbs)),
            ("it lacks", set(mine.verbs) - set(other.verbs)),
        )
        if verbs
    ]
    return " and ".join(parts) or "other parameters or results of its verbs"


def _listed(verbs: list[str]) -> str:
    more = len(verbs) - _MOST_VERBS
    return ", ".join(verbs[:_MOST_VERBS]) + (f" and {more} more" if more > 0 else "")
