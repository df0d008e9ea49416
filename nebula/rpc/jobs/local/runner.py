"""Runner of jobs in the service's own process: plain functions in threads, coroutine functions as tasks."""

from __future__ import annotations

import math
import secrets
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, assert_never

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal

from nebula.errors import JobError
from nebula.rpc.contract.context import HANDLED_HEADERS, HANDLED_PRINCIPAL, Surroundings
from nebula.rpc.contract.injection import Plan
from nebula.rpc.contract.job_context import JobCancelled
from nebula.rpc.contract.job_runner import (
    JobFailure,
    JobListener,
    JobMiddleware,
    JobOutput,
    JobTask,
    Progress,
    Started,
)
from nebula.rpc.contract.results import BadResult, of_job
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.local.context import LocalJob, Told
from nebula.rpc.jobs.verb import JobVerb
from nebula.rpc.middleware.providers import Provided
from nebula.rpc.wire.envelope import load_json
from nebula.rpc.wire.upstream import upstream_error

__all__ = ["LocalRunner"]

# Jobs report as often as they like; the runner collects the reports at this interval, in seconds.
_LOOK_EVERY: Final = 0.1

_MAX_RESULT_BYTES: Final = 64 * 1024


class LocalRunner:
    """The `JobRunner` of `@app.job(engine=None)`.

    A coroutine function is ended by the cancellation of its task. A thread cannot be ended: its code
    hears of a cancel by `ctx.is_cancelled`, or by `JobCancelled` out of `ctx.progress` and `ctx.step`.
    Code that never asks runs on, and holds its place, until it returns; its result is dropped.

    Args:
        verbs: by name; they may be added to later.
        around: the service, for the state of its lifespan.
        middleware: around each job's code, the first one outermost.
        max_running: jobs at a time.
        stop_grace: seconds that threads have to end when the service stops. Then they are left to
            themselves, and end with the process.
        notes: where it is noted what jobs have begun to write; None: nowhere.
    """

    is_broken: str | None = None
    failing: str | None = None

    def __init__(
        self,
        verbs: Mapping[str, JobVerb],
        *,
        around: Surroundings | None = None,
        middleware: Sequence[JobMiddleware] = (),
        max_running: int = 8,
        stop_grace: float = 2.0,
        notes: Path | None = None,
    ) -> None:
        self._notes = notes
        self._around, self._middleware = around or Surroundings(), middleware
        self._verbs, self.max_running, self._stop_grace = verbs, max_running, stop_grace
        self._submitted: deque[_Run] = deque()
        self._has_work = anyio.Event()
        self._runs: dict[tuple[str, int], _Run] = {}

    def submit(self, task: JobTask) -> None:
        """See `JobRunner`."""
        run = self._runs[task.job, task.attempt] = _Run(task, self._around, self._middleware, self._notes)
        self._submitted.append(run)
        self._has_work.set()

    def cancel(self, job: str, attempt: int, *, reason: Literal["cancelled", "timed-out"]) -> None:  # noqa: ARG002
        """See `JobRunner`."""
        if (run := self._runs.get((job, attempt))) is not None:
            run.tell(Told.CANCELLED)

    def status(self) -> Mapping[str, Any]:
        """See `JobRunner`."""
        return {"state": "ready", "broken": None, "jobs": {"open": len(self._runs)}}

    def restart(self) -> None:
        """See `JobRunner`."""
        for run in self._runs.values():
            run.tell(Told.STOPPED)

    async def run(self, listener: JobListener, *, started: Started | None = None) -> None:
        """See `JobRunner`; threads that do not end within `stop_grace` live on."""
        incarnation = secrets.token_hex(4)
        async with BlockingPortal() as portal, anyio.create_task_group() as tasks:
            if started is not None:
                started.set()
            while True:
                while self._submitted:
                    run = self._submitted.popleft()
                    listener.on_starting(*run.key, incarnation)
                    self._start(run, listener, portal, tasks)
                self._has_work = anyio.Event()
                await self._has_work.wait()

    def _start(self, run: _Run, listener: JobListener, portal: BlockingPortal, tasks: TaskGroup) -> None:
        async def live() -> None:
            end: _End = None
            try:
                end = await self._run_one(run, listener, portal)
            except anyio.get_cancelled_exc_class():
                # A thread that ended in time has its end; everything else goes with the service.
                run.tell(Told.STOPPED)
                end = run.end
                raise
            finally:
                # Reports that are left go out before the end, which is the last event of an attempt.
                del self._runs[run.key]
                run.context.close()
                run.report(listener)
                _tell_end(run, end, listener)

        # Before the task: the listener hears of a start before anything that the code reports.
        listener.on_started(*run.key)
        tasks.start_soon(live, name=f"job {run.task.job}")

    async def _run_one(self, run: _Run, listener: JobListener, portal: BlockingPortal) -> _End:
        verb = self._verbs[run.task.verb]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_look_often, run, listener)
            if verb.signature.plan is None:
                end = await self._run_with({}, run, verb, portal)
            else:
                end = await self._provide(verb.signature.plan, run, verb, portal)
            tasks.cancel_scope.cancel()
        return end

    async def _run_with(
        self, given: Mapping[str, Any], run: _Run, verb: JobVerb, portal: BlockingPortal
    ) -> _End:
        if verb.is_async:
            return await _run_as_task(run, verb, given)
        return await _run_in_thread(run, verb, given, portal, self._stop_grace)

    async def _provide(self, plan: Plan, run: _Run, verb: JobVerb, portal: BlockingPortal) -> _End:
        """Run it with its provided arguments, which are closed when the run has ended."""
        provided = Provided()
        try:
            with provided:
                given = await provided.make(plan, run.context)
            with provided:
                end = await self._run_with(given, run, verb, portal)
            # A provider that undoes on failure, such as a transaction, has to see an exception, also when
            # cancelled code returned without one.
            if not isinstance(end, JobOutput):
                provided.fail(run.error or JobCancelled())
        except (Exception, JobCancelled, SystemExit) as error:
            return await anyio.to_thread.run_sync(run.fail, error)
        finally:
            await provided.close()
        return end


