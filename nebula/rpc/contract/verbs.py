"""`Verb`: a function that handles requests, its options, and the registry of verbs by name."""

# A decorator returns the function itself, not a wrapper: `await quote("ABC")` in a test is a plain call,
# without a broker. What the decorator knows is left on the function under two attributes. `TARGET` says
# where the function is served, so that `client.call(quote, ...)` needs no names; options of a
# bare `@verb` wait there until a `Responder` includes the function.
#
# Names of verbs are values in text bodies, which have one line for each field (C.5). So a name is one line
# without spaces around it; nothing else is forbidden, as services of another make have verbs, too.
#
# Reserved names belong to the verbs that every service has. They can be extended by a prefix (`job.`,
# `neb.`) without taking a name from users.

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, overload

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.hints import name_of
from nebula.rpc.contract.injection import Plan
from nebula.rpc.contract.signature import Arguments, Signature, handler_of, refuse_method, refuse_unannotated
from nebula.rpc.contract.yielding import is_stream, item_schema
from nebula.rpc.errors import CODES, VerbError, kebab_case, meaning_of
from nebula.rpc.wire.envelope import ERROR, SUCCESS

_F = TypeVar("_F", bound=Callable[..., Any])

RESERVED_NAMES: Final = frozenset({"ping", "describe", "stats", SUCCESS, ERROR})
RESERVED_PREFIXES: Final = ("job.", "engine.", "neb.")

# A verb is a value in a text body too: one line, no spaces around it.
_NAME: Final = re.compile(r"[^\s\x00-\x1f](?:[^\x00-\x1f]*[^\s\x00-\x1f])?")

# Attributes that decorators leave on the functions they return.
_OPTIONS: Final = "__nebula_verb__"
TARGET: Final = "__nebula_target__"


@dataclass(frozen=True, slots=True)
class VerbOptions:
    """What a decorator says about a verb beyond its signature.

    Attributes:
        name: the verb, by default the function's name.
        response: the verb of its value replies, by default `<name>response`.
        allow: the principals that may call it; None: all.
        queue: the one of its service's queues where it is announced, by default the first.
        errors: the errors of its own that it may raise.
        idempotent: asking twice has the effect of asking once, so that callers may ask again.
        concurrency: how many of it are handled at once, None for as many as its service handles.
        validate_results: what it returns has to be what its annotation says.

    Raises:
        TypeError: an error is none.
        ValueError: an error's code is missing, taken by the framework or given twice; or concurrency below 1.
    """

    name: str | None = None
    response: str | None = None
    allow: frozenset[str] | None = None
    queue: str | None = None
    errors: tuple[type[VerbError], ...] = ()
    idempotent: bool = False
    concurrency: int | None = None
    validate_results: bool = True

    def __post_init__(self) -> None:
        for kind in self.errors:
            _require_error(kind)
        codes = [kind.code for kind in self.errors]
        for kind in self.errors:
            # Callers decide by the code: `busy` must mean the same from every service.
            if kind.code in CODES:
                raise ValueError(f"error {kind.__name__}: {kind.code!r} means something already, see CODES")
            if codes.count(kind.code) > 1:
                raise ValueError(f"errors: two of them have the code {kind.code!r}")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError("concurrency is 1 or more, or None")


def _require_error(kind: Any) -> None:
    """Raise TypeError if this cannot be declared as an error of a verb."""
    if not isinstance(kind, type):
        raise TypeError(f"errors: {kind!r} is not a class: give the class, errors=[OutOfStock]")
    written = f'class {kind.__name__}(VerbError): code = "{kebab_case(kind.__name__)}"'
    if not issubclass(kind, VerbError):
        raise TypeError(f"errors: {kind.__name__} is not a VerbError and has no code; write `{written}`")
    if not kind.code:
        raise ValueError(f"errors: {kind.__name__} has no code; write `{written}`")


def kinds_of(errors: Iterable[type[VerbError]]) -> tuple[type[VerbError], ...]:
    """The declared errors of a verb. Raises TypeError for a single class instead of a list."""
    if isinstance(errors, type):
        raise TypeError(f"errors is a list of classes: write errors=[{errors.__name__}]")
    return tuple(errors)


def named_by(given: Any, decorator: str) -> tuple[Callable[..., Any] | None, str | None]:
    """The argument of a decorator: a function, a name (`@app.verb("quote")`), or None.

    Args:
        given: to the decorator.
        decorator: what to call it in an error's text.

    Returns:
        The function, or None; and the name, or None.

    Raises:
        TypeError: it is neither.
    """
    if given is None or isinstance(given, str):
        return None, given
    if not callable(given):
        raise TypeError(f"{decorator} takes a function or a name, not {given!r}")
    return given, None


