"""An instance's entry in discovery, and its check of the contracts of other instances."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property, partial
from time import time

from anyio.abc import TaskGroup
from pydantic import PydanticUserError

from nebula.rpc.contract.verbs import Endpoint
from nebula.rpc.discovery.instances import Instance, hash_of
from nebula.rpc.discovery.other_contracts import OtherContracts
from nebula.rpc.discovery.registration import Registration
from nebula.rpc.service.declaration import ServiceDeclaration
from nebula.rpc.service.request_consumer import RequestConsumer
from nebula.rpc.wire.brokers import Brand
from nebula.stomp.client import StompClient

__all__ = ["Announcement"]


# The order matters at both ends. At the start an instance listens first and is announced then, so that a
# request sent to it is never lost; at the end it is withdrawn first and stops listening then.
class Announcement:
    """Announces one instance of a service, over each of its connections.

    Args:
        declared: the service.
        entries: its verbs, those of its jobs among them.
        instance: the name of this instance.
        queue: the queue of this instance alone.
        requests: says whether that queue can be reached, and how much there is to do.
        is_exclusive: do not start while an instance with another contract runs.
    """

    def __init__(
        self,
        declared: ServiceDeclaration,
        entries: Collection[Endpoint],
        instance: str,
        queue: str,
        requests: RequestConsumer,
        *,
        is_exclusive: bool,
    ) -> None:
        self._declared, self._entries = declared, entries
        self._instance, self._queue, self._requests = instance, queue, requests
        self._others, self._is_exclusive = OtherContracts(), is_exclusive
        self._began = time()
        # The entry of the current connection, or of the last one: `Registration` is for one connection.
        self._registration: Registration | None = None

    async def require_same_contract(self, client: StompClient, brand: Brand, *, is_first: bool) -> None:
        """Refuse to start next to another contract, if that is asked for; see `OtherContracts.refuse`.

        Only the first connection asks: an instance that already serves does not end because another one came.
        """
        if is_first and self._is_exclusive:
            await self._others.refuse(client, self._describe(brand))

    async def enter(
        self, client: StompClient, brand: Brand, background: TaskGroup, *, is_first: bool
    ) -> None:
        """Be found from now on. Call it when requests are taken, so that no caller finds a deaf instance.

        Raises:
            OtherContract: another instance has another contract.
            ConnectionLost, ServerError: the connection ended.
        """
        load: Callable[[], tuple[int, int]] = self._requests.load
        self._registration = Registration(client, brand, partial(self._describe, brand), load)
        background.start_soon(self._registration.keep, name="discovery")
        await self._registration.enter()
        if is_first and self._is_exclusive:
            # Two instances that start together see each other only now that both are registered.
            await self._others.refuse(client, self._describe(brand))
        elif brand.has_last_values:
            # Elsewhere all would have to be asked, by a queue that some brokers keep for good.
            background.start_soon(self._others.warn, client, self._describe(brand), name="other contracts")

    def leave(self) -> None:
        """Be found no more."""
        if self._registration is not None:
            self._registration.leave()

    @cached_property
    def _schemas(self) -> str:
        # Made once: it takes a while, on the loop.
        entries = sorted(self._entries, key=lambda one: one.name)
        try:
            return hash_of(one.describe() for one in entries)
        except PydanticUserError:
            # Some contract has no JSON Schema: `describe` fails then, and nothing else does.
            return ""

    def _describe(self, brand: Brand) -> Instance:
        declared = self._declared
        return Instance(
            service=declared.name,
            name=self._instance,
            queue=brand.reply_to(self._queue) if self._requests.is_reachable else None,
            queues=tuple(declared.destinations),
            verbs=tuple(sorted(one.name for one in self._entries)),
            schemas=self._schemas,
            version=declared.version,
            started_at=self._began,
        )
