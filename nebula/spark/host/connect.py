"""Spark through a Connect server: no Java here, and a session on the server for each attempt of a job.

A session of its own makes everything else simple. What it reports is that job's, closing it ends what
runs and refuses what comes later, and the successor of a killed host can name the sessions that it left.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from nebula.environment import EngineEnvironment
from nebula.errors import JobError
from nebula.spark.addresses import parse_remote
from nebula.spark.host.open_sessions import OpenSessions, groups_before, session_id_of
from nebula.spark.host.operations import OperationCounter
from nebula.spark.host.probe import accepts
from nebula.spark.host.progress import Counted
from nebula.spark.host.session import FOREIGN, CannotStart, change_environment, check_packages
from nebula.spark.host.status_store import tag_of
from nebula.spark.lines import ArchiveState, Configure
from nebula.spark.source import register

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession as ConnectSparkSession

# The client itself retries in silence for minutes, so each of our calls has an end here. Jobs' own calls
# have none: when the server is gone, the whole host goes.
_START_SECONDS = 30.0
_CALL_SECONDS = 5.0
# Together with what comes before it less than `Spark.stop_grace`, after which we are killed.
_STOP_SECONDS = 3.0
_LEAVE_SECONDS = 1.0

# Spark looks every two seconds whether a task was ended, and then gives its Python two more
# (`spark.python.task.killTimeout`).
_TASK_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
# A server that is gone ends the host sooner: this one lives, and refuses just that.
_END_SECONDS = 60.0

# A server in a long garbage collection is not dead; nor is one that missed a single connection.
_LOOK_SECONDS = 1.0
_PATIENCE_SECONDS = 15.0
_REFUSALS = 3

_PACKAGES = ("pyspark", "pyarrow", "pandas", "grpc", "grpc_status", "zstandard")

_Result = TypeVar("_Result")


class ConnectSession:
    """A Connect server that answers. See `Session`."""

    def __init__(self, config: Configure) -> None:
        """Reach the server, and end there what a killed predecessor has left. See `host.start`."""
        assert config.remote is not None  # that is what chose this class
        check_packages("spark,connect", *_PACKAGES)
        self._remote = parse_remote(config.remote)
        if not accepts(self._remote.host, self._remote.port):
            raise CannotStart(f"no Spark Connect server answers at {self._remote}")
        _prepare_environment()
        self._service = config.name
        self._user = self._remote.user_id or f"nebula-{config.name}"
        self._conf = {"spark.sql.session.timeZone": "UTC", **config.conf}
        self._sessions = OpenSessions(Path(config.folder) / "connect")
        self._death, self._why = threading.Event(), ""
        self._clear_at = 0.0
        self._root_id = str(uuid4())
        self._root = self.connect(self._root_id)
        # This one must not wait for better times: it is asked whether the server lives.
        self._root.client.set_retry_policies([])
        self.java = ""
        self.jvm_pid: int | None = None
        self.ui: str | None = None
        self.archive: str | None = None
        self.archive_state: ArchiveState = "off"
        self.version: str = self._first_reply()
        try:
            self._check_conf()
            self._end_orphans()
        except BaseException:
            # The server would keep it for an hour, and the start is tried again and again.
            self.close(self._root, _LEAVE_SECONDS)
            raise
        threading.Thread(target=self._watch, name="watch", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        """Whether the server was not found dead."""
        return not self._death.is_set()

    def starved(self, groups: Collection[str]) -> str | None:  # noqa: ARG002  a server says nothing of it
        """See `Session`."""
        return None

    def await_death(self, seconds: float | None = None) -> str | None:
        """See `Session`."""
        return self._why if self._death.wait(seconds) else None

    def prepare(self) -> None:
        """See `Session`: nothing. A session's id says which attempt it is for."""

    def place(self, group: str, priority: int) -> ConnectPlace:  # noqa: ARG002  # see below
        """See `Session`. The server's pools cannot be chosen from here: priorities order the queue alone."""
        return ConnectPlace(self, group, session_id_of(self._service, group), self._sessions)

    def stop(self) -> None:
        """Close every session; the server lives on. See `Session`: it takes some seconds at most."""
        self._close_all(_STOP_SECONDS)

    def kill(self) -> None:
        """As `stop`, in a second at most. What remains is for our successor."""
        self._close_all(_LEAVE_SECONDS)

    def connect(self, session_id: str) -> ConnectSparkSession:
        """A client of this session on the server, which exists from the first question on."""
        from pyspark.sql.connect.session import SparkSession

        url = self._remote.url(session_id=session_id, user_id=self._user)
        session: ConnectSparkSession = SparkSession.builder.remote(url).create()
        return session

    def configure(self, session: ConnectSparkSession) -> None:
        """Give it the declared settings."""
        for name, value in self._conf.items():
            session.conf.set(name, value)

    def close(self, session: ConnectSparkSession, seconds: float = _CALL_SECONDS) -> bool:
        """Close it on the server, which ends what runs in it and refuses it from then on; whether it did."""
        try:
            self._release(session, seconds)
        except Exception as error:
            return _is_closed(error)
        return True

    def _release(self, session: ConnectSparkSession, seconds: float) -> None:
        with suppress(Exception):
            # Closing alone takes 0.2 s until the job's thread hears of it, after this 0.03 s.
            within(seconds, session.client.interrupt_all)
        within(seconds, session.client.release_session)

    def end_before(self, group: str, is_wanted: Callable[[], bool]) -> None:
        """End what earlier attempts at this job still have on the server, from whatever host they came.

        Their instance may have died, or be one that is not heard of any more. Returns when nothing of them
        runs, or when `is_wanted` says so no longer.

        Raises:
            JobError: the server lives, and does not let us end one of them.
        """
        before = groups_before(group)
        for one in before:
            self._await_end(one, is_wanted)
        if before:
            # Tasks of a session that was ended may still run for some seconds, and could write what we
            # write.
            time.sleep(max(0.0, self._clear_at - time.monotonic()))

    def _await_end(self, group: str, is_wanted: Callable[[], bool]) -> None:
        until = time.monotonic() + _END_SECONDS
        is_told = False
        while is_wanted():
            try:
                self._end(session_id_of(self._service, group), group)
            except Exception as error:
                if time.monotonic() > until:
                    raise JobError(
                        f"what {group} has left on the Spark Connect server could not be ended"
                        f" for {_END_SECONDS:g} s: {_one_line(error)}",
                        code="engine-lost",
                    ) from error
                if not is_told:
                    # In the job's thread: that goes into its log, too.
                    logging.getLogger(__name__).warning(
                        "end of an earlier attempt awaited attempt=%s reason=%s", group, _one_line(error)
                    )
                    is_told = True
                time.sleep(_AGAIN_SECONDS)
            else:
                return

    def _end(self, session_id: str, group: str) -> None:
        """End a session of another attempt: then nothing of it runs, except for tasks until `_clear_at`.

        Raises:
            Exception: it could not be ended.
        """
        session = self.connect(session_id)
        session.client.set_retry_policies([])
        try:
            # This alone makes one that the server does not know, so that it is refused once it is closed.
            if within(_CALL_SECONDS, session.client.interrupt_all):
                logging.getLogger(__name__).warning("earlier attempt ended on the server attempt=%s", group)
                self._clear_at = time.monotonic() + _TASK_SECONDS
            # It interrupts once more: right after the first one the server fails to close what it runs.
            self._release(session, _CALL_SECONDS)
        except Exception as error:
            if not _is_closed(error):
                raise
        finally:
            session.client.close()

    def _first_reply(self) -> str:
        try:
            return within(_START_SECONDS, lambda: self._root.version)
        except Exception as error:
            said = "nothing" if isinstance(error, TimeoutError) else _one_line(error)
            raise CannotStart(
                f"what listens at {self._remote} is no Spark Connect server for us, it said: {said}"
            ) from error

    def _check_conf(self) -> None:
        try:
            within(_START_SECONDS, lambda: self.configure(self._root))
        except Exception as error:
            raise CannotStart(
                f"the Connect server refuses a setting: {str(error).partition('SQLSTATE')[0].strip()}. "
                "Give it to the server when that is started"
            ) from error

    def _end_orphans(self) -> None:
        for session_id, group in self._sessions.left_over():
            with suppress(Exception):
                self._end(session_id, group)
                self._sessions.forget(session_id)

    def _close_all(self, seconds: float) -> None:
        open_ones = [*self._sessions.opened(), (self._root_id, self._root)]
        closers = [
            threading.Thread(target=self._close_one, args=(*each, seconds), daemon=True) for each in open_ones
        ]
        deadline = time.monotonic() + seconds
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(max(0.0, deadline - time.monotonic()))

    def _close_one(self, session_id: str, session: ConnectSparkSession, seconds: float) -> None:
        if self.close(session, seconds):
            self._sessions.forget(session_id)

    def _watch(self) -> None:
        refused = 0
        while not self._death.wait(_LOOK_SECONDS):
            if accepts(self._remote.host, self._remote.port):
                refused = 0
                try:
                    within(_PATIENCE_SECONDS, lambda: self._root.version)
                except TimeoutError:
                    self._die(f"did not answer for {_PATIENCE_SECONDS:g} s")
                except Exception as error:
                    # Unavailable for a moment is what the connections count. A session that is unknown
                    # means another server at the same address.
                    if _is_closed(error):
                        self._die("was started anew")
            else:
                refused += 1
                if refused == _REFUSALS:
                    self._die("is gone")

    def _die(self, what: str) -> None:
        self._why = f"the Spark Connect server at {self._remote} {what}"
        self._death.set()


