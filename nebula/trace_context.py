"""W3C Trace Context: the header `traceparent`, and the trace id in it that log events share.

One id follows a request from its caller through the service to its job and the job's run in an engine. Each
log event of these has it as `trace_id`, so that one search finds all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeGuard

from nebula.headers import TRACEPARENT

# Zeros alone are no id, and `ff` is no version.
_TRACE_ID: Final = r"(?!0{32})[0-9a-f]{32}"
# Version, trace, span, flags; a later version may say more.
_FORM: Final = re.compile(
    rf"(?!ff)[0-9a-f]{{2}}-({_TRACE_ID})-(?!0{{16}})[0-9a-f]{{16}}-[0-9a-f]{{2}}(-.{{0,200}})?"
)


def is_traceparent(text: str) -> bool:
    """Whether the text has the form of a `traceparent`."""
    return _FORM.fullmatch(text) is not None


def is_trace_id(value: object) -> TypeGuard[str]:
    """Whether a value is the id of a trace: an application may log something else as `trace_id`."""
    return isinstance(value, str) and re.fullmatch(_TRACE_ID, value) is not None


def traceparent_of(trace_id: str, span_id: str) -> str:
    """A `traceparent`, marked as recorded: the caller's log has its part of the trace.

    Args:
        trace_id: 32 hexadecimal digits.
        span_id: 16 of them.
    """
    # Version 00 and the flag 01, `sampled`.
    return f"00-{trace_id}-{span_id}-01"


def trace_facts(headers: Mapping[str, str]) -> dict[str, str]:
    """The log field `trace_id` of a request with these headers; empty if it belongs to no trace."""
    found = _FORM.fullmatch(headers.get(TRACEPARENT, ""))
    return {} if found is None else {"trace_id": found[1]}
