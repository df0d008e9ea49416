"""What every part of a client stands on: asking a verb by its name, or ready-made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from nebula.errors import Rejected, RemoteError
from nebula.rpc.client.caller import Caller
from nebula.rpc.client.retry import PLAIN, CallOptions, CallRules
from nebula.rpc.contract.resolving import destination_of
from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.errors import declared_error
from nebula.rpc.middleware.chain import Call, CallKind, MakeCall
from nebula.rpc.wire.avro_bodies import AvroSchemas, write_message, write_value
from nebula.rpc.wire.envelope import JSON_TYPE, dump_json, encode
from nebula.rpc.wire.replies import read_value, reader_of, unless_error
from nebula.stomp.client import Message, StompClient

__all__ = ["Asking", "request_body"]


class Asking:
    """A part of `Client`.

    Args:
        caller: not entered yet.
        rules: of all calls that do not say otherwise.
    """

    def __init__(self, caller: Caller, rules: CallRules) -> None:
        self._caller = caller
        self._rules = rules
        self._timeout: float | None = None
        self._service: str | None = None
        self._start_options: StartOptions = {}

    @property
    def stomp(self) -> StompClient:
        """The connection of now, for what is neither a call nor a message to keep; the last one while there
        is none. What is opened on it ends with it.

        Raises:
            LocalProtocolError: the client was not entered.
        """
        return self._caller.stomp

    # Not async itself: a coroutine less for each call.
    def _call_named(
        self,
        service: str,
        verb: str,
        /,
        parameters: Any = None,
        *,
        result: Any = Any,
        timeout: float | None = None,
        **options: Unpack[CallOptions],
    ) -> Awaitable[Any]:
        seconds = self._timeout if timeout is None else timeout
        rules = replace(self._rules, **options) if options else self._rules
        read = None if result is Any else reader_of(result)
        return self._ask(verb, destination_of(service), request_body(verb, parameters), seconds, rules, read)

    # As above.
    def _ask(
        self,
        verb: str,
        destination: str,
        body: bytes,
        timeout: float | None,
        rules: CallRules,
        read: Callable[[Any], Any] | None,
    ) -> Awaitable[Any]:
        if self._caller.chain is None:
            return self._ask_now(destination, body, timeout, rules, read)

        async def work(call: Call) -> Any:
            return await self._ask_now(call.destination, body, call.timeout, rules, read, call.headers)

        return self._through("call", destination, verb, timeout, work)

    def _through(
        self, kind: CallKind, destination: str, verb: str, timeout: float | None, work: MakeCall
    ) -> Awaitable[Any]:
        """Do some work through the middleware."""
        call = Call(kind, destination, verb, timeout, work=work)
        return (self._caller.chain or work)(call)

    async def _ask_now(
        self,
        destination: str,
        body: bytes,
        timeout: float | None,
        rules: CallRules,
        read: Callable[[Any], Any] | None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        caller = self._caller
        try:
            if rules is PLAIN and not caller.has_breaker:
                return read_value(await caller.ask(destination, body, timeout, headers), read)
            if (answers := rules.answers) is None:
                read_all = partial(read_value, read=read)
                return await caller.ask_hard(destination, body, timeout, rules, read_all, headers)

            async def ask(seconds: float) -> Message:
                return await caller.ask_hard(destination, body, seconds, rules, unless_error, headers)

            seconds = caller.seconds(timeout)
            reply = await answers.ask(
                destination, body, ask, asker=rules.asker, keep=rules.cache, timeout=seconds
            )
            return read_value(reply, read)
        except RemoteError as error:
            if (declared := declared_error(error, rules.errors)) is None:
                raise
            raise declared from error
        except Rejected as error:
            await self._explain(error)
            raise

    async def _explain(self, error: Rejected) -> None:
        """Add a suggested service to the error of a call. Overridden where others are known."""

    async def call_queue(
        self, queue: str, verb: str, parameters: Any = None, *, timeout: float | None = None
    ) -> Any:
        """`call` by name, to whoever listens on a queue: an instance's own, for one.

        For the verbs of jobs and of the broker, all of which bear being asked twice: it is sent again when
        the connection is lost.
        """
        seconds = self._timeout if timeout is None else timeout
        rules, body = replace(self._rules, is_idempotent=True), request_body(verb, parameters)
        return await self._ask(verb, destination_of(queue), body, seconds, rules, None)


def request_body(verb: str, parameters: Any, avro: AvroSchemas | None = None) -> bytes:
    """A request as JSON, with whatever parameters pydantic can write as such; or in a verb's Avro."""
    if avro is not None and avro.parameters is not None and parameters is not None:
        return write_message(verb, write_value(avro.parameters, parameters), None)
    shown = None if parameters is None else dump_json(parameters)
    return encode(JSON_TYPE, verb, shown) if avro is None else write_message(verb, shown, None)
