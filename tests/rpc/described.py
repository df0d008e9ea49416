"""The description of a service, as a caller gets it."""

from __future__ import annotations

from typing import Any

import anyio

from nebula import Responder
from nebula.testing import TestClient


def described(app: Responder) -> dict[str, Any]:
    """Call `describe` of a service that runs for as long as that takes."""

    async def describe() -> Any:
        async with TestClient(app) as client:
            return await client.call(app.name, "describe")

    found: dict[str, Any] = anyio.run(describe)
    return found
