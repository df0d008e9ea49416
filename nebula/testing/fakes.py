"""Remote verbs as a test wants them: what they answer, and whether they were asked as their contract says."""

from __future__ import annotations

import inspect
import itertools
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, overload

from pydantic import ValidationError
from pydantic_core import from_json

from nebula.rpc.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.resolving import destination_of, resolve
from nebula.rpc.responder import Responder
from nebula.rpc.signature import Arguments, Signature
from nebula.rpc.verbs import Target, Verb, VerbOptions

Outcome = Exception | type[Exception]

_NOT_GIVEN: Final = object()


@dataclass(frozen=True, slots=True)
class FakeCall:
    """One call that a fake has got. Two are equal whose parameters are.

    Attributes:
        parameters: as they were sent, None for none; of a fake of a function its arguments by name, as the
            function would have got them.
        request: with headers, principal and deadline.
    """

    parameters: Any
    request: Request | None = field(default=None, compare=False, repr=False)


class Fake:
    """A verb that answers what the test says. `fake` makes it, `serving` and `TestClient` run it.

    Attributes:
        service: whose verb it is.
        verb: its name.
        calls: what it was asked, in the order in which the calls came.
    """

    def __init__(
        self, target: Target, function: Callable[..., Any] | None, answer: Callable[[Any], Any]
    ) -> None:
        self.service = target.service
        self.verb = target.verb
        self.calls: list[FakeCall] = []
        self._options = target.options
        self._function = function
        self._answer = answer

    def __repr__(self) -> str:
        return f"fake({self.service!r}, {self.verb!r})"

    async def take(self, parameters: Any, request: Request) -> Any:
        """Answer a call: what runs a fake calls it."""
        self.calls.append(FakeCall(parameters, request))
        result = self._answer(parameters)
        return await result if inspect.isawaitable(result) else result

    def endpoint(self) -> Verb:
        """What a responder declares for it."""
        # Who may call and where it is announced is the real service's business.
        options = replace(self._options, name=self.verb, allow=None, queue=None, concurrency=None)
        return _FakeVerb(options, self._function, self.take)


@overload
def fake(
    service: str,
    verb: str,
    /,
    *,
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
    service: str | None = None,
    returns: Any = _NOT_GIVEN,
    raises: Outcome | None = None,
    side_effect: Callable[..., Any] | Iterable[Any] | None = None,
) -> Fake:
    """Stand in for a remote verb: `fake("prices", "quote", returns="9.99")`, or `fake(quote, returns=…)`.

    By name it takes any parameters. By function it keeps the function's contract: wrong arguments are
    answered `bad-parameters`, as the service itself would, and a value that the function could not return
    is refused here and now. Without an outcome it answers `success`, None.

    The fake of a function that yields is a stream: its value is an iterable of the items, async or not.

    Args:
        target: the name of a service, or a function that a service declared.
        verb: its name, after that of a service.
        service: for functions with the bare `@verb` mark, which do not know theirs.
        returns: the value of each answer.
        raises: what each call fails with: a `VerbError` is the answer, all else is `internal`.
        side_effect: called for each call, with the arguments by name, or by name of service and verb with
            the parameters alone; `async` or not. Or what the calls get one after the other: values, and
            exceptions to raise.

    Raises:
        TypeError: more than one outcome, a value that is not of the function's type, or no service.
    """
    outcomes = (returns is not _NOT_GIVEN, raises is not None, side_effect is not None)
    if sum(outcomes) > 1:
        raise TypeError("a fake has one outcome: returns, raises or side_effect")
    function = None if isinstance(target, str) else target
    known, value = (
        _of_name(target, verb, returns) if isinstance(target, str) else _of(target, service, returns)
    )
    if callable(side_effect):
        return Fake(known, function, _by_calling(side_effect, by_name=function is not None))
    if side_effect is not None:
        return Fake(known, function, _by_outcomes(iter(side_effect), known))
    return Fake(known, function, _by_outcomes(itertools.repeat(value if raises is None else raises), known))


def _of_name(service: str, verb: str | None, returns: Any) -> tuple[Target, Any]:
    """Whose verb it is, and what it returns."""
    if verb is None:
        raise TypeError(f"fake({service!r}): name the verb too, or give the function")
    return Target(service, destination_of(service), verb), None if returns is _NOT_GIVEN else returns


def _of(function: Callable[..., Any], service: str | None, returns: Any) -> tuple[Target, Any]:
    """Whose verb a function is, and what it returns, which is of its type."""
    known, contract = resolve(function, service, as_job=False)
    if returns is _NOT_GIVEN:
        return known, [] if contract.streams else None
    value = [*returns] if contract.streams else returns
    _check_value(contract, value, f"fake of {known.service}.{known.verb}")
    return known, value


def faked_services(fakes: Sequence[Fake]) -> list[Responder]:
    """One responder for each service that has fakes: on two, a call might come to the wrong one."""
    by_service: dict[str, list[Fake]] = defaultdict(list)
    for each in fakes:
        by_service[each.service].append(each)
    return [_responder(service, members) for service, members in by_service.items()]


def _responder(service: str, fakes: Iterable[Fake]) -> Responder:
    app = Responder(service)
    for each in fakes:
        app._registry.declare(each.endpoint())
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
        super().__init__(function or _anything, options)
        self.is_async = True
        self.plan = None
        self._take = take
        self._by_name = function is not None
        if function is None:
            self.signature = _AnyParameters(_anything, context=(Request,))

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


def _anything(parameters: Any = None) -> Any:
    """Takes whatever it is given: a fake."""


class _AnyParameters(Signature):
    """No contract: what comes is the one argument, whatever its shape."""

    def bind(self, parameters: Any, *, is_text: bool = False) -> Arguments:  # noqa: ARG002
        return (parameters,), {}


def _check_value(contract: Signature, value: Any, where: str) -> None:
    if isinstance(value, Exception):
        raise TypeError(f"{where}: an exception is raised, not returned: give it as raises")
    try:
        contract.load(from_json(contract.dump(value)))
    except (ValidationError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise TypeError(f"{where}: the function could not return {value!r}: {first}") from None


def _by_calling(function: Callable[..., Any], *, by_name: bool) -> Callable[[Any], Any]:
    return lambda parameters: function(**parameters) if by_name else function(parameters)


def _by_outcomes(outcomes: Iterator[Any], target: Target) -> Callable[[Any], Any]:
    def answer(_: Any) -> Any:
        for outcome in outcomes:
            if isinstance(outcome, Exception) or (
                isinstance(outcome, type) and issubclass(outcome, Exception)
            ):
                raise outcome
            return outcome
        raise VerbError("no-outcome", f"the fake of {target.service}.{target.verb} has no outcome left")

    return answer
