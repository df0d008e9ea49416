"""The engine host: a child process that owns one Spark session and runs jobs in it.

`python -m nebula.spark.host` speaks `nebula.spark.lines` on what were its stdin and stdout. Its main
thread does nothing but read commands, so that the end of the input, which is the end of the service, is
always noticed. It exits with status 0 after a `Stop`, 1 when the service is gone, 2 when no session can
be had, 3 when Spark has died: it says why. After a fault of its own, which it prints, it exits with 4.
"""

from __future__ import annotations

import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, assert_never

from nebula.spark import lines
from nebula.spark.host.failures import describe, is_death_of_java
from nebula.spark.host.forks import leave_to_forks
from nebula.spark.host.log_capture import bound_output, listen, stop_listening
from nebula.spark.host.session import CannotStart, Session
from nebula.spark.host.standby import Standby
from nebula.spark.host.start import start_session
from nebula.spark.host.status_store import group_of
from nebula.spark.processes import kill_engine
from nebula.trace_context import trace_facts

if TYPE_CHECKING:
    from nebula.spark.host.job import RunningJob

_BEAT_SECONDS = 1.0
_PROGRESS_SECONDS = 0.25

# After a Stop the service waits a few seconds: half of a second for the jobs, the rest for Spark.
_STOP_JOBS_SECONDS = 0.5

_STATUS_STOPPED, _STATUS_ALONE, _STATUS_NO_SESSION, _STATUS_FAULT = 0, 1, 2, 4

_PR_SET_PDEATHSIG = 1


class Speaker:
    """Writes lines from any thread, each whole."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._writer = lines.LineWriter()
        # Re-entrant, as a signal's handler may speak while its thread does.
        self._lock = threading.RLock()

    def mute(self) -> None:
        """Say nothing any more: for a process that was forked, whatever another thread did then."""
        os.close(self._descriptor)
        self._descriptor = -1
        self._lock = threading.RLock()

    def say(self, line: lines.Event) -> None:
        """Write one line. If it is not read any more it is dropped: the reader's end shows on the input."""
        # A host must not fail because its reader is gone; it learns about that from its input.
        with self._lock, suppress(OSError):
            data = memoryview(self._writer.encode(line))
            while data:
                data = data[os.write(self._descriptor, data) :]


