"""Subscriptions of `@app.on` functions, each with workers of its own.

A message goes through the same four steps as a request. It is taken: its attempts are counted and its body is
read. It is bound by a worker pool. The function runs in a `HandlerRunner`. In place of a reply it is settled:

- ACK after success; before the call if the function acks early.
- A failure of a message of a queue is a NACK with the delay until the next attempt. Brokers other than ours
  give it out again at once, or never, and may not count how often: there the service keeps the message and
  tries again itself. After the last attempt, or if it cannot be read, it is dead-lettered.
- A failure of a message of a topic or last value is logged and counted; it never comes again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final

from nebula import headers as names
from nebula.errors import AvroError, ConnectionLost, NebulaError, NoResponder, RemoteError
from nebula.logs import get_logger
from nebula.loop_calls import DelayedCalls
from nebula.rpc.client.client import Client
from nebula.rpc.client.typed_messages import Schemas, plain_value
from nebula.rpc.contract.context import Request, Surroundings, attempts_before
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.middleware.providers import Provided
from nebula.rpc.service.handler_runner import HandlerRunner, call_handler
from nebula.rpc.service.statistics import Tally, subscriber_to_json
from nebula.rpc.service.subscribers import DestinationKind, Subscriber
from nebula.rpc.service.worker_pool import Worker, WorkerPool, give_back
from nebula.rpc.wire.brokers import Brand, brand_of, no_last_values
from nebula.rpc.wire.envelope import Envelope, content_type_of, media_of, text_of
from nebula.rpc.wire.reply_body import ReplyBody
from nebula.stomp.client import AckMode, Message, PushSubscription, StompClient

__all__ = ["HANDLES_MESSAGE", "WATCHERS", "MessageReceiver", "MessageReceivers"]

_log = get_logger(__name__)

# As for request queues: brokers of MaXaM's profile are silent about what they do not permit.
_LISTEN_SECONDS: Final = 30.0

_SCHEMA_SECONDS: Final = 5.0

# The broker cuts what is longer, and ends the connection over a line that is far too long.
_MAX_TEXT: Final = 1_000

_NEVER_HANDLED: Final = "delivered as often as may be, and never handled"

_BYTES_TYPE: Final = "application/octet-stream"

WATCHERS: Final[list[tuple[Callable[..., Any], Callable[[BaseException | None], None]]]] = []
"""Functions with an observer each, which is called with None or the error after each message. For tests, see
`nebula.testing.handled`."""

# What is wrong with the message itself, so that it will be as wrong when it comes again.
_UNREADABLE: Final = (AvroError, UnexpectedReply, VerbError)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a message was not handled, as its dead letter says it."""

    code: str
    text: str

    def headers(self, handler: str) -> dict[str, str]:
        """Headers of the NACK."""
        said = {
            names.DEAD_LETTER_CODE: self.code,
            names.DEAD_LETTER_TEXT: self.text,
            names.DEAD_LETTER_HANDLER: handler,
        }
        # No header can have a NUL.
        return {name: value.replace("\0", "")[:_MAX_TEXT] for name, value in said.items() if value}


def _failure_of(error: BaseException, code: str) -> _Failure:
    """What an exception says.

    Args:
        code: of one that has none of its own.
    """
    if isinstance(error, (VerbError, RemoteError)):
        return _Failure(error.code, error.message)
    return _Failure(code, f"{type(error).__name__}: {error}")


