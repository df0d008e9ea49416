"""The jobs of a service while it runs: begun with its first connection, ended after its last request."""

from __future__ import annotations

import anyio
from anyio.abc import TaskGroup

from nebula.rpc.jobs.service.notices import Deliver
from nebula.rpc.jobs.service.service import JobService
from nebula.rpc.jobs.service.status_publisher import Publish
from nebula.rpc.wire.brokers import Brand

__all__ = ["RunningJobs"]


class RunningJobs:
    """Runs a job service next to the requests of its service.

    Jobs outlive connections: they begin with the first one and go on while the service reconnects. They end
    after the last request, so that a request for a job is still accepted while others are replied to.

    Args:
        service: the jobs.
        publish: sends a message by the current connection.
        deliver: sends one, and waits until the broker has it.
    """

    def __init__(self, service: JobService, publish: Publish, deliver: Deliver) -> None:
        self.service = service
        self._publish, self._deliver = publish, deliver
        # A scope of its own, because jobs end before the other background tasks, while a connection can tell
        # their ends.
        self._scope = anyio.CancelScope()
        self._has_ended = anyio.Event()

    async def begin(self, background: TaskGroup, brand: Brand) -> None:
        """Begin. When this returns, jobs are taken."""
        are_taken = anyio.Event()
        background.start_soon(self._run, brand, are_taken, name="jobs")
        # Requests for jobs need an open registry, and come as soon as the queues are subscribed to.
        await are_taken.wait()

    async def end(self) -> None:
        """End those that run, and have told how they ended. Needs a connection, and jobs that have begun."""
        self._scope.cancel()
        await self._has_ended.wait()

    async def _run(self, brand: Brand, are_taken: anyio.Event) -> None:
        with self._scope:
            await self.service.run(self._publish, deliver=self._deliver, brand=brand, started=are_taken)
        self._has_ended.set()
