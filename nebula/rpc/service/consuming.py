"""What a service's `on` functions are called by while it runs: one subscription each, and its workers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final
from uuid import uuid4

import anyio

from nebula import headers as names
from nebula.errors import AvroError, CallTimeout, ConnectionLost, NebulaError, NoResponder, RemoteError
from nebula.later import Later
from nebula.logs import get_logger
from nebula.rpc.client.typed_messages import Schemas, plain_value
from nebula.rpc.contract.context import Request, Surroundings, attempts_before
from nebula.rpc.contract.injection import Provided
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.middleware.chain import answering_chain, unless_sent
from nebula.rpc.service.listening import DestinationKind, Subscriber
from nebula.rpc.service.statistics import Tally, listener_to_json
from nebula.rpc.service.workers import Lane, Worker, give_back
from nebula.rpc.wire.brokers import Brand, brand_of, no_last_values, whole_milliseconds
from nebula.rpc.wire.deadlines import ASKED_BY, HANDLED
from nebula.rpc.wire.envelope import JSON_TYPE, Envelope, content_type_of, media_of, request_body, text_of
from nebula.rpc.wire.replies import read_value
from nebula.stomp.client import AckMode, Listener, Message, StompClient
from nebula.threads import call_in_thread

__all__ = ["LISTENING", "WATCHERS", "Consumer", "Consumers"]

_log = get_logger(__name__)

# As for a service's own queues: brokers of MaXaM's profile do not answer what they do not permit.
_LISTEN_SECONDS: Final = 30.0

_ASK_SECONDS: Final = 5.0

# The broker cuts what is longer, and ends the connection over a line that is far too long.
_MOST_TEXT: Final = 1_000

_NEVER_HANDLED: Final = "delivered as often as may be, and never handled"

_OCTETS: Final = "application/octet-stream"

WATCHERS: Final[list[tuple[Callable[..., Any], Callable[[BaseException | None], None]]]] = []
"""Functions, and what is told of each message that they handled, or could not. For tests: see
`nebula.testing.handled`."""

# What is wrong with the message itself, so that it will be as wrong when it comes again.
_UNREADABLE: Final = (AvroError, UnexpectedReply, VerbError)


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a message was not handled, as its dead letter tells it."""

    code: str
    text: str

    def headers(self, handler: str) -> dict[str, str]:
        """Of the NACK."""
        said = {
            names.DEAD_LETTER_CODE: self.code,
            names.DEAD_LETTER_TEXT: self.text,
            names.DEAD_LETTER_HANDLER: handler,
        }
        # No header can have a NUL.
        return {name: value.replace("\0", "")[:_MOST_TEXT] for name, value in said.items() if value}


def _failure_of(error: BaseException, code: str) -> _Failure:
    """What an exception says.

    Args:
        code: of one that has none of its own.
    """
    if isinstance(error, (VerbError, RemoteError)):
        return _Failure(error.code, error.message)
    return _Failure(code, f"{type(error).__name__}: {error}")


class Consumers:
    """All that a service listens to beside its requests.

    Args:
        subscribers: what is called.
        retry: how often a message of a queue is tried, where a subscriber does not say.
        around: the service, for what its functions ask of it.

    Attributes:
        later: has to run, for brokers that give a message out again at once or never.
    """

    def __init__(self, subscribers: Iterable[Subscriber], retry: Retry, around: Surroundings) -> None:
        self._client: StompClient | None = None
        self.later = Later()
        schemas = Schemas(self._ask)
        self._consumers = [Consumer(one, retry, schemas, around, self.later) for one in subscribers]
        self.lanes = [one.lane for one in self._consumers]

    async def listen(self, client: StompClient) -> None:
        """SUBSCRIBE to all of it, anew with each connection.

        Raises:
            Refused: the broker does not let us, does not answer, or keeps no last values.
            ConnectionLost, ServerError: the connection ended.
        """
        self._client = client
        for one in self._consumers:
            await one.listen(client)

    def stop(self, *, may_drain: bool) -> None:
        """Begin nothing more; what was is finished.

        Args:
            may_drain: the broker is ours: others get at once what came by a queue and is not begun. Else it
                goes back at the end of the connection.
        """
        for one in self._consumers:
            one.stop(may_drain=may_drain)

    def close(self) -> None:
        """The connection is over: begin nothing more."""
        for lane in self.lanes:
            lane.close()

    def lose(self) -> None:
        """The connection is over: what came by it and comes again is not handled."""
        for one in self._consumers:
            one.lose()

    def to_json(self) -> list[dict[str, Any]]:
        """What each did since the service started, as `stats` tells it."""
        return [one.to_json() for one in self._consumers]

    async def _ask(self, queue: str, verb: str, parameters: Any, /) -> Any:
        """Ask the broker for a schema. Once for each, so that a service needs no inbox that stays."""
        client = self._client
        assert client is not None
        brand, inbox = brand_of(client.server), f"{names.INBOX_PREFIX}{uuid4()}"
        if not brand.answers_verbs:
            raise NoResponder(names.REJECTED_NO_CONSUMER, queue)
        headers = brand.expiry(whole_milliseconds(_ASK_SECONDS)) | {
            "content-type": JSON_TYPE,
            names.REPLY_TO: brand.reply_to(inbox),
            names.REPLY_ID: uuid4().hex,
        }
        try:
            async with client.subscribe(
                inbox, headers=dict(brand.inbox_headers), timeout=_ASK_SECONDS
            ) as answers:
                client.post(queue, request_body(verb, parameters), headers)
                with anyio.fail_after(_ASK_SECONDS):
                    return read_value(await anext(answers), None)
        except TimeoutError as error:
            raise CallTimeout(f"{queue} did not answer in time") from error


