"""The service that the caller of a misspelt one may have meant."""

from __future__ import annotations

import math
from time import monotonic
from typing import Final

from nebula.destinations import QUEUE
from nebula.errors import NebulaError, Rejected
from nebula.headers import REJECTED_NO_CONSUMER, REJECTED_UNAUTHORISED
from nebula.nearest import nearest
from nebula.rpc.brokers import brand_of
from nebula.rpc.discovery.presence import present
from nebula.stomp.client import StompClient

__all__ = ["Suggestions"]

# The call has failed already: whoever waits for it waits no longer than a person notices.
_SECONDS: Final = 0.25

# When a service is down all its callers fail, again and again: the broker is asked once in a while.
_KEPT_SECONDS: Final = 1.0


# Where principals have rights to some queues, a misspelt one is not among them.
_OF_NAMES: Final = frozenset({REJECTED_NO_CONSUMER, REJECTED_UNAUTHORISED})


class Suggestions:
    """Looks for the services that a client may call, when a call of it found nobody, or was not allowed.

    The broker shows each principal only those that it may call.
    """

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._looked_at = -math.inf

    async def explain(self, error: Rejected, stomp: StompClient, timeout: float) -> None:
        """Say in the error which service may have been meant, if one is near.

        Args:
            error: of a call.
            stomp: the connection that it was made on.
            timeout: seconds that the call had.
        """
        if error.verdict not in _OF_NAMES:
            return
        service = error.destination.removeprefix(QUEUE)
        # An instance of a service that has gone (`shop.3f2a`), or the broker: nobody has misspelt that.
        if "." in service or not brand_of(stomp.server).has_last_values:
            return
        if monotonic() - self._looked_at > _KEPT_SECONDS:
            # At once: those that fail meanwhile go without.
            self._looked_at = monotonic()
            try:
                instances = await present(stomp, None, min(_SECONDS, timeout))
            except NebulaError:
                return
            self._known = frozenset(one.service for one in instances)
        if service not in self._known:
            error.near = nearest(service, sorted(self._known))
