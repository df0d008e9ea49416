"""What an answer is: its body before it is encoded, and how to tell one from a request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from nebula import headers as names
from nebula.logs import get_logger
from nebula.rpc.errors import VerbError
from nebula.rpc.wire.envelope import ERROR, SUCCESS, Envelope, dump_json

_log = get_logger(__name__)

# "Nothing to report", as the gem writes it (C.5).
_NO_PARAMETERS: Final = b"[]"

# All that a caller learns of a fault of ours.
SEE_LOG: Final = "the service failed; its log says why"


@dataclass(slots=True)
class Answer:
    """The body of a reply: the fields of an envelope, with parameters as JSON octets.

    Attributes:
        verb: of the reply.
        parameters: JSON, or None.
        description: a text for people.
        code: of an `error`.
        retryable: of an `error`: the same request may succeed later.
    """

    verb: str
    parameters: bytes | None = None
    description: str | None = None
    code: str | None = None
    retryable: bool = False


def success(parameters: bytes = _NO_PARAMETERS, description: str = "") -> Answer:
    """The answer that says: it worked. Without parameters: and there is nothing to report."""
    return Answer(SUCCESS, parameters, description)


def failure(error: VerbError) -> Answer:
    """The `error` reply in our shape (C.2)."""
    fields = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details is not None:
        fields["details"] = error.details
    try:
        return Answer(ERROR, dump_json(fields), error.message, error.code, error.retryable)
    except ValueError:
        # What the handler gave has no JSON form; it is answered nevertheless (rule 1).
        _log.exception("error could not be written", code=error.code)
        return failure(VerbError("internal", SEE_LOG))


def is_answer(envelope: Envelope, headers: Mapping[str, str]) -> bool:
    """Whether a message is an answer, which is never answered, so that no loop can be (D.46)."""
    return (
        envelope.verb in (SUCCESS, ERROR)
        or headers.get(names.RESPONSE) == "true"
        or (names.IN_REPLY_TO in headers and names.REPLY_TO not in headers)
    )