@dataclass(frozen=True, slots=True)
class Target:
    """The service of a declared function: left on it by `Responder.verb` and `Responder.job`."""

    service: str
    destination: str
    verb: str
    is_job: bool = False
    options: VerbOptions = VerbOptions()


class Endpoint(Protocol):
    """The handler of requests for one name: a `Verb`, or a job, which replies early."""

    @property
    def name(self) -> str:
        """What callers ask for."""

    @property
    def signature(self) -> Signature:
        """The contract."""

    @property
    def plan(self) -> Plan | None:
        """How its `Depends` parameters are made, None if it has none."""

    @property
    def is_async(self) -> bool:
        """`invoke` returns a coroutine; else it belongs in a worker thread."""

    @property
    def streams(self) -> bool:
        """`invoke` returns a generator."""

    @property
    def response(self) -> str:
        """The verb of value replies."""

    @property
    def queue(self) -> str | None:
        """Where it is announced, None for the service's first queue."""

    @property
    def concurrency(self) -> int | None:
        """How many requests for it are handled at once, None for as many as there are workers."""

    @property
    def errors(self) -> tuple[type[VerbError], ...]:
        """The errors that it declares."""

    @property
    def allow(self) -> frozenset[str] | None:
        """The principals that may call it; None: all. No unknown principal passes a list."""

    def invoke(self, arguments: Arguments, request: Request) -> Any:
        """Handle a request: the result, or a coroutine of it."""

    def describe(self) -> dict[str, Any]:
        """The contract as JSON."""


class Verb:
    """A function with its contract.

    Attributes:
        name: what callers ask for.
        function: the handler.
        signature: its contract.
        plan: how its parameters with `Depends` are made.
        is_async: `async def`: it runs on the event loop, else in a worker thread.
        streams: it yields: its items are sent as they come.
        response: the verb of its value replies.
        allow: the principals that may call it; None: all.
        queue: where it is announced, None for the service's first queue.
        errors: what it may raise, besides the framework's own.
        idempotent: callers may ask again.
        concurrency: how many of it are handled at once, or None.
        description: the docstring's text.

    Raises:
        TypeError: the function cannot be a verb.
        ValueError: the name cannot.
    """

    __slots__ = (
        "allow", "concurrency", "description", "errors", "function", "idempotent", "is_async", "name", "plan",
        "queue", "response", "signature", "streams",
    )  # fmt: skip

    def __init__(self, function: Callable[..., Any], options: VerbOptions | None = None) -> None:
        options = options or options_of(function) or VerbOptions()
        function = handler_of(function)
        refuse_method(function, "mark it with the bare @verb, and declare an object's: app.include({kind}())")
        self.name = options.name or function.__name__
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"verb {self.name!r}: a name is one line without spaces around it")
        self.function = function
        self.signature = Signature(function, context=(Request,), checks=options.validate_results)
        refuse_unannotated(self.signature, name_of(function), ("request",), Request)
        self.plan = self.signature.plan
        # Decided once, from the function: a request then chooses between loop and thread by one attribute.
        self.is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        self.streams = is_stream(function)
        if self.signature.streams and not self.streams:
            raise TypeError(
                f"{function.__qualname__} returns an iterator: write it as a generator, "
                "`async for item in …: yield item`"
            )
        # C.2: the verb of a value reply is the request's verb and `response`.
        self.response = options.response or f"{self.name}response"
        self.allow = options.allow
        self.queue = options.queue
        self.errors = options.errors
        self.idempotent = options.idempotent
        self.concurrency = options.concurrency
        self.description = inspect.getdoc(function) or ""

    def invoke(self, arguments: Arguments, request: Request) -> Any:
        """Call the handler: its result, or its coroutine if `is_async`.

        Args:
            arguments: as `signature.bind` gave them.
            request: for handlers that take one.
        """
        if self.signature.is_called_by_name:
            arguments = self.signature.complete(arguments, request)
        args, kwargs = arguments
        return self.function(*args, **kwargs)

    def describe(self) -> dict[str, Any]:
        """The contract for `describe`: description, and JSON Schema of parameters and result."""
        result = self.signature.result_schema()
        return {
            "verb": self.name,
            "description": self.description,
            "parameters": self.signature.parameters_schema(),
            "result": result,
            **({"stream": True, "item": item_schema(result)} if self.streams else {}),
            "response": self.response,
            **({"errors": [_describe_error(kind) for kind in self.errors]} if self.errors else {}),
            **({"idempotent": True} if self.idempotent else {}),
            **self.signature.marks(),
        }


def _describe_error(kind: type[VerbError]) -> dict[str, Any]:
    return {"code": kind.code, "description": meaning_of(kind), "retryable": kind.retryable}


def is_open_to(allow: frozenset[str] | None, principal: str | None) -> bool:
    """Whether a list of principals lets this one in. Without a list all are let in."""
    return allow is None or principal in allow


