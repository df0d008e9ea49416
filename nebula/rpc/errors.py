"""Errors of RPC: the exception classes behind the codes of an `error` reply."""

# An error crosses the wire once, and is translated once on each side:
#
#     handler raises                  reply                           caller gets
#     VerbError(code, ...)            code, message, retryable        RemoteError, or the declared class
#     error of a service it called    upstream-...                    RemoteError
#     anything else                   internal, without its text      RemoteError
#
# A bug never reaches a peer as text: it could hold values. The codes are one table (`nebula.error_codes`),
# because the service, the client, the HTTP gateway (`problems`) and the reference page must agree on them; a
# verb's own codes are checked against it when the verb is declared.
#
# `is_from_reply` marks an error that another service sent. If the handler lets it pass, its own caller must
# not take it for an error of this service: it becomes `upstream-error`, unless the verb declares its class.

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, overload

from nebula.error_codes import CODES, ErrorCode
from nebula.errors import NebulaError, RemoteError

__all__ = [
    "CODES",
    "ErrorCode",
    "StreamBroken",
    "UnexpectedReply",
    "VerbError",
    "as_declared",
    "kebab_case",
    "meaning_of",
]


_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_KEBAB_CASE: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class VerbError(NebulaError):
    """Raised by a handler to reply `error` with a code and a text of its own.

    A verb's own errors are best declared, as classes that both sides may share:

        class OutOfStock(VerbError):
            "There are fewer left."
            code = "out-of-stock"

        @app.verb(errors=[OutOfStock])
        async def order(item: str, count: int) -> str:
            raise OutOfStock("two are left", details={"left": 2})

    `describe` then lists them with their docstrings, and callers of the function can catch that class. A
    class with a `code` takes only the message, by default the first line of its docstring.

    Args:
        code: kebab-case: one of `CODES`, or the verb's own word. Not for classes that have one.
        message: a text for the caller. It is sent unchanged, so it must contain no secrets.
        details: anything JSON can hold.
        retryable: the same request may succeed later; by default what the class says, else what `CODES` says
            for the code.

    Raises:
        ValueError: the code is not kebab-case.
        TypeError: there is no code, or one too many.
    """

    code: str = ""
    retryable: bool = False

    # Another service replied it to this one: a handler that lets it pass does not report its own error.
    is_from_reply: bool = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.code:
            _require_kebab_case(cls.code)

    @overload
    def __init__(self, message: str = "", /, *, details: Any = ..., retryable: bool | None = ...) -> None: ...
    @overload
    def __init__(
        self, code: str, message: str, *, details: Any = ..., retryable: bool | None = ...
    ) -> None: ...
    def __init__(
        self,
        code: str = "",
        message: str | None = None,
        *,
        details: Any = None,
        retryable: bool | None = None,
    ) -> None:
        declared = type(self)
        if declared.code:
            if message is not None:
                raise TypeError(f"{declared.__name__} has a code: it takes the message alone")
            code, message = declared.code, code or meaning_of(declared)
        elif message is None:
            raise TypeError(
                f"{declared.__name__} takes a code and a message; a class of its own may have a code"
            )
        else:
            _require_kebab_case(code)
        super().__init__(message)
        known = CODES.get(code)
        self.code = code
        self.message = message
        self.details = details
        if retryable is None:
            retryable = declared.retryable or (known is not None and known.is_retryable)
        self.retryable = retryable


def meaning_of(kind: type[VerbError]) -> str:
    """What an error class says about itself: the first line of its own docstring, else its code."""
    return next(iter((kind.__doc__ or "").strip().splitlines()), "") or kind.code


def kebab_case(name: str) -> str:
    """The code to propose for a class: `out-of-stock` for `OutOfStock`."""
    return "-".join(_WORDS.findall(name)).lower()


def _require_kebab_case(code: str) -> None:
    if not _KEBAB_CASE.fullmatch(code):
        raise ValueError(f"error code {code!r} is not kebab-case, like `sold-out`")


class UnexpectedReply(NebulaError):
    """A reply came in time, but its value is not of the type that the caller asked for."""


class NotAStream(UnexpectedReply):
    """A stream was requested, but the verb returned a single value.

    Attributes:
        value: it.
    """

    def __init__(self, message: str, value: Any) -> None:
        super().__init__(message)
        self.value = value


class StreamBroken(NebulaError):
    """A stream has a gap, or began again because its service died: the rest of it cannot be read.

    Items read before are valid. Request the missing ones again, if the verb lets you say where to begin.
    """


def as_declared(error: RemoteError, kinds: Iterable[type[VerbError]]) -> NebulaError:
    """The error as the class that was declared for its code, caused by what came; else as it came."""
    for kind in kinds:
        if kind.code == error.code:
            # Not by calling the class: what a constructor of its own takes is not on the wire.
            declared = kind.__new__(kind)
            VerbError.__init__(declared, error.message, details=error.details, retryable=error.retryable)
            declared.is_from_reply = True
            declared.__cause__ = error
            return declared
    return error
