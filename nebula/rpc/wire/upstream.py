"""Errors of dependencies: what the caller learns when a handler's own calls fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nebula.errors import (
    CallTimeout,
    CircuitOpen,
    ConnectionLost,
    JobEnded,
    Rejected,
    RemoteError,
    ServerError,
)
from nebula.headers import REJECTED_FULL, REJECTED_NO_CONSUMER
from nebula.rpc.errors import StreamBroken, UnexpectedReply, VerbError

__all__ = ["upstream_error"]

# What the broker says where it would have taken the same message at another time.
_PASSING: Final = frozenset({REJECTED_FULL, REJECTED_NO_CONSUMER})


def upstream_error(error: BaseException) -> VerbError | None:
    """What to answer where a handler let the failure of a call that it made pass.

    The texts do not name the dependency, and hold nothing of what it said but its code: that was said to this
    service, not to its callers. Of a group of errors, as a task group raises it, the first one is told, if
    all of them are failures of calls.

    Returns:
        `upstream-timeout`, `upstream-unavailable` or `upstream-error` (`details`: the inner `code`); None: it
        is no failure of a call.
    """
    told = [_told(one) for one in _leaves(error)]
    return None if None in told else told[0]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _told(error: BaseException) -> VerbError | None:
    match error:
        case CallTimeout():
            return VerbError("upstream-timeout", "a service that this one called did not answer in time")
        case ConnectionLost() | ServerError() | CircuitOpen() | StreamBroken():
            return _unavailable()
        case Rejected(verdict=verdict):
            return _unavailable() if verdict in _PASSING else _replied(verdict)
        case (
            RemoteError(code=code, retryable=retryable)
            | VerbError(code=code, retryable=retryable, is_from_reply=True)
        ):
            return _replied(code, retryable=retryable)
        case JobEnded(code=code):
            return _replied(code)
        case UnexpectedReply():
            return _replied("unexpected-reply")
        case _:
            # Also what Nebula says about settings, schemas and rights: that is about this service.
            return None


def _unavailable() -> VerbError:
    return VerbError("upstream-unavailable", "a service that this one called cannot be reached now")


def _replied(code: str, *, retryable: bool = False) -> VerbError:
    return VerbError(
        "upstream-error",
        f"a service that this one called answered {code}",
        details={"code": code},
        retryable=retryable,
    )
