"""A new job with the parameters of a known one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nebula.rpc.contract.context import Request
from nebula.rpc.contract.verbs import is_open_to
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import JobRecord

if TYPE_CHECKING:
    from nebula.rpc.jobs.service.service import JobService

__all__ = ["rerun"]


async def rerun(service: JobService, request: Request, record: JobRecord) -> dict[str, Any]:
    """Take on a job with the parameters of a known one, validated and checked again, for its owner.

    Its options are the request's own: nothing but the parameters is taken over. Whose job it is could read
    them in it, so nobody gets a job with another's.

    Returns:
        as `JobService.accept`.

    Raises:
        VerbError: as `JobService.accept`; `unknown-verb`, `not-allowed`.
    """
    declared = service.declared(record.verb)
    if declared is None:
        raise VerbError("unknown-verb", f"{service.name} has no job {record.verb!r} any more")
    (verb, allow), asker = declared, request.principal
    if not is_open_to(allow, asker):
        raise VerbError("not-allowed", f"{asker or 'nobody known'} may not call {verb.name}")
    if not record.is_open_to(asker):
        raise VerbError("not-allowed", f"job {record.id} belongs to another principal")
    return await service.accept(request, verb, verb.signature.bind(record.parameters), rerun_of=record.id)
