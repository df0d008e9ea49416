"""Engine protocol: the JSON lines between a service and its engine host, one frozen class for each kind.

The service writes *commands* to the host's standard input, the host writes *events* to its standard
output:

    service -> host: Configure, then Submit and Cancel in any order, at the end Stop
    host -> service: Hello, then Beat each second; Ready or Broken; events of jobs; at the end Bye

A conversation is bracketed. The host opens with `Hello`, which carries the version, and closes with
`Bye`; a host that leaves without one has died, and its jobs with it. Every line has a number that rises
by one, so that a lost or doubled line is noticed where it happens. There are no replies: a command takes
effect, and events say so. So no side ever waits for the other, and a host that hangs is found by its
missing `Beat`, not by a reply that does not come.

Each job has exactly one end:

    Submit -> [Started -> (Progressed | Logged)*] -> Done | Failed | Cancelled -> [SlotsFree]

`Cancel` may cross that end on its way; it then does nothing. `Cancelled` with `slots_free=False` says
that the job is over while tasks of it still hold slots of Spark; `SlotsFree` follows when they have
ended, and `Stuck` says that its code does not end at all. If the host dies, the service ends each open
job as lost: the trap is to announce this before all processes of the host are gone, because the job's
next attempt may start at once.

The standard streams of the host carry nothing else: before a job runs, the host gives the lines
descriptors of their own, so that a job that prints cannot break the conversation.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    from nebula.rpc.contract.job_runner import JobTask

# How to change the protocol: `VERSION` rises when a line changes its meaning. Both sides come from one
# installation, but a service that still runs after an upgrade starts hosts with the new code. `Hello`
# shows it, and such a host is ended instead of misread.
VERSION = 1

STATUS_SPARK_DIED = 3
"""What a host exits with whose Spark has died."""

# A result may fill one line; whatever is longer than this is not ours.
# Without a limit, a host that writes without a newline would fill the service's memory.
MAX_LINE_BYTES = 16 * 1024 * 1024

# No log keeps more of a line.
_MAX_LOGGED = 4000


class LineError(Exception):
    """Received bytes are no line of this protocol: the conversation cannot go on."""


class LineTooLong(ValueError):
    """The line would be longer than the limit. Nothing was written."""


# --- from the service to the host


@dataclass(frozen=True, slots=True)
class Configure:
    """The first line to the host: what to start, and the folder that it may write to."""

    name: str
    incarnation: str
    folder: str
    results: str
    master: str
    memory: str
    conf: Mapping[str, str]
    max_rows: int
    max_result_bytes: int
    cancel_grace: float
    remote: str | None = None
    ui: bool = False
    archives: str | None = None  # the folder of archives of Java's classes; None: start without
    with_archive: bool = True  # False: the last start with it failed
    notes: str | None = None  # where attempts note what they have begun to write; None: in `folder`


@dataclass(frozen=True, slots=True)
class Submit:
    """Run `function` ("module:qualname") with these parameters. Allowed only after `Ready`."""

    job: str
    attempt: int
    verb: str
    function: str
    parameters: Any
    trace: Mapping[str, str] = dataclasses.field(default_factory=dict)
    priority: int = 4

    @classmethod
    def of(cls, task: JobTask) -> Submit:
        """The line for this attempt."""
        what = (task.verb, task.function, task.parameters, task.trace, task.priority)
        return cls(task.job, task.attempt, *what)


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this job now. The host says `Cancelled`, or nothing if the job ended first."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Cancel what runs, stop Spark, say `Bye` and exit with status 0."""


# --- from the host to the service

ArchiveState: TypeAlias = Literal["off", "distrusted", "missing", "unused", "used", "refused"]


@dataclass(frozen=True, slots=True)
class Hello:
    """The host's first line, before anything slow begins."""

    version: int
    pid: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The session is up: jobs may come."""

    spark: str
    java: str
    jvm_pid: int | None
    seconds: float
    archive: str | None = None  # where it is, or where it is missed
    archive_state: ArchiveState = "off"
    ui: str | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """No session can be had for a reason that a person has to remove (no Java, no PySpark)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Beat:
    """The host lives: said each second from its first line on."""

    rss_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class Started:
    """The job's own code begins."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far the job is: `fraction` from 0 to 1 and never falling, None while nothing is known."""

    job: str
    attempt: int
    fraction: float | None
    note: str
    step: tuple[int, int, str] | None
    tasks: tuple[int, int, int] | None  # done, known, active
    counters: Mapping[str, int] = dataclasses.field(default_factory=dict)
    at: float | None = None  # when a step began, seconds since the epoch
    stages: tuple[tuple[int, str, int, int, int], ...] = ()  # id, name, done, known, active


