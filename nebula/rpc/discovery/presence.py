"""The client's side: which instances are there, and who comes and goes."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

import anyio

from nebula import headers as names
from nebula.rpc.brokers import Brand, brand_of, instance_queue, whole_milliseconds
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.registering import WHO
from nebula.rpc.envelope import JSON_TYPE, content_type_of, dump_json, encode, parse
from nebula.stomp.client import StompClient, Subscription
from nebula.stomp.messages import Message

__all__ = ["Change", "Presence", "present", "watching"]

# How often is asked where nobody tells of changes, and how long all may take to answer.
_ASK_EVERY: Final = 2.0
_ANSWER_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to an instance.

    Attributes:
        instance: as it is now, or was last.
        is_gone: it is there no longer.
    """

    instance: Instance
    is_gone: bool = False


class Presence(Protocol):
    """The instances that are there, kept up to date by `changes`."""

    @property
    def instances(self) -> list[Instance]:
        """Who is there as far as is known, by service and name."""
        ...

    def changes(self) -> AsyncGenerator[Change]:
        """Who comes, goes, or has another load, as it happens, for ever.

        Raises:
            ConnectionLost, ServerError: the connection ended.
        """
        ...


@asynccontextmanager
async def watching(stomp: StompClient, service: str | None, seconds: float) -> AsyncGenerator[Presence]:
    """Know who is there during the block. It begins with those that are there at first.

    Args:
        stomp: connected.
        service: whose instances; None: of all services that one may call.
        seconds: that it may take to know who is there at first; where nobody knows but the instances
            themselves, they are given one second at most.

    Raises:
        Refused: the broker does not let us see them.
        ConnectionLost, ServerError: the connection ended.
    """
    brand = brand_of(stomp.server)
    if not brand.has_last_values:
        asked = _Asked(stomp, brand, service, min(seconds, _ANSWER_SECONDS))
        await asked.ask()
        yield asked
        return
    pattern = f"{names.SERVICE_PREFIX}{service or '*'}.*"
    async with stomp.subscribe(pattern, eager=True, timeout=seconds) as subscription:
        told = _Told(subscription, brand)
        # Brokers of MaXaM's profile that are not ours never say that this was all.
        with anyio.move_on_after(seconds):
            async for message in subscription.snapshot():
                told.take(message)
        yield told


async def present(stomp: StompClient, service: str | None, seconds: float) -> list[Instance]:
    """Who is there now. Arguments and errors as for `watching`."""
    async with watching(stomp, service, seconds) as presence:
        return presence.instances


class _Told(Presence):
    """By last values: each instance has one."""

    def __init__(self, subscription: Subscription, brand: Brand) -> None:
        self._subscription = subscription
        self._brand = brand
        self._known: dict[str, Instance] = {}

    @property
    def instances(self) -> list[Instance]:
        return [self._known[destination] for destination in sorted(self._known)]

    async def changes(self) -> AsyncGenerator[Change]:
        async for message in self._subscription:
            if (change := self.take(message)) is not None:
                yield change

    def take(self, message: Message) -> Change | None:
        """Note what a message tells; None if it is nothing new."""
        destination = message.destination
        told = _checked(Instance.from_json(message.body), self._brand)
        if told is not None and told.destination == destination:
            is_news = self._known.get(destination) != told
            self._known[destination] = told
            return Change(told) if is_news else None
        # Empty, or nothing that an instance would say of itself.
        gone = self._known.pop(destination, None)
        return None if gone is None else Change(gone, is_gone=True)


class _Asked(Presence):
    """By asking: those that answer in time are there."""

    def __init__(self, stomp: StompClient, brand: Brand, service: str | None, seconds: float) -> None:
        self._stomp, self._brand, self._service, self._seconds = stomp, brand, service, seconds
        self._known: dict[str, Instance] = {}

    @property
    def instances(self) -> list[Instance]:
        return [self._known[destination] for destination in sorted(self._known)]

    async def changes(self) -> AsyncGenerator[Change]:
        while True:
            await anyio.sleep(_ASK_EVERY)
            before = self._known
            await self.ask()
            for destination in sorted(before.keys() - self._known.keys()):
                yield Change(before[destination], is_gone=True)
            for destination, instance in self._known.items():
                if before.get(destination) != instance:
                    yield Change(instance)

    async def ask(self) -> None:
        """Ask all, and wait as long as an answer may take: nobody knows how many will come."""
        known: dict[str, Instance] = {}
        inbox = f"{names.INBOX_PREFIX}{uuid4()}"
        options = dict(self._brand.inbox_headers)
        async with self._stomp.subscribe(inbox, headers=options, timeout=self._seconds) as answers:
            headers = self._brand.expiry(whole_milliseconds(self._seconds))
            headers |= {
                "content-type": JSON_TYPE,
                names.REPLY_TO: self._brand.reply_to(inbox),
                names.REPLY_ID: uuid4().hex,
            }
            question = None if self._service is None else dump_json({"service": self._service})
            self._stomp.post(names.SERVICES_TOPIC, encode(JSON_TYPE, WHO, question), headers)
            with anyio.move_on_after(self._seconds):
                async for message in answers:
                    self._note(message, known)
        self._known = known

    def _note(self, message: Message, known: dict[str, Instance]) -> None:
        answer = parse(content_type_of(message.headers), message.body)
        instance = _checked(Instance.from_value(answer.parameters), self._brand)
        if instance is not None and self._service in (None, instance.service):
            known[instance.destination] = instance


def _checked(instance: Instance | None, brand: Brand) -> Instance | None:
    """An instance whose queue is its own: who tells of itself must not send callers to somebody else."""
    if instance is None or instance.queue is None:
        return instance
    plain = instance_queue(instance.service, instance.name)
    return instance if instance.queue in (plain, brand.reply_to(plain)) else None
