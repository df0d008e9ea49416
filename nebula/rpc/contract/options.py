"""Options of calls and starts, all of them in one list; and what is said of wrong ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from numbers import Real
from typing import Any, Final

from nebula.nearest import did_you_mean, nearest
from nebula.rpc.client.retry import CallOptions, Retry
from nebula.rpc.contract.start_options import StartOptions

__all__ = [
    "OPTIONS",
    "Options",
    "as_option",
    "require_kinds",
    "require_named",
    "require_options",
    "start_part",
]


class Options(CallOptions, StartOptions, total=False):
    """Options of `Client.with_options`: those of calls (`CallOptions`) and those of jobs (`StartOptions`).

    Each counts for the calls that know it: `priority` says nothing to `call`, nor `retry` to `start`.
    """


OPTIONS: Final = frozenset({"timeout", *CallOptions.__annotations__, *StartOptions.__annotations__})
_OF_STARTS: Final = frozenset(StartOptions.__annotations__)

_SECONDS: Final = ("seconds, a number", Real)
_TEXT: Final = ("a text", str)
_KINDS: Final[Mapping[str, tuple[str, type | tuple[type, ...]]]] = {
    "timeout": _SECONDS,
    "retry": ("a Retry(…)", Retry),
    "idempotency_key": _TEXT,
    "wait_for_responder": _SECONDS,
    "cache": ("seconds, a number, or False", Real),
    "expires_in": _SECONDS,
    "dedupe": _TEXT,
    "job_timeout": _SECONDS,
    "notify": ("a destination, a text", str),
    "priority": ("a number of 0 to 9", Real),
    "progress_every": _SECONDS,
    "not_before": ("a datetime, or seconds since the epoch", (datetime, Real)),
}


def start_part(options: Mapping[str, Any]) -> StartOptions:
    """Those of the options that are for jobs."""
    found: Any = {name: value for name, value in options.items() if name in _OF_STARTS}
    part: StartOptions = found
    return part


def require_options(where: str, given: Collection[str], known: Collection[str]) -> None:
    """Refuse options that there are not: a misspelt one that went unnoticed would change nothing.

    Args:
        where: they are given, as its caller writes it.
        given: their names.
        known: the names that there are.

    Raises:
        TypeError: which, and what was meant.
    """
    for name in sorted(set(given) - set(known)):
        hint = did_you_mean(name, sorted(known)) or f"; it has {', '.join(sorted(known))}"
        raise TypeError(f"{where} has no option {name}{hint}")


def require_kinds(where: str, given: Mapping[str, object]) -> None:
    """Refuse options that are nothing of their kind: else each would fail later, in words of ours.

    Args:
        where: they are given, as its caller writes it.
        given: the options by name; None is for one that is left as it is.

    Raises:
        TypeError: which, and what it takes.
    """
    for name, value in given.items():
        words, kinds = _KINDS.get(name, ("", object))
        if value is not None and not isinstance(value, kinds):
            # Not the value: a key may be nobody else's business.
            raise TypeError(f"{where} takes {words}, as {name}, not {type(value).__name__}")


def require_named(
    method: str, service: str, args: Sequence[Any], given: Mapping[str, object], known: frozenset[str]
) -> None:
    """Refuse a call by name that is not `method(service, verb, parameters, **options)`.

    Args:
        method: of the client.
        service: the first argument.
        args: the other ones.
        given: the keywords.
        known: the options of the method; `parameters` may be given by keyword, too.

    Raises:
        TypeError: what is wrong, and how it is written.
    """
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
    """How options are given that were written among a function's arguments; empty where there are none."""
    found = sorted(OPTIONS & set(names))
    if not found:
        return ""
    given = ", ".join(f"{name}=…" for name in found)
    return f"; options come first: client.with_options({given}).{method}({function}, …)"
