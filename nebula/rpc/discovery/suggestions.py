"""Suggestions for misspelt names of services."""

from __future__ import annotations

import math
from time import monotonic
from typing import Final

from nebula.destinations import QUEUE
from nebula.errors import NebulaError, Rejected
from nebula.headers import REJECTED_NO_CONSUMER, REJECTED_UNAUTHORISED
from nebula.nearest import nearest
from nebula.rpc.discovery.presence import present
from nebula.rpc.wire.brokers import brand_of
from nebula.stomp.client import StompClient

__all__ = ["Suggestions"]

# The call has failed already; the caller must not wait noticeably longer.
_SECONDS: Final = 0.25

# When a service is down, all its callers keep failing: limits how often the broker is asked.
_KEPT_SECONDS: Final = 1.0


# Verdicts for a misspelt name; a caller with rights for some queues only gets the second one.
_OF_NAMES: Final = frozenset({REJECTED_NO_CONSUMER, REJECTED_UNAUTHORISED})


class Suggestions:
    """Suggests services that a client may call, after a call found no service or was not allowed.

    The broker shows each principal only those that it may call.
    """

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()
        self._looked_at = -math.inf

    async def explain(self, error: Rejected, stomp: StompClient, timeout: float) -> None:
        """Add to the error the service with the nearest name, if one is near.

        Args:
            error: of a call.
            stomp: the connection that it was made on.
            timeout: the call's timeout in seconds.
        """
        if error.verdict not in _OF_NAMES:
            return
        service = error.destination.removeprefix(QUEUE)
        # The queue of an instance that is gone (`shop.3f2a`), or of the broker, is not a misspelt name.
        if "." in service or not brand_of(stomp.server).has_last_values:
            return
        if monotonic() - self._looked_at > _KEPT_SECONDS:
            # Set before the request, so that calls that fail meanwhile do not send one too.
            self._looked_at = monotonic()
            try:
                instances = await present(stomp, None, min(_SECONDS, timeout))
            except NebulaError:
                return
            self._known = frozenset(one.service for one in instances)
        if service not in self._known:
            error.near = nearest(service, sorted(self._known))
