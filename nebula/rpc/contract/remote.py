"""Declarations of remote services: their verbs, for callers that do not have the code."""

# Defaults live in the service. If a stub repeated them and sent them, a service that changed a default would
# still get the old one from each caller that was built before. So a stub's default is `OMITTED`, which is not
# sent, and a model among the parameters is a `Partial`: it sends only fields that were set.

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar, overload

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer

from nebula.destinations import queue_named
from nebula.rpc.contract.verbs import Target, VerbOptions, set_target
from nebula.rpc.errors import VerbError

__all__ = ["OMITTED", "Partial", "Remote"]

_F = TypeVar("_F", bound=Callable[..., Any])

OMITTED: Final[Any] = None
"""The default of a parameter whose default only the service knows. What is not given is not sent."""


class Remote:
    """Declares functions that stand for the verbs of a service: `client.call(quote, "ABC", qty=2)`.

    `nebula stubs` writes such declarations. A function's signature is what is sent and what comes back, as
    with the handler itself; its body is never run.

    Args:
        service: its name, or the destination of its queue.
    """

    def __init__(self, service: str) -> None:
        self.service = service.removeprefix("/queue/")
        self._destination = queue_named(service)

    @overload
    def verb(self, function: _F, /) -> _F: ...
    @overload
    def verb(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        errors: Iterable[type[VerbError]] = (),
        idempotent: bool = False,
    ) -> Callable[[_F], _F]: ...
    def verb(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        errors: Iterable[type[VerbError]] = (),
        idempotent: bool = False,
    ) -> Any:
        """Declare a verb, with or without parentheses. The function itself is returned.

        Args:
            function: given when used without parentheses.
            name: the verb, by default the function's name.
            queue: where callers send requests for it, by default the service's own queue.
            errors: classes that a call raises where the service replies with their code.
            idempotent: calling twice has the same effect as calling once, so that a call may be sent again.
        """
        options = VerbOptions(name, queue=queue, errors=tuple(errors), idempotent=idempotent)
        return self._declaring(function, options, is_job=False)

    @overload
    def job(self, function: _F, /) -> _F: ...
    @overload
    def job(self, /, *, name: str | None = None, queue: str | None = None) -> Callable[[_F], _F]: ...
    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
    ) -> Any:
        """Declare a job, for `client.start(function, …)`; as `verb`."""
        return self._declaring(function, VerbOptions(name, queue=queue), is_job=True)

    def _declaring(self, function: Callable[..., Any] | None, options: VerbOptions, *, is_job: bool) -> Any:
        destination = self._destination if options.queue is None else queue_named(options.queue)

        def declare(function: _F) -> _F:
            name = options.name or function.__name__
            # The same mark that `Responder.verb` leaves: `client.call` cannot tell a stub from the handler
            # itself.
            set_target(function, Target(self.service, destination, name, is_job=is_job, options=options))
            return function

        return declare if function is None else declare(function)


class Partial(BaseModel):
    """A model that is sent without its unset fields, as only the service knows their defaults."""

    @model_serializer(mode="wrap")
    def _without_the_unset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Not `exclude_unset`, which applies to every model among the parameters, not only to stubs.
        shown: dict[str, Any] = handler(self)
        for name, field in type(self).model_fields.items():
            # A list that was filled in place was set too. Not by `getattr`: it warns of deprecated fields.
            if name not in self.model_fields_set and vars(self)[name] == field.get_default(
                call_default_factory=True, validated_data={}
            ):
                shown.pop(name, None)
                shown.pop(field.serialization_alias or name, None)
        return shown
