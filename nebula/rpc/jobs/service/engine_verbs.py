"""Verbs for engines: status and restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nebula.rpc.contract.context import Request
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import ANONYMOUS
from nebula.rpc.jobs.service.service import JobService

__all__ = ["SERVICE_ENGINE", "EngineVerbs"]

# What the service itself is called among the engines.
SERVICE_ENGINE: Final = "service"


class EngineVerbs:
    """`engine.*` for one instance."""

    def __init__(self, service: JobService) -> None:
        self._service = service

    def named(self) -> dict[str, Callable[..., Any]]:
        """The verbs by their names."""
        return {"engine.status": self.status, "engine.restart": self.restart}

    async def status(self, request: Request) -> dict[str, Any]:
        """Tell how the engines are that run this instance's jobs, by their names.

        Args:
            request: the caller's request.
        """
        told = {name or SERVICE_ENGINE: dict(each.status()) for name, each in self._service.runners.items()}
        for name in self._named:
            told[name]["may_restart"] = self._may_restart(name, request.principal)
        return told

    async def restart(self, request: Request, engine: str | None = None) -> None:
        """Replace an engine; its open jobs are lost or run again, isolated ones run on. For its operators.

        Args:
            request: the caller's request.
            engine: its name; not needed where there is only one.
        """
        named = self._named
        if engine is None and len(named) == 1:
            engine = named[0]
        if engine is None or engine not in named:
            raise VerbError("not-found", f"which engine? there is {', '.join(named) or 'none'}")
        if not self._may_restart(engine, request.principal):
            raise VerbError(
                "not-allowed",
                f"engine {engine!r} is restarted by its operators alone, which are named where it is "
                'declared: Spark(operators=["…"])',
            )
        self._service.runners[engine].restart()

    @property
    def _named(self) -> list[str]:
        return [name for name in self._service.runners if name is not None]

    def _may_restart(self, engine: str, principal: str | None) -> bool:
        operators = self._service.operators.get(engine)
        # If the broker does not verify principals, and the engine has no operators, any caller may do it.
        return principal in (None, *ANONYMOUS) if operators is None else principal in operators
