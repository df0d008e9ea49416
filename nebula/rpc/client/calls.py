"""Calls to a service: deadline, request, reply; and around them retries, breaker, cache and middleware.

A plain call (no middleware, cache, breaker, retry or declared error) takes the short way in `Calls.ask`: one
coroutine here, one in the inbox. Everything else wraps that way, from the outside in:

    middleware → cache → retries → breaker → inbox

So middleware sees one call however often it is tried, a cached reply costs no attempt, and the breaker counts
attempts.

How long a call may take: `nebula.rpc.wire.deadlines`.
"""

# Two ways through `ask`. The short one is taken by nearly all calls, so it is written without partials,
# closures or context managers: deadline, inbox, reply. The long one (`_ask_hard`) is a chain of closures,
# each of which gets the seconds that are left from the one around it. Which one is taken is decided by two
# identity checks (`rules is PLAIN`, `_is_plain`): `Client.with_options()` without options keeps the very
# object `PLAIN`.
#
# The name of a service that does not exist is a frequent mistake, and the broker only says that no consumer
# is there. `explain` looks up the services once the call has failed, and adds the nearest name to the
# error; in the time of the call, which may be over.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

import anyio

from nebula.errors import NebulaError, Rejected, RemoteError
from nebula.headers import IDEMPOTENCY_KEY
from nebula.rpc.client.breaker import Circuits
from nebula.rpc.client.connection import Connection
from nebula.rpc.client.retry import PLAIN, CallRules, persist
from nebula.rpc.contract.call_options import CallOptions
from nebula.rpc.discovery.suggestions import Suggestions
from nebula.rpc.errors import as_declared
from nebula.rpc.middleware.chain import Call, CallKind, MakeCall, Publication, call_chain, publish_chain
from nebula.rpc.wire.deadlines import Deadlines
from nebula.rpc.wire.replies import read_value, unless_error
from nebula.stomp.client import Message

__all__ = ["Calls"]

T = TypeVar("T")

# `start` and the like name their job themselves, so a second request starts no second job.
_RUNS_ONCE: Final = CallRules(is_idempotent=True)