# What became of a run: its output, why it failed, or None where it ended because it was told to.
_End = JobOutput | JobFailure | None


# A job is told to end once, with a reason (`Told`). What it returns afterwards is dropped if it was
# cancelled. If the service stops, a result that still comes in time counts: its work is done.
class _Run:
    """One attempt."""

    def __init__(
        self, task: JobTask, around: Surroundings, middleware: Sequence[JobMiddleware], notes: Path | None
    ) -> None:
        self.task = task
        self._middleware = middleware
        self.key = (task.job, task.attempt)
        self.context = LocalJob(task, around, notes)
        self.error: BaseException | None = None
        self.scope = anyio.CancelScope()
        self.end: _End = None
        self._reported = Progress()

    @contextmanager
    def in_middleware(self) -> Iterator[None]:
        """For its code alone."""
        # Set in the thread or task of the run, so what the job calls joins its trace, and other runs see
        # nothing of it.
        HANDLED_HEADERS.set(self.task.trace)
        HANDLED_PRINCIPAL.set(self.task.owner or None)
        with ExitStack() as stack:
            for one in self._middleware:
                stack.enter_context(one.around_run(self.context))
            yield

    def tell(self, told: Told) -> None:
        """Tell it to end. The first reason counts."""
        if self.context.told is None:
            self.context.told = told
            self.scope.cancel()

    def report(self, listener: JobListener) -> None:
        """Tell what is new of it."""
        for line in self.context.take_lines():
            listener.on_log(*self.key, line)
        for begun in self.context.take_begun():
            listener.on_progress(*self.key, begun)
        seen = self.context.seen()
        if seen != self._reported:
            self._reported = seen
            listener.on_progress(*self.key, seen)

    def finish(self, verb: JobVerb, result: Any) -> _End:
        """Its code returned this. Blocks: files are renamed."""
        # It returned although it was cancelled. Its caller must not find its output.
        if self.context.told is Told.CANCELLED:
            self.context.discard_outputs()
            return None
        try:
            # On a thread, because a large result takes a while to write, and would hold up other requests on
            # the loop.
            data = verb.signature.dump(result)
            if (size := len(data)) > _MAX_RESULT_BYTES:
                text = f"the result is {size} bytes of JSON: write it to ctx.output(…) and return its path"
                return self.fail(JobError(text, code="result-too-large"))
            # Read back, so that the record has what callers get: JSON's own types.
            value = load_json(data)
        except BadResult as error:
            return self.fail(JobError(of_job(error), code=error.code))
        except ValueError as error:  # a number of more digits than Python reads
            return self.fail(JobError(f"the result cannot be read again: {error}", code=BadResult.code))
        try:
            self.context.publish_outputs()
        except OSError as error:
            return self.fail(error)
        return JobOutput(value=value)

    def fail(self, error: BaseException) -> _End:
        """Its code raised this. Blocks: files are removed."""
        self.error = error
        self.context.discard_outputs()
        # What it raises after it was told to end is not a failure.
        return None if self.context.told is not None else _failure(error)


