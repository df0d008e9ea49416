"""What a service has for as long as it runs, for those who want all of it."""

from __future__ import annotations

from typing import Any

from nebula.rpc.context import Request
from nebula.rpc.jobs.context import Job

__all__ = ["lifespan_state"]


async def lifespan_state(context: Request[Any] | Job) -> Any:
    """A provider of what `lifespan` yielded, for verbs and for jobs that run in the service:

    @app.verb
    async def quote(symbol: str, *, pools: Pools = Depends(lifespan_state)) -> Decimal: ...
    """
    return context.state