class Calls:
    """Asks services over a connection. One for all views of a client: what differs by view is an argument.

    Args:
        connection: of the client.

    Attributes:
        connection: of the client.
        deadlines: how long calls and streams may take.
        seconds: how long a call may take from now on, see `Deadlines.seconds`.
    """

    def __init__(self, connection: Connection) -> None:
        options = connection.options
        self.connection = connection
        self.deadlines = Deadlines(options.timeout, anyio.current_effective_deadline, anyio.current_time)
        # Kept as a bound method: each call asks, and this spares it a lookup.
        self.seconds = self.deadlines.seconds
        self._chain = call_chain(options.middleware) if options.middleware else None
        self._publish_chain = publish_chain(options.middleware)
        self._cache, self._partition = options.cache, options.cache_partition
        self._circuits = None if options.breaker is None else Circuits(options.breaker)
        self._suggestions = Suggestions()
        self._is_plain = self._chain is None and self._cache is None and self._circuits is None

    def rules(self, rules: CallRules, options: CallOptions) -> CallRules:
        """The rules of calls, with some options changed.

        Raises:
            ValueError: `cache` is a number of seconds, and the client has no cache.
        """
        if self._cache is None and not isinstance(kept := options.get("cache", True), bool):
            raise ValueError(f"cache={kept!r}: the client has no cache; give it one, Client(cache=…)")
        return replace(rules, **options)

    # --- requests with a reply ---

    async def ask(
        self,
        verb: str,
        destination: str,
        body: bytes,
        timeout: float | None,
        rules: CallRules,
        read: Callable[[Any], Any] | None,
    ) -> Any:
        """Send a request and read its reply, see `Client.call`.

        Args:
            verb: for middleware; the body names it too.
            destination: of the service.
            body: of the request.
            timeout: seconds; None: see `seconds`.
            rules: when it is sent again, and which errors are declared.
            read: makes a value of the reply's JSON; None takes it as it is.
        """
        if rules is not PLAIN or not self._is_plain:
            if self._chain is None:
                return await self._ask_hard(destination, body, timeout, rules, read)

            async def work(call: Call) -> Any:
                return await self._ask_hard(call.destination, body, call.timeout, rules, read, call.headers)

            broker = self.connection.broker_address
            return await self._chain(Call("call", destination, verb, timeout, work=work, broker=broker))
        seconds = self.seconds(timeout)
        inbox = self.connection.inbox
        try:
            if inbox is None:
                return read_value(await self._send(destination, body, seconds), read)
            return read_value(await inbox.ask(destination, body, seconds), read)
        except Rejected as error:
            # Compiled code must not wait in here, see docs/decisions/0060.
            rejected = error
        await self.explain(rejected, timeout)
        raise rejected

    async def _send(
        self, destination: str, body: bytes, seconds: float, extra: Mapping[str, str] | None = None
    ) -> Message:
        """One request, after a wait for a connection; both within the seconds."""
        inbox = self.connection.inbox
        if inbox is None:
            deadline = monotonic() + seconds
            inbox = await self.connection.next_inbox(seconds)
            seconds = deadline - monotonic()
        return await inbox.ask(destination, body, seconds, extra)

    async def _ask_hard(
        self,
        destination: str,
        body: bytes,
        timeout: float | None,
        rules: CallRules,
        read: Callable[[Any], Any] | None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """As `ask`, with everything but the middleware."""
        try:
            seconds = self.seconds(timeout)
            if self._cache is None:
                read_all = partial(read_value, read=read)
                return await self._persist(destination, body, seconds, rules, read_all, headers)

            async def ask(left: float) -> Message:
                return await self._persist(destination, body, left, rules, unless_error, headers)

            reply = await self._cache.ask(
                destination, body, ask, partition=self._partition, keep=rules.cache, timeout=seconds
            )
            return read_value(reply, read)
        except RemoteError as error:
            failed: NebulaError = as_declared(error, rules.errors)
        except Rejected as error:
            failed = error
        if isinstance(failed, Rejected):
            await self.explain(failed, timeout)
        raise failed

    async def _persist(
        self,
        destination: str,
        body: bytes,
        seconds: float,
        rules: CallRules,
        read: Callable[[Message], T],
        headers: Mapping[str, str] | None,
    ) -> T:
        """Send a request, again if the rules say so, through the destination's circuit."""
        key = rules.idempotency_key
        extra = headers if key is None else {**(headers or {}), IDEMPOTENCY_KEY: key}
        began = monotonic()

        def tells(error: NebulaError) -> bool:
            return not rules.is_look(error, monotonic() - began)

        async def attempt(left: float) -> T:
            with nullcontext() if self._circuits is None else self._circuits.through(destination, tells):
                return read(await self._send(destination, body, left, extra))

        return await persist(attempt, rules, seconds)

    async def ask_stored(
        self, destination: str, body: bytes, headers: Mapping[str, str], seconds: float
    ) -> Message:
        """Send a request that is stored until a service comes, and that may be sent twice.

        Raises:
            NebulaError: as `Inbox.ask`.
        """

        async def attempt(left: float) -> Message:
            deadline = monotonic() + left
            inbox = await self.connection.next_inbox(left)
            return await inbox.ask(destination, body, deadline - monotonic(), headers, is_stored=True)

        return await persist(attempt, _RUNS_ONCE, seconds)

    # --- what all kinds of calls share ---

    def through(
        self, kind: CallKind, destination: str, verb: str, timeout: float | None, work: MakeCall
    ) -> Awaitable[Any]:
        """Do some work through the middleware."""
        broker = self.connection.broker_address
        return (self._chain or work)(Call(kind, destination, verb, timeout, work=work, broker=broker))

    async def deliver(
        self, destination: str, body: bytes, headers: Mapping[str, str], timeout: float | None
    ) -> None:
        """Publish a message through the middleware, see `Connection.deliver`.

        Args:
            destination: of the message.
            body: of the message.
            headers: of the message.
            timeout: seconds; None: see `seconds`.
        """
        if self._publish_chain is None:
            await self.connection.deliver(destination, body, headers, self.seconds(timeout))
            return

        async def work(one: Publication) -> None:
            await self.connection.deliver(one.destination, one.body, one.headers, self.seconds(timeout))

        broker = self.connection.broker_address
        await self._publish_chain(Publication(destination, body, dict(headers), broker, work=work))

    async def explain(self, error: Rejected, timeout: float | None = None) -> None:
        """Add the nearest service's name to the error of a call that found none."""
        with suppress(NebulaError):  # the connection was lost, or the time is over
            await self._suggestions.explain(error, self.connection.stomp, self.seconds(timeout))
