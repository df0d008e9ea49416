"""What every part of a client stands on: asking a verb by its name, or ready-made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from nebula.errors import RemoteError
from nebula.rpc.avro_bodies import AvroSchemas, write_message, write_value
from nebula.rpc.caller import Caller
from nebula.rpc.envelope import JSON_TYPE, dump_json, encode
from nebula.rpc.errors import declared_error
from nebula.rpc.replies import read_value, reader_of, unless_error
from nebula.rpc.resolving import destination_of
from nebula.rpc.retrying import PLAIN, CallOptions, CallRules
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
        return self._ask(destination_of(service), request_body(verb, parameters), seconds, rules, read)

    async def _ask(
        self,
        destination: str,
        body: bytes,
        timeout: float | None,
        rules: CallRules,
        read: Callable[[Any], Any] | None,
    ) -> Any:
        caller = self._caller
        if rules is PLAIN and not caller.has_breaker:
            return read_value(await caller.ask(destination, body, timeout), read)
        try:
            if (answers := rules.answers) is None:
                return await caller.ask_hard(
                    destination, body, timeout, rules, partial(read_value, read=read)
                )

            async def ask(seconds: float) -> Message:
                return await caller.ask_hard(destination, body, seconds, rules, unless_error)

            seconds = caller.seconds(timeout)
            reply = await answers.ask(destination, body, ask, keep=rules.cache, timeout=seconds)
            return read_value(reply, read)
        except RemoteError as error:
            if (declared := declared_error(error, rules.errors)) is None:
                raise
            raise declared from error

    async def call_queue(
        self, queue: str, verb: str, parameters: Any = None, *, timeout: float | None = None
    ) -> Any:
        """`call` by name, to whoever listens on a queue: an instance's own, for one.

        For the verbs of jobs and of the broker, all of which bear being asked twice: it is sent again when
        the connection is lost.
        """
        seconds = self._timeout if timeout is None else timeout
        rules = replace(self._rules, is_idempotent=True)
        return await self._ask(destination_of(queue), request_body(verb, parameters), seconds, rules, None)


def request_body(verb: str, parameters: Any, avro: AvroSchemas | None = None) -> bytes:
    """A request as JSON, with whatever parameters pydantic can write as such; or in a verb's Avro."""
    if avro is not None and avro.parameters is not None and parameters is not None:
        return write_message(verb, write_value(avro.parameters, parameters), None)
    shown = None if parameters is None else dump_json(parameters)
    return encode(JSON_TYPE, verb, shown) if avro is None else write_message(verb, shown, None)
