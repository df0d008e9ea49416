"""Notices of the ends of jobs, delivered to queues at least once.

That a notice is owed is written in the registry with the end itself, so it outlives reader, broker and
service. It is sent until the broker has confirmed it. A reader tells a duplicate by the job and its `seq`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import anyio

from nebula.errors import NebulaError, Rejected, ServerError
from nebula.headers import REJECTED_FULL
from nebula.logs import get_logger
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import JobRecord, LogLine
from nebula.rpc.jobs.registry.registry import DoOnRegistry, JobRegistry
from nebula.rpc.jobs.service.status_publisher import Publish

__all__ = ["Deliver", "Notices", "posting"]

_log = get_logger(__name__)


# The number of queues that notices go to at a time.
_MOST_QUEUES: Final = 100

# Where nothing says that it would go now, such as a queue that has room again.
_RETRY_SECONDS: Final = 10.0

_PAGE: Final = 100

# Some brokers end the connection over a destination that they do not let us use. No job is worth more.
_MOST_ERRORS: Final = 3


Deliver: TypeAlias = Callable[[str, bytes, Mapping[str, str]], Awaitable[None]]
"""Sends a message to a destination, and waits until the broker has it: on its disk, if it keeps any.

Raises:
    Rejected: it never will.
    NebulaError: there is no connection, or it ended.
    TimeoutError: the broker did not say.
"""


def posting(publish: Publish) -> Deliver:
    """Sends, and waits for nothing."""

    async def deliver(destination: str, body: bytes, headers: Mapping[str, str]) -> None:
        publish(destination, body, headers)

    return deliver


async def _at_once(_ulid: str) -> None:
    return


# One task for each queue that is owed something, and one loop that starts them. A queue that is full or
# refuses is set aside (`_stuck`) until something may have changed: a new end, a new connection, or ten
# seconds. Within a queue the order is that of the jobs, so the first end that does not go stops the
# others behind it.
#
# At least once, not exactly once: between the broker's receipt and `settle_notice` the service may die,
# and the notice is sent again. Its reader knows the job and its `seq`.
class Notices:
    """Sends what is owed: to each queue in order, and to no queue later because another one is slow.

    Args:
        do: on the registry; a `VerbError` says that it is closed.
        write: makes the notice of a job that has ended: destination, body, headers.
        deliver: sends it.
        now: seconds since the epoch.
        until_due: waits until a job's end, by ULID, may be told: `StatusPublisher.until_released`.
    """

    def __init__(
        self,
        do: DoOnRegistry,
        write: Callable[[JobRecord], tuple[str, bytes, Mapping[str, str]]],
        deliver: Deliver,
        now: Callable[[], float],
        until_due: Callable[[str], Awaitable[None]] = _at_once,
    ) -> None:
        self._do, self._write, self._deliver, self._now = do, write, deliver, now
        self._until_due = until_due
        self._has_work = anyio.Event()
        self._errors: dict[str, int] = {}
        # The queues to which something is on its way, and those that take nothing now.
        self._busy, self._stuck = set[str](), set[str]()

    def look(self) -> None:
        """Something is owed, or there is a connection again: it is sent at once."""
        self._stuck.clear()
        self._has_work.set()

    async def run(self) -> None:
        """Send what is owed, now and from now on, until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._has_work = anyio.Event()
                try:
                    queues = await self._do(_owed_queues)
                except VerbError:
                    # The registry is closed, as the service stops. What is owed stays so.
                    tasks.cancel_scope.cancel()
                    return
                free = [queue for queue in queues if queue not in self._busy | self._stuck]
                for queue in free[: _MOST_QUEUES - len(self._busy)]:
                    self._busy.add(queue)
                    tasks.start_soon(self._send_in_order, queue)
                with anyio.move_on_after(_RETRY_SECONDS if self._busy or self._stuck else None) as wait:
                    await self._has_work.wait()
                if wait.cancelled_caught:
                    self._stuck.clear()

    async def _send_in_order(self, queue: str) -> None:
        """Send what is owed there, up to the first notice that cannot be delivered now."""
        try:
            while records := await self._do(partial(_owed_at, queue=queue)):
                for record in records:
                    if not await self._send(record):
                        # It is asked once for all that it is to get.
                        self._stuck.add(queue)
                        return
            # There may be more for it by now.
            self._has_work.set()
        except VerbError:
            return
        finally:
            self._busy.discard(queue)

    async def _send(self, record: JobRecord) -> bool:
        """Send one notice. Returns whether it is settled: delivered, or given up."""
        failure = ""
        await self._until_due(record.id)
        try:
            await self._deliver(*self._write(record))
        except (NebulaError, TimeoutError) as error:
            if not self._is_hopeless(record, error):
                return False
            _log.warning("job notice given up", job=record.id, destination=record.notify, reason=str(error))
            failure = f"its end cannot be told: {error}"
        self._errors.pop(record.id, None)
        await self._do(partial(_settle, job=record.id, at=self._now(), failure=failure))
        return True

    def _is_hopeless(self, record: JobRecord, error: Exception) -> bool:
        if isinstance(error, Rejected):
            return error.verdict != REJECTED_FULL
        if isinstance(error, ServerError):
            self._errors[record.id] = self._errors.get(record.id, 0) + 1
        return self._errors.get(record.id, 0) >= _MOST_ERRORS


def _owed_queues(registry: JobRegistry) -> list[str]:
    return registry.owed_queues()


def _owed_at(registry: JobRegistry, queue: str) -> list[JobRecord]:
    return registry.owed_jobs(_PAGE, queue)


def _settle(registry: JobRegistry, job: str, at: float, failure: str) -> None:
    registry.settle_notice(job)
    if failure:
        registry.add_lines(job, [LogLine(at, failure)])
