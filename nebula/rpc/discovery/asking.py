"""What a client can do with all instances of a service: the part of `Client` that is about them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar, overload

from nebula.rpc.asking import Asking
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import Presence, present, watching
from nebula.rpc.discovery.scatter import Scatter

__all__ = ["AsksAll"]

T = TypeVar("T")

_QUEUE = "/queue/"


class AsksAll(Asking):
    """A part of `Client`: finds the instances of services, and asks them all. Args: as for `Asking`."""

    async def services(self, service: str | None = None, *, timeout: float | None = None) -> list[Instance]:
        """The instances that are there now, by service and name.

        Brokers without last values do not know them: there all are asked, and those that answer within a
        second are there.

        Args:
            service: whose instances; None: of all services that this client may call.
            timeout: seconds, at most.

        Raises:
            Refused: the broker does not show them to this client.
            ConnectionLost, ServerError: the connection ended.
        """
        return await present(self.stomp, _name_of(service), self._seconds(timeout))

    def watch_services(
        self, service: str | None = None, *, timeout: float | None = None
    ) -> AbstractAsyncContextManager[Presence]:
        """Know who is there during a block, from its begin on:

            async with client.watch_services("prices") as presence:
                print(presence.instances)
                async for change in presence.changes():
                    print(change.instance.name, "has gone" if change.is_gone else "is there")

        Args:
            service: whose instances; None: of all services that this client may call.
            timeout: seconds until it is known who is there at first.

        Raises:
            Refused, ConnectionLost, ServerError: as for `services`.
        """
        return watching(self.stomp, _name_of(service), self._seconds(timeout))

    @overload
    def call_all(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: type[T],
        timeout: float | None = None,
    ) -> Scatter[T]: ...
    @overload
    def call_all(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = ...,
        timeout: float | None = None,
    ) -> Scatter[Any]: ...
    def call_all(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
    ) -> Scatter[Any]:
        """Ask every instance of a service that is there.

        Await it for a `ScatterResult`, or enter it for the answers as they come, see `Scatter`. An
        instance that answers `error` has answered; one that dies, or is too slow, is `missing`.

        Args:
            service: its name.
            verb: its name.
            parameters: as for `call`.
            result: the type to read each answer as; by default JSON's.
            timeout: seconds that all of it may take, by default as for `call`.

        Raises:
            Refused: the broker does not show the instances to this client.
            ConnectionLost, ServerError: the connection ended first.
        """
        ask = partial(self._call_instance, verb, parameters, result)
        return Scatter(self.stomp, _name_of(service) or "", ask, self._seconds(timeout))

    def _seconds(self, timeout: float | None) -> float:
        return self._caller.seconds(self._timeout if timeout is None else timeout)

    async def _call_instance(
        self, verb: str, parameters: Any, result: Any, queue: str, /, *, timeout: float
    ) -> Any:
        return await self._call_named(queue, verb, parameters, result=result, timeout=timeout)


def _name_of(service: str | None) -> str | None:
    return None if service is None else service.removeprefix(_QUEUE)
