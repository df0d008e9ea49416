"""Jobs without `await`."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, Unpack, overload

from typing_extensions import TypeVar as DefaultTypeVar

from nebula.rpc.contract.start_options import StartOptions
from nebula.rpc.jobs.handle import JobHandle as AsyncJobHandle
from nebula.rpc.jobs.model.record import LogLine
from nebula.rpc.jobs.model.status import JobStatus
from nebula.rpc.jobs.results.fetching import rows_of
from nebula.sync.loop import Loop

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # nor does it
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

__all__ = ["JobHandle"]

U = TypeVar("U")
T = DefaultTypeVar("T", default=Any)


class JobHandle(Generic[T]):
    """A handle to one job of one service. See `nebula.rpc.jobs.handle.JobHandle`.

    Attributes:
        id: `<service>/<ulid>`.
    """

    def __init__(self, job: AsyncJobHandle[T], loop: Loop) -> None:
        self.id = job.id
        self._job = job
        self._loop = loop

    def status(self) -> JobStatus:
        """The job's current status."""
        return self._loop.do(self._job.status)

    def watch(self) -> Generator[JobStatus]:
        """The job's current status, and each newer one as it comes; the last one is its end."""
        # After a `break`, the generator closes the subscription on the loop (`Loop.each`).
        return self._loop.each(self._job.watch)

    def wait(self) -> JobStatus:
        """The job's last status, once it has ended."""
        return self._loop.do(self._job.wait)

    @overload
    def result(self) -> T: ...
    @overload
    def result(self, as_: type[U]) -> U: ...
    def result(self, as_: Any = None) -> Any:
        """What the job returned, once it has ended: as its function says, or as the type that is given."""
        return self._loop.do(partial(self._job.result, as_))

    def rows(self) -> Generator[dict[str, Any]]:
        """Iterate over the rows of the job's table, or the items of its list, once the job has ended."""
        # A page at a time: a row for itself takes longer to hand over than to read.
        for page in self._loop.each(self._job.pages):
            yield from rows_of(page)

    def to_arrow(self) -> pa.Table:
        """The job's whole table as an Arrow table, once the job has ended."""
        # The table crosses threads once, as one object.
        return self._loop.do(self._job.to_arrow)

    def to_pandas(self) -> pd.DataFrame:
        """The job's whole table as a pandas DataFrame, once the job has ended."""
        return self._loop.do(self._job.to_pandas)

    def cancel(self) -> JobStatus:
        """End the job. Returns at once."""
        return self._loop.do(self._job.cancel)

    def show(self, lines: int = 10) -> dict[str, Any]:
        """All that is known about the job, with some lines of its log; for its owner only."""
        return self._loop.do(partial(self._job.show, lines))

    def rerun(self, **options: Unpack[StartOptions]) -> JobHandle[T]:
        """Start a new job with the parameters of this one. Returns its handle."""
        return JobHandle(self._loop.do(partial(self._job.rerun, **options)), self._loop)

    @overload
    def log(self, limit: int = 100) -> list[str]: ...
    @overload
    def log(self, *, follow: Literal[True], after: int = 0) -> Generator[LogLine]: ...
    def log(
        self, limit: int = 100, *, follow: bool = False, after: int = 0
    ) -> list[str] | Generator[LogLine]:
        """The last lines of the job's log; or, to `follow` it, all that come after a number, as they come."""
        if follow:
            return self._loop.each(lambda: self._job.log(follow=True, after=after))
        return self._loop.do(partial(self._job.log, limit))

    def log_lines(self, limit: int = 100, *, after: int | None = None) -> list[LogLine]:
        """Lines of the job's log, with number and time: the last ones, or those that follow a number."""
        return self._loop.do(partial(self._job.log_lines, limit, after=after))

    def __repr__(self) -> str:
        return f"JobHandle({self.id!r})"
