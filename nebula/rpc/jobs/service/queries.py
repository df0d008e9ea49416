"""Job queries: records, ends and logs of jobs, for the management verbs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.model.record import JobRecord, LogLine
from nebula.rpc.jobs.registry.registry import DoOnRegistry
from nebula.rpc.jobs.service.instance_context import InstanceContext
from nebula.rpc.jobs.service.other_instances import OtherInstances
from nebula.rpc.jobs.service.waiters import News, Waiters

__all__ = ["JobQueries", "Logged"]


class Logged(NamedTuple):
    """Lines of a job's log, and the job as it was before they were read: if it had ended, none is missing."""

    record: JobRecord
    lines: list[LogLine]


class JobQueries:
    """Looks jobs up.

    Args:
        context: the instance.
        read: the registry, after all that was decided so far: `JobService.read`.
        open_record: of a job that this instance knows not to have ended.
        flush: has what is known of a job's log written.
        others: the other instances.

    Attributes:
        waiters: callers that wait for news of jobs.
    """

    def __init__(
        self,
        context: InstanceContext,
        read: DoOnRegistry,
        open_record: Callable[[str], JobRecord | None],
        flush: Callable[[str], None],
        others: OtherInstances,
    ) -> None:
        self._service, self._read, self._flush, self._others = context.service, read, flush, others
        self._open_record, self._limits = open_record, context.limits
        self.waiters = Waiters(context.limits.max_waiting)

    async def find(self, ulid: str) -> JobRecord:
        """The record of a job of this instance, with all that was decided of it before.

        Raises:
            VerbError: `elsewhere`, with `details.via`, or `not-found`.
        """
        # Log lines wait up to half a second for others (`open_job`). They are written before this read, so a
        # caller sees all that was logged before.
        self._flush(ulid)
        record = await self._read(lambda registry: registry.find(ulid))
        if record is not None:
            return record
        # Last, because it reads the folders of the others from the disk each time.
        found = await self._others.find(lambda registry: registry.find(ulid))
        if found is not None:
            text = f"another instance holds the job, ask {found.via}"
            # The caller asks there itself (`JobHolder`): a service that forwards requests would need the
            # caller's rights.
            raise VerbError("elsewhere", text, details={"via": found.via})
        raise VerbError("not-found", self._unknown(ulid))

    async def ended(
        self, ulid: str, seconds: float, is_enough: Callable[[JobRecord], bool] = lambda _: False
    ) -> JobRecord:
        """The job once it has ended or `is_enough`, or as it is after `seconds`. Raises as `find`."""

        async def look(ended: JobRecord | None) -> JobRecord:
            # The end comes with the news, which saves a read by the registry's thread for each short job
            # (docs/decisions/0036).
            return ended or await self.find(ulid)

        def suffices(found: JobRecord) -> bool:
            return found.has_ended or is_enough(found)

        # One that is open is not looked up before its end is told: its caller asks while it begins.
        return await self.waiters.wait(ulid, News.END, look, suffices, seconds, self._open_record(ulid))

    async def log(self, ulid: str, limit: int, after: int | None, seconds: float) -> Logged:
        """Lines of a job's log, see `JobRegistry.lines`. Raises as `find`.

        If the log has no lines yet, it waits at most `seconds` for one, or for the job's end.
        """

        async def look(_ended: JobRecord | None) -> Logged:
            # The record before its lines: if it has ended, no line is missing below. In the other order a
            # last line could be written between the two, and a reader would be told that the log is over.
            record = await self.find(ulid)
            return Logged(record, await self._read(lambda registry: registry.lines(ulid, limit, after)))

        def is_enough(found: Logged) -> bool:
            return found.record.has_ended or bool(found.lines)

        return await self.waiters.wait(ulid, News.LINES, look, is_enough, seconds)

    def _unknown(self, ulid: str) -> str:
        days, most = self._limits.keep_for / 86400, self._limits.keep_jobs
        return (
            f"{self._service} knows no job {ulid}: it was never accepted, or is forgotten, as a job is "
            f"{days:g} days after its end, or when more than {most:,} have ended"
        )
