"""What a caller makes of an answer: a value of the type asked for, or an error."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Protocol, TypeVar

from pydantic import ValidationError

from nebula.headers import ERROR_CODE
from nebula.rpc.errors import UnexpectedReply, remote_error
from nebula.rpc.wire.envelope import ERROR, SUCCESS, content_type_of, parse
from nebula.rpc.wire.json_types import Adapter

# Success without parameters, as both forms of body write it.
_NOTHING: Final[tuple[Any, ...]] = ([], "[]", "", None)


class Reply(Protocol):
    """An answer as it came, or as it was kept: a `Message`, for one."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def body(self) -> bytes: ...


R = TypeVar("R", bound=Reply)


def unless_error(answer: R) -> R:
    """The answer itself. Raises RemoteError if it is an `error`."""
    read_value(answer, None)
    return answer


def read_value(answer: Reply, read: Callable[[Any], Any] | None) -> Any:
    """The value of an answer: what `call` returns.

    Args:
        answer: as it came.
        read: makes the asked-for type of it; None takes it as JSON gave it.

    Raises:
        RemoteError: it is an `error`.
        UnexpectedReply: `read` refuses it.
    """
    headers = answer.headers
    envelope = parse(content_type_of(headers), answer.body)
    # The verb is not compared with `<verb>response`: services choose it, and D.46 lets them.
    if envelope.verb == ERROR:
        raise remote_error(envelope, headers.get(ERROR_CODE))
    # Rule 2: the body of an answer need not be verb and parameters.
    value = envelope.body if envelope.verb is None else envelope.parameters
    if envelope.verb == SUCCESS and value in _NOTHING:
        value = None
    return read_checked(value, read)


def read_checked(value: Any, read: Callable[[Any], Any] | None) -> Any:
    """A value that a service sent, as the type that its caller asked for.

    Args:
        value: as JSON gave it.
        read: makes that type of it; None takes it as it is.

    Raises:
        UnexpectedReply: `read` refuses it.
    """
    if read is None:
        return value
    try:
        return read(value)
    except ValidationError as error:
        # Place and reason only: the value may be secret, and its sender's fault is not ours to show.
        first = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f" at {one}" for one in first["loc"])
        raise UnexpectedReply(f"the answer is not what was asked for{place}: {first['msg']}") from None


@contextmanager
def reading(what: str) -> Generator[None]:
    """Around the reading of what a peer sent: whatever is wrong with it is an `UnexpectedReply`.

    Args:
        what: is read, in words for people.
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