# Which thread does what:
#
# - main: reads commands and obeys them; never waits for Spark.
# - beat: says each second that the process lives, also while the session is being started.
# - start: makes the session, which takes seconds, then says `Ready`.
# - await_death: waits for the end of the JVM or the server.
# - report: tells progress four times a second.
# - one for each job, and one for each cancel.
#
# Any of them may find a reason to leave. `leave` takes a lock that is never given back: the first reason
# wins, and the others wait for the end of the process in `acquire`.
class Host:
    """One session, the jobs in it, and the threads around them."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._config: lines.Configure | None = None
        self._session: Session | None = None
        self._standby: Standby | None = None
        self._standing = threading.Lock()
        self._jobs: dict[str, RunningJob] = {}
        self._leaving = threading.RLock()
        # To compare in `leave_if_orphaned`: a process whose parent has ended gets another one.
        self._parent = os.getppid()

    def serve(self, descriptor: int) -> NoReturn:
        """Read and obey commands until told to stop, or until the service is gone."""
        try:
            self._speaker.say(lines.Hello(lines.VERSION, os.getpid()))
            self._begin(self._beat)
            reader = lines.LineReader()
            # `failure` is looked at first: after a fault nothing more is read.
            while reader.failure is None and (data := os.read(descriptor, 65536)):
                for line in reader.feed(data):
                    self._obey(line)
        except Exception as error:
            self._fail(error)
        self.leave(str(reader.failure or "the service is gone"), _STATUS_ALONE)

    def _begin(self, target: Callable[..., None], *args: Any) -> None:
        """Do this in a thread of our own, whose faults are the host's."""

        def run() -> None:
            try:
                target(*args)
            except BaseException as error:
                self._fail(error)

        threading.Thread(target=run, name=target.__name__.strip("_"), daemon=True).start()

    def _fail(self, error: BaseException) -> NoReturn:
        # The service finds it there, with its stack: see `nebula.spark.crash_report`.
        traceback.print_exception(error)
        self.leave(None, _STATUS_FAULT)

    def leave(self, reason: str | None, status: int, died: Session | None = None) -> NoReturn:
        """Report the reason, end all processes of this engine, and exit. The first reason counts.

        Args:
            reason: for people; None: a fault that was printed.
            status: of the exit.
            died: the session whose death is the reason.
        """
        self._leaving.acquire()  # never released: another thread waits here for its end
        if died is not None:
            self._say_who_starved(died)
        if reason is not None:
            self._speaker.say(lines.Bye(reason))
        if self._session is not None:
            self._session.kill()
        if self._config is not None:
            # Processes that jobs have started outlive the JVM; they have the mark.
            kill_engine(self._config.incarnation)
        # After the last task that could write to it.
        for job in list(self._jobs.values()):
            job.discard()
        # Not sys.exit: job threads may be anywhere, and nothing of them must delay the end.
        os._exit(status)

    def _say_who_starved(self, session: Session) -> None:
        with suppress(Exception):  # it only adds detail to a report that is sent anyway
            jobs = {group: job for group, job in list(self._jobs.items()) if not job.is_over}
            group = session.starved(jobs)
            if group is not None:
                self._speaker.say(lines.Starved(*jobs[group].key))

    def leave_if_orphaned(self, *_: object) -> None:
        """For the signal of a parent's end. It also comes when only the thread ended that started us."""
        # A worker thread of the service's loop may start us, and is gone when it was idle for a while.
        if os.getppid() != self._parent:
            self.leave("the service is gone", _STATUS_ALONE)

    def _obey(self, line: lines.Line) -> None:
        if not isinstance(line, lines.Command):
            self.leave(f"{type(line).__name__} is not for a host", _STATUS_ALONE)
        match line:
            case lines.Configure():
                self._config = line
                self._begin(self._start, line)
            case lines.Submit():
                self._run(line)
            case lines.Cancel():
                job_or_none = self._jobs.get(group_of(line.job, line.attempt))
                if job_or_none is not None:
                    job_or_none.cancel()
            case lines.Stop():
                self._stop()
            case _:
                assert_never(line)

    def _run(self, submit: lines.Submit) -> None:
        # Imported late: it needs PySpark, and a host without says so in a sentence.
        from nebula.spark.host.job import RunningJob

        assert self._session is not None  # the service submits only after Ready
        assert self._config is not None
        # Here and not in the job's thread, where it would become part of the job's own log.
        trace_id = trace_facts(submit.trace).get("trace_id", "-")
        facts = (submit.job, submit.attempt, submit.verb, trace_id)
        logging.getLogger("nebula.spark.host").info("job begun job=%s attempt=%s verb=%s trace_id=%s", *facts)
        job = RunningJob(
            submit, self._session, self._take_standby(), self._config, self._speaker.say, self._stand_by
        )
        # By job *and* attempt: the attempt before may still be ending.
        self._jobs[group_of(submit.job, submit.attempt)] = job
        job.start()

    def _take_standby(self) -> Standby:
        """A thread for a job, prepared if there is one."""
        with self._standing:
            if self._standby is None or not self._standby.is_ready:
                # Not waited for: a JVM that hangs must not keep the job from starting, as its time would not
                # begin.
                return Standby(lambda: None)
            ready, self._standby = self._standby, None
            return ready

    def _stand_by(self) -> None:
        """Prepare a thread for the next job, now that one is over: sooner, it would slow that one."""
        assert self._session is not None
        with self._standing:
            if self._standby is None:
                self._standby = Standby(self._session.prepare)

    def _start(self, config: lines.Configure) -> None:
        began = time.monotonic()
        try:
            self._session = session = start_session(config)
        except CannotStart as error:
            self._speaker.say(lines.Broken(str(error)))
            self.leave(str(error), _STATUS_NO_SESSION)
        except BaseException as error:
            traceback.print_exc()
            status = lines.STATUS_SPARK_DIED if is_death_of_java(error) else _STATUS_NO_SESSION
            self.leave(describe(error).message, status)
        self._stand_by()
        self._begin(self._await_death, session)
        self._begin(self._report)
        seconds = round(time.monotonic() - began, 3)
        what = (session.version, session.java, session.jvm_pid, seconds)
        self._speaker.say(lines.Ready(*what, session.archive, session.archive_state, session.ui))

    def _await_death(self, session: Session, seconds: float | None = None) -> None:
        """Leave when Spark has died; do nothing if it has not within this time."""
        why = session.await_death(seconds)
        if why is not None:
            self.leave(why, lines.STATUS_SPARK_DIED, session)

    def _report(self) -> None:
        """Tell each job's progress, and forget jobs that hold nothing any more."""
        while True:
            for group, job in list(self._jobs.items()):
                job.report_progress()
                if job.is_over:
                    del self._jobs[group]
            time.sleep(_PROGRESS_SECONDS)

    def _beat(self) -> None:
        while True:
            session = self._session
            # Asked each second, as a job can stop the context without ending the JVM.
            if session is not None and not session.is_alive:
                self._await_death(session, _BEAT_SECONDS)
                # The JVM lives, so a job has stopped the context that all share.
                self.leave("Spark's context was stopped", lines.STATUS_SPARK_DIED)
            pids = [os.getpid()] + ([session.jvm_pid] if session and session.jvm_pid else [])
            self._speaker.say(lines.Beat(sum(map(_rss_bytes, pids)), threading.active_count()))
            bound_output()
            time.sleep(_BEAT_SECONDS)

    def _stop(self) -> NoReturn:
        if self._session is not None:
            deadline = time.monotonic() + _STOP_JOBS_SECONDS
            jobs = list(self._jobs.values())
            for job in jobs:
                job.cancel()
            for job in jobs:
                job.wait(max(0.0, deadline - time.monotonic()))
            # What Spark does at its end must not be told as its death.
            # From here on no other thread can leave. This one can, since the lock is reentrant.
            self._leaving.acquire()
            self._session.stop()
        self.leave("asked to stop", _STATUS_STOPPED)


def main() -> NoReturn:
    """Run a host on this process's stdin and stdout."""
    # The protocol gets descriptors of its own, which no child inherits: a job may print, and read its
    # stdin, without touching it.
    commands, events = os.dup(0), os.dup(1)
    # Descriptors 0 and 1 are what a job's code, and everything it starts, reads and prints to.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    _log_to(sys.__stderr__)
    listen()
    speaker = Speaker(events)
    leave_to_forks(speaker.mute, stop_listening, partial(os.close, commands))
    # What no exception tells: where native code crashed.
    faulthandler.enable(2)
    host = Host(speaker)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: host.leave("terminated", _STATUS_ALONE))
    signal.signal(signal.SIGHUP, host.leave_if_orphaned)
    _ask_for_death_signal()
    host.serve(commands)


def _log_to(stream: TextIO | None) -> None:
    """Write our own log to `stream`: what is written to `sys.stderr` in a job is put into that job's log."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    ours = logging.getLogger("nebula")
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False


def _ask_for_death_signal() -> None:
    # The guard behind the guard: the end of the input is missed while some other process holds its
    # writing end, as after a fork in the service.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGHUP)


def _rss_bytes(pid: int) -> int:
    with suppress(OSError):
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return 0


if __name__ == "__main__":
    main()
