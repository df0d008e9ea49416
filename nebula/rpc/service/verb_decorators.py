"""Declaration of verbs and jobs: the decorators of a `Responder`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar, overload

from nebula.rpc.contract.verbs import (
    Endpoint,
    Target,
    Verb,
    VerbOptions,
    VerbRegistry,
    kinds_of,
    marked_members,
    named_by,
    set_target,
)
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.service.builtin_verbs import announced_at
from nebula.rpc.service.declared_jobs import DEFAULT_ENGINE, DeclaredJobs

__all__ = ["HasVerbs"]

_F = TypeVar("_F", bound=Callable[..., Any])


class HasVerbs:
    """The part of a `Responder` that declares verbs and jobs.

    Args:
        name: of the service.
        destinations: its request queues.
        jobs: gets the jobs.
    """

    def __init__(self, name: str, destinations: Sequence[str], jobs: DeclaredJobs) -> None:
        self._service, self._queues, self._jobs = name, destinations, jobs
        self._registry = VerbRegistry()

    @property
    def verb_names(self) -> list[str]:
        """The names of all verbs that are declared so far, sorted; `ping` and the other built-in ones too."""
        return sorted(one.name for one in self._registry)

    # docs/decisions/0051: users of FastAPI write the name first.
    @overload
    def verb(self, function: _F, /) -> _F: ...
    @overload
    def verb(
        self,
        name: str | None = None,
        *,
        response: str | None = None,
        allow: Iterable[str] | None = None,
        queue: str | None = None,
        errors: Iterable[type[VerbError]] = (),
        idempotent: bool = False,
        concurrency: int | None = None,
        validate_results: bool = True,
    ) -> Callable[[_F], _F]: ...
    def verb(
        self,
        name: Any = None,
        *,
        response: str | None = None,
        allow: Iterable[str] | None = None,
        queue: str | None = None,
        errors: Iterable[type[VerbError]] = (),
        idempotent: bool = False,
        concurrency: int | None = None,
        validate_results: bool = True,
    ) -> Any:
        """Declare a function as a verb, with or without parentheses.

        The function itself is returned, marked with this service, so that `client.call(function, …)` knows
        which service to ask. Its signature is the contract; a parameter of type `Request` gets the request.

        Args:
            name: the verb, by default the function's name. Without parentheses: the function itself.
            response: the verb of its value replies, by default `<name>response`.
            allow: the principals that may call it, by default all. Only Nebula's broker vouches for
                principals: with other brokers, a list admits no caller.
            queue: the one of the service's queues to which callers send requests for it, by default the
                first.
            errors: classes of errors that it may raise, see `VerbError`. `describe` lists them, and callers
                of the function can catch these classes. Others may be raised all the same.
            idempotent: calling twice has the same effect as calling once, so callers with a retry policy call
                again. This is only a declaration; the handler has to fulfil it.
            concurrency: how many requests for it are handled at once; the others wait, and hold no worker
                meanwhile. By default as many as the service handles. Of all such verbs together, 256 requests
                may wait (more with `max_waiting`), and the next ones get the reply `busy`, because requests
                that wait here keep the broker from sending others. A queue of its own (`queue`) separates a
                verb completely.
            validate_results: reply `bad-result` if the handler returns what its annotation does not allow, or
                what JSON cannot represent (NaN). If False, such a result is sent by its own type, NaN as
                `null`: for large results whose type is certain, and annotations that are not quite correct.

        Raises:
            TypeError: the function cannot be a verb; the message says what to write instead.
            ValueError: the name is reserved or taken, the queue is not one of the service's, an error's code
                cannot be used, or concurrency is below 1.
        """
        function, named = named_by(name, "@app.verb")
        options = VerbOptions(
            named,
            response,
            None if allow is None else frozenset(allow),
            queue,
            kinds_of(errors),
            idempotent,
            concurrency,
            validate_results,
        )

        def declare(function: _F) -> _F:
            self._declare(function, options)
            return function

        return declare if function is None else declare(function)

    @overload
    def job(self, function: _F, /) -> _F: ...
    @overload
    def job(
        self,
        name: str | None = None,
        *,
        engine: str | None = DEFAULT_ENGINE,
        timeout: float | None = 3600.0,
        check: Callable[..., Any] | None = None,
        on_lost: Literal["fail", "rerun"] = "fail",
        retry_on: Sequence[str] = (),
        retry_delay: float = 5.0,
        retries: int = 1,
        exclusive: Callable[..., str | None] | str | None = None,
        max_running: int | None = None,
        expires: float | None = None,
        isolation: Literal["shared", "process"] = "shared",
        validate_results: bool = True,
        allow: Iterable[str] | None = None,
    ) -> Callable[[_F], _F]: ...
    def job(
        self,
        name: Any = None,
        *,
        engine: str | None = DEFAULT_ENGINE,
        allow: Iterable[str] | None = None,
        **options: Any,
    ) -> Any:
        """Declare a function as a job: its caller gets `success` once the job is recorded, and the job runs
        after that.

        The function itself is returned, marked with this service, so that `client.start(function, …)` knows
        which service to ask. Its signature is the contract; a parameter of type `Job` gets the context.

        Args:
            name: the verb, by default the function's name. Without parentheses: the function itself.
            engine: what runs it, by its name in the responder's `spark`; None: the service itself.
            allow: the principals that may start it, by default all.
            **options: timeout, check, on_lost, retry_on, retry_delay, retries, exclusive, max_running,
                expires, isolation, validate_results: see `JobVerb`.

        Raises:
            TypeError: the function cannot be a job.
            ValueError: the name is reserved or taken, an option cannot be used, or there is no such engine.
        """

        function, named = named_by(name, "@app.job")

        def declare(function: _F) -> _F:
            job = JobVerb(named or function.__name__, function, engine=engine, **options)
            # The endpoint among the verbs accepts the job; the `JobVerb` among the jobs runs it.
            self._registry.declare(self._jobs.declare(job, None if allow is None else frozenset(allow)))
            set_target(function, Target(self._service, self._queues[0], job.name, is_job=True))
            return function

        return declare if function is None else declare(function)

    def add(self, entry: Endpoint | JobVerb) -> None:
        """Add a finished declaration, as `verb`, `job` and `include` make from functions. Raises as they
        do."""
        self._registry.declare(self._jobs.declare(entry, None) if isinstance(entry, JobVerb) else entry)

    def include(self, holder: object) -> None:
        """Declare every function or method of a module or object with the bare `@verb` mark.

        Such functions may be included by several services; callers use `client.service(name).call(…)`.

        Raises:
            ValueError: nothing in it is marked; or as for `verb`.
            TypeError: as for `verb`.
        """
        members = list(marked_members(holder))
        # Probably a forgotten mark, or the wrong module.
        if not members:
            raise ValueError(f"{holder!r} has no function marked with @verb")
        for function in members:
            self._registry.declare(Verb(function))

    def _declare(self, function: Callable[..., Any], options: VerbOptions) -> None:
        one = Verb(function, options)
        # Before the verb is registered: an error must not leave half a declaration behind.
        destination = announced_at(one, self._queues)
        self._registry.declare(one)
        # Set on the function itself, so that `client.call(quote, …)` needs no name, and type checkers see the
        # function's signature.
        set_target(function, Target(self._service, destination, one.name, options=options))
