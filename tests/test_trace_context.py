"""The form of `traceparent`, and the trace id in it."""

from __future__ import annotations

import pytest

from nebula.trace_context import is_trace_id, is_traceparent, trace_facts, traceparent_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.mark.parametrize(
    "text", [f"00-{TRACE}-{SPAN}-01", f"01-{TRACE}-{SPAN}-00-more", traceparent_of(TRACE, SPAN)]
)
def test_trace_id_is_taken_from_a_traceparent_of_any_version(text: str) -> None:
    assert is_traceparent(text)
    assert trace_facts({"traceparent": text}) == {"trace_id": TRACE}


@pytest.mark.parametrize(
    "text",
    [
        "",
        TRACE,
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-01\n",
    ],
)
def test_other_text_is_no_traceparent(text: str) -> None:
    assert not is_traceparent(text)
    assert trace_facts({"traceparent": text}) == {}


@pytest.mark.parametrize("value", [None, 17, "order-17", "0" * 32, TRACE[1:]])
def test_other_value_is_no_trace_id(value: object) -> None:
    assert not is_trace_id(value)
