"""Subscriptions and last values without `await`."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from nebula.rpc.client.typed_messages import Received, Values
from nebula.rpc.client.values import LastValue as AsyncLastValue
from nebula.stomp.client.messages import Message
from nebula.stomp.client.subscription import Subscription as AsyncSubscription
from nebula.sync.loop import Loop

__all__ = ["LastValue", "Subscription"]

T = TypeVar("T")


class Subscription(Iterator[T], Generic[T]):
    """The messages of a subscription: `for message in subscription`. See `nebula.stomp.client.Subscription`.

    Its items are messages, or `Received` where a type was asked for. Ack them with the methods here: their
    own `ack` is for the loop's thread.
    """

    def __init__(self, subscription: AsyncSubscription | Values[Any], loop: Loop) -> None:
        # Items are messages, or values that were read as a type.
        self._items: Any = subscription
        self._raw = subscription.subscription if isinstance(subscription, Values) else subscription
        self._loop = loop

    def __next__(self) -> T:
        try:
            item: T = self._loop.do(self._items.__anext__)
        # A plain `for` ends at StopIteration, and at nothing else.
        except StopAsyncIteration:
            raise StopIteration from None
        return item

    def snapshot(self) -> Generator[T]:
        """The messages that are there at first, if it is eager."""
        # Each item crosses threads by itself (`Loop.each`), so `Client.values` is faster for a large
        # snapshot.
        return self._loop.each(self._items.snapshot)

    def ack(self, item: Message | Received[Any]) -> None:
        """Tell the broker that it is consumed."""
        # On the loop, because the connection belongs to its thread. It does not wait for the broker.
        self._loop.make(_message_of(item).ack)

    def nack(self, item: Message | Received[Any], **headers: str) -> None:
        """Tell the broker that it is not consumed."""
        self._loop.make(partial(_message_of(item).nack, **headers))

    def pause(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription for now, and wait until the broker confirms it."""
        self._loop.do(partial(self._raw.pause, timeout=timeout))

    def remove(self, *, timeout: float | None = None) -> None:
        """Close a durable subscription for good."""
        self._loop.do(partial(self._raw.remove, timeout=timeout))


class LastValue(Iterable[T | None], Generic[T]):
    """A last value, read and written as a type. See `nebula.rpc.client.values.LastValue`.

    Attributes:
        destination: the value's own.
    """

    def __init__(self, value: AsyncLastValue[T], loop: Loop) -> None:
        self.destination = value.destination
        self._value = value
        self._loop = loop

    def get(self) -> T | None:
        """The current value, or None."""
        return self._loop.do(self._value.get)

    def put(self, value: T, *, ephemeral: bool = False) -> None:
        """Set it; returns when the broker has it."""
        self._loop.do(partial(self._value.put, value, ephemeral=ephemeral))

    def delete(self) -> None:
        """Delete it, whether there is one or not."""
        self._loop.do(self._value.delete)

    def __iter__(self) -> Generator[T | None]:
        """The present value at once, and then whatever it becomes; None: no value."""
        return self._loop.each(partial(aiter, self._value))


def _message_of(item: Message | Received[Any]) -> Message:
    return item.message if isinstance(item, Received) else item
