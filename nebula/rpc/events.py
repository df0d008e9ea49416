"""Declared log events of services, their callers and their jobs."""

from __future__ import annotations

from typing import Final

from nebula.log_events import DEBUG, ERROR, INFO, WARNING, Event, Level

_CALLS: Final = (
    Event(
        "call answered",
        "a call with `log_calls` has succeeded",
        INFO,
        "kind, service, verb, seconds, trace_id",
    ),
    Event(
        "call failed",
        "a call with `log_calls` has failed; `code` is the error's, or the name of the exception",
        INFO,
        "kind, service, verb, code, seconds, trace_id",
    ),
    Event(
        "cache failed",
        "the client's cache store failed; calls are made without it",
        WARNING,
        "error",
    ),
    Event(
        "connect failed",
        "could not connect while reconnecting or waiting for a broker; warning the first time, then info",
        (Level.INFO, Level.WARNING),
        "reason",
    ),
    Event(
        "connection lost",
        "a client or service has lost its connection, and connects again",
        WARNING,
        "reason",
    ),
    Event("connected again", "a lost connection was replaced", INFO),
    Event(
        "subscription not made again",
        "the broker refused a subscription on a new connection; it has ended",
        WARNING,
        "destination, reason",
    ),
    Event("state hook failed", "a bug in `on_state`", ERROR, "state, exception"),
)

_SERVICES: Final = (
    Event("service started", "a service takes requests", INFO, "service, queues, state"),
    Event(
        "service came back",
        "a service takes requests again, on a new connection",
        INFO,
        "service, queues, state",
    ),
    Event(
        "instance not announced",
        "the broker refused the announcement; callers do not find this instance",
        WARNING,
        "service, reason",
    ),
    Event(
        "instance queue not subscribed",
        "the broker refused the instance's own queue; requests come only by the queue of all instances",
        WARNING,
        "service, queue",
    ),
    Event(
        "cancel topic not subscribed",
        "the broker refused the topic of cancellations; cancelled requests are handled until they expire",
        WARNING,
        "service, topic",
    ),
    Event("other instances not seen", "their contracts could not be read", DEBUG, "service, reason"),
    Event(
        "other contract seen",
        "another instance of this name has another contract",
        WARNING,
        "service, instance, version, difference",
    ),
    Event("check failed", "a bug in a hook of `ready` or `health`", ERROR, "kind, check, exception"),
    Event("check hung", "a hook of `ready` or `health` takes too long", WARNING, "kind, check, seconds"),
    Event(
        "event loop blocked",
        "a handler keeps the event loop from everything else; `at` is the line",
        WARNING,
        "service, verb, at, seconds, hint",
    ),
)

_REQUESTS: Final = (
    Event(
        "request answered",
        "a request with `log_requests` was handled",
        INFO,
        "service, verb, request_id, principal, seconds, trace_id",
    ),
    Event(
        "request failed",
        "a request with `log_requests` has failed",
        INFO,
        "service, verb, request_id, principal, code, seconds, trace_id",
    ),
    Event(
        "verb failed",
        "a bug in a handler; the caller gets `internal`",
        ERROR,
        "verb, request_id, principal, trace_id, exception",
    ),
    Event(
        "bad result returned",
        "a handler's result does not fit what the verb declares (`nebula_service_bad_results_total`)",
        ERROR,
        "verb, field, problem, request_id, principal, trace_id",
    ),
    Event(
        "dependency failed",
        "a service or database that a handler asked has failed",
        WARNING,
        "verb, code, error, request_id, principal, trace_id",
    ),
    Event(
        "error not written",
        "the details of a handler's error have no form in JSON or Avro",
        ERROR,
        "verb, code, request_id, principal, trace_id",
    ),
    Event(
        "request ended early",
        "its caller no longer waits: it was cancelled, or has expired",
        INFO,
        "verb, reason, request_id, principal, trace_id",
    ),
    Event(
        "request dropped, the service is stopping",
        "a request sent to this instance only, so no other can handle it",
        INFO,
        "queue",
    ),
    Event("request not refused, the connection is gone", "a request that would get `busy`", DEBUG),
    Event(
        "unreadable request refused",
        "neither an envelope nor a reply destination can be read; the request becomes a dead letter",
        WARNING,
        "destination",
    ),
    Event(
        "reply dropped, its destination cannot be sent to",
        "a caller named a reply destination that this broker does not have",
        WARNING,
        "destination",
    ),
    Event("reply too large", "the caller gets `result-too-large`", WARNING, "verb, bytes"),
    Event("provider failed after the reply", "a bug behind the `yield` of a provider", ERROR, "exception"),
    Event("stream closed", "a stream of replies ended before its last item", INFO, "verb, reason, items"),
    Event(
        "message not read",
        "the schema of a message to a subscriber could not be fetched; from a queue it is tried again",
        ERROR,
        "destination, handler, principal, exception",
    ),
    Event(
        "message not handled",
        "a bug in a subscriber",
        ERROR,
        "destination, handler, principal, exception",
    ),
    Event(
        "message given up",
        "a message that failed too often; from a queue it becomes a dead letter",
        WARNING,
        "code, reason, destination, handler, principal",
    ),
)

