"""A second service for the console's tests, in its own process: jobs in steps that wait until released."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from nebula import Job, JobError, Responder, VerbError

app = Responder("workshop", version="2.1")

# The jobs run in threads of the service.
_released = threading.Event()


class Steel(BaseModel):
    """Weighs much."""

    kind: Literal["steel"] = "steel"
    tons: Annotated[float, Field(gt=0)]


class Wood(BaseModel):
    """Is counted."""

    kind: Literal["wood"] = "wood"
    logs: int


class OutOfStock(VerbError):
    """There is too little of it."""

    code = "out-of-stock"


@app.verb(errors=[OutOfStock])
async def reserve(
    material: Annotated[Steel | Wood, Field(discriminator="kind")], note: str | None = None
) -> str:
    """Put material aside.

    Args:
        material: what is wanted.
        note: for the people in the yard.
    """
    if isinstance(material, Wood) and material.logs > 100:
        raise OutOfStock(f"there are 100 logs, not {material.logs}", details={"logs": 100})
    return material.kind


@app.verb(allow=["somebody-else"])
async def secret() -> str:
    """Is for somebody else."""
    return "secret"


@app.verb
async def release() -> None:
    """Let the jobs that wait go on."""
    _released.set()


@app.job(engine=None)
def assemble(ctx: Job, rows: int = 3, wait: bool = False) -> list[dict[str, int | str]]:
    """Put things together, in two steps; the second one may wait for `release`."""
    with ctx.step(1, 2, "gather"):
        for part in range(3):
            ctx.log(f"part {part} is here")
    with ctx.step(2, 2, "assemble"):
        while wait and not _released.is_set():
            ctx.raise_if_cancelled()
            time.sleep(0.02)
        _released.clear()
        ctx.log("assembled")
    return [{"part": f"p{number}", "weight": 1000 + number} for number in range(rows)]


@app.job(engine=None)
def break_down(ctx: Job, reason: str) -> None:
    """Fail."""
    ctx.log("about to fail")
    raise JobError(reason, code="broken")
