"""Registry writer: group commit of work on the registry, in one thread, in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar

import anyio
import anyio.lowlevel

from nebula.rpc.jobs.registry.errors import (
    RegistryAway,
    RegistryClosed,
    RegistryFailed,
    RegistryFull,
    RegistryLost,
)
from nebula.rpc.jobs.registry.registry import JobRegistry
from nebula.threads import DaemonThread

__all__ = ["RegistryWriter"]

# Between two tries to do a batch again.
_FIRST_RETRY: Final = 0.05
_LAST_RETRY: Final = 1.0

_T = TypeVar("_T")

# What work gave, or what it raised.
_Outcome = tuple[Any, Exception | None]


@dataclass(slots=True)
class _Work(Generic[_T]):
    do: Callable[[JobRegistry], _T]
    then: Callable[[_T], None] | None = None
    otherwise: Callable[[], None] | None = None
    afterwards: Callable[[_T], None] | None = None
    is_awaited: bool = False
    result: _T | None = None
    error: Exception | None = None
    is_over: anyio.Event = field(default_factory=anyio.Event)

    def end(self) -> None:
        """Wake the caller: the outcome is known."""
        if self.error is not None and self.otherwise is not None:
            self.otherwise()
        self.is_over.set()


# docs/decisions/0006: a job is on disk before its caller gets a reply, so that a crash loses no promised job.
# Group commit, as in the broker's store: a commit waits for the disk, some milliseconds, whatever it
# holds. So one batch is on its way at a time, and what comes meanwhile is the next one. Under load
# batches grow and the cost of a job falls; without load a job waits for no timer.
#
# Each piece of work is a savepoint of its own (`part`): one that raises fails alone, the rest of its
# batch is written. The exceptions are errors of the disk or database, which fail the whole batch.
#
# One daemon thread: SQLite wants one, and a thread that hangs in a database's driver must not keep the
# process from ending.
class RegistryWriter:
    """Does work on a registry in the order in which it came, off the loop, and says when it is durable.

    What comes while a batch is being written is the next batch: one wait for the disk serves all of it.
    Reads take the same way, so that they see all that was asked for before them. While a database is away
    its batch waits, and is done again: nothing in it may have an effect beyond the registry.

    Attributes:
        deadline: on anyio's clock; by then the registry has to have replied.
    """

    def __init__(self, registry: JobRegistry) -> None:
        self.deadline = math.inf
        self._registry = registry
        self._waiting: list[_Work[Any]] = []
        self._thread = DaemonThread()
        self._has_work = anyio.Event()
        self._is_closed = False

    def post(self, do: Callable[[JobRegistry], _T], then: Callable[[_T], None] | None = None) -> None:
        """Do this, and call `then` with its result, on the loop, once it is on the disk.

        If it raises, or the disk fails, `run` raises. After `close` it is dropped.
        """
        self._put(_Work(do, then))

    async def do(
        self,
        do: Callable[[JobRegistry], _T],
        then: Callable[[_T], None] | None = None,
        otherwise: Callable[[], None] | None = None,
        afterwards: Callable[[_T], None] | None = None,
    ) -> _T:
        """Do this and wait until it is on the disk. If the caller is cancelled, it is done all the same.

        Args:
            do: reads and writes.
            then: called with its result, on the loop, before this returns and before what came later.
            otherwise: called there instead, where this raises.
            afterwards: likewise, but when the caller has gone on to what it waits for next.

        Raises:
            RegistryClosed: it was not done.
            Exception: what `do` raised, and then nothing of it was written; or the disk's error.
        """
        work = _Work(do, then, otherwise, afterwards, is_awaited=True)
        self._put(work)
        await work.is_over.wait()
        if work.error is not None:
            raise work.error
        result: Any = work.result
        return result  # type: ignore[no-any-return]  # None is a result like any other

    async def run(self) -> None:
        """Do the work until `close`, and then what is left.

        A cancellation around it does not end it: what was decided before has to be kept.

        Raises:
            Exception: work that no caller waits for failed. No more work is done.
        """
        with anyio.CancelScope(shield=True):
            try:
                while self._waiting or not self._is_closed:
                    await self._has_work.wait()
                    self._has_work = anyio.Event()
                    await self._write_batch()
            finally:
                self._thread.close()
                self._give_up()

    def close(self) -> None:
        """Let `run` end when all work is done."""
        self._is_closed = True
        self._has_work.set()

    def _put(self, work: _Work[Any]) -> None:
        if self._is_closed:
            work.error = RegistryClosed("the job registry is closed")
            work.end()
            return
        self._waiting.append(work)
        self._has_work.set()

    async def _write_batch(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        try:
            outcomes = await self._apply_in_time(batch)
            # On the loop, in order, and after the commit: what `then` publishes can no longer be undone
            # by a crash.
            for work, outcome in zip(batch, outcomes, strict=True):
                work.result, work.error = outcome
                if work.error is None and work.then is not None:
                    work.then(work.result)
                work.end()
        except Exception as error:
            _end(batch, error)
            raise
        for work in batch:
            if work.error is not None and not work.is_awaited:
                raise work.error
        await self._call_afterwards(batch)

    async def _call_afterwards(self, batch: Sequence[_Work[Any]]) -> None:
        calls = [
            partial(work.afterwards, work.result)
            for work in batch
            if work.error is None and work.afterwards is not None
        ]
        # Trio runs tasks that may go on in any order: after two rounds all of them have.
        for _ in range(2 if calls else 0):
            await anyio.lowlevel.checkpoint()
        for call in calls:
            call()

    async def _apply_in_time(self, batch: Sequence[_Work[Any]]) -> Sequence[_Outcome]:
        delay, reason = _FIRST_RETRY, self._registry.place
        while anyio.current_time() < self.deadline:
            with anyio.CancelScope(deadline=self.deadline) as in_time:
                try:
                    return await self._thread.call(partial(self._apply, batch))
                except RegistryAway as error:
                    reason = str(error)
                await anyio.sleep(delay)
            if in_time.cancelled_caught:
                # The thread is still working. A second thread would do the batch twice.
                break
            delay = min(2 * delay, _LAST_RETRY)
        # A thread may hang, in the look-up of a name or amid a statement: what it comes to later is refused.
        self._registry.abort()
        raise RegistryLost(f"the job registry does not answer: {reason}")

    def _apply(self, batch: Sequence[_Work[Any]]) -> Sequence[_Outcome]:
        self._registry.reconnect()
        with self._registry.transaction():
            return [self._do_part(work.do) for work in batch]

    def _do_part(self, do: Callable[[JobRegistry], Any]) -> _Outcome:
        try:
            with self._registry.part():
                return do(self._registry), None
        except (RegistryAway, RegistryFailed, RegistryFull):
            # Not only this part failed: nothing of the batch is written.
            raise
        except Exception as error:  # raised in the caller
            return None, error

    def _give_up(self) -> None:
        self._is_closed = True
        _end(self._waiting, RegistryClosed("the job registry is closed"))
        self._waiting.clear()


def _end(works: Iterable[_Work[Any]], error: Exception) -> None:
    """End unfinished work with this error, so that no caller waits for it any more."""
    for work in works:
        if not work.is_over.is_set():
            work.error = error
            work.end()