_IDEMPOTENCY: Final = (
    Event(
        "idempotency key not looked up",
        "the store failed; the caller gets `busy`",
        ERROR,
        "service, exception",
    ),
    Event("idempotency claims not renewed", "the store failed", ERROR, "service, exception"),
    Event(
        "reply not kept for its key",
        "the store failed; a repeated request is handled again",
        ERROR,
        "service, exception",
    ),
    Event(
        "replies dropped before their time",
        "the store of replies is full",
        WARNING,
        "max_bytes, file",
    ),
)

_JOBS: Final = (
    Event("job accepted", "a job is recorded", INFO, "job, verb, request_id, principal, trace_id"),
    Event(
        "job ended",
        "a job has its last state; the level depends on it (`nebula_service_jobs_ended_total`)",
        (Level.INFO, Level.WARNING, Level.ERROR),
        "job, verb, state, code, request_id, principal, trace_id",
    ),
    Event(
        "job lost",
        "the process or engine that ran the job ended; the job may run again",
        WARNING,
        "job, verb, attempt, code, reason, request_id, principal, trace_id",
    ),
    Event("job status not told", "a status could not be published", INFO, "job, state, error"),
    Event(
        "job notice given up",
        "the message to `notify` was refused",
        WARNING,
        "job, destination, reason",
    ),
    Event("job ends given up", "jobs were removed before their ends could be told", WARNING, "jobs, first"),
    Event("open jobs found", "jobs of an earlier process of this service", INFO, "service, jobs"),
    Event(
        "jobs without an instance taken over",
        "the instance that had them is gone; they are in a shared database",
        WARNING,
        "jobs",
    ),
    Event(
        "jobs of a lost instance taken over",
        "the instance that had them is gone; they are in its folder",
        WARNING,
        "instance, jobs",
    ),
    Event("jobs of a lost instance not read", "its folder is damaged", WARNING, "folder, error"),
    Event(
        "jobs not excluded across instances",
        "`exclusive` or `max_running`, and several instances with folders of their own",
        WARNING,
        "service, verbs, other_instances, advice",
    ),
    Event("news of jobs not heard", "the shared database ended LISTEN; it is polled", INFO, "error"),
    Event(
        "disk nearly full, no jobs taken",
        "new jobs are refused with `busy` (`min_free_disk_bytes`)",
        ERROR,
        "service, free_bytes, min_free_disk_bytes",
    ),
    Event("disk has room for jobs again", "new jobs are accepted again", WARNING, "service, free_bytes"),
    Event("ended jobs removed", "their results needed more room than jobs may have", WARNING, "jobs, bytes"),
    Event("unfinished outputs removed", "files of runs that were killed", INFO, "outputs, first"),
    Event("unfinished outputs not removed", "likewise, but it failed", WARNING, "note, error"),
    Event("result not read", "the files of a result are damaged", WARNING, "path, reason"),
    Event(
        "state of a lost project found",
        "the folder of jobs belongs to a project that no longer exists",
        WARNING,
        "service, folder, project",
    ),
)

EVENTS: Final = _CALLS + _SERVICES + _REQUESTS + _IDEMPOTENCY + _JOBS
"""All log events of callers, services and jobs."""