async def _look_often(run: _Run, listener: JobListener) -> None:
    while True:
        run.report(listener)
        await anyio.sleep(_LOOK_EVERY)


async def _run_as_task(run: _Run, verb: JobVerb, given: Mapping[str, Any]) -> _End:
    with run.scope:
        try:
            with run.in_middleware():
                result = await verb.call(run.task.parameters, run.context, given)
        # What a job raises ends the job, and never the service: SystemExit too.
        except (Exception, JobCancelled, SystemExit) as error:
            return await anyio.to_thread.run_sync(run.fail, error)
        except anyio.get_cancelled_exc_class() as error:
            # Our own cancellation, or that of something that the job waited for.
            if anyio.current_effective_deadline() == -math.inf:
                raise
            return await anyio.to_thread.run_sync(run.fail, error)
        return await anyio.to_thread.run_sync(run.finish, verb, result)
    await anyio.to_thread.run_sync(run.context.discard_outputs)
    return None


async def _run_in_thread(
    run: _Run, verb: JobVerb, given: Mapping[str, Any], portal: BlockingPortal, stop_grace: float
) -> _End:
    is_over = anyio.Event()

    def work() -> None:
        try:
            with run.in_middleware():
                result = verb.call(run.task.parameters, run.context, given)
            run.end = run.finish(verb, result)
        # BaseException, because a thread prints and drops what is not caught, and the job would never end.
        except BaseException as error:
            run.end = run.fail(error)
        # The loop may be gone by now; then nothing waits for this event.
        with suppress(RuntimeError):
            portal.start_task_soon(is_over.set)

    # Not from a pool: a thread that does not end must neither be waited for nor be missed.
    threading.Thread(target=work, name=f"job {run.task.job}", daemon=True).start()
    try:
        await is_over.wait()
    except anyio.get_cancelled_exc_class():
        run.tell(Told.STOPPED)
        with anyio.move_on_after(stop_grace, shield=True):
            await is_over.wait()
        raise
    return run.end


def _tell_end(run: _Run, end: _End, listener: JobListener) -> None:
    match end:
        case JobOutput():
            listener.on_done(*run.key, end)
        case JobFailure():
            listener.on_failed(*run.key, end)
        case None if run.context.told is Told.STOPPED:
            listener.on_lost(*run.key, "the service stopped")
        case None:
            listener.on_cancelled(*run.key, slots_free=True)
        case _:
            assert_never(end)


def _failure(error: BaseException) -> JobFailure:
    trace = "".join(traceback.format_exception(error))
    if (told := upstream_error(error)) is not None:
        # With the text: a job's owner may read its trace anyway.
        return JobFailure(told.code, f"{type(error).__name__}: {error}", trace=trace)
    if isinstance(error, JobError | VerbError):
        return JobFailure(error.code, error.message, trace=trace)
    return JobFailure("job", f"{type(error).__name__}: {error}", trace=trace)
