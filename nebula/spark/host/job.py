"""One job in the engine host: its thread, its cancel, and its one end."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from nebula.errors import JobError
from nebula.rpc.contract.job_context import Job
from nebula.rpc.contract.signature import Signature, job_signature
from nebula.spark import lines
from nebula.spark.host.context import SparkJob
from nebula.spark.host.failures import Failure, describe, may_be_engine_loss, may_be_server_loss
from nebula.spark.host.forks import ended_where_forked
from nebula.spark.host.log_capture import Hearer, heard
from nebula.spark.host.results import Results
from nebula.spark.host.session import Session
from nebula.spark.host.standby import Standby
from nebula.spark.host.status_store import group_of

# A cancel is told within a tenth of a second, whether the job's own code has ended by then or not.
_CANCEL_PATIENCE_SECONDS = 0.05
_SETTLE_SECONDS = 0.1
_CANCEL_AGAIN_SECONDS = 0.5

# A JVM's death is told by the host itself, a moment after its jobs have felt it.
_DEATH_SECONDS = 2.0
_SERVER_DEATH_SECONDS = 5.0


# Two threads may want to tell the end: the job's own, and that of a cancel. `_claim_end` lets the first
# one do it, under a lock, and publishing the result needs the claim as well. So a job that was told as
# cancelled never has a result, and a job that was told as done is never told as cancelled.
#
# A cancelled thread cannot be stopped by force. Spark refuses its next actions, and most code ends by
# that. Until it does, `_await_free` watches it, as it may still hold slots of Spark.
class RunningJob:
    """One attempt of a job, from its thread's start until it holds no task slot any more.

    Exactly one of `Done`, `Failed` and `Cancelled` is said about it, by the first of these: its own thread
    or a cancel. A thread that finds itself cancelled drops what it has.

    Attributes:
        key: the job's id and the attempt's number.
    """

    def __init__(
        self,
        submit: lines.Submit,
        session: Session,
        standby: Standby,
        config: lines.Configure,
        say: Callable[[lines.Event], None],
        when_over: Callable[[], None],
    ) -> None:
        self._submit, self._session, self._say, self._when_over = submit, session, say, when_over
        self.key = (submit.job, submit.attempt)
        self._group = group_of(*self.key)
        self._cancel_grace = config.cancel_grace
        self._results = Results(
            Path(config.results),
            *self.key,
            max_rows=config.max_rows,
            max_bytes=config.max_result_bytes,
            notes=Path(config.notes or config.folder),
        )
        self._context: SparkJob | None = None
        self._hearer = Hearer(self._log)
        self._cancelled = threading.Event()
        self._lock = threading.Lock()
        self._has_ended = self._is_known = False
        self._is_over = threading.Event()
        self._place = session.place(self._group, submit.priority)
        self._standby, self._thread = standby, standby.thread

    @property
    def is_over(self) -> bool:
        """Its end was told, and it holds neither a thread nor a task slot."""
        return self._is_over.is_set()

    def start(self) -> None:
        """Begin."""
        self._standby.begin(self._group, self._run)

    def wait(self, seconds: float) -> None:
        """Wait until it is over, at most for this time."""
        self._is_over.wait(seconds)

    def cancel(self) -> None:
        """End it, unless it has ended. Returns at once."""
        with self._lock:
            if self._has_ended or self._cancelled.is_set():
                return
            self._cancelled.set()
        threading.Thread(target=self._cancel, name=f"cancel {self._group}", daemon=True).start()

    def discard(self) -> None:
        """Remove what it has written and not published. Its code may still run."""
        self._results.discard()

    def report_progress(self) -> None:
        """Say how far it is, if that changed. The first time only what it has printed."""
        if self._context is None or self._has_ended:
            return
        self._hearer.flush()
        # The end of one that is over before the next look would be missed.
        if self._is_known:
            with suppress(Exception):  # a JVM that does not answer is dealt with elsewhere
                self._context.report()
        self._is_known = True

    def _claim_end(self) -> bool:
        """Whether the caller is the first, and so the one who says how the job ended."""
        with self._lock:
            is_first, self._has_ended = not self._has_ended, True
            return is_first

    def _run(self) -> None:
        self._say(lines.Started(*self.key))
        if self._session.ui is not None:
            self._log(f"Spark shows its work at {self._session.ui}/jobs/")
        try:
            with heard(self._hearer):
                done = self._call()
            # Only the thread that tells the end publishes: a cancelled job's result must never appear.
            if self._claim_end():
                for written in self._results.publish():
                    self._log(written)
                self._say(done)
        # SystemExit and its like too: a job must not end the host.
        except BaseException as error:
            self._fail(error)
        finally:
            if self._cancelled.is_set():
                self._results.discard()  # the canceller sees to the rest
            else:
                self._finish()

    def _call(self) -> lines.Done:
        function, contract = _contract_of(self._submit.function)
        self._context = SparkJob(self._submit, self._place, self._results, self._cancelled, self._say)
        args, kwargs = contract.bind(self._submit.parameters)
        if contract.context_name is not None:
            # By name throughout: the context may stand anywhere among the parameters.
            kwargs = {**dict(zip(contract.names, args, strict=False)), **kwargs}
            args, kwargs[contract.context_name] = (), self._context
        with ended_where_forked():
            result = function(*args, **kwargs)
            # This thread has no loop, so an async job gets one of its own.
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
        output = self._results.take(result, contract, function)
        with suppress(Exception):  # counts are told, not owed
            self._context.report_last()
        done = lines.Done(
            *self.key, output.value, output.path, output.rows, output.bytes, output.schema, output.preview
        )
        # Here it still can fail: what is published stays.
        lines.check(done)
        return done

    def _log(self, text: str) -> None:
        self._say(lines.Logged.of(*self.key, text))

    def _fail(self, error: BaseException) -> None:
        if self._cancelled.is_set() and not self._has_ended:
            return  # a cancelled job ends this way; the canceller says so
        if self._has_lost_spark(error):
            # The host is about to leave, and the job is lost with it. If it is still here then, it is not.
            time.sleep(_DEATH_SECONDS)
            failure = Failure("engine-lost", "Spark does not answer", None, describe(error).trace)
        else:
            failure = describe(error)
        self._claim_end()
        self._say(lines.Failed(*self.key, failure.code, failure.message, failure.sqlstate, failure.trace))

    def _has_lost_spark(self, error: BaseException) -> bool:
        if may_be_server_loss(error):
            # The watch of the server needs some seconds to be sure.
            return self._session.await_death(_SERVER_DEATH_SECONDS) is not None
        return may_be_engine_loss(error) and not self._session.is_alive

    def _cancel(self) -> None:
        # A JVM that died meanwhile ends the host, and the service knows what that means for this job.
        with suppress(Exception):
            self._place.cancel()
            # Most threads end within this time, since their action fails; one that is busy elsewhere
            # need not be waited for: Spark takes nothing from it any more.
            self._thread.join(_CANCEL_PATIENCE_SECONDS)
            # Of an ended job nothing is logged.
            self._hearer.flush()
            if self._claim_end():
                is_free = self._holds_nothing()
                self._say(lines.Cancelled(*self.key, is_free))
                if not is_free:
                    self._await_free()
        self._finish()

    def _holds_nothing(self) -> bool:
        return not self._thread.is_alive() and self._place.active() == 0

    def _await_free(self) -> None:
        began = asked = time.monotonic()
        is_stuck = False
        while not self._holds_nothing():
            now = time.monotonic()
            if self._thread.is_alive() and now - asked > _CANCEL_AGAIN_SECONDS:
                # A cancel may get lost on its way to a server.
                self._place.cancel()
                asked = now
            if not is_stuck and self._thread.is_alive() and now - began > self._cancel_grace:
                is_stuck = True
                self._say(lines.Stuck(*self.key))
            time.sleep(_SETTLE_SECONDS)
        self._say(lines.SlotsFree(*self.key))

    def _finish(self) -> None:
        self._results.discard()
        self._results.close()
        self._place.close()
        self._is_over.set()
        self._when_over()


# Most jobs are of few functions, and a contract takes the better part of a millisecond.
@lru_cache
def _contract_of(address: str) -> tuple[Callable[..., Any], Signature]:
    function = load_function(address)
    return function, job_signature(function, context=(Job,))


def load_function(address: str) -> Callable[..., Any]:
    """The function at "module:qualname".

    Raises:
        JobError: it cannot be imported here, with the reason.
    """
    module, _, qualname = address.partition(":")
    if module == "__main__" or "<locals>" in qualname:
        raise JobError(
            f"{address} cannot be imported by the engine host: define the job at the top of a module "
            "and start its service with 'nebula run module:app'"
        )
    try:
        found: Any = importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise JobError(f"the engine host cannot import {address}: {error}") from error
    function: Callable[..., Any] = found
    return function
