"""`Depends`: declared dependencies of a handler, and the order in which their providers are called."""

# Providers form a graph: a provider may depend on others. `Plan` sorts it once, when the handler is
# declared, in the order in which the search leaves a node (depth first), so each provider comes after those
# that it needs. Each runs once for a request, even if several parameters need it, and generators are closed
# in the reverse order.

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeVar, get_args, overload

from nebula.rpc.contract.hints import hints_of, is_any_of, name_of, parameters_of

__all__ = ["Dependency", "Depends", "Plan", "ProviderKind", "Step", "dependency_of"]

T = TypeVar("T")

_UNNAMED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Dependency:
    """The result of `Depends`: the default of a parameter, or part of its annotation."""

    provider: Callable[..., Any]


def dependency_of(parameter: inspect.Parameter, hint: Any, where: str) -> Dependency | None:
    """The dependency in a parameter's default or annotation, `Annotated[Db, Depends(get_db)]`, or None.

    Args:
        parameter: of a handler or provider.
        hint: its type, resolved.
        where: what to call the function in an error's text.

    Raises:
        TypeError: it has `Depends` twice.
    """
    # Both forms of FastAPI: `db: Db = Depends(get_db)` and `db: Annotated[Db, Depends(get_db)]`.
    found = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Dependency)]
    if isinstance(parameter.default, Dependency):
        found.append(parameter.default)
    if len(found) > 1:
        raise TypeError(f"{where}: {parameter.name} has Depends twice; keep one")
    return found[0] if found else None


@overload
def Depends(provider: Callable[..., AsyncIterator[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., Iterator[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., Awaitable[T]], /) -> T: ...
@overload
def Depends(provider: Callable[..., T], /) -> T: ...
def Depends(provider: Callable[..., Any], /) -> Any:  # noqa: N802 - as it is called wherever there is one
    """Let a provider make the value of a handler's parameter, for each request:

        @app.verb
        async def quote(symbol: str, *, db: Db = Depends(get_db)) -> Decimal: ...

    It may be in the annotation instead, `db: Annotated[Db, Depends(get_db)]`; type checkers then require the
    parameter from callers that pass the function, because it has no default. Such a parameter is not part of
    the verb's contract: callers do not see it and cannot pass it. If it is keyword-only, type checkers know
    that too. A provider runs once per request, even if several parameters use it. Its exceptions are handled
    as if the handler had raised them.

    Args:
        provider: a function, `async def` (on the event loop) or plain (in a worker thread, as handlers are);
            or a class. A generator yields one value, and the code after the `yield` runs when the reply has
            been sent; if the handler failed, or no caller waits any more, the error is raised at the `yield`.
            Errors that the generator itself raises then are logged. Parameters of a provider may be the
            `Request` (in jobs: the `Job`), and `Depends(…)` of other providers; all others need a default.
    """
    return Dependency(provider)


class ProviderKind(Enum):
    """What calling a provider gives."""

    VALUE = auto()
    COROUTINE = auto()
    GENERATOR = auto()
    ASYNC_GENERATOR = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """One provider of a plan.

    Attributes:
        provider: what is called.
        kind: what the call gives.
        context_names: the parameters that take the `Request` or `Job`.
        needs: the parameters that take the result of an earlier step, each with the number of that step.
    """

    provider: Callable[..., Any]
    kind: ProviderKind
    context_names: tuple[str, ...]
    needs: tuple[tuple[str, int], ...]


class Plan:
    """The providers of one handler, each once, in the order in which they are called.

    Worked out when the handler is declared, so that a request pays for the providers alone.

    Args:
        wanted: by the handler's parameters.
        context: the classes of what a request is for its providers.
        where: what to call the handler in an error's text.

    Raises:
        TypeError: a provider has a parameter without a value, cannot be called, or needs itself; the text
            says what to do.
    """

    def __init__(self, wanted: Mapping[str, Dependency], context: tuple[type, ...], where: str) -> None:
        self._context = context
        self._known: dict[Callable[..., Any], int] = {}
        # Those whose needs are being added, the outermost first.
        self._begun: list[Callable[..., Any]] = []
        self.steps: list[Step] = []
        self.names = [(name, self._add(one.provider, f"{where}: {name}")) for name, one in wanted.items()]

    def _add(self, provider: Callable[..., Any], where: str) -> int:
        if not callable(provider):
            raise TypeError(f"{where}: Depends({provider!r}) names nothing that can be called")
        if provider in self._known:
            return self._known[provider]
        if provider in self._begun:
            circle = [*self._begun[self._begun.index(provider) :], provider]
            raise TypeError(
                f"{where}: {' needs '.join(map(name_of, circle))}; make one of them without the other"
            )
        self._begun.append(provider)
        where = f"{where}, made by {name_of(provider)}"
        hints = hints_of(_annotated(provider), where, returns=True)
        names: list[str] = []
        needs: list[tuple[str, int]] = []
        for one in _parameters_of(provider):
            if one.kind is one.POSITIONAL_ONLY and one.default is one.empty:
                raise TypeError(f"{where}: {one.name} is positional-only, but providers are called by name")
            if (dependency := dependency_of(one, hints.get(one.name), where)) is not None:
                needs.append((one.name, self._add(dependency.provider, where)))
            elif is_any_of(hints.get(one.name), self._context):
                names.append(one.name)
            elif one.default is one.empty and one.kind not in _UNNAMED:
                kinds = " or ".join(kind.__name__ for kind in self._context)
                raise TypeError(
                    f"{where}: {one.name} gets no value; annotate it with {kinds}, "
                    "or give it a default, Depends(…) for one"
                )
        kind = _kind_of(provider, hints.get("return"), where)
        self.steps.append(Step(provider, kind, tuple(names), tuple(needs)))
        self._begun.pop()
        self._known[provider] = len(self.steps) - 1
        return self._known[provider]


def _parameters_of(provider: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return parameters_of(provider)
    except ValueError:
        # Written in C, as `dict` is, and says nothing of it: it is called with nothing.
        return []


def _annotated(provider: Callable[..., Any]) -> Callable[..., Any]:
    """The function that has the annotations of a provider."""
    if isinstance(provider, partial):
        return _annotated(provider.func)
    if isinstance(provider, type):
        made: Callable[..., Any] = provider.__init__  # type: ignore[misc]  # it is a class, not an object
        return made
    if inspect.isroutine(provider):
        return provider
    called: Callable[..., Any] = type(provider).__call__
    return called


def _kind_of(provider: Callable[..., Any], result: Any, where: str) -> ProviderKind:
    function = _annotated(provider)
    if inspect.isasyncgenfunction(function):
        return ProviderKind.ASYNC_GENERATOR
    if inspect.isgeneratorfunction(function):
        return ProviderKind.GENERATOR
    if inspect.iscoroutinefunction(function):
        return ProviderKind.COROUTINE
    # `Depends` would say to type checkers that its parameter is one of the items.
    origin = getattr(result, "__origin__", None)
    if isinstance(origin, type) and issubclass(origin, AsyncIterator | Iterator) and get_args(result):
        raise TypeError(f"{where}: it returns an iterator: write it as a generator, with one `yield`")
    return ProviderKind.VALUE
