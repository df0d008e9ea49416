"""Starting jobs: a stored request whose id is the client's own.

The client makes the job's id, so a request that is sent twice starts one job, and a caller whose early reply
never came can still ask about the job.
"""

from __future__ import annotations

import secrets
import time
from typing import Any, NamedTuple

from nebula.errors import CallTimeout
from nebula.headers import JOB_ID, PERSISTENT
from nebula.rpc.client.calls import Calls
from nebula.rpc.contract.start_options import StartOptions, start_headers
from nebula.rpc.contract.verbs import Target
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.model.identifiers import RANDOM_BYTES, new_ulid, own_queue, qualified, unqualified
from nebula.rpc.middleware.chain import Call
from nebula.rpc.wire.envelope import JSON_TYPE, request_body
from nebula.rpc.wire.replies import read_value, reading

__all__ = ["StartedJob", "start_job"]


class StartedJob(NamedTuple):
    """A started job: its id `<service>/<ulid>`, and the queue where to ask about it, if known."""

    job: str
    via: str | None


async def start_job(
    calls: Calls, target: Target, parameters: Any, timeout: float | None, options: StartOptions
) -> StartedJob:
    """Have a service begin a job, see `Client.start` for what it raises.

    Args:
        calls: of the client.
        target: the service and the verb.
        parameters: of the verb.
        timeout: seconds to wait for the early reply; None: see `Calls.seconds`.
        options: of the job.
    """
    job = new_ulid(int(time.time() * 1000), secrets.token_bytes(RANDOM_BYTES))
    headers = {"content-type": JSON_TYPE, PERSISTENT: "true", JOB_ID: job}
    headers |= start_headers(options, calls.connection.brand)
    body = request_body(target.verb, parameters)

    async def work(call: Call) -> StartedJob:
        queue = call.destination
        # Outside of the `try`: where the time is over before anything was sent, there will be no job.
        seconds = calls.seconds(call.timeout)
        try:
            reply = await calls.ask_stored(queue, body, {**call.headers, **headers}, seconds)
        except CallTimeout:
            # The service may have been away all the time; the job begins when it returns.
            return StartedJob(qualified(target.service, job), queue)
        return _read(target, read_value(reply, None))

    started: StartedJob = await calls.through("start", target.destination, target.verb, timeout, work)
    return started


def _read(target: Target, early: Any) -> StartedJob:
    """Read an early reply."""
    if not isinstance(early, dict) or "job" not in early:
        raise UnexpectedReply(f"{target.verb!r} of {target.destination} is not a job: it answered at once")
    via = early.get("via")
    with reading(f"the answer of {target.destination}"):
        job: str = early["job"]
        service, _ = unqualified(job)
        # Asked at the queue of one instance, `reports.a`, or at its service's. A handle for another service's
        # job would send there with this client's rights.
        if service is None or not f"{target.service}.".startswith(f"{service}."):
            raise ValueError("the job is one of another service")
        return StartedJob(job, own_queue(service, str(via)) if via else None)