@dataclass(frozen=True, slots=True)
class Logged:
    """A piece of text for the job's log."""

    job: str
    attempt: int
    text: str

    @classmethod
    def of(cls, job: str, attempt: int, text: str) -> Logged:
        """The line for this text. Of a long one the end counts: there a trace says what happened."""
        return cls(job, attempt, text if len(text) <= _MAX_LOGGED else "…" + text[-_MAX_LOGGED:])


@dataclass(frozen=True, slots=True)
class Done:
    """The job returned: a small JSON value, or the path of what it wrote."""

    job: str
    attempt: int
    value: Any
    path: str | None
    rows: int | None
    bytes: int | None
    schema: Any
    preview: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The job raised. Its own output is removed."""

    job: str
    attempt: int
    code: str
    message: str
    sqlstate: str | None
    trace: str


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job is cancelled: Spark accepts nothing from it any more, what it returns is dropped."""

    job: str
    attempt: int
    slots_free: bool


@dataclass(frozen=True, slots=True)
class SlotsFree:
    """The last task and the thread of a cancelled job have ended."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Stuck:
    """A cancelled job's own code does not stop: it holds its thread until the host is replaced."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Starved:
    """The engine ran out of memory because of this job; `Bye` follows."""

    job: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Bye:
    """The host's last line: it ends on purpose, for this reason."""

    reason: str


Command = Configure | Submit | Cancel | Stop
Event = (
    Hello
    | Ready
    | Broken
    | Beat
    | Started
    | Progressed
    | Logged
    | Done
    | Failed
    | Cancelled
    | SlotsFree
    | Stuck
    | Starved
    | Bye
)
Line = Command | Event

_KINDS: dict[str, type[Any]] = {kind.__name__.lower(): kind for kind in get_args(Line)}
_FIELDS = {kind: [field.name for field in dataclasses.fields(kind)] for kind in _KINDS.values()}


class LineWriter:
    """Numbers and encodes the lines of one direction."""

    def __init__(self) -> None:
        self._number = 0

    def encode(self, line: Line) -> bytes:
        """The next line as bytes, newline included.

        Raises:
            TypeError, ValueError: a value in it is not JSON, or it is too long; no number is used up.
        """
        data = _encode(line, self._number)
        self._number += 1
        return data


def check(line: Line) -> None:
    """Check that a line can be said, where the other side of it could not be asked what to do.

    Raises:
        TypeError, ValueError: as `LineWriter.encode`.
    """
    # With the largest number, which takes most characters: the real one is known only when the line is
    # written.
    _encode(line, sys.maxsize)


def _encode(line: Line, number: int) -> bytes:
    fields = {name: getattr(line, name) for name in _FIELDS[type(line)]}
    entry = {"n": number, "line": type(line).__name__.lower(), **fields}
    # NaN is not JSON: other readers of the same value would choke on it later.
    data = json.dumps(entry, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    if len(data) > MAX_LINE_BYTES:
        raise LineTooLong(f"it takes {len(data)} bytes as JSON, more than {MAX_LINE_BYTES}")
    return data


class LineReader:
    """Cuts received bytes into lines and checks that none is missing, doubled or foreign.

    Attributes:
        failure: what was wrong with the bytes after the last good line; nothing is read after it.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._number = 0
        self.failure: LineError | None = None

    def feed(self, data: bytes) -> list[Line]:
        """The lines that are complete now, in order, up to the first fault."""
        received: list[Line] = []
        if self.failure is not None:
            return received
        self._rest += data
        # The last part is an incomplete line, or empty.
        *complete, self._rest = self._rest.split(b"\n")
        try:
            for line in complete:
                received.append(self._decode(line))  # noqa: PERF401 - what came before a fault counts
            # Checked last: the complete lines before it count.
            if len(self._rest) > MAX_LINE_BYTES:
                raise LineError(f"a line of more than {MAX_LINE_BYTES} bytes")
        except LineError as error:
            self.failure = error
        return received

    def _decode(self, data: bytearray) -> Line:
        try:
            entry = json.loads(data)
            number, kind = entry.pop("n"), _KINDS[entry.pop("line")]
            line: Line = kind(**{name: _restored(name, value) for name, value in entry.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LineError(f"not a line of version {VERSION}: {bytes(data[:80])!r}") from error
        # Each direction has its own numbers, from 0.
        if number != self._number:
            raise LineError(f"line {number} where line {self._number} was due")
        self._number += 1
        if isinstance(line, Hello) and line.version != VERSION:
            raise LineError(f"version {line.version} is spoken there, {VERSION} here")
        return line


def _restored(name: str, value: Any) -> Any:
    # JSON has no tuples; these fields of Progressed are ones.
    if name == "stages":
        return tuple(tuple(stage) for stage in value)
    return tuple(value) if name in ("step", "tasks") and value is not None else value
