"""Fakes of remote verbs: replies that a test chooses, and checks of requests against the contract."""

from __future__ import annotations

import inspect
import itertools
import re
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, overload

from pydantic import ValidationError
from pydantic_core import from_json

from nebula.destinations import queue_named
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.results import BadResult
from nebula.rpc.contract.signature import Arguments, Signature
from nebula.rpc.contract.typed_calls import resolve
from nebula.rpc.contract.verbs import Target, Verb, VerbOptions, target_of
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.service.responder import Responder
from nebula.testing.fake_jobs import AnyParameters, anything, fake_job

Outcome = Exception | type[Exception]

_NOT_GIVEN: Final = object()

_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One call that a fake received. Two are equal if their parameters are.

    Attributes:
        parameters: as they were sent, None for none; for a fake of a function, the arguments by name, as the
            function would have received them.
        request: with headers, principal and deadline; None for a job.
    """

    parameters: Any
    request: Request | None = field(default=None, compare=False, repr=False)


class Fake:
    """A verb or job that replies as the test says. `fake` makes it, `serving` and `TestClient` run it.

    Attributes:
        service: whose verb it is.
        verb: its name.
        calls: the calls that it received, in order.
        is_job: it is started, and not called.
    """

    def __init__(
        self, target: Target, function: Callable[..., Any] | None, answer: Callable[[Any], Any]
    ) -> None:
        self.service = target.service
        self.verb = target.verb
        self.calls: list[FakeCall] = []
        self.is_job = target.is_job
        self._options = target.options
        # Only for its contract: the function is never called.
        self._function = function
        self._answer = answer

    def __repr__(self) -> str:
        return f"fake({self.service!r}, {self.verb!r})"

    async def take(self, parameters: Any, request: Request) -> Any:
        """Reply to a call. Called by what runs the fake."""
        # Noted before the outcome, because a call that fails or never ends counts too.
        self.calls.append(FakeCall(parameters, request))
        return await self._outcome(parameters)

    def _note(self, parameters: Any) -> None:
        self.calls.append(FakeCall(parameters))

    async def _outcome(self, parameters: Any) -> Any:
        result = self._answer(parameters)
        # The result decides and not the function: a lambda may return a coroutine.
        return await result if inspect.isawaitable(result) else result

    def endpoint(self) -> Verb | JobVerb:
        """What a responder declares for it."""
        if self.is_job:
            return fake_job(self.verb, self._function, self._note, self._outcome)
        # Who may call and where it is announced is the real service's business.
        options = replace(self._options, name=self.verb, allow=None, queue=None, concurrency=None)
        return _FakeVerb(options, self._function, self.take)


@overload
def fake(
    service: str,
    verb: str,
    /,
    *,
    job: bool = False,
    returns: Any = ...,
    raises: Outcome | None = None,
    side_effect: Callable[..., Any] | Iterable[Any] | None = None,
) -> Fake: ...
@overload
def fake(
    function: Callable[..., Any],
    /,
    *,
    service: str | None = None,
    returns: Any = ...,
    raises: Outcome | None = None,
    side_effect: Callable[..., Any] | Iterable[Any] | None = None,
) -> Fake: ...
def fake(
    target: str | Callable[..., Any],
    verb: str | None = None,
    /,
    *,
    job: bool = False,
    service: str | None = None,
    returns: Any = _NOT_GIVEN,
    raises: Outcome | None = None,
    side_effect: Callable[..., Any] | Iterable[Any] | None = None,
) -> Fake:
    """Stand in for a remote verb: `fake("prices", "quote", returns="9.99")`, or `fake(quote, returns=…)`.

    By name it takes any parameters. By function it keeps the function's contract: wrong arguments get the
    reply `bad-parameters`, as from the service itself, and a value that the function could not return is
    refused at once. Without an outcome it replies `success`, None.

    The fake of a function that yields is a stream: its value is an iterable of the items, async or not. The
    fake of a job is a job: it is accepted, and then done with the value, or failed with the error.

    Args:
        target: the name of a service or the destination of its queue, or a function that a service declared.
        verb: its name, after that of a service.
        job: the verb that is named is one of a job.
        service: for functions with the bare `@verb` mark, which do not know theirs.
        returns: the value of each reply.
        raises: the exception of each call, treated like one of a handler: a `VerbError` is the reply, the
            failure of a call is one of `upstream-…`, all else is `internal`.
        side_effect: a function, `async` or not, that is called for each call: with the arguments by name if a
            function is faked, otherwise with the parameters. Or the outcomes of the calls, one after the
            other: values, and exceptions to raise.

    Raises:
        TypeError: more than one outcome, a value that is not of the function's type, or no service.
    """
    outcomes = (returns is not _NOT_GIVEN, raises is not None, side_effect is not None)
    if sum(outcomes) > 1:
        raise TypeError("a fake has one outcome: returns, raises or side_effect")
    function = None if isinstance(target, str) else target
    known, value = (
        _of_name(target, verb, returns, is_job=job)
        if isinstance(target, str)
        else _of(target, service, returns)
    )
    if callable(side_effect):
        return Fake(known, function, _by_calling(side_effect, by_name=function is not None))
    if side_effect is not None:
        return Fake(known, function, _by_outcomes(iter(side_effect), known))
    # The same outcome for every call.
    return Fake(known, function, _by_outcomes(itertools.repeat(value if raises is None else raises), known))


def _of_name(service: str, verb: str | None, returns: Any, *, is_job: bool) -> tuple[Target, Any]:
    """Whose verb it is, and what it returns."""
    if verb is None:
        raise TypeError(f"fake({service!r}): name the verb too, or give the function")
    target = Target(service, queue_named(service), verb, is_job)
    return target, None if returns is _NOT_GIVEN else returns


def _of(function: Callable[..., Any], service: str | None, returns: Any) -> tuple[Target, Any]:
    """Whose verb a function is, and what it returns, which is of its type."""
    declared = target_of(function)
    is_job = declared is not None and declared.is_job
    # As `Client.call` does: a function that it cannot call cannot be faked.
    known, contract = resolve(function, service, as_job=is_job)
    known = replace(known, is_job=is_job)
    # Success without a value, as of a handler without a `return`. It is not checked against the contract.
    if returns is _NOT_GIVEN:
        return known, [] if contract.streams else None
    value = [*returns] if contract.streams else returns
    _check_value(contract, value, f"fake of {known.service}.{known.verb}")
    return known, value


def faked_services(fakes: Sequence[Fake], state: Path | None = None) -> list[Responder]:
    """One responder for each queue that has fakes: on two, a call might come to the wrong one.

    Args:
        fakes: of verbs and jobs.
        state: where jobs are kept.
    """
    by_queue: dict[str, list[Fake]] = defaultdict(list)
    for each in fakes:
        by_queue[queue_named(each.service)].append(each)
    return [_responder(queue, members, state) for queue, members in by_queue.items()]


def _responder(queue: str, fakes: Iterable[Fake], state: Path | None) -> Responder:
    # A caller that names a queue by its destination need not call it as a service could be called.
    name = _NOT_IN_NAMES.sub("-", queue.removeprefix("/queue/"))
    app = Responder(name, queues=[queue], state=state)
    for each in fakes:
        app.add(each.endpoint())
    return app


class _FakeVerb(Verb):
    """Answers by a fake, under the contract of a function or none."""

    __slots__ = ("_by_name", "_take")

    def __init__(
        self,
        options: VerbOptions,
        function: Callable[..., Any] | None,
        take: Callable[[Any, Request], Any],
    ) -> None:
        super().__init__(function or anything, options)
        # `take` is a coroutine, and needs nothing from the providers of the real handler.
        self.is_async = True
        self.plan = None
        self._take = take
        self._by_name = function is not None
        if function is None:
            self.signature = AnyParameters(anything, context=(Request,))

    def invoke(self, arguments: Arguments, request: Request) -> Any:
        args, kwargs = arguments
        named = dict(zip(self.signature.names, args, strict=False)) | kwargs
        answer = self._take(named if self._by_name else named["parameters"], request)
        return _items(answer) if self.streams else answer


async def _items(answer: Awaitable[Any]) -> AsyncGenerator[Any]:
    items = await answer
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def _check_value(contract: Signature, value: Any, where: str) -> None:
    if isinstance(value, Exception):
        raise TypeError(f"{where}: an exception is raised, not returned: give it as raises")
    try:
        # There and back, as on the way to a caller: written by the service's side, read by the caller's.
        contract.load(from_json(contract.dump(value)))
    except (BadResult, ValidationError, ValueError) as error:
        first = error.problem if isinstance(error, BadResult) else str(error).partition("\n")[0]
        raise TypeError(f"{where}: the function could not return {value!r}: {first}") from None


def _by_calling(function: Callable[..., Any], *, by_name: bool) -> Callable[[Any], Any]:
    return lambda parameters: function(**parameters) if by_name else function(parameters)


def _by_outcomes(outcomes: Iterator[Any], target: Target) -> Callable[[Any], Any]:
    def reply(_: Any) -> Any:
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                # The same one each time: what was raised before would stay on it, with all its frames.
                raise outcome.with_traceback(None)
            if isinstance(outcome, type) and issubclass(outcome, Exception):
                raise outcome
            return outcome
        # A `VerbError` reaches the caller with the name of the fake; `StopIteration` would be `internal`.
        raise VerbError("no-outcome", f"the fake of {target.service}.{target.verb} has no outcome left")

    return reply
