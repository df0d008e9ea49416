"""The table of error codes: each with what happened and what to do about it, in a sentence.

A code is a stable kebab-case word to branch on. Replies of services, failures of jobs, verbs of the broker
and `Refused` use these words, and no others: a test compares the table with the words in the code. Verbs may
have words of their own besides (`VerbError`), but none of `CODES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class ErrorCode:
    """One code of an `error` reply, of a job's failure, or of `Refused`.

    Attributes:
        code: the stable kebab-case word.
        meaning: what happened and what to do: `It is full: try again later.`
        is_retryable: the same request may succeed later.
    """

    code: str
    meaning: str
    is_retryable: bool = False


# Read-only, because the table is the contract with callers in other languages.
def _by_code(*rows: ErrorCode) -> Mapping[str, ErrorCode]:
    return MappingProxyType({row.code: row for row in rows})


# G.error-codes; below the line those of jobs.
CODES: Final[Mapping[str, ErrorCode]] = _by_code(
    ErrorCode(
        "bad-request", "The request is malformed, or reuses a key or stream id: the message says which."
    ),
    ErrorCode("unknown-verb", "The service has no such verb: ask `describe`."),
    ErrorCode("bad-parameters", "The parameters do not fit the verb: `details` says why, field by field."),
    ErrorCode(
        "not-allowed",
        "The caller's principal may not use this verb, or not this job: have the right granted.",
    ),
    ErrorCode("busy", "The service has too much to do: try again later.", is_retryable=True),
    ErrorCode(
        "deadline-exceeded",
        "The time for the request or the job is over: give it more, or ask for less.",
        is_retryable=True,
    ),
    ErrorCode("cancelled", "The caller withdrew the request: send it again if it is wanted after all."),
    ErrorCode(
        "too-many-attempts",
        "The request was delivered too often without a reply, and is not run again: the service's log says "
        "what became of it.",
    ),
    ErrorCode("streaming-only", "The verb's result is too long for one reply: read it as a stream."),
    ErrorCode(
        "result-too-large",
        "The result of a call or a job, or an item of a stream, is larger than can be sent or collected: ask "
        "for less, or in pages.",
    ),
    ErrorCode("not-found", "The thing asked for does not exist (any more): list those that do."),
    ErrorCode("elsewhere", "Another instance holds the job: send the request to the queue in `details.via`."),
    ErrorCode(
        "bad-result",
        "The service returned what its verb does not declare, or what JSON cannot carry: its log says what.",
    ),
    ErrorCode(
        "upstream-timeout",
        "A service that the handler called did not answer in time: try again later, or give it more time.",
        is_retryable=True,
    ),
    ErrorCode(
        "upstream-unavailable",
        "A service that the handler called cannot be reached: start it, or try again later.",
        is_retryable=True,
    ),
    ErrorCode(
        "upstream-error",
        "A service that the handler called replied with `error`: look up its code, `details.code`.",
    ),
    # Not retryable, because a bug fails again, and the handler may have done half of its work.
    ErrorCode("internal", "The service failed: its log has the cause."),
    # Jobs.
    ErrorCode(
        "engine-unavailable",
        "The Spark engine cannot start: the message and the service's log say why.",
        is_retryable=True,
    ),
    ErrorCode("analysis", "Spark refused the query (SQLSTATE 42xxx): correct it."),
    ErrorCode(
        "data",
        "The data do not fit the computation (SQLSTATE 22xxx): correct them, or change the computation.",
    ),
    ErrorCode(
        "python", "Python code in a Spark worker raised an exception: the message says where, correct it."
    ),
    ErrorCode(
        "worker-crashed",
        "A Python worker of Spark died: the service's log has its crash report.",
    ),
    ErrorCode(
        "out-of-memory",
        "The job used up its memory, or that of its engine: give it more, or less data.",
        is_retryable=True,
    ),
    ErrorCode(
        "engine-lost",
        "The engine died under the job, possibly because another job used up its memory: start the job "
        "again.",
        is_retryable=True,
    ),
    ErrorCode("job", "The job's own code raised an exception: the message and the job's log say which."),
)
"""The framework's own codes, which no verb may declare."""

