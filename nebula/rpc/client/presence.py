"""Instances of services, as a client finds them, and calls to all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final

from nebula.rpc.client.calls import Calls
from nebula.rpc.client.retry import CallRules
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.presence import Presence, present, watching
from nebula.rpc.discovery.scatter import Scatter

__all__ = ["call_instances", "present_instances", "watch_instances"]

_QUEUE: Final = "/queue/"


async def present_instances(calls: Calls, service: str | None, timeout: float | None) -> list[Instance]:
    """See `Client.services`."""
    ends = monotonic() + calls.seconds(timeout)
    stomp = await calls.connection.connected(ends - monotonic())
    return await present(stomp, _name_of(service), max(0.0, ends - monotonic()))


@asynccontextmanager
async def watch_instances(
    calls: Calls, service: str | None, timeout: float | None
) -> AsyncGenerator[Presence]:
    """See `Client.watch_services`."""
    ends = monotonic() + calls.seconds(timeout)
    stomp = await calls.connection.connected(ends - monotonic())
    async with watching(stomp, _name_of(service), max(0.0, ends - monotonic())) as presence:
        yield presence


def call_instances(
    calls: Calls,
    service: str,
    verb: str,
    body: bytes,
    *,
    timeout: float | None,
    rules: CallRules,
    read: Callable[[Any], Any] | None,
) -> Scatter[Any]:
    """See `Client.call_all`; each instance is asked as `Calls.ask` does it."""

    async def ask(queue: str, /, *, timeout: float) -> Any:
        return await calls.ask(verb, queue, body, timeout, rules, read)

    return Scatter(calls.connection.connected, service.removeprefix(_QUEUE), ask, calls.seconds(timeout))


def _name_of(service: str | None) -> str | None:
    return None if service is None else service.removeprefix(_QUEUE)
