"""The caller's side: requests out, answers in."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from uuid import uuid4

from nebula.rpc.client.breaker import Breaker
from nebula.rpc.client.cache_partition import asker_of
from nebula.rpc.client.caller import Caller
from nebula.rpc.client.calling import request_body
from nebula.rpc.client.constructor import CallerOptions
from nebula.rpc.client.discovery import AsksAll
from nebula.rpc.client.reconnect import ConnectionState, OnState, urls_of
from nebula.rpc.client.retry import PLAIN, CallOptions, CallRules, Retry
from nebula.rpc.client.streams import Streaming
from nebula.rpc.contract.options import (
    OPTIONS,
    Options,
    require_kinds,
    require_named,
    require_options,
    start_part,
)
from nebula.rpc.contract.resolving import destination_of, resolve
from nebula.rpc.contract.typed_calls import TypedCalls
from nebula.rpc.middleware.chain import CallMiddleware
from nebula.stomp.client import StompClient
from nebula.stomp.client.link import Link
from nebula.stomp.client.tls import TlsOptions

if TYPE_CHECKING:
    from nebula.rpc.client.cache import Cache

_OPTIONS_BY_NAME: Final = frozenset({"timeout", "result", *CallOptions.__annotations__})


class Client(TypedCalls, AsksAll, Streaming):
    """Calls verbs of services, over a connection that comes back.

    An async context manager: entering it connects and opens the inbox, leaving it disconnects. Any number
    of tasks may call at once. It is entered once.

    When the connection ends the client connects again, for ever, to the addresses in turn and with delays
    that grow to 5 s. Calls in flight fail with `ConnectionLost` (`ServerError` where the broker said why),
    but for those that bear being sent twice: the verb is declared `idempotent`, or they have an
    `idempotency_key`. Those are sent again with the next connection, as often as three times. What is called
    meanwhile waits for a connection, and for no longer than its own time. Subscriptions are made again.

    A request is a function (`client.call(quote, "ABC", qty=2)`: checked and typed by its signature, sent to
    the service that declared it) or names (`client.call("prices", "quote", {"symbol": "ABC"})`).

    Args:
        url: of the broker, see `StompClient`; or of several that share their queues, the first one first.
        timeout: seconds that a call waits unless it, or an anyio scope around it, says otherwise; and the
            opening of the inbox, at most.
        client_id: names the session that durable subscriptions belong to, see `StompClient`.
        reply_to: a queue that answers shall come to, shared with other requesters; each takes its own.
            By default the client has an inbox of its own, which is faster.
        tls: for `stomps://` and `wss://`, see `TlsOptions`; None is what the environment says.
        connect_timeout: seconds that one attempt to connect may take.
        wait: entering waits for a broker for as long as it takes: put a scope around it. By default it tries
            each address once, and raises.
        reconnect: by default. Else every later call fails, too, when the connection has ended.
        on_state: told each change of `state`, synchronously. It must not wait; what it raises is logged.
        retry: what `with_options(retry=…)` says, for all calls.
        breaker: leaves services alone for a while that fail again and again; by default none.
        cache: answers that are kept, see `Cache`; by default each call asks.
        middleware: around each call, the first one outermost, see `CallMiddleware`.
        link: opens what carries the octets, instead of a connection to the address.

    Raises:
        SettingsError: an address cannot be used, or the TLS options.
        OutsideBroker: at entering: the address is not that of the block that this runs in, see `TestClient`.
        ConnectFailed: at entering: nobody is there, or the broker lets us not in.
        Refused: at entering: the broker gives us no inbox.
    """

    def __init__(
        self,
        url: str | Sequence[str] | None = None,
        *,
        timeout: float = 30.0,
        client_id: str | None = None,
        reply_to: str | None = None,
        tls: TlsOptions | None = None,
        connect_timeout: float = 10.0,
        wait: bool = False,
        reconnect: bool = True,
        on_state: OnState | None = None,
        retry: Retry | None = None,
        breaker: Breaker | None = None,
        cache: Cache | None = None,
        middleware: Sequence[CallMiddleware] = (),
        link: Callable[[], Awaitable[Link]] | None = None,
    ) -> None:
        def make(url: str | None, session: str | None) -> StompClient:
            return StompClient(url, client_id=session, connect_timeout=connect_timeout, tls=tls, link=link)

        options = CallerOptions(
            timeout=timeout,
            reply_to=None if reply_to is None else destination_of(reply_to),
            client_id=client_id,
            reconnects=reconnect,
            waits=wait,
            on_state=on_state,
            breaker=breaker,
            middleware=tuple(middleware),
        )
        urls = urls_of(url)
        rules = PLAIN if retry is None else CallRules(retry)
        if cache is not None:
            # Who and where one is over a link is the link's affair.
            asker = asker_of(urls, tls) if link is None else uuid4().hex
            rules = CallRules(retry, answers=cache, asker=asker)
        super().__init__(Caller(make, urls, options), rules)

    # --- life ---

    async def __aenter__(self) -> Self:
        await self._caller.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._caller.close(error)

    @property
    def state(self) -> ConnectionState:
        """How the connection is now."""
        return self._caller.state

    # --- views ---

    def with_options(self, *, timeout: float | None = None, **options: Unpack[Options]) -> Self:
        """The same client with other options for its calls, above all for those by function:

            client.with_options(timeout=5).call(quote, "ABC")
            client.with_options(priority=9, dedupe="delays 3").start(delays, month=3)

        Args:
            timeout: seconds that a call waits; None leaves it as it is.
            **options: of calls, see `CallOptions`, and of jobs, see `StartOptions`; what is left out stays as
                it is. An `idempotency_key` is for one call, and `dedupe` for one job: a service refuses the
                same key with other parameters, and gives the same job for the same `dedupe`.

        Raises:
            TypeError: there is no such option, or it takes something else.
        """
        require_options("client.with_options(…)", options.keys(), OPTIONS)
        require_kinds("client.with_options(…)", {"timeout": timeout, **options})
        # Connection and inbox are shared: a view costs nothing to make and nothing to forget.
        view = copy.copy(self)
        if timeout is not None:
            view._timeout = timeout
        of_starts = start_part(options)
        if of_calls := {name: value for name, value in options.items() if name not in of_starts}:
            view._rules = replace(self._rules, **of_calls)  # type: ignore[arg-type]  # by their names
        view._start_options = {**self._start_options, **of_starts}
        return view

    def service(self, name: str) -> Self:
        """The same client, whose calls by function go to the service `name`.

        For functions with the bare `@verb` mark, which do not know their service.
        """
        view = copy.copy(self)
        view._service = name
        return view

    # --- calling ---

    async def _called(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if isinstance(target, str):
            require_named("call", target, args, kwargs, _OPTIONS_BY_NAME)
            return await self._call_named(target, *args, **kwargs)
        known, contract = resolve(target, self._service, as_job=False)
        body = request_body(known.verb, contract.pack(args, kwargs), contract.avro)
        rules, promises = self._rules, known.options
        if promises.idempotent or promises.errors:
            rules = rules.promised(promises.errors, is_idempotent=promises.idempotent)
        return await self._ask(known.verb, known.destination, body, self._timeout, rules, contract.load)
