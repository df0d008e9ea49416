"""Presence of service instances as a client follows it: the instances that are there, and changes."""

# Following changes is conflated, as last values are: a reader that is slow skips intermediate states and
# always reaches the newest one. Three tables do it (`_Told`):
#
#     there     what the broker last said: the truth for `instances`
#     known     what the reader of `changes` was told last
#     news      destinations where the two may differ, each once, in the order of their first change
#
# A message only updates `there` and marks its destination; `_next` compares with `known` when the reader
# asks. So memory is bounded by the number of instances, whatever the rate of changes and however slow the
# reader. One thing must not be conflated away: an instance that went and came back has lost the requests
# that it had begun. `news` therefore remembers that it went, and the reader hears both.
#
# `_Asked` has no such tables: it asks anew every two seconds and compares two lists. If an instance is
# missing, it asks once more at once.
#
# Nothing in a record is believed that could redirect calls: an instance may name as its queue only the one
# that belongs to its own name (`_checked`).

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import uuid4

import anyio

from nebula import headers as names
from nebula.rpc.discovery.instances import Instance
from nebula.rpc.discovery.registration import WHO
from nebula.rpc.wire.brokers import Brand, brand_of, instance_queue
from nebula.rpc.wire.deadlines import whole_milliseconds
from nebula.rpc.wire.envelope import JSON_TYPE, dump_json, encode, parse
from nebula.stomp.client import StompClient
from nebula.stomp.client.messages import Message
from nebula.waiter import Waiter, new_waiter

__all__ = ["Change", "Presence", "present", "watching"]

# Seconds between questions where the broker reports no changes, and seconds for all replies.
_ASK_EVERY: Final = 2.0
_REPLY_SECONDS: Final = 1.0