class MessageReceivers:
    """All subscriptions of a service besides its requests.

    Args:
        subscribers: the functions that are called.
        retry: how often a message of a queue is tried, where a subscriber does not say.
        around: the service, for its functions.
        get_client: gives the client of the service, which asks the broker for schemas of Avro.

    Attributes:
        delayed: its `run` has to run, for brokers that give a message out again at once or never.
    """

    def __init__(
        self,
        subscribers: Iterable[Subscriber],
        retry: Retry,
        around: Surroundings,
        get_client: Callable[[], Awaitable[Client]],
    ) -> None:
        self._get_client = get_client
        self._brand: Brand | None = None
        self.delayed = DelayedCalls()
        schemas = Schemas(self._call)
        # One for each subscription, with its own workers, so that a slow function delays only its own
        # messages.
        self._receivers = [MessageReceiver(one, retry, schemas, around, self.delayed) for one in subscribers]
        self.pools = [one.pool for one in self._receivers]

    async def listen(self, client: StompClient) -> None:
        """SUBSCRIBE to all destinations, anew with each connection.

        Raises:
            Refused: the broker does not permit it, is silent, or keeps no last values.
            ConnectionLost, ServerError: the connection ended.
        """
        self._brand = brand_of(client.server)
        for one in self._receivers:
            await one.listen(client)

    async def _call(self, queue: str, verb: str, parameters: Any, /) -> Any:
        if self._brand is not None and not self._brand.has_verbs:
            raise NoResponder(names.REJECTED_NO_CONSUMER, queue)
        client = await self._get_client()
        return await client.call_queue(queue, verb, parameters, timeout=_SCHEMA_SECONDS)

    def stop(self, *, may_drain: bool) -> None:
        """Begin nothing more. What is begun is finished.

        Args:
            may_drain: the broker is ours: other instances get at once what came by a queue and is not begun.
                Else it goes back at the end of the connection.
        """
        for one in self._receivers:
            one.stop(may_drain=may_drain)

    def close(self) -> None:
        """The connection is over: begin nothing more."""
        for pool in self.pools:
            pool.close()

    def lose(self) -> None:
        """The connection is over: what came by it and comes again is not handled now."""
        for one in self._receivers:
            one.lose()

    def to_json(self) -> list[dict[str, Any]]:
        """Statistics of each since the service started, for `stats`."""
        return [one.to_json() for one in self._receivers]


