"""The page of error codes is made of their table; `python -m tests.docs.test_error_codes_page` writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from nebula.error_codes import BROKER_CODES, CODES, JOB_ENDS, REFUSALS, RESULT_CODES, ErrorCode
from nebula.rpc.http_problems import status_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "error-codes.md"

OPENING: Final = """\
# Error codes

An error has a code, a stable word that programs branch on, and a message for people. Over HTTP both are
in the body of the response, which has the status below. After a retryable error the same call may succeed
later: [`Retry`](../how-to/calls-that-fail.md) repeats it if it may run twice. [Errors](../how-to/errors.md)
shows how a verb declares codes of its own. This page is generated from `nebula/error_codes.py`.
"""

SERVICES: Final = "Every service may reply with these, and no verb may declare one of them as its own."
JOBS: Final = """\
Why a job failed or was lost. A call of a verb that uses an engine can fail with the codes before `timed-out`
too.

A Nebula service gives a code to every job that does not succeed: `deadline-exceeded` if it ran too long or
did not start in time, `cancelled` if it was cancelled, and `engine-lost` or another reason if it was lost. A
service of another implementation may report an end without a code. Clients then make the code from the state
of the job: `timed-out`, `lost`, `expired`, or again `cancelled`."""
RESULTS: Final = "Replies to questions about the result of a job."
BROKER: Final = """\
`nebula queues`, `nebula dlq` and other commands for operators call these verbs. They reply with some of the
codes above as well."""
REFUSED: Final = """\
No reply of Nebula's broker or services has these codes. Those before `error` are raised in the broker, as
`Refused`: the peer gets only the text, in an ERROR frame. Clients raise `error` and those below it. A call by
HTTP that ends with `error` has status 500."""

# Where codes of CODES begin that only jobs have.
FIRST_OF_JOBS: Final = "engine-unavailable"


def tables() -> dict[str, tuple[str, Mapping[str, ErrorCode]]]:
    """The tables of the page: by heading an introduction and the rows."""
    codes = list(CODES)
    first = codes.index(FIRST_OF_JOBS)
    return {
        "Replies of services": (SERVICES, {code: CODES[code] for code in codes[:first]}),
        "Jobs": (JOBS, {code: CODES[code] for code in codes[first:]} | {**JOB_ENDS}),
        "Results of jobs": (RESULTS, RESULT_CODES),
        "The broker's own verbs": (BROKER, BROKER_CODES),
        "Refusals": (REFUSED, REFUSALS),
    }


def lines_of(rows: Mapping[str, ErrorCode], *, over_http: bool) -> list[str]:
    """A table of codes; with the HTTP status where replies have one."""
    heading = "| code | meaning and cure | retryable |"
    lines = (
        [f"{heading} HTTP |", "| --- | --- | --- | ---: |"] if over_http else [heading, "| --- | --- | --- |"]
    )
    for code, row in rows.items():
        status = f" {int(status_of(code, retryable=row.is_retryable))} |" if over_http else ""
        lines.append(f"| `{code}` | {row.meaning} | {'yes' if row.is_retryable else 'no'} |{status}")
    return lines


def page() -> str:
    lines = [OPENING]
    for heading, (opening, rows) in tables().items():
        lines += [f"## {heading}", "", opening, "", *lines_of(rows, over_http=rows is not REFUSALS), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def test_page_has_the_table() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.docs.test_error_codes_page"


def test_page_has_each_row() -> None:
    listed = re.findall(r"^\| `([\w-]+)` \|", page(), re.MULTILINE)

    assert sorted(listed) == sorted([*CODES, *JOB_ENDS, *RESULT_CODES, *BROKER_CODES, *REFUSALS])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