_SPECIAL_IN_GLOBS: Final = re.compile(r"[*?\[\]]")


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to an instance.

    Attributes:
        instance: as it is now, or was last.
        is_gone: it is no longer there.
    """

    instance: Instance
    is_gone: bool = False


class Presence(Protocol):
    """The instances that are running."""

    @property
    def instances(self) -> list[Instance]:
        """The instances that are running, as far as is known, by service and name. With brokers without last
        values, only `changes` asks again.
        """
        ...

    def changes(self) -> AsyncGenerator[Change]:
        """Instances that come, go, or change their load, without end.

        What happens to one instance between two reads is one change: its last load, or its end. An instance
        that left and came back gives two changes: it is gone, and it is there.

        Raises:
            ConnectionLost, ServerError: the connection ended.
        """
        ...


@asynccontextmanager
async def watching(stomp: StompClient, service: str | None, seconds: float) -> AsyncGenerator[Presence]:
    """Follow the instances that are there during the block. It begins with those that are there at first.

    Args:
        stomp: connected.
        service: whose instances; None: of all services that one may call.
        seconds: until the first list is known; where only the instances know
            themselves, they are given one second at most.

    Raises:
        Refused: the broker does not let us see them.
        ConnectionLost, ServerError: the connection ended.
    """
    brand = brand_of(stomp.server)
    presence: _Told | _Asked = (
        _Told(stomp, brand, service)
        if brand.has_last_values
        else _Asked(stomp, brand, service, min(seconds, _REPLY_SECONDS))
    )
    async with presence.open(seconds):
        yield presence


async def present(stomp: StompClient, service: str | None, seconds: float) -> list[Instance]:
    """The instances that are there now. Arguments and errors as for `watching`."""
    async with watching(stomp, service, seconds) as presence:
        return presence.instances


class _Told(Presence):
    """By last values: each instance has one."""

    def __init__(self, stomp: StompClient, brand: Brand, service: str | None) -> None:
        self._stomp, self._brand = stomp, brand
        self._pattern = f"{names.SERVICE_PREFIX}{'*' if service is None else _plainly(service)}.*"
        self._there: dict[str, Instance] = {}
        # As the reader of `changes` knows them.
        self._known: dict[str, Instance] = {}
        # What it is to hear of, by destination: whether the instance went meanwhile.
        self._news: dict[str, bool] = {}
        self._readers: set[Waiter[None]] = set()

    @property
    def instances(self) -> list[Instance]:
        return [self._there[destination] for destination in sorted(self._there)]

    @asynccontextmanager
    async def open(self, seconds: float) -> AsyncGenerator[None]:
        all_came: Waiter[None] = new_waiter()
        # Not by a subscription, where messages wait unread until the link is read no more.
        subscription = await self._stomp.listen(
            self._pattern,
            self._on_message,
            on_snapshot=lambda: all_came.set(None),
            eager=True,
            timeout=seconds,
        )
        try:
            # Brokers of MaXaM's profile that are not ours never say that this was all.
            with anyio.move_on_after(seconds):
                await self._stomp.connection.wait(all_came)
            self._known = dict(self._there)
            self._news.clear()
            yield
        finally:
            subscription.close()

    async def changes(self) -> AsyncGenerator[Change]:
        while True:
            while (change := self._next()) is not None:
                yield change
            reader: Waiter[None] = new_waiter()
            self._readers.add(reader)
            try:
                await self._stomp.connection.wait(reader)
            finally:
                self._readers.discard(reader)

    def _next(self) -> Change | None:
        while self._news:
            destination = next(iter(self._news))
            has_gone = self._news.pop(destination)
            before, now = self._known.pop(destination, None), self._there.get(destination)
            if has_gone and before is not None:
                if now is not None:
                    self._news[destination] = False  # and is back
                return Change(before, is_gone=True)
            if now is not None:
                self._known[destination] = now
                if now != before:
                    return Change(now)
        return None

    def _on_message(self, message: Message) -> None:
        destination = message.destination
        told = _checked(Instance.from_json(message.body), self._brand)
        if told is not None and told.destination == destination:
            self._there[destination] = told
            self._news.setdefault(destination, False)
        else:
            # Empty, or nothing that an instance would say of itself.
            self._there.pop(destination, None)
            if destination in self._known:
                self._news[destination] = True
            else:
                self._news.pop(destination, None)  # it came and went unseen
        for reader in self._readers:
            reader.set(None)


class _Asked(Presence):
    """By asking: instances that reply in time are there."""

    def __init__(self, stomp: StompClient, brand: Brand, service: str | None, seconds: float) -> None:
        self._stomp, self._brand, self._service, self._seconds = stomp, brand, service, seconds
        # One for all questions: some brokers keep each queue for good.
        self._inbox = f"{names.INBOX_PREFIX}{uuid4()}"
        self._questions: dict[str, dict[str, Instance]] = {}
        self._there: dict[str, Instance] = {}

    @property
    def instances(self) -> list[Instance]:
        return [self._there[destination] for destination in sorted(self._there)]

    @asynccontextmanager
    async def open(self, seconds: float) -> AsyncGenerator[None]:
        options = dict(self._brand.inbox_headers)
        subscription = await self._stomp.listen(self._inbox, self._on_reply, headers=options, timeout=seconds)
        try:
            await self._ask()
            yield
        finally:
            subscription.close()

    async def changes(self) -> AsyncGenerator[Change]:
        while True:
            await anyio.sleep(_ASK_EVERY)
            before = self._there
            await self._ask()
            if before.keys() - self._there.keys():
                # One late reply is no end: only an instance that misses two questions in a row is gone.
                replies = self._there
                await self._ask()
                self._there = replies | self._there
            for destination in sorted(before.keys() - self._there.keys()):
                yield Change(before[destination], is_gone=True)
            for destination, instance in self._there.items():
                if before.get(destination) != instance:
                    yield Change(instance)

    async def _ask(self) -> None:
        """Ask all, and wait as long as a reply may take: how many will come is not known."""
        never: Waiter[None] = new_waiter()
        number = uuid4().hex
        replies: dict[str, Instance] = {}
        self._questions[number] = replies
        headers = self._brand.expiry(whole_milliseconds(self._seconds))
        headers |= {
            "content-type": JSON_TYPE,
            names.REPLY_TO: self._brand.reply_to(self._inbox),
            names.REPLY_ID: number,
        }
        question = None if self._service is None else dump_json({"service": self._service})
        try:
            self._stomp.post(names.SERVICES_TOPIC, encode(JSON_TYPE, WHO, question), headers)
            with anyio.move_on_after(self._seconds):
                await self._stomp.connection.wait(never)
        finally:
            del self._questions[number]
        self._there = replies

    def _on_reply(self, message: Message) -> None:
        replies = self._questions.get(message.headers.get(names.IN_REPLY_TO, ""))
        if replies is None:
            return  # too late
        reply = parse(message.headers, message.body)
        instance = _checked(Instance.from_value(reply.parameters), self._brand)
        if instance is not None and self._service in (None, instance.service):
            replies[instance.destination] = instance


def _checked(instance: Instance | None, brand: Brand) -> Instance | None:
    """An instance whose queue is its own: it must not send callers to another service."""
    if instance is None or instance.queue is None:
        return instance
    plain = instance_queue(instance.service, instance.name)
    return instance if instance.queue in (plain, brand.reply_to(plain)) else None


def _plainly(service: str) -> str:
    """A name as it stands in a glob, where it is no glob itself."""
    return _SPECIAL_IN_GLOBS.sub(r"[\g<0>]", service)