class VerbRegistry:
    """The verbs of a service by name. A name is declared once, and a reserved one never."""

    def __init__(self) -> None:
        self._entries: dict[str, Endpoint] = {}

    def declare(self, entry: Endpoint) -> None:
        """Add a user's verb or job.

        Raises:
            ValueError: the name is reserved, or taken.
        """
        refuse_reserved(entry.name)
        self.add(entry)

    def add(self, entry: Endpoint) -> None:
        """Add a verb of the framework, which may have a reserved name.

        Raises:
            ValueError: the name is taken.
        """
        if entry.name in self._entries:
            raise ValueError(f"verb {entry.name!r} is declared twice")
        self._entries[entry.name] = entry

    def get(self, name: str) -> Endpoint | None:
        """What has that name; names are case-sensitive (C.2)."""
        return self._entries.get(name)

    def __iter__(self) -> Iterator[Endpoint]:
        return iter(self._entries.values())


def is_reserved(name: str) -> bool:
    """Whether a name belongs to the framework."""
    return name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES)


def refuse_reserved(name: str) -> None:
    """Raise ValueError for names that belong to the framework."""
    if is_reserved(name):
        raise ValueError(f"verb {name!r} is reserved; choose another name, with @verb(name=...) if need be")


@overload
def verb(function: _F, /) -> _F: ...
@overload
def verb(
    name: str | None = None,
    *,
    response: str | None = None,
    allow: Iterable[str] | None = None,
    errors: Iterable[type[VerbError]] = (),
    idempotent: bool = False,
    concurrency: int | None = None,
    validate_results: bool = True,
) -> Callable[[_F], _F]: ...
def verb(
    name: Any = None,
    *,
    response: str | None = None,
    allow: Iterable[str] | None = None,
    errors: Iterable[type[VerbError]] = (),
    idempotent: bool = False,
    concurrency: int | None = None,
    validate_results: bool = True,
) -> Any:
    """Mark a function or method as a verb; `Responder.include` collects what is marked.

    The function itself is returned and nothing else happens. Its signature is the contract:
    see `Signature`.

    Args:
        name: the verb, by default the function's name. Without parentheses: the function itself.
        response: the verb of its value replies, by default `<name>response`.
        allow: the principals that may call it, by default all.
        errors, idempotent, concurrency, validate_results: as for `Responder.verb`.
    """
    function, named = named_by(name, "@verb")
    options = VerbOptions(
        named,
        response,
        None if allow is None else frozenset(allow),
        errors=kinds_of(errors),
        idempotent=idempotent,
        concurrency=concurrency,
        validate_results=validate_results,
    )

    def mark(function: _F) -> _F:
        # On the function: nothing is registered at import, and a method has no object yet.
        setattr(function, _OPTIONS, options)
        return function

    return mark if function is None else mark(function)


def options_of(function: Any) -> VerbOptions | None:
    """What `@verb` said about a function or method, or None if it is not marked."""
    options = getattr(function, _OPTIONS, None)
    return options if isinstance(options, VerbOptions) else None


def promises_of(function: Callable[..., Any]) -> VerbOptions:
    """What a function's declaration or mark promises its callers: its errors, and whether to ask again."""
    if (target := target_of(function)) is not None:
        return target.options
    return options_of(function) or VerbOptions()


def verb_name_of(function: Callable[..., Any]) -> str:
    """What a function is asked for by: the name that `@verb` gave it, else its own."""
    options = options_of(function)
    return (options and options.name) or function.__name__


def set_target(function: Callable[..., Any], target: Target) -> None:
    """Remember on a function which service to ask for it.

    Raises:
        TypeError: it belongs to another service.
    """
    known = target_of(function)
    if inspect.ismethod(function):
        if known not in (None, target):
            raise TypeError(
                f"{function.__qualname__} is a verb of {known.service!r} already, of another object; "
                "mark it with the bare @verb and include the objects"
            )
        # All objects of the class share the function.
        function = function.__func__
    if known is not None and known.service != target.service:
        raise TypeError(
            f"{function.__qualname__} is a verb of {known.service!r} already; "
            "mark it with the bare @verb and let both services include it"
        )
    setattr(function, TARGET, target)


def target_of(function: Any) -> Target | None:
    """Whom to ask for a function, or None if no service declared it itself."""
    target = getattr(function, TARGET, None)
    return target if isinstance(target, Target) else None


def marked_members(holder: object) -> Iterator[Callable[..., Any]]:
    """The functions and methods of a module or object with the `@verb` mark, by name."""
    # Sorted, so that services include verbs in one order, and errors about two of one name are the same each
    # time.
    for name in sorted(dir(holder)):
        # Looking at a property of an object would run it.
        if isinstance(getattr(type(holder), name, None), property):
            continue
        member = getattr(holder, name)
        if callable(member) and options_of(member) is not None:
            yield member
