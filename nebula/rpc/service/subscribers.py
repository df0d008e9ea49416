"""Declaration of `@app.on` functions: what they subscribe to, and what they take."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Literal, TypeVar

from nebula.destinations import destination_named
from nebula.errors import CallTimeout, LocalProtocolError
from nebula.headers import PERSISTENT
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.signature import PARAMETER_NAME, Signature, refuse_method
from nebula.rpc.contract.verbs import Verb, VerbOptions
from nebula.rpc.contract.yielding import is_stream
from nebula.rpc.errors import VerbError
from nebula.rpc.middleware.chain import Middleware
from nebula.rpc.wire.brokers import is_last_value
from nebula.rpc.wire.deadlines import handler_seconds
from nebula.rpc.wire.envelope import JSON_TYPE, encode_free
from nebula.stomp.client import StompClient

__all__ = ["DestinationKind", "HasSubscribers", "Subscriber", "SubscriberOptions"]

_F = TypeVar("_F", bound=Callable[..., Any])

# RabbitMQ has queues under both prefixes. A destination with another prefix counts as a topic, apart from
# last values.
_QUEUES: Final = ("/queue/", "/amq/queue/")

# For the broker's receipt.
_PUBLISH_SECONDS: Final = 30.0


class DestinationKind(Enum):
    """The kind of a destination: it decides what becomes of a message that could not be handled."""

    QUEUE = auto()
    """One of all readers gets a message, and may give it back."""

    TOPIC = auto()
    """Each reader gets a message, once."""

    LAST_VALUE = auto()
    """Each reader gets the newest value."""


def _kind_of(destination: str) -> DestinationKind:
    if is_last_value(destination):
        return DestinationKind.LAST_VALUE
    return DestinationKind.QUEUE if destination.startswith(_QUEUES) else DestinationKind.TOPIC


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriberOptions:
    """How a function subscribes; see `Responder.on` for each.

    Raises:
        ValueError: an option that cannot be used.
    """

    durable: str | None = None
    eager: bool = False
    ack: Literal["late", "early"] = "late"
    concurrency: int = 1
    middleware: tuple[Middleware, ...] = ()
    retry: Retry | None = None

    def __post_init__(self) -> None:
        if self.ack not in ("late", "early"):
            raise ValueError(f"ack is 'late' or 'early', not {self.ack!r}")
        if self.concurrency < 1:
            raise ValueError("concurrency is 1 or more")
        # Refused at declaration and not when the first message fails.
        if self.retry is not None and self.ack == "early":
            raise ValueError("a message that is acked early never comes again; leave retry out")
        # The name becomes the id of the subscription, and the ids of other subscriptions are numbers.
        if self.durable is not None and (not self.durable or self.durable.isdecimal()):
            raise ValueError(f"durable is a name that is no number, not {self.durable!r}")


class Subscriber:
    """A function that is called for each message of a destination, with its contract.

    Its one parameter is what the message says; one of type `Request` gets the rest: destination, headers,
    principal, attempt.

    Args:
        destination: as subscribed to; `orders` is `/queue/orders`.
        function: the handler.
        options: how it listens.

    Attributes:
        kind: of the destination.
        verb: the function as verbs are called.
        takes_none: it wants to hear of deletions.

    Raises:
        TypeError: the function cannot be one.
        ValueError: the destination cannot be subscribed to in this way.
    """

    def __init__(self, destination: str, function: Callable[..., Any], options: SubscriberOptions) -> None:
        self.destination = destination = destination_named(destination, takes_globs=True)
        self.options = options
        self.kind = _kind_of(destination)
        if self.kind is DestinationKind.QUEUE and options.durable is not None:
            raise ValueError(f"{destination}: a queue keeps what comes anyway; leave durable out")
        if self.kind is not DestinationKind.QUEUE and options.retry is not None:
            raise ValueError(f"{destination}: only messages of a queue come again; leave retry out")
        if self.kind is not DestinationKind.LAST_VALUE and options.eager:
            raise ValueError(
                f"{destination}: only last values (X/…) are there to begin with; leave eager out"
            )
        if is_stream(function):
            raise TypeError(f"{function.__qualname__} yields, but there is no caller to read the items")
        refuse_method(function, f"declare an object's: app.on(…)({{kind}}().{function.__name__})")
        # A verb that no caller can call: signature, validation, providers and `Request` work as for requests.
        self.verb = Verb(function, VerbOptions(name=function.__name__))
        if len(self.verb.signature.names) != 1:
            raise TypeError(
                f"{function.__qualname__} listens to {destination}: it takes one parameter, what the message "
                f"says, and not {len(self.verb.signature.names)}; one of type Request gets all else"
            )

        self.takes_none = _takes_none(self.verb.signature)

    @property
    def comes_again(self) -> bool:
        """What it has and did not ack comes again by the next connection."""
        options = self.options
        # An eager subscription gets the present values anew, so what was not acked is there again.
        return self.kind is DestinationKind.QUEUE or options.durable is not None or options.eager

    def describe(self) -> dict[str, Any]:
        """The contract for `describe`: where it listens, and JSON Schema of what it takes."""
        options = self.options
        return {
            "destination": self.destination,
            "handler": self.verb.name,
            "description": self.verb.description,
            "message": _message_schema(self.verb.signature),
            **({"durable": options.durable} if options.durable is not None else {}),
            **({"eager": True} if options.eager else {}),
        }


def _takes_none(signature: Signature) -> bool:
    try:
        # Tried out, because the type may have a validator of its own.
        signature.bind_whole(None)
    except VerbError:
        return False
    return True


def _message_schema(signature: Signature) -> dict[str, Any]:
    schema = signature.parameters_schema()
    if PARAMETER_NAME in schema:
        return {name: value for name, value in schema.items() if name != PARAMETER_NAME}
    only: dict[str, Any] = dict(schema["properties"][signature.names[0]])
    return only | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


class HasSubscribers(ABC):
    """The part of a `Responder` that declares `on` functions and publishes.

    Args:
        name: of the service.
        own_queues: where its requests come: no function may take them.
        client_id: names the session of durable subscriptions.
    """

    def __init__(self, name: str, own_queues: tuple[str, ...], client_id: str | None) -> None:
        self.name = name
        self.destinations = own_queues
        self._client_id = client_id
        self._subscribers: list[Subscriber] = []

    @abstractmethod
    def _connection(self) -> StompClient | None:
        """The service's current connection, or None as long as there was none."""

    def on(
        self,
        destination: str,
        /,
        *,
        durable: str | None = None,
        eager: bool = False,
        ack: Literal["late", "early"] = "late",
        concurrency: int = 1,
        middleware: Sequence[Middleware] = (),
        retry: Retry | None = None,
    ) -> Callable[[_F], _F]:
        """Call a function for each message that is sent to a destination:

            @app.on("X/EGM.*", eager=True)
            async def note(meter: Meter | None, request: Request) -> None: ...

        Its one parameter is the content of the message, read and checked by its type: JSON, text, Avro in an
        envelope, or bytes (`application/octet-stream`). If the type allows None, a message without a body and
        the deletion of a last value are passed as None; otherwise the function is not called for deletions.
        Its return value is ignored. The function itself is returned. `Request` and `Depends` parameters are
        as for verbs.

        Messages are handled one after the other, unless `concurrency` is more than 1; then in any order, but
        those of one last value one at a time, and of several changes meanwhile only the newest. Only messages
        that can be handled soon are fetched; the others wait at the broker.

        A message is acked when the function has returned. If the function raises, a message of a queue is
        delivered again after the delay of `retry`, to this instance or another, and is dead-lettered when its
        attempts are used up; the broker keeps it meanwhile, and the others go on in their order. If the
        process dies, the message is delivered again at once, which counts as an attempt too. For a topic or a
        last value, a failure is logged and counted. A message that cannot be read is logged, counted, and
        dead-lettered if it came by a queue. `stats` has the counts; the dead letter has the error's code and
        text, the name of the function and how often it was delivered, see docs/reference/headers.md.

        After a lost connection all subscriptions are made again. Messages sent to a topic meanwhile are lost
        unless the subscription is durable.

        Args:
            destination: `/queue/…`, `/topic/…` or a last value, `X/…`; globs of the last two if the broker
                supports them. `orders` is `/queue/orders`.
            durable: a name under which the broker keeps messages while the service is away. It belongs to the
                service's `client_id`, and is for one process.
            eager: begin with the current values, on each connection.
            ack: `early`: before the function runs (at most once).
            concurrency: how many messages are handled at once.
            middleware: around each call of the function, as around requests, the first one outermost; that of
                the service is only for requests. The `Request` that it gets has the function's name as
                `verb`. If it raises, the function counts as failed; if it returns a `ReplyBody` of its own,
                as successful.
            retry: how often a message of a queue is tried, and after which delays; `Retry(first=0)`: without
                delay. By default that of the service. The broker's `max_deliveries` has to allow as many
                attempts.

        Raises:
            TypeError: the function does not take one parameter, or yields.
            ValueError: the destination cannot be listened to in this way, or an option cannot be used.
        """
        options = SubscriberOptions(
            durable=durable,
            eager=eager,
            ack=ack,
            concurrency=concurrency,
            middleware=tuple(middleware),
            retry=retry,
        )

        def declare(function: _F) -> _F:
            self._subscribe(Subscriber(destination, function, options))
            return function

        return declare

    def _subscribe(self, one: Subscriber) -> None:
        # Two subscriptions to one queue share its messages; to a topic or last value each gets all of them.
        known = {each.destination for each in self._subscribers} | set(self.destinations)
        if one.kind is DestinationKind.QUEUE and one.destination in known:
            raise ValueError(f"{one.destination}: the service reads it already, and would take from itself")
        # The broker can generate a session (D.35), but the service would not find that again after a restart.
        if one.options.durable is not None:
            if self._client_id is None:
                raise ValueError(
                    f"{one.destination}: durable={one.options.durable!r} belongs to a session; name it, with "
                    "Responder(client_id=…)"
                )
            if any(each.options.durable == one.options.durable for each in self._subscribers):
                raise ValueError(f"durable={one.options.durable!r} is the name of two subscriptions")
        self._subscribers.append(one)

    async def publish(
        self,
        destination: str,
        body: Any,
        *,
        content_type: str = JSON_TYPE,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Send a message over the service's own connection, and wait until the broker has it.

        For handlers, and for other tasks of the program. From a plain handler, which runs in a thread:
        `anyio.from_thread.run(app.publish, destination, body)`.

        Args:
            destination: a topic, queue or last value; `orders` is `/queue/orders`.
            body: bytes are sent unchanged, and so is a string if the content type is text; all else is sent
                as JSON. `b""` deletes a last value.
            content_type: of the body.
            headers: additional ones.

        Raises:
            LocalProtocolError: the service does not run.
            ValueError: the prefix of the destination is incomplete, as in `queue/orders`.
            CallTimeout: the broker did not confirm it within 30 s, or the time of the request that is being
                handled; it may have it.
            Rejected, ConnectionLost, ServerError: as for `Client.publish`. It does not wait for the next
                connection: a handler that fails now is called again, if possible.
        """
        client = self._connection()
        if client is None:
            raise LocalProtocolError(f"service {self.name!r} is not connected: it publishes while it runs")
        destination = destination_named(destination)
        # G.persistent: the receipt then means that the message is on disk.
        fields = {"content-type": content_type, PERSISTENT: "true", **(headers or {})}
        # At most the rest of the request's time: its caller is gone afterwards.
        left = handler_seconds()
        seconds = _PUBLISH_SECONDS if left is None else min(_PUBLISH_SECONDS, left)
        try:
            await client.send(
                destination, encode_free(content_type, body), fields, receipt=True, timeout=max(seconds, 0)
            )
        except TimeoutError as error:
            raise CallTimeout(f"the broker did not confirm a message to {destination} in time") from error
