"""Holder of a job: requests to the instance that has it, wherever the job has gone.

Requests for a job go to the queue of its instance. An instance without the job replies where it is. If
the instance is away, requests go to the service's own queue, where the other instances know which of them has
taken the job over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio

from nebula.errors import CallTimeout, NebulaError, NoResponder, RemoteError
from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.jobs.model.identifiers import own_queue
from nebula.rpc.wire.replies import reading
from nebula.stomp.client import AckMode

__all__ = ["JobClient", "JobHolder", "Message", "is_away"]


class Message(Protocol):
    """A status message that came."""

    @property
    def body(self) -> bytes: ...

    def ack(self) -> None: ...


class Stomp(Protocol):
    """A connection."""

    @property
    def server(self) -> str | None: ...


class JobClient(Protocol):
    """What a handle needs of a client."""

    @property
    def stomp(self) -> Stomp:
        """Its connection of now."""

    def subscribe(
        self, destination: str, *, ack: AckMode = ..., eager: bool = ..., timeout: float | None = ...
    ) -> AbstractAsyncContextManager[AsyncIterator[Message]]:
        """Subscribe for a block, over the loss of connections. Raises as `Client.subscribe`."""

    async def call_queue(
        self, queue: str, verb: str, parameters: Any, *, timeout: float | None = None
    ) -> Any:
        """Call the listener of this queue; returns the parameters of the reply. Raises as `Client.call`."""

    async def start_on(
        self, queue: str, service: str, verb: str, parameters: Any, options: StartOptions
    ) -> Any:
        """Start a job at the listener of this queue. Raises as `Client.start`."""


# A job can be with the instance that accepted it or with one that has taken it over; an ended job can be in
# the folder of an instance that is gone, which no instance replies for. So `via` is only a hint, and every
# request may correct it.
class JobHolder:
    """Asks for one job.

    Args:
        client: to ask with.
        job: `<service>/<ulid>`.
        service: its name.
        via: the queue of the instance that has the job, where known; one of the service's own.
        pause: seconds between two requests to a service that is away.

    Attributes:
        queue: where the job is asked for now.
    """

    def __init__(self, client: JobClient, job: str, service: str, via: str | None, pause: float) -> None:
        self._client, self._job, self._service, self._pause = client, job, service, pause
        self._home = f"/queue/{service}"
        self.queue = own_queue(service, via) if via else self._home

    @property
    def is_home(self) -> bool:
        """Whether the service's own queue is asked, and no single instance."""
        return self.queue == self._home

    async def ask(
        self, verb: str, more: Mapping[str, Any] | None = None, *, timeout: float | None = None
    ) -> Any:
        """The parameters of the reply to a verb such as `job.status`. Raises as `Client.call`."""
        parameters = {"job": self._job, **(more or {})}
        try:
            return await self._ask_here(verb, parameters, timeout)
        except (NoResponder, CallTimeout) as error:
            if self.is_home:
                raise
            # The instance is away, perhaps for good: the other instances know where the job is now.
            self.queue = self._home
            # A broker that does not report a missing listener has used up the time.
            if isinstance(error, CallTimeout):
                raise
        return await self._ask_here(verb, parameters, timeout)

    async def ask_again(self, verb: str, more: Mapping[str, Any] | None = None) -> Any:
        """As `ask`, of a service that knew the job: waits for it while it is away."""
        while True:
            try:
                return await self.ask(verb, more)
            except NebulaError as error:
                if not is_away(error):
                    raise
            await anyio.sleep(self._pause)

    async def _ask_here(self, verb: str, parameters: Any, timeout: float | None = None) -> Any:
        try:
            return await self._client.call_queue(self.queue, verb, parameters, timeout=timeout)
        except RemoteError as error:
            if error.code != "elsewhere" or not isinstance(error.details, Mapping):
                raise
            # Once: two instances that send us to each other must not keep us busy.
            with reading(f"where {self._job} is"):
                self.queue = own_queue(self._service, str(error.details["via"]))
        return await self._client.call_queue(self.queue, verb, parameters, timeout=timeout)


def is_away(error: NebulaError) -> bool:
    """Whether the error may pass: the service may come back and still know the job."""
    return isinstance(error, NoResponder | CallTimeout) or (
        # `busy` or `engine-unavailable`, for example: the service is there, and another request may succeed.
        isinstance(error, RemoteError) and error.retryable
    )
