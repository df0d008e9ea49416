"""Having a service begin a job: the request, and the handle of whatever came of it."""

from __future__ import annotations

import secrets
import time

from nebula.errors import CallTimeout
from nebula.headers import JOB_ID, PERSISTENT
from nebula.rpc.envelope import JSON_TYPE
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.inbox import Inbox
from nebula.rpc.jobs.handle import JobClient, JobHandle
from nebula.rpc.jobs.identifiers import RANDOM_BYTES, new_ulid, qualified
from nebula.rpc.replies import read_value, reading
from nebula.rpc.start_options import StartOptions, start_headers
from nebula.rpc.verbs import Target

__all__ = ["start_job"]


async def start_job(
    client: JobClient,
    inbox: Inbox,
    target: Target,
    body: bytes,
    options: StartOptions,
    *,
    timeout: float,
    wants_verdict: bool,
) -> JobHandle:
    """See `Client.start`.

    Args:
        client: what the handle asks with.
        inbox: where the early answer comes to.
        target: the job's verb.
        body: of the request.
        options: of the job.
        timeout: seconds to wait for the early answer.
        wants_verdict: the broker's receipts say what became of a message.
    """
    queue = target.destination
    job = new_ulid(int(time.time() * 1000), secrets.token_bytes(RANDOM_BYTES))
    headers = {"content-type": JSON_TYPE, PERSISTENT: "true", JOB_ID: job}
    headers |= start_headers(options, inbox.brand)
    try:
        answer = await inbox.ask(queue, body, headers, timeout=timeout, wants_verdict=wants_verdict)
    except CallTimeout:
        # The id is ours, so the job can be asked about even if its service was away all the time.
        return JobHandle(client, qualified(target.service, job), via=queue)
    early = read_value(answer, None)
    if not isinstance(early, dict) or "job" not in early:
        raise UnexpectedReply(f"{target.verb!r} of {queue} is not a job: it answered at once")
    via = early.get("via")
    with reading(f"the answer of {queue}"):
        return JobHandle(client, early["job"], via=None if via is None else str(via))
