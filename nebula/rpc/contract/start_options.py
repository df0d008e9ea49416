"""Options of a started job: the `neb-job-…` headers, apart from its parameters (G.job-request)."""

from __future__ import annotations

import math
from datetime import datetime
from typing import TypedDict

from nebula import headers as names
from nebula.destinations import destination_named
from nebula.nearest import did_you_mean
from nebula.rpc.wire.brokers import Brand
from nebula.rpc.wire.deadlines import whole_milliseconds


class StartOptions(TypedDict, total=False):
    """Options of `Client.start` by name. Times are seconds; for absent ones the verb decides."""

    expires_in: float
    """The request is dropped if no service took it by then."""
    dedupe: str
    """A second request with the same text, principal and verb gets the first one's job."""
    job_timeout: float
    """Seconds that the run may take; a verb's own limit, if shorter, holds."""
    notify: str
    """A destination that gets each status too; `ended` is `/queue/ended`."""
    priority: int
    """0 to 9: waiting jobs of a higher one run first."""
    progress_every: float
    """Seconds between reports of progress, at least."""
    not_before: datetime | float
    """The job is accepted at once and begun then, or later; a number is seconds since the epoch."""


def start_headers(options: StartOptions, brand: Brand) -> dict[str, str]:
    """The options as headers.

    Raises:
        TypeError: there is no such option.
        ValueError: a time is negative, or a name has half a prefix.
    """
    # A misspelt `dedupe` that went unnoticed would start jobs twice.
    if unknown := options.keys() - StartOptions.__annotations__.keys():
        hint = did_you_mean(min(unknown), StartOptions.__annotations__) if len(unknown) == 1 else ""
        raise TypeError(f"jobs have no option {', '.join(sorted(unknown))}{hint}")
    for name, value in options.items():
        # This also refuses a `not_before` before 1970.
        if isinstance(value, int | float) and value < 0:
            raise ValueError(f"{name} is {value}, and must not be negative")
    # This is about the request and not the job, so it is the broker's header for messages: the broker drops a
    # request that no service has taken.
    expires_in = options.get("expires_in")
    headers = {} if expires_in is None else brand.expiry(whole_milliseconds(expires_in))
    for name, seconds in (
        (names.JOB_TIMEOUT, options.get("job_timeout")),
        (names.JOB_PROGRESS_EVERY, options.get("progress_every")),
    ):
        if seconds is not None:
            headers[name] = str(whole_milliseconds(seconds))
    if (moment := options.get("not_before")) is not None:
        at = moment.timestamp() if isinstance(moment, datetime) else moment
        # Rounded up: the job must not begin before the time that was asked for.
        headers[names.JOB_NOT_BEFORE] = str(math.ceil(at * 1000))
    notify = options.get("notify")
    for name, text in (
        (names.JOB_DEDUPE, options.get("dedupe")),
        (names.JOB_NOTIFY, None if notify is None else destination_named(notify)),
        (names.JOB_PRIORITY, options.get("priority")),
    ):
        if text is not None:
            headers[name] = str(text)
    return headers
