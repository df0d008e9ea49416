"""Replies as their caller reads them: a value of the type asked for, or an error."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

from pydantic import ValidationError

from nebula.errors import RemoteError
from nebula.headers import ERROR_CODE
from nebula.rpc.errors import CODES, UnexpectedReply
from nebula.rpc.wire.envelope import ERROR, SUCCESS, Envelope, parse
from nebula.rpc.wire.json_types import Adapter

# Success without parameters, as both forms of body write it.
_NOTHING: Final[tuple[Any, ...]] = ([], "[]", "", None)


class Reply(Protocol):
    """A reply as it came, or from a cache: a `Message`, for one."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


R = TypeVar("R", bound=Reply)


def unless_error(reply: R) -> R:
    """The reply itself. Raises RemoteError if it is an `error`."""
    read_value(reply, None)
    return reply


def read_value(reply: Reply, read: Callable[[Any], Any] | None) -> Any:
    """The value of a reply: what `call` returns.

    Args:
        reply: as it came.
        read: makes the type that was asked for of it; None takes it as JSON gave it.

    Raises:
        RemoteError: it is an `error`.
        UnexpectedReply: `read` refuses it.
    """
    headers = reply.headers
    envelope = parse(headers, reply.body)
    # The verb is not compared with `<verb>response`: a service may choose it (D.46).
    if envelope.verb == ERROR:
        raise remote_error(envelope, headers.get(ERROR_CODE))
    # Rule 2: the body of a reply need not be verb and parameters.
    value = envelope.body if envelope.verb is None else envelope.parameters
    if envelope.verb == SUCCESS and value in _NOTHING:
        value = None
    return value if read is None else read_checked(value, read)


def read_checked(value: Any, read: Callable[[Any], Any]) -> Any:
    """A value that a service sent, as the type that its caller asked for.

    Args:
        value: as JSON gave it.
        read: makes that type of it.

    Raises:
        UnexpectedReply: `read` refuses it.
    """
    try:
        return read(value)
    except ValidationError as error:
        # Place and reason only: the value may be secret.
        first = error.errors(include_url=False, include_input=False)[0]
    place = "".join(f" at {one}" for one in first["loc"])
    # Not in the handler: there pydantic's error, which has the value, would become the context of this one.
    # mypyc ignores `from None`.
    raise UnexpectedReply(f"the answer is not what was asked for{place}: {first['msg']}")


def remote_error(envelope: Envelope, header_code: str | None = None) -> RemoteError:
    """The exception for an `error` reply of any shape (C.2).

    A Nebula service has code, message and details among the parameters. Of other services only the
    description is sure, and the code is `error`.
    """
    fields = envelope.parameters if isinstance(envelope.parameters, dict) else {}
    code = fields.get("code") or header_code
    message = fields.get("message") or envelope.description or ""
    if not isinstance(code, str):
        code = "error"
    known = CODES.get(code)
    retryable = fields.get("retryable", known is not None and known.is_retryable)
    return RemoteError(code, str(message), details=fields.get("details"), retryable=retryable is True)


@contextmanager
def reading(what: str) -> Generator[None]:
    """Turn any fault in what a peer sent into an `UnexpectedReply`.

    Args:
        what: the thing that is read, in words for people.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Its kind only: the text may hold the value.
        raise UnexpectedReply(f"{what} cannot be read ({type(error).__name__})") from error


def reader_of(result: Any) -> Callable[[Any], Any]:
    """What makes a value of a type from its JSON form; raises pydantic's ValidationError."""
    try:
        return _cached_reader_of(result)
    except TypeError:  # a type that cannot be hashed: some `Annotated[…]`
        return Adapter(result).read


@lru_cache(maxsize=1024)
def _cached_reader_of(result: Any) -> Callable[[Any], Any]:
    return Adapter(result).read
