"""Options of calls and jobs, and the messages about wrong ones."""

# Type checkers find a wrong option, but many callers use none, and what a wrong option does is silent: a
# misspelt `dedupe` starts a job twice, a misspelt `timeout` waits for 30 s. So the methods check names and
# kinds when they run. The usual call by name, without options, is recognized in one line and skips all of
# it.
#
# The hardest mistake to explain is a parameter that was given as a keyword, `client.call("prices", "quote",
# symbol="ABC")`: parameters are one value, since their names may be those of options. The message shows the
# call as it should be written.

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from numbers import Real
from typing import Any, Final, TypedDict

from nebula.nearest import did_you_mean, nearest
from nebula.rpc.contract.retry import Retry
from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.errors import VerbError

__all__ = [
    "OPTIONS",
    "CallOptions",
    "Options",
    "as_option",
    "require_kinds",
    "require_named",
    "require_options",
    "start_part",
]


class CallOptions(TypedDict, total=False):
    """Options of a call, by name. Each may be left out; times are in seconds.

    Attributes:
        retry: how often to try, within the call's time, while it fails with an error that may pass. None, the
            default, is once. A call that may run twice (the verb is declared `idempotent`, or there is an
            `idempotency_key`) is tried again after `RemoteError` that is `retryable`, `NoResponder`,
            `Rejected` for lack of room, `ConnectionLost` and `ServerError`. Any other call only after errors
            which say that nothing was begun: `NoResponder`, `Rejected` for lack of room, `busy`.
        idempotency_key: a text that the caller chooses, the same on each attempt. A Nebula service runs the
            request once, and replies to later attempts with the first reply.
        wait_for_responder: seconds of the call's time to wait for a service to listen, instead of raising
            `NoResponder` at once. Other brokers do not say that no service listens; they keep the request.
        errors: classes of `VerbError`, each with its `code`: an `error` reply with that code is raised as
            that class. A call by function adds the classes that the verb was declared with.
        cache: seconds to keep the reply, where the client has a `Cache`; False neither reads nor writes the
            cache. By default the cache decides by the verb.
    """

    retry: Retry | None
    idempotency_key: str | None
    wait_for_responder: float
    errors: Sequence[type[VerbError]]
    cache: float | bool


class Options(CallOptions, StartOptions, total=False):
    """Options of `Client.with_options`: those of calls (`CallOptions`) and those of jobs (`StartOptions`).

    Each applies to the methods that know it: `call` ignores `priority`, and `start` ignores `retry`.
    """


OPTIONS: Final = frozenset({"timeout", *CallOptions.__annotations__, *StartOptions.__annotations__})
_OF_STARTS: Final = frozenset(StartOptions.__annotations__)

# `int` and `float` first: a look at the abstract class takes longer.
_NUMBER: Final = (int, float, Real)
_SECONDS: Final = ("seconds, a number", _NUMBER)
_TEXT: Final = ("a text", str)
_KINDS: Final[Mapping[str, tuple[str, type | tuple[type, ...]]]] = {
    "timeout": _SECONDS,
    "retry": ("a Retry(…)", Retry),
    "idempotency_key": _TEXT,
    "wait_for_responder": _SECONDS,
    "cache": ("seconds, a number, or False", _NUMBER),
    "expires_in": _SECONDS,
    "dedupe": _TEXT,
    "job_timeout": _SECONDS,
    "notify": ("a destination, a text", str),
    "priority": ("a number of 0 to 9", _NUMBER),
    "progress_every": _SECONDS,
    "not_before": ("a datetime, or seconds since the epoch", (datetime, *_NUMBER)),
}


def start_part(options: Mapping[str, Any]) -> StartOptions:
    """The options of jobs among these."""
    found: Any = {name: value for name, value in options.items() if name in _OF_STARTS}
    part: StartOptions = found
    return part


def require_options(where: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse unknown options: a misspelt one that went unnoticed would change nothing.

    Args:
        where: the call they are given to, as its caller writes it.
        given: their names.
        known: the names that exist.

    Raises:
        TypeError: names the option and the nearest known one.
    """
    for name in sorted(set(given) - set(known)):
        hint = did_you_mean(name, sorted(known)) or f"; it has {', '.join(sorted(known))}"
        raise TypeError(f"{where} has no option {name}{hint}")


def require_kinds(where: str, given: Mapping[str, object]) -> None:
    """Refuse options of the wrong type: they would fail later, with a message about our own code.

    Args:
        where: the call they are given to, as its caller writes it.
        given: the options by name; None leaves an option unchanged.

    Raises:
        TypeError: names the option and what it takes.
    """
    if (name := _odd_one(given)) is not None:
        # Not the value: an idempotency key may be secret.
        raise TypeError(f"{where} takes {_KINDS[name][0]}, as {name}, not {type(given[name]).__name__}")


def _odd_one(given: Mapping[str, object]) -> str | None:
    """The first option of the wrong type, if any."""
    for name, value in given.items():
        if value is not None and name in _KINDS and not isinstance(value, _KINDS[name][1]):
            return name
    return None


def require_named(
    method: str, service: str, args: Sequence[Any], given: Mapping[str, object], known: frozenset[str]
) -> None:
    """Refuse a call by name that is not `method(service, verb, parameters, **options)`.

    Args:
        method: of the client.
        service: the first argument.
        args: the other positional arguments.
        given: the keyword arguments.
        known: the options of the method; `parameters` may also be a keyword argument.

    Raises:
        TypeError: says what is wrong, and how to write it.
    """
    if 1 <= len(args) <= 2 and known.issuperset(given) and _odd_one(given) is None:
        return
    where = f"client.{method}({service!r}, …)"
    if not args:
        raise TypeError(f"{where} needs a verb: client.{method}({service!r}, VERB, PARAMETERS)")
    if len(args) > 2 or (len(args) == 2 and "parameters" in given):
        raise TypeError(
            f"{where} takes all parameters as one value: client.{method}({service!r}, {args[0]!r}, "
            '{"name": value})'
        )
    unknown = given.keys() - known - {"parameters"}
    if unknown and not any(nearest(name, sorted(known)) for name in unknown):
        names = ", ".join(f'"{name}": …' for name in sorted(unknown))
        raise TypeError(
            f"{where} has no option {', '.join(sorted(unknown))}; parameters go into one object: "
            f"client.{method}({service!r}, {args[0]!r}, {{{names}}})"
        )
    require_options(where, unknown, known)
    require_kinds(where, given)


def as_option(names: Collection[str], method: str, function: str) -> str:
    """How to pass options that were given among a function's arguments. Empty without any."""
    found = sorted(OPTIONS & set(names))
    if not found:
        return ""
    given = ", ".join(f"{name}=…" for name in found)
    return f"; options come first: client.with_options({given}).{method}({function}, …)"
