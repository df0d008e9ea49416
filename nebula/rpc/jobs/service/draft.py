"""Job drafts: records made from a request and its `neb-job-…` headers (G.job-request)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from nebula import headers as names
from nebula.milliseconds import Milliseconds, to_seconds
from nebula.rpc.contract.context import Request
from nebula.rpc.contract.signature import Arguments
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.identifiers import is_ulid
from nebula.rpc.jobs.model.record import JobRecord
from nebula.rpc.jobs.scheduler.actions import Moment
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.wire.brokers import LONGEST_HEADER, Brand
from nebula.rpc.wire.envelope import dump_json
from nebula.trace_context import is_traceparent

__all__ = ["draft_of", "earlier_of", "require_same"]

# Ten digits of milliseconds are months; a point in time has thirteen until the year 2286.
_DECIMAL: Final = re.compile(r"[0-9]{1,10}")
_EPOCH_MS: Final = re.compile(r"[0-9]{1,13}")

_MAX_KEY_LENGTH: Final = 256

# Keys of requests that only their looks tell apart begin so.
_RESEMBLING: Final = "alike "

# As much has to be handed on, at least.
_MAX_TRACESTATE_LENGTH: Final = 512
_MOST_PRIORITY: Final = 9
_PROGRESS_EVERY: Final = 2.0
_LEAST_PROGRESS_EVERY: Final = 0.1


def draft_of(
    request: Request,
    verb: JobVerb,
    arguments: Arguments,
    now: Moment,
    new_id: Callable[[], str],
    brand: Brand,
) -> JobRecord:
    """The job that a request asks for, not recorded yet.

    Args:
        request: as it came.
        verb: the one it asks for.
        arguments: as `verb.signature.bind` gave them.
        now: the time.
        new_id: makes a ULID where the request brings none.
        brand: of the broker that delivered the request.

    Raises:
        VerbError: `bad-parameters`, a header has a value outside its form.
    """
    given = request.headers
    # A caller may ask for less time than the verb allows, but not for more: the limit protects the service.
    timeout = verb.timeout
    if (wanted := _seconds(given, names.JOB_TIMEOUT)) is not None:
        timeout = wanted if timeout is None else min(timeout, wanted)
    not_before = _not_before(given, now)
    # A caller that lets it wait for a time also lets it wait for its turn after that.
    expires_at = None if verb.expires is None else (not_before or now.wall) + verb.expires
    job, parameters = _job_id(given) or new_id(), verb.parameters_of(arguments)
    draft = JobRecord(
        id=job,
        verb=verb.name,
        parameters=parameters,
        accepted_at=now.wall,
        owner=request.principal or "",
        dedupe=_dedupe(request, brand, job, parameters),
        expires_at=expires_at,
        not_before=not_before,
        timeout=timeout,
        reply_id=request.reply_id,
        notify=_notify(given),
        exclusive=verb.exclusive_key(arguments),
        traceparent=_traceparent(given),
        tracestate=_tracestate(given),
    )
    if (priority := _number(given, names.JOB_PRIORITY)) is not None:
        if priority > _MOST_PRIORITY:
            raise _refused(names.JOB_PRIORITY, f"a number from 0 to {_MOST_PRIORITY}")
        draft = replace(draft, priority=priority)
    every = _seconds(given, names.JOB_PROGRESS_EVERY)
    return replace(
        # At least this, because each report is a commit and a message.
        draft,
        progress_every=_PROGRESS_EVERY if every is None else max(every, _LEAST_PROGRESS_EVERY),
    )


def require_same(found: JobRecord, wanted: JobRecord) -> JobRecord:
    """A known job, if the caller may have it.

    Raises:
        VerbError: it is another principal's, or another verb's.
    """
    if found.owner != wanted.owner:
        raise VerbError("not-allowed", f"job {found.id} belongs to another principal")
    if found.verb != wanted.verb:
        raise VerbError("bad-parameters", f"job {found.id} is one of {found.verb!r}, not of {wanted.verb!r}")
    return found


def _job_id(given: Mapping[str, str]) -> str | None:
    job = given.get(names.JOB_ID)
    if job is not None and not is_ulid(job):
        raise _refused(names.JOB_ID, "a ULID in upper case")
    return job


def earlier_of(draft: JobRecord, request: Request) -> str | None:
    """What the key of the same job begins with, if the broker delivers this request again.

    None where its message-id tells, or the caller's own key or id.
    """
    key = draft.dedupe
    if key is None or not key.startswith(_RESEMBLING) or request.attempt == 1:
        return None
    return key.removesuffix(draft.id)


def _dedupe(request: Request, brand: Brand, job: str, parameters: Any) -> str | None:
    """What makes a second request the same as the first. An id of the caller's own does that by itself.

    Never the reply id alone: a client may use one for all requests of a connection, to start many jobs.
    """
    given = request.headers
    if (key := given.get(names.JOB_DEDUPE)) is not None:
        if not 0 < len(key) <= _MAX_KEY_LENGTH:
            raise _refused(names.JOB_DEDUPE, f"1 to {_MAX_KEY_LENGTH} characters")
        return f"key {key}"
    # No key: `find_same` finds the job by the caller's own id, which is unique in the table.
    if names.JOB_ID in given:
        return None
    # D.20: such a message-id is the same on each delivery, also after a restart of the broker
    # (docs/decisions/0043).
    if brand.keeps_message_ids:
        message = given.get("message-id")
        return None if message is None else f"message {message}"
    if request.reply_id is None or names.REPLY_TO not in given:
        return None
    # docs/decisions/0043: only without such a message-id, because a client may use one reply id for all
    # requests.
    looks = hashlib.sha256(dump_json([request.reply_to, request.reply_id, parameters])).hexdigest()
    # Each delivery has a key of its own, so that the next one that looks alike is no second one of this.
    return f"{_RESEMBLING}{looks} {job}"


def _notify(given: Mapping[str, str]) -> str | None:
    notify = given.get(names.JOB_NOTIFY)
    if notify is None:
        return None
    is_ours = notify.startswith(names.RESERVED_QUEUE_PREFIX) and not notify.startswith(names.INBOX_PREFIX)
    # What the service may write to, its callers may not all: the broker's own queues least of all.
    if is_ours or len(notify) > LONGEST_HEADER or not notify.startswith(("/queue/", "/topic/")):
        raise _refused(names.JOB_NOTIFY, "a destination such as /queue/mine or /topic/mine")
    return notify


def _not_before(given: Mapping[str, str], now: Moment) -> float | None:
    text = given.get(names.JOB_NOT_BEFORE)
    if text is None:
        return None
    if not _EPOCH_MS.fullmatch(text):
        raise _refused(names.JOB_NOT_BEFORE, "milliseconds since the epoch")
    at = to_seconds(Milliseconds(int(text)))
    # What is past says nothing; such a job is one without.
    return at if at > now.wall else None


def _traceparent(given: Mapping[str, str]) -> str | None:
    # W3C Trace Context: who gets one that it cannot read goes on without.
    text = given.get(names.TRACEPARENT, "")
    return text if is_traceparent(text) else None


def _tracestate(given: Mapping[str, str]) -> str | None:
    text = given.get(names.TRACESTATE)
    return text if text and len(text) <= _MAX_TRACESTATE_LENGTH else None


def _seconds(given: Mapping[str, str], name: str) -> float | None:
    milliseconds = _number(given, name)
    if milliseconds == 0:
        raise _refused(name, "milliseconds, more than 0")
    return None if milliseconds is None else to_seconds(Milliseconds(milliseconds))


def _number(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not _DECIMAL.fullmatch(text):
        raise _refused(name, "a whole number")
    return int(text)


def _refused(name: str, form: str) -> VerbError:
    message = f"{name}: {form} is wanted"
    return VerbError("bad-parameters", message, details=[{"field": name, "message": message}])
