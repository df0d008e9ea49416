"""Messages without a reply: requests for later, messages that are no requests, subscriptions, last values."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from nebula.destinations import destination_named
from nebula.errors import NoResponder
from nebula.headers import NO_REPLY, PERSISTENT, REJECTED_NO_CONSUMER
from nebula.rpc.client.calls import Calls
from nebula.rpc.client.resubscribe import options_for
from nebula.rpc.client.retry import CallRules
from nebula.rpc.client.typed_messages import Schemas, avro_body, subscribed
from nebula.rpc.client.values import LastValue, read_values
from nebula.rpc.middleware.chain import Call
from nebula.rpc.wire.deadlines import whole_milliseconds
from nebula.rpc.wire.envelope import JSON_TYPE, encode_free, request_body
from nebula.rpc.wire.replies import reader_of
from nebula.stomp.client.messages import SubscribeOptions
from nebula.stomp.client.subscription import Subscription

if TYPE_CHECKING:
    from nebula.avro import Schema

__all__ = ["Messages"]

T = TypeVar("T")


class Messages:
    """What a client sends without a reply, and what it receives without a request.

    Args:
        calls: of the client.
        rules: of the client, for questions to the broker.
    """

    def __init__(self, calls: Calls, rules: CallRules) -> None:
        self._calls = calls
        # Such a question only reads.
        self._rules = replace(rules, is_idempotent=True)
        self._schemas = Schemas(self._ask_broker)

    async def _ask_broker(self, queue: str, verb: str, parameters: Any, /) -> Any:
        connection = self._calls.connection
        await connection.connected(self._calls.seconds(None))
        if not connection.brand.has_verbs:
            # The request would wait there for its whole time.
            raise NoResponder(REJECTED_NO_CONSUMER, queue)
        return await self._calls.ask(verb, queue, request_body(verb, parameters), None, self._rules, None)

    async def send(
        self, destination: str, verb: str, parameters: Any, timeout: float | None, expires_in: float | None
    ) -> None:
        """See `Client.send`."""
        headers = {"content-type": JSON_TYPE, PERSISTENT: "true", NO_REPLY: "true"}
        if expires_in is not None:
            headers |= self._calls.connection.brand.expiry(whole_milliseconds(expires_in))
        body = request_body(verb, parameters)

        async def work(call: Call) -> None:
            await self._deliver(call.destination, body, {**call.headers, **headers}, call.timeout)

        await self._calls.through("send", destination, verb, timeout, work)

    async def publish(
        self,
        destination: str,
        body: Any,
        content_type: str,
        headers: Mapping[str, str] | None,
        timeout: float | None,
    ) -> None:
        """See `Client.publish`."""
        fields = {"content-type": content_type, PERSISTENT: "true", **(headers or {})}
        await self._calls.deliver(
            destination_named(destination), encode_free(content_type, body), fields, timeout
        )

    async def send_avro(
        self,
        destination: str,
        value: Any,
        schema: Schema,
        headers: Mapping[str, str] | None,
        timeout: float | None,
    ) -> None:
        """See `Client.send_avro`."""
        destination = destination_named(destination)
        body, fields = avro_body(destination, value, schema)
        await self._calls.deliver(
            destination, body, fields | {PERSISTENT: "true", **(headers or {})}, timeout
        )

    def subscribe(self, destination: str, as_: Any, options: SubscribeOptions) -> Any:
        """See `Client.subscribe`."""
        destination = destination_named(destination, takes_globs=True)
        connection = self._calls.connection
        opening: AbstractAsyncContextManager[Subscription] = (
            connection.subscriptions.subscribe(destination, options, self._calls.seconds)
            if connection.options.reconnects
            else connection.stomp.subscribe(destination, **options_for(connection.brand, options))
        )
        return opening if as_ is None else subscribed(opening, reader_of(as_), self._schemas)

    def value(
        self, destination: str, as_: type[T], schema: Schema | None, timeout: float | None
    ) -> LastValue[T]:
        """See `Client.value`."""
        return LastValue(self._calls, destination, as_, self._schemas, schema=schema, timeout=timeout)

    async def values(self, pattern: str, as_: Any, timeout: float | None) -> dict[str, Any]:
        """See `Client.values`."""
        return await read_values(self._calls, pattern, as_, self._schemas, timeout=timeout)

    async def _deliver(
        self, destination: str, body: bytes, headers: Mapping[str, str], timeout: float | None
    ) -> None:
        await self._calls.connection.deliver(destination, body, headers, self._calls.seconds(timeout))
