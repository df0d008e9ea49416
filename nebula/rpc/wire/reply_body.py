"""`ReplyBody`: the body of a reply before it is encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nebula.rpc.errors import VerbError
from nebula.rpc.wire.envelope import ERROR, SUCCESS, dump_json

# "Nothing to report", as the gem writes it (C.5).
_NO_PARAMETERS: Final = b"[]"

# All that a caller learns about a fault of the service.
SEE_LOG: Final = "the service failed; its log says why"


# As for `Envelope`, an `__init__` that is compiled with the module.
@dataclass(slots=True, init=False)
class ReplyBody:
    """The body of a reply: the fields of an envelope, with parameters as JSON.

    Attributes:
        verb: of the reply.
        parameters: JSON, or None.
        description: a text for people.
        code: of an `error`.
        retryable: of an `error`: the same request may succeed later.
    """

    verb: str
    parameters: bytes | None
    description: str | None
    code: str | None
    retryable: bool

    def __init__(
        self,
        verb: str,
        parameters: bytes | None = None,
        description: str | None = None,
        code: str | None = None,
        retryable: bool = False,
    ) -> None:
        self.verb = verb
        self.parameters = parameters
        self.description = description
        self.code = code
        self.retryable = retryable


def success(parameters: bytes = _NO_PARAMETERS, description: str = "") -> ReplyBody:
    """The reply that says: it worked. Without parameters: and there is nothing to report."""
    return ReplyBody(SUCCESS, parameters, description)


def failure(error: VerbError) -> ReplyBody:
    """The `error` reply in our shape (C.2).

    Where an error has no JSON form, as its details have none, the reply says `internal` (rule 1: every
    request gets a reply).
    """
    fields = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details is not None:
        fields["details"] = error.details
    try:
        return ReplyBody(ERROR, dump_json(fields), error.message, error.code, error.retryable)
    except ValueError:
        return failure(VerbError("internal", SEE_LOG))