class ConnectPlace:
    """See `Place`: a session on the server, a tag for the job and one for each step."""

    def __init__(self, session: ConnectSession, group: str, session_id: str, sessions: OpenSessions) -> None:
        self._session, self._group, self._sessions = session, group, sessions
        self._id = session_id
        self._steps = 0
        self._counter = OperationCounter()
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._cancelling: threading.Thread | None = None
        self._spark: ConnectSparkSession | None = None

    @property
    def spark(self) -> Any:
        """See `Place`."""
        assert self._spark is not None  # the job's thread opens it first
        return self._spark

    def open(self, verb: str) -> None:  # noqa: ARG002  # the server shows tags, no descriptions
        """See `Place`. The session's name is on disk before the server hears it.

        When this returns no earlier attempt runs, though its instance died: the server lives on.
        """
        self._session.end_before(self._group, lambda: not self._is_cancelled)
        spark = self._session.connect(self._id)
        # Under the lock: a cancel either sees the session, or has set the flag that was looked at.
        with self._lock:
            if self._is_cancelled:
                raise ConnectionAbortedError("cancelled before it began")
            self._sessions.remember(self._id, self._group, spark)
            self._spark = spark
        self._session.configure(spark)
        register(self.spark)
        spark.registerProgressHandler(self._counter)  # type: ignore[arg-type]  # its own class is abstract for nothing
        spark.addTag(self._group)
        spark.addTag(tag_of(self._group, 0))

    def begin_step(self) -> None:
        """See `Place`."""
        self.spark.removeTag(tag_of(self._group, self._steps))
        self._steps += 1
        self.spark.addTag(tag_of(self._group, self._steps))
        self._counter.reset()

    def settle(self) -> None:
        """See `Place`: the client counts what is told before it has an action's result."""

    def count(self) -> Counted:
        """See `Place`: what the server has told; it does so every second or two."""
        tasks, bytes_read = self._counter.count()
        return Counted(
            tasks, {"bytes_read": bytes_read} if bytes_read else {}, stages=self._counter.newest_stages
        )

    def active(self) -> int:
        """See `Place`: unknown. What a killed Python task still holds, the server alone knows."""
        return 0

    def cancel(self) -> None:
        """See `Place`: the call runs in another thread, as a hanging server must not delay the caller."""
        with self._lock:
            self._is_cancelled = True
            if self._spark is None or (self._cancelling is not None and self._cancelling.is_alive()):
                return
            self._cancelling = threading.Thread(
                target=self._session.close, args=(self._spark,), name=f"close {self._group}", daemon=True
            )
        self._cancelling.start()

    def close(self) -> None:
        """See `Place`."""
        if self._spark is None:
            return
        if self._session.close(self._spark):
            self._sessions.forget(self._id)
        self._spark.client.close()


def within(seconds: float, call: Callable[[], _Result]) -> _Result:
    """Run a call that may hang, in a thread that is given up after this time.

    Raises:
        TimeoutError: it has not returned. Other exceptions are its own.
    """
    results: list[_Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(call())
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    # The thread goes on if the call hangs; it is a daemon, and its result is dropped.
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return results[0]


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _is_closed(error: Exception) -> bool:
    # The client has no class for it. SESSION_CHANGED is what a fresh server says to an old client.
    return any(f"INVALID_HANDLE.SESSION_{why}" in str(error) for why in ("CLOSED", "NOT_FOUND", "CHANGED"))


def _prepare_environment() -> None:
    changes: dict[str, str | None] = dict.fromkeys(FOREIGN)
    # `pyspark.sql.functions` makes columns for a JVM unless it is told.
    changes["SPARK_CONNECT_MODE_ENABLED"] = "1"
    # Functions are pickled here for the server's Python, which need not be at the same path.
    changes["PYSPARK_PYTHON"] = EngineEnvironment.read().pyspark_python or sys.executable
    change_environment(changes)
