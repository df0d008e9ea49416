"""`Responder`: declaration of a service, and its run."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import anyio

from nebula.destinations import queue_named
from nebula.errors import LocalProtocolError
from nebula.rpc.client.client import Client
from nebula.rpc.client.reconnect import Connections, urls_of
from nebula.rpc.contract.context import Surroundings
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.typed_calls import TypedCalls
from nebula.rpc.idempotency import IdempotencyStore, MemoryStore
from nebula.rpc.idempotency.replays import Replays
from nebula.rpc.jobs.model.limits import JobLimits
from nebula.rpc.jobs.service.job_statistics import JobStatistics
from nebula.rpc.middleware.chain import Middleware
from nebula.rpc.service.builtin_verbs import BuiltinVerbs
from nebula.rpc.service.declaration import RequestRules, ServiceDeclaration
from nebula.rpc.service.declared_jobs import DeclaredJobs, Engine, engines_of
from nebula.rpc.service.health import HasHealth
from nebula.rpc.service.lifespan import opened_by
from nebula.rpc.service.serving import Serving
from nebula.rpc.service.shared_client import SharedClient, call_middleware
from nebula.rpc.service.statistics import Statistics
from nebula.rpc.service.subscribers import HasSubscribers
from nebula.rpc.service.verb_decorators import HasVerbs
from nebula.stomp.client import StompClient
from nebula.stomp.client.link import Link
from nebula.stomp.client.tls import TlsOptions

# No dot: `<service>.<instance>` names a queue, and `job.` begins a verb.
_SERVICE_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


# Four bases: call other services, declare verbs, declare subscriptions, health. `__init__` calls their
# constructors one by one, because they take different arguments.
class Responder(TypedCalls, HasVerbs, HasSubscribers, HasHealth):
    """A service: declare verbs on it, then `run` it.

    Declaring a verb only registers it. Every valid request gets a reply: the verb's value, `success` for
    None, or `error` with a code of `nebula.rpc.errors.CODES` (or the verb's own, see `VerbError`).
    `async def` handlers run on the event loop, plain ones in worker threads. `ping`, `describe` and `stats`
    are built in.

    Args:
        name: letters, digits, `-`, `_`. Callers ask for the service by it.
        version: of the service, any text; `describe` and discovery report it.
        client_id: names the session of its durable subscriptions, see `on`: for one process at a time.
        queues: where requests are taken from, `/queue/<name>` by default; names or destinations. The first
            is the service's address. Each has workers and threads of its own, so that slow requests on one
            do not hold up quick ones on another.
        concurrency: requests handled at once, per queue; twice as many are fetched from the broker.
        ack: `late`: ACK after the reply was written, so that a crash brings the request again (at least
            once). `early`: before the handler runs (at most once).
        max_waiting: requests that may wait for a worker, per queue, and for their turn, per verb of limited
            `concurrency`; the next ones get the reply `busy` at once. Requests that want no reply wait
            nevertheless. By default there is no such limit: requests that the service does not fetch wait at
            the broker, until their time is over.
        max_attempts: deliveries after which a request gets `too-many-attempts` and is not run again. Needs a
            broker that reports the number, such as Nebula's.
        retry: how often, and after which delays, functions declared with `on` are called for a message of a
            queue, unless they have a `retry` of their own. By default `Retry(attempts=max_attempts)`.
        max_reply_bytes: a longer reply is replaced by the error `result-too-large`, because a broker ends the
            connection of a client that sends more than it accepts. Nebula's accepts 8 MiB, see
            `max_body_bytes`.
        stream_idle: seconds, more than 0, after which a handler that yields is closed if it has no credit and
            its reader sends nothing. Nebula's readers send a keepalive every 10 s.
        debug: `internal` errors show the exception to the caller.
        idempotency: remembers the replies to requests with a key (`neb-idempotency-key`), so that a second
            one gets the reply of the first; see `nebula.rpc.idempotency`. By default in this process's
            memory, which other instances do not know.
        idempotency_window: seconds that such a reply is remembered.
        lifespan: returns an async context manager; takes the service or nothing. What it yields is
            `Request.state`, and `state` of jobs that run in the service. It is entered before the first
            connection and left after the last reply; a lost connection leaves it open. An exception in it
            ends the service.
        middleware: around each request for an existing verb, the first one outermost, see `Middleware`.
        spark: the engine that jobs run in, or several by name; `default` is that of a job that names none.
        state: where jobs are kept, for all services of this machine; see `StateFolder`. By default in the
            folder `NEBULA_STATE`, or in the user's state folder (`~/.local/state/nebula`), where projects
            with services of the same name have separate folders. The service logs the folder at its start. In
            `TestClient`, `nebula_serve` and `embedded` the default is a temporary folder, which is removed
            with the block, and `NEBULA_STATE` and `NEBULA_JOBS` are ignored.
        jobs: `postgresql://…`, a database in which the instances of the service share one queue of jobs, by
            default that of `NEBULA_JOBS`, if it is set; otherwise each instance has a queue of its own, in
            `state`.
        job_limits: how many jobs may wait, how long ended ones are remembered, and similar limits; see
            `JobLimits`.

    Raises:
        TypeError: a lifespan that cannot be opened.
        ValueError: an argument that cannot be used.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "",
        client_id: str | None = None,
        queues: Sequence[str] | None = None,
        concurrency: int = 64,
        max_waiting: int | None = None,
        ack: Literal["late", "early"] = "late",
        max_attempts: int = 3,
        retry: Retry | None = None,
        max_reply_bytes: int = 8 * 1024 * 1024,
        stream_idle: float = 30.0,
        debug: bool = False,
        idempotency: IdempotencyStore | None = None,
        idempotency_window: float = 600.0,
        lifespan: Callable[[], AbstractAsyncContextManager[Any]]
        | Callable[[Responder], AbstractAsyncContextManager[Any]]
        | None = None,
        middleware: Sequence[Middleware] = (),
        spark: Engine | Mapping[str, Engine] | None = None,
        state: Path | None = None,
        jobs: str | None = None,
        job_limits: JobLimits | None = None,
    ) -> None:
        _require_usable(name, queues, concurrency, ack, max_waiting, max_attempts, max_reply_bytes)
        if not (idempotency_window > 0 and stream_idle > 0):
            raise ValueError(f"service {name!r}: idempotency_window and stream_idle are above 0")
        self.version = version
        around = Surroundings(name)
        own_queues = tuple(queue_named(one) for one in queues or [name])
        HasHealth.__init__(self)
        HasSubscribers.__init__(self, name, own_queues, client_id)
        engines = engines_of(name, spark)
        HasVerbs.__init__(
            self, name, own_queues, DeclaredJobs(around, engines, state, middleware, job_limits, jobs)
        )
        store = MemoryStore() if idempotency is None else idempotency
        self._declared = declared = ServiceDeclaration(
            name=name,
            version=version,
            destinations=own_queues,
            concurrency=concurrency,
            rules=RequestRules(
                max_attempts, ack == "early", debug, max_reply_bytes, max_waiting, stream_idle, retry
            ),
            replays=Replays(name, store, idempotency_window, max_bytes=max_reply_bytes),
            around=around,
            lifespan=None if lifespan is None else opened_by(lifespan, self),
            middleware=tuple(middleware),
            verbs=self._registry,
            subscribers=self._subscribers,
        )
        self._serving: Serving | None = None
        # By `add`, because `declare` refuses reserved names.
        for one in BuiltinVerbs(declared, self._running, self._failing).verbs():
            self._registry.add(one)

    # --- calling others ---

    async def client(self) -> Client:
        """The client that handlers call other services with:

            @app.verb
            async def place(item: str, *, client: Client = Depends(app.client)) -> None:
                await client.call(reserve, item)

        All handlers and jobs of the process share it and its one connection, to the service's own broker and
        as its principal. It is opened on first use, reconnects, and is closed after the last reply; the
        `lifespan` can use it, too. A call ends no later than the request whose handler makes it, and belongs
        to its trace; the called service sees the sender of that request as `Request.on_behalf_of`.

        Raises:
            LocalProtocolError: the service does not run in this process: create a `Client` instead.
            ConnectionLost: there was no first connection in time.
        """
        if self._serving is None:
            raise LocalProtocolError(
                f"service {self.name!r} does not run here, and its client is for its handlers: "
                "elsewhere use `async with Client() as client`"
            )
        return await self._serving.client_of_handlers.get()

    async def _called(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        client = await self.client()
        return await client.call(target, *args, **kwargs)

    # --- how it does ---

    def _running(self) -> Serving:
        assert self._serving is not None
        return self._serving

    def _connection(self) -> StompClient | None:
        return None if self._serving is None else self._serving.client

    @property
    def is_serving(self) -> bool:
        """Whether requests are taken now."""
        return self._serving is not None and self._serving.is_taking

    async def not_ready(self) -> list[str]:
        """The engines that could run no job when they last tried, and the `ready` hooks that say no."""
        return [*self._jobs.failing_engines(), *await super().not_ready()]

    async def _failing(self) -> list[str]:
        return [*await self.not_live(), *await self.not_ready()]

    def statistics(self) -> Statistics | None:
        """Statistics of its verbs since the start, as `stats` returns them; None before the first run."""
        return None if self._serving is None else self._serving.statistics()

    def job_statistics(self) -> JobStatistics | None:
        """Statistics of its jobs since the start, and of its engines; None without jobs."""
        return None if self._serving is None else self._jobs.statistics()

    # --- serving ---

    async def run(
        self,
        url: str | Sequence[str] | None = None,
        *,
        started: anyio.Event | None = None,
        grace: float = 5.0,
        tls: TlsOptions | None = None,
        wait: bool = False,
        reconnect: bool | None = None,
        link: Callable[[], Awaitable[Link]] | None = None,
        exclusive: bool = False,
    ) -> None:
        """Serve until cancelled.

        When cancelled, no further request is begun or fetched, and those under way have `grace` seconds to
        get a reply. Requests that were received but not begun go to another instance at once, and those
        without a reply at the end. Other brokers give nothing to another instance before the end: there,
        requests that were not begun get the reply `busy`.

        When the connection ends the service connects again, for ever, to the addresses in turn and with
        jittered delays that grow to 5 s, and listens again. Jobs and handlers go on meanwhile. A request that
        was being handled gets no reply any more; it is delivered again, to this instance or another.

        Args:
            url: the broker's address, see `StompClient`; or those of several brokers that share their queues.
            started: set when every queue is being listened to for the first time.
            grace: seconds.
            tls: for `stomps://` and `wss://`: trusted CAs and the service's own certificate; None reads the
                environment, see `TlsOptions`.
            wait: for the first connection, too, without limit; otherwise each address is tried once.
            reconnect: False ends the service with the connection. This is the default for a `link`, whose
                owner has to deal with its end.
            link: opens the byte stream, instead of a connection to the address.
            exclusive: do not start if an instance of the service has another contract: verbs, parameters or
                results. Instances with the same contract may run. The broker shows instances only to
                principals that may call the service. Without `exclusive`, a warning is logged.

        Raises:
            OtherContract: an instance has another contract, with `exclusive`.
            ConnectFailed: there is no broker at first, or it refuses.
            ConnectionLost, ServerError: the connection ended, and it does not reconnect.
            Refused: the broker does not let the service listen to its queues, or does not answer, at first.
            SettingsError: the address or the TLS options cannot be used, or its jobs cannot be kept in the
                folder that `state` or `NEBULA_STATE` names, or in the database of `jobs` or `NEBULA_JOBS`.
        """

        def make(url: str | None) -> StompClient:
            return StompClient(url, client_id=self._client_id, tls=tls, link=link)

        reconnects = link is None if reconnect is None else reconnect
        connect = partial(Connections, make, urls_of(url), waits=wait, reconnects=reconnects)
        # Outside `Serving`, so that the folder is locked until the last job has ended, and an error about it
        # is raised before anything connects.
        with self._jobs.opened() as jobs:
            self._serving = Serving(
                self._declared,
                jobs=jobs,
                client=SharedClient(partial(self._make_client, url, tls, link, reconnects=reconnects)),
                grace=grace,
                is_exclusive=exclusive,
            )
            await self._serving.run(connect, started)

    def _make_client(
        self,
        url: str | Sequence[str] | None,
        tls: TlsOptions | None,
        link: Callable[[], Awaitable[Link]] | None,
        *,
        reconnects: bool,
    ) -> Client:
        around = call_middleware(self._declared.middleware)
        # `wait=True`: a handler's call has a deadline, and may wait for the broker until then.
        return Client(url, tls=tls, link=link, wait=True, reconnect=reconnects, middleware=around)


def _require_usable(
    name: str,
    queues: Sequence[str] | None,
    concurrency: int,
    ack: str,
    max_waiting: int | None,
    max_attempts: int,
    max_reply_bytes: int,
) -> None:
    if not _SERVICE_NAME.fullmatch(name):
        raise ValueError(f"service {name!r}: a name has letters, digits, - and _, and no dot")
    if concurrency < 1 or max_attempts < 1:
        raise ValueError(f"service {name!r}: concurrency and max_attempts are 1 or more")
    if (max_waiting or 0) < 0 or max_reply_bytes < 1:
        raise ValueError(f"service {name!r}: max_waiting is 0 or more, max_reply_bytes 1 or more")
    if ack not in ("late", "early"):
        raise ValueError(f"service {name!r}: ack is 'late' or 'early', not {ack!r}")
    if queues is not None and not queues:
        raise ValueError(f"service {name!r}: queues=[] would get no requests")