# Where attempts are counted. Our broker counts failed deliveries alone (`delivery-count`), and a NACK may
# ask it to wait (G.retry): there the broker keeps the message between two attempts, and another instance
# may make the next one. Other brokers count all deliveries, or none, and cannot wait: there the message
# stays here, unacknowledged, and `_tried` counts the attempts that the broker knows nothing of. If this
# process dies, that part of the count is lost, and the message comes again by the broker's own rules.
class MessageReceiver:
    """One subscription: takes its messages as they come, and has them handled.

    Args:
        subscriber: the function that is called.
        retry: how often a message of a queue is tried, where the subscriber does not say.
        schemas: of messages in Avro.
        around: the service.
        delayed: calls `_try_again` for messages that the service keeps.

    Attributes:
        pool: its `run` has to run.
        tally: the calls, and how many failed.
        unreadable: messages that the function was not called for, as they are not what it takes.
        given_up: messages of a queue that were not to come again.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        retry: Retry,
        schemas: Schemas,
        around: Surroundings,
        delayed: DelayedCalls,
    ) -> None:
        self.subscriber = subscriber
        self._around = around
        self._delayed = delayed
        self._retry = retry if subscriber.options.retry is None else subscriber.options.retry.of_messages()
        self._max_attempts = self._retry.most_attempts
        # Of messages that wait here: by identity, how often they were tried here.
        self._tried: dict[int, int] = {}
        self._schemas = schemas
        self._is_queue = subscriber.kind is DestinationKind.QUEUE
        self._skips_deletions = subscriber.kind is DestinationKind.LAST_VALUE and not subscriber.takes_none
        self._acks_early = subscriber.options.ack == "early"
        self._runner = HandlerRunner(self._work, self._log_failure, subscriber.options.middleware)
        self._trusts_sender = False
        self._subscription: PushSubscription | None = None
        self.pool = WorkerPool(self._handle, subscriber.options.concurrency)
        self.tally = Tally()
        self.unreadable = 0
        self.given_up = 0

    async def listen(self, client: StompClient) -> None:
        """SUBSCRIBE, see `MessageReceivers.listen`."""
        one, brand = self.subscriber, brand_of(client.server)
        self._trusts_sender = client.is_nebula
        if one.kind is DestinationKind.LAST_VALUE and not brand.has_last_values:
            raise no_last_values(one.destination, client.server)
        self._subscription = await client.listen(
            one.destination,
            self.pool.put,
            ack=AckMode.CLIENT_INDIVIDUAL,
            eager=one.options.eager,
            durable=one.options.durable,
            headers=self._credit(brand) | brand.durable_headers(one.options.durable),
            timeout=_LISTEN_SECONDS,
        )

    def stop(self, *, may_drain: bool) -> None:
        """Begin nothing more, see `MessageReceivers.stop`."""
        may_drain = may_drain and self._is_queue
        if may_drain and self._subscription is not None:
            self._subscription.drain()
        self.pool.close(give_back if may_drain else None)

    def lose(self) -> None:
        """The connection is over, see `MessageReceivers.lose`."""
        self._tried.clear()
        if self._subscription is not None:
            self._subscription.is_closed = True

    def _credit(self, brand: Brand) -> dict[str, str]:
        # The broker bounds last values by itself: one message of each at a time. Else enough for each worker
        # to find its next message here.
        if self.subscriber.kind is DestinationKind.LAST_VALUE:
            return {}
        return {brand.prefetch_count: str(2 * self.pool.concurrency)}

    def to_json(self) -> dict[str, Any]:
        """Statistics since the service started, for `stats`."""
        one = self.subscriber
        others = {"unreadable": self.unreadable, "given_up": self.given_up, "waiting": self.pool.waiting}
        return subscriber_to_json(one.destination, one.verb.name, self.tally, others)

    async def _handle(self, message: Message, _arrived: float, worker: Worker) -> None:
        try:
            taken = await self._take(message)
            if taken is None:
                return
            request, arguments, failures = taken
            if self._acks_early:
                message.ack()
            # The runner returns what a request's handler would reply. Here only an exception counts:
            # `_log_failure` returns it.
            error = await self._runner.run(arguments, request, worker, self.tally)
            if not isinstance(error, BaseException):
                # Whatever the function or a middleware returned.
                error = None
            if error is not None:
                self._fail(message, error, failures)
            elif not self._acks_early:
                message.ack()
            self._notify(error)
        except ConnectionLost:
            # What was not acked comes again, if it is to.
            return

    async def _take(self, message: Message) -> tuple[Request, Arguments, int] | None:
        """What a message is for the function, and how often it failed before; or None, and it is settled."""
        # A message that does not come again is handled although its ACK cannot be sent; otherwise it would be
        # lost.
        if message.subscription.is_closed and self.subscriber.comes_again:
            return None
        headers = message.headers
        # A handler that kills its process must not do so for ever, see D.37.
        counted = attempts_before(headers, only_failed=self._trusts_sender)
        # By `id`, which no other message has meanwhile: `delayed` keeps this message alive.
        failures = counted + self._tried.pop(id(message), 0)
        if self._is_queue and failures >= self._max_attempts:
            self._give_up(message, _Failure("too-many-attempts", _NEVER_HANDLED))
            return None
        try:
            body, is_text = await self._body(message)
            if body is None and self._skips_deletions:
                message.ack()
                return None
            arguments = self.subscriber.verb.signature.bind_whole(body, is_text=is_text)
        except _UNREADABLE as error:
            self.unreadable += 1
            # No second attempt: it would be as unreadable the next time, and keep the messages behind it
            # waiting.
            self._give_up(message, _failure_of(error, "bad-request"))
            self._notify(error)
            return None
        except NebulaError as error:
            # The schema could not be asked for: not the message's fault.
            _log.exception("message not read", **self._place(message))
            self._fail(message, error, failures)
            return None
        if failures > counted:
            headers = {**headers, names.DELIVERY_COUNT: str(failures)}
        request = Request(
            Envelope(self.subscriber.verb.name, body),
            headers,
            destination=message.destination,
            principal=self._principal_of(message),
            around=self._around,
        )
        return request, arguments, failures

    async def _body(self, message: Message) -> tuple[Any, bool]:
        """What a message says, and whether that is text, which may stand for something else."""
        if not message.body:
            return None, False
        content_type = content_type_of(message.headers)
        media = media_of(content_type)
        if (content_type or "").partition(";")[0].strip().lower() == _BYTES_TYPE:
            return message.body, False
        if media.is_json or media.is_avro or self.subscriber.kind is DestinationKind.LAST_VALUE:
            return await plain_value(message, self._schemas), False
        return text_of(content_type, message.body), True

    async def _work(self, arguments: Arguments, request: Request, worker: Worker) -> ReplyBody | None:
        """Call the function; what its providers made is closed before the ACK."""
        verb, limiter = self.subscriber.verb, worker.pool.limiter
        if verb.plan is None:
            await call_handler(verb, arguments, request, limiter)
            return None
        provided = Provided(limiter)
        try:
            args, kwargs = arguments
            made = await provided.make(verb.plan, request)
            with provided:
                await call_handler(verb, (args, kwargs | made), request, limiter)
        finally:
            await provided.close()
        return None

    def _log_failure(self, _arguments: Arguments, request: Request, error: BaseException) -> BaseException:
        place = self._place_of(request.destination, request.principal)
        _log.error("message not handled", exc_info=error, **place)
        return error

    def _fail(self, message: Message, error: BaseException, failures: int) -> None:
        """Settle a message that could not be handled: it may succeed another time, if there is one.

        Args:
            message: that came.
            error: why.
            failures: how often it failed before.
        """
        if self._acks_early:
            return
        if not self._is_queue:
            message.ack()
            return
        failure, failures = _failure_of(error, "internal"), failures + 1
        if failures >= self._max_attempts:
            self._give_up(message, failure)
            return
        # Jitter: messages that failed together, because a database was away, do not come back together.
        delay = self._retry.delay(failures, random.uniform)
        if self._trusts_sender:  # G.retry
            # Rounded up: a delay never becomes 0, which would mean at once.
            waits = {names.REDELIVERY_DELAY: str(math.ceil(delay * 1000))} if delay else {}
            message.nack(**waits, **failure.headers(self.subscriber.verb.name))
        else:
            # See the head of this module.
            self._tried[id(message)] = failures - attempts_before(message.headers)
            self._delayed.call_later(delay, partial(self._try_again, message))

    def _try_again(self, message: Message) -> None:
        if message.subscription.is_closed:
            # It comes again, by another connection.
            self._tried.pop(id(message), None)
        else:
            self.pool.resume(message, monotonic())

    def _give_up(self, message: Message, failure: _Failure) -> None:
        """Settle a message that will never be handled."""
        _log.warning("message given up", code=failure.code, reason=failure.text, **self._place(message))
        if self._is_queue:
            self.given_up += 1
            why = failure.headers(self.subscriber.verb.name) if self._trusts_sender else {}
            message.nack(requeue="false", **why)
        else:
            message.ack()

    def _notify(self, error: BaseException | None) -> None:
        for function, told in tuple(WATCHERS):
            if function == self.subscriber.verb.function:
                told(error)

    def _principal_of(self, message: Message) -> str | None:
        return message.headers.get(names.SENDER) if self._trusts_sender else None

    def _place(self, message: Message) -> dict[str, str]:
        return self._place_of(message.destination, self._principal_of(message))

    def _place_of(self, destination: str, principal: str | None) -> dict[str, str]:
        """Log fields of a message."""
        place = {"destination": destination, "handler": self.subscriber.verb.name}
        return place if principal is None else {**place, "principal": principal}


HANDLES_MESSAGE: Final = MessageReceiver._handle.__code__
"""Stands on the stack where a function runs, with the `request`: for `LoopWatch`."""
