"""Lifespan of a service: state that it has for as long as it runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.hints import name_of, parameters_of
from nebula.rpc.contract.job_context import Job

__all__ = ["lifespan_state", "opened_by"]

_BY_POSITION: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_MANY: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


async def lifespan_state(context: Request[Any] | Job) -> Any:
    """A provider of what `lifespan` yielded: `pools: Pools = Depends(lifespan_state)`.

    For verbs, and for jobs that run in the service.

    Args:
        context: the request or the job.
    """
    return context.state


def opened_by(lifespan: Any, app: object) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """The lifespan as a function of the service, which is passed on if the lifespan takes it, as in FastAPI.

    Args:
        lifespan: as it was given.
        app: the service.

    Raises:
        TypeError: it returns no async context manager, or takes more; the message says what to write.
    """
    # A manager can be entered only once, and the service may run several times.
    if isinstance(lifespan, AbstractAsyncContextManager) or not callable(lifespan):
        raise TypeError(f"lifespan {lifespan!r} is not a function; pass it uncalled")
    _require_async_context(lifespan)
    # Only parameters without a default need an argument.
    needed = [one for one in _parameters_of(lifespan) if one.default is one.empty and one.kind not in _MANY]
    if not needed:
        opened: Callable[[], AbstractAsyncContextManager[Any]] = lifespan
        return opened
    if len(needed) > 1 or needed[0].kind not in _BY_POSITION:
        names = ", ".join(one.name for one in needed)
        raise TypeError(
            f"lifespan {name_of(lifespan)} takes ({names}); it may take the service, and nothing else"
        )
    return partial(lifespan, app)


def _require_async_context(lifespan: Callable[..., Any]) -> None:
    """Raise TypeError for a function that is known to make no async context manager."""
    # Unwrapped, to find a plain generator under `@asynccontextmanager`: that would fail only when it is
    # entered, with an error that does not say why.
    inner = inspect.unwrap(lifespan)
    is_bare = inner is lifespan and (inspect.isasyncgenfunction(inner) or inspect.iscoroutinefunction(inner))
    if is_bare or inspect.isgeneratorfunction(inner):
        raise TypeError(
            f"lifespan {name_of(lifespan)} does not return an async context manager; write it as `async def` "
            "with one `yield`, and @asynccontextmanager above it"
        )


def _parameters_of(lifespan: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return parameters_of(lifespan)
    except ValueError:  # written in C
        return []