class Consumer:
    """One subscription: takes its messages as they come, and has them handled.

    Args:
        subscriber: what is called.
        retry: how often a message of a queue is tried, where the subscriber does not say.
        schemas: of what comes in Avro.
        around: the service.
        later: calls what is to be tried again by us.

    Attributes:
        lane: whose `run` has to run.
        tally: the calls, and how many failed.
        unreadable: messages that the function was not called for, as they are not what it takes.
        given_up: messages of a queue that were not to come again.
    """

    def __init__(
        self, subscriber: Subscriber, retry: Retry, schemas: Schemas, around: Surroundings, later: Later
    ) -> None:
        self.subscriber = subscriber
        self._around = around
        self._later = later
        self._retry = retry if subscriber.options.retry is None else subscriber.options.retry.of_messages()
        self._max_attempts = self._retry.most_attempts
        # Of messages that wait here: by identity, how often they were tried here.
        self._tried: dict[int, int] = {}
        self._schemas = schemas
        self._is_queue = subscriber.kind is DestinationKind.QUEUE
        self._skips_deletions = subscriber.kind is DestinationKind.LAST_VALUE and not subscriber.takes_none
        self._acks_early = subscriber.options.ack == "early"
        middleware = subscriber.options.middleware
        self._chain = answering_chain(middleware) if middleware else None
        self._is_ours = False
        self._listener: Listener | None = None
        self.lane = Lane(self._serve, subscriber.options.concurrency)
        self.tally = Tally()
        self.unreadable = 0
        self.given_up = 0

    async def listen(self, client: StompClient) -> None:
        """SUBSCRIBE, see `Consumers.listen`."""
        one, brand = self.subscriber, brand_of(client.server)
        self._is_ours = client.is_nebula
        if one.kind is DestinationKind.LAST_VALUE and not brand.has_last_values:
            raise no_last_values(one.destination, client.server)
        self._listener = await client.listen(
            one.destination,
            self.lane.put,
            ack=AckMode.CLIENT_INDIVIDUAL,
            eager=one.options.eager,
            durable=one.options.durable,
            headers=self._credit(brand) | brand.durable_headers(one.options.durable),
            timeout=_LISTEN_SECONDS,
        )

    def stop(self, *, may_drain: bool) -> None:
        """Begin nothing more, see `Consumers.stop`."""
        may_drain = may_drain and self._is_queue
        if may_drain and self._listener is not None:
            self._listener.drain()
        self.lane.close(give_back if may_drain else None)

    def lose(self) -> None:
        """The connection is over, see `Consumers.lose`."""
        self._tried.clear()
        if self._listener is not None:
            self._listener.is_closed = True

    def _credit(self, brand: Brand) -> dict[str, str]:
        # Of a last value there is one message under way anyway, and those of all of them have a bound of
        # the broker's. Else enough for each worker to find its next one here.
        if self.subscriber.kind is DestinationKind.LAST_VALUE:
            return {}
        return {brand.prefetch_count: str(2 * self.lane.concurrency)}

    def to_json(self) -> dict[str, Any]:
        """What it did, as `stats` tells it."""
        one = self.subscriber
        others = {"unreadable": self.unreadable, "given_up": self.given_up, "waiting": self.lane.waiting}
        return listener_to_json(one.destination, one.verb.name, self.tally, others)

    async def _serve(self, message: Message, _arrived: float, _worker: Worker) -> None:
        try:
            await self._handle(message)
        except ConnectionLost:
            # What was not acked comes again, if it is to.
            return

    async def _handle(self, message: Message) -> None:
        if message.subscription.is_closed and self.subscriber.comes_again:
            return
        # A handler that kills its process must not do so for ever, see D.37.
        failures = self._failures_of(message) + self._tried.pop(id(message), 0)
        if self._is_queue and failures >= self._max_attempts:
            self._give_up(message, _Failure("too-many-attempts", _NEVER_HANDLED))
            return
        try:
            body, is_text = await self._body(message)
            if body is None and self._skips_deletions:
                message.ack()
                return
            arguments = self.subscriber.verb.signature.bind_whole(body, is_text=is_text)
        except _UNREADABLE as error:
            self.unreadable += 1
            self._give_up(message, _failure_of(error, "bad-request"))
            self._tell(error)
            return
        except ConnectionLost:
            raise
        except NebulaError as error:
            # The schema could not be asked for: not the message's fault.
            _log.exception("message not read", **self._place(message))
            self._fail(message, error, failures)
            return
        if self._acks_early:
            message.ack()
        failed = await self._call(message, arguments, body, failures)
        if failed is not None:
            self._fail(message, failed, failures)
        elif not self._acks_early:
            message.ack()
        self._tell(failed)

    async def _body(self, message: Message) -> tuple[Any, bool]:
        """What a message says, and whether that is text, which may stand for something else."""
        if not message.body:
            return None, False
        content_type = content_type_of(message.headers)
        media = media_of(content_type)
        if (content_type or "").partition(";")[0].strip().lower() == _OCTETS:
            return message.body, False
        if media.is_json or media.is_avro or self.subscriber.kind is DestinationKind.LAST_VALUE:
            return await plain_value(message, self._schemas), False
        return text_of(content_type, message.body), True

    async def _call(
        self, message: Message, arguments: Arguments, body: Any, failures: int
    ) -> BaseException | None:
        """Call the function; None: it returned. Raises the worker's cancellation, and nothing else."""
        headers = message.headers
        if failures > self._failures_of(message):
            headers = {**headers, names.DELIVERY_COUNT: str(failures)}
        request = Request(
            Envelope(self.subscriber.verb.name, body),
            headers,
            destination=message.destination,
            principal=message.headers.get(names.SENDER) if self._is_ours else None,
            around=self._around,
        )
        self.tally.requests += 1
        HANDLED.set(message.headers)
        ASKED_BY.set(request.principal)
        started = monotonic()
        try:
            if self._chain is None:
                await self._run(arguments, request)
            else:
                request.work = partial(self._run, arguments, request)
                unless_sent(await self._chain(request))
        except (Exception, SystemExit) as error:
            return self._failed(message, error)
        except anyio.get_cancelled_exc_class() as error:
            # Ours, or of something that the handler waited for and somebody else cancelled.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            return self._failed(message, error)
        finally:
            self.tally.add(monotonic() - started)
        return None

    async def _run(self, arguments: Arguments, request: Request) -> None:
        plan = self.subscriber.verb.signature.plan
        if plan is None:
            await self._invoke(arguments, request)
            return
        provided = Provided(self.lane.limiter)
        try:
            args, kwargs = arguments
            made = await provided.make(plan, request)
            with provided:
                await self._invoke((args, kwargs | made), request)
        finally:
            await provided.close()

    async def _invoke(self, arguments: Arguments, request: Request) -> None:
        verb = self.subscriber.verb
        if verb.is_async:
            await verb.invoke(arguments, request)
        else:
            # A thread cannot be stopped: at the end of the service it is left to itself.
            await call_in_thread(self.lane.limiter, partial(verb.invoke, arguments, request))

    def _failed(self, message: Message, error: BaseException) -> BaseException:
        self.tally.errors += 1
        _log.exception("message not handled", **self._place(message))
        return error

    def _fail(self, message: Message, error: BaseException, failures: int) -> None:
        """It may go better another time, where there is one.

        Args:
            failures: before this one.
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
        delay = self._retry.delay(failures, random.uniform)
        if self._is_ours:
            waits = {names.REDELIVERY_DELAY: str(math.ceil(delay * 1000))} if delay else {}
            message.nack(**waits, **failure.headers(self.subscriber.verb.name))
        else:
            # Others give a NACKed message out again at once, or never, and may not count how often.
            self._tried[id(message)] = failures - self._failures_of(message)
            self._later.put(delay, partial(self._try_again, message))

    def _try_again(self, message: Message) -> None:
        if message.subscription.is_closed:
            # It comes again, by another connection.
            self._tried.pop(id(message), None)
        else:
            self.lane.resume(message, monotonic())

    def _failures_of(self, message: Message) -> int:
        return attempts_before(message.headers, only_failed=self._is_ours)

    def _give_up(self, message: Message, failure: _Failure) -> None:
        """Nobody will ever handle it."""
        _log.warning("message given up", code=failure.code, reason=failure.text, **self._place(message))
        if self._is_queue:
            self.given_up += 1
            why = failure.headers(self.subscriber.verb.name) if self._is_ours else {}
            message.nack(requeue="false", **why)
        else:
            message.ack()

    def _tell(self, error: BaseException | None) -> None:
        for function, told in tuple(WATCHERS):
            if function == self.subscriber.verb.function:
                told(error)

    def _place(self, message: Message) -> dict[str, str]:
        place = {"destination": message.destination, "handler": self.subscriber.verb.name}
        principal = message.headers.get(names.SENDER) if self._is_ours else None
        return place if principal is None else {**place, "principal": principal}


LISTENING: Final = Consumer._run.__code__
"""Stands on the stack where a message is handled, with the `request`: for `LoopWatch`."""