# Services of other implementations need not give a code; Nebula's give `deadline-exceeded` or `engine-lost`.
JOB_ENDS: Final[Mapping[str, ErrorCode]] = _by_code(
    ErrorCode("timed-out", "The job ran longer than its time limit: raise the limit, or give it less to do."),
    ErrorCode(
        "lost",
        "The process that ran the job died: see the service's log, and start the job again if it may run "
        "twice.",
    ),
    ErrorCode("expired", "The job did not start in time: give it more time, or the service fewer jobs."),
)
"""Codes that a client makes of the state of a job that ended without a code."""

RESULT_CODES: Final[Mapping[str, ErrorCode]] = _by_code(
    ErrorCode(
        "not-ended", "The job has no result yet: wait for its end, as `job.rows()` does.", is_retryable=True
    ),
    ErrorCode(
        "result-gone",
        "The files of the result no longer exist, or are on another machine: run the job again.",
    ),
    ErrorCode(
        "result-unreadable",
        "The files of the result are damaged, or the service has no pyarrow: the message says which; run the "
        "job again, or install it.",
    ),
    ErrorCode(
        "no-rows",
        "The result is not a table, or not in a form that this format needs: ask for a list as JSON, and for "
        "other values without rows and pages.",
    ),
)
"""Codes of questions about the result of a job."""

BROKER_CODES: Final[Mapping[str, ErrorCode]] = _by_code(
    ErrorCode("bad-pattern", "The glob is malformed: the message says where, correct it."),
    ErrorCode("bad-target", "Dead letters cannot be put there: name a queue in `to`."),
    ErrorCode(
        "hosted",
        "The connection is that of a service in the broker's own process: stop the broker to end it.",
    ),
    ErrorCode("bad-schema", "The schema cannot be registered: the message says why, correct it."),
    ErrorCode("bad-file", "A file cannot be used: the broker's log says which."),
    ErrorCode("not-copied", "The store could not be copied: the broker's log says why."),
)
"""Codes of the broker's own verbs alone; they also reply with some of `CODES`."""

REFUSALS: Final[Mapping[str, ErrorCode]] = _by_code(
    # The broker tells its peer only the text; the code is for callers of the core.
    ErrorCode("denied", "The certificate is on the deny list: issue another one."),
    ErrorCode("expired", "The certificate has expired: renew it."),
    ErrorCode("session", "The session belongs to another principal: choose another `client-id`."),
    ErrorCode("memory", "The broker has no room: have the messages consumed, or raise `max_memory_bytes`."),
    ErrorCode(
        "exclusive",
        "The queue has an exclusive subscription, or has others so that an exclusive one is impossible: end "
        "the existing ones.",
    ),
    ErrorCode("glob", "The destination is a malformed glob: the message says where, correct it."),
    ErrorCode(
        "transaction",
        "The transaction is unknown, already open or too large: begin another one, or send less in it.",
    ),
    ErrorCode("too-many-inboxes", "The session has all the inboxes it may have: end some, or share one."),
    ErrorCode("too-many-connections", "The principal has used up its share of connections: close some."),
    ErrorCode(
        "too-many-destinations", "The principal has used up its share of destinations: use fewer names."
    ),
    ErrorCode("too-many-globs", "The principal has used up its share of globs: unsubscribe from some."),
    ErrorCode("too-many-sessions", "The principal has used up its share of durable sessions: end some."),
    ErrorCode(
        "too-many-subscriptions",
        "The session, or the principal, has all the subscriptions it may have: unsubscribe from some.",
    ),
    # Raised by clients.
    ErrorCode(
        "error",
        "A service that does not use Nebula replied `error` without a code: the message is the service's.",
    ),
    ErrorCode("ignored", "The broker ignored the SUBSCRIBE or UNSUBSCRIBE: have the right granted."),
    ErrorCode(
        "unanswered",
        "The broker sent no RECEIPT in time: check the right to subscribe, or give it more time.",
    ),
    ErrorCode("no-last-values", "The broker keeps no last values: use a Nebula broker, or a topic."),
    ErrorCode(
        "refused",
        "The broker refuses the subscription of a Spark stream: check destination, `clientId` and rights.",
    ),
    ErrorCode(
        "no-outcome",
        "A test double of `nebula.testing` got more calls than it has prepared results: prepare more.",
    ),
)
"""Codes of `Refused`, and others that no reply of Nebula's broker or services has."""
