"""`nebula record`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from typer import Argument, BadParameter, Option

from nebula.cli.options import AsJson, LogLevel, Url, named_source, named_sources
from nebula.cli.render import Output
from nebula.cli.terminal import is_in_foreground, text
from nebula.logs import Level
from nebula.visible import visible

if TYPE_CHECKING:
    from nebula.avro.schema import Schema
    from nebula.record.recorder import Recording
    from nebula.record.status import RecorderStatus

_COLUMNS: Final = (
    "instance", "state", "age", "messages", "rate", "files", "doubles", "waiting", "destinations",
)  # fmt: skip

# Off a terminal the lines may be kept.
# A line each ten seconds, 8,640 a day; a screen shows each status.
_LINE_SECONDS: Final = 10.0


Destinations: TypeAlias = Annotated[
    list[str] | None,
    Argument(
        metavar="DEST",
        help="Queues, topics or values, by name or glob. `orders` is /queue/orders.",
        show_default=False,
        callback=named_sources,
    ),
]
Into: TypeAlias = Annotated[
    # Without a default: data should not be written into whatever folder the shell is in.
    Path, Option(metavar="FOLDER", help="Folder for the files; created if missing.")
]
Status: TypeAlias = Annotated[
    bool, Option("--status", help="Show the state of the folder's recorders, and exit.")
]
Durable: TypeAlias = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Durable subscription to topics: keeps messages while the recorder is not running.",
    ),
]
Name: TypeAlias = Annotated[
    str, Option(metavar="NAME", help="Name of this recorder, if several write into the folder.")
]
Codec: TypeAlias = Annotated[str, Option(help="deflate, zstandard (pip install 'nebula-rpc[zstd]') or null.")]
RotateBytes: TypeAlias = Annotated[int, Option(min=1, help="Close a file at this size.")]
RotateSeconds: TypeAlias = Annotated[
    float, Option(min=0.1, help="Close a file after this time; the end of an hour closes it too.")
]
SyncSeconds: TypeAlias = Annotated[
    float, Option(min=0.001, help="How long a message may wait for others to be synced with it.")
]
SyncMessages: TypeAlias = Annotated[int, Option(min=1, help="Sync as soon as this number of messages waits.")]
Prefetch: TypeAlias = Annotated[
    int, Option(min=1, max=100_000, help="How many messages the broker may send before they are ACKed.")
]
Schemas: TypeAlias = Annotated[
    Path | None, Option(metavar="FOLDER", help="Folder of .avsc files; other schemas come from the broker.")
]
Bare: TypeAlias = Annotated[
    list[str] | None,
    Option(metavar="DEST=FILE", help="Schema (.avsc) of a destination whose bodies have no envelope."),
]
IdleSeconds: TypeAlias = Annotated[
    float | None,
    Option(min=0.1, help="Exit after this number of seconds without a message.", show_default=False),
]


def record(
    destinations: Destinations = None,
    *,
    into: Into,
    status: Status = False,
    durable: Durable = None,
    name: Name = "recorder",
    codec: Codec = "deflate",
    rotate_bytes: RotateBytes = 128 * 1024 * 1024,
    rotate_seconds: RotateSeconds = 300.0,
    sync_seconds: SyncSeconds = 0.25,
    sync_messages: SyncMessages = 10_000,
    prefetch: Prefetch = 50_000,
    schemas: Schemas = None,
    bare: Bare = None,
    idle_seconds: IdleSeconds = None,
    broker: Url = None,
    log_level: LogLevel = Level.INFO,
    as_json: AsJson = False,
) -> None:
    """Record messages into Avro files, until SIGTERM or Ctrl-C.

    A message is ACKed when the file that holds it is synced: none is lost, and repetitions are dropped.
    Files are TYPE/date=YYYY-MM-DD/hour=HH/*.avro, and appear when they are complete. Data in envelopes
    (bodies in Avro that name their schema) are stored under the name of their schema, everything else as
    records of headers and body under message.DEST. Of last values (X/...) only the latest ones are recorded.
    To record them all, have the broker copy them into a queue (copy_to), and record that queue.

    On a terminal a line shows the progress; off one there is a JSON line every ten seconds.

    \b
    Examples:
      nebula record /queue/readings --into recorded
      nebula record '/topic/news.*' --durable archive --into recorded
      nebula record --status --into recorded
    """
    output = Output(as_json=as_json)
    if status:
        # Reads only the folder, so it works while the recorder hangs, and on other machines that mount the
        # folder.
        _show_statuses(output, into)
        return
    if not destinations:
        # Checked here, because --status needs none.
        raise BadParameter("name what to record, for example /queue/readings; or give --status")
    from nebula.record.recorder import Recording, Rotation

    recording = Recording(
        destinations, into, durable=durable, instance=name, codec=codec,
        rotation=Rotation(rotate_bytes, rotate_seconds), sync_seconds=sync_seconds,
        sync_messages=sync_messages, prefetch=prefetch, schemas=schemas, bare=_bare(bare or []),
        idle_seconds=idle_seconds,
    )  # fmt: skip
    _run(recording, output, broker, log_level)


def _run(recording: Recording, output: Output, broker: str | None, log_level: Level) -> None:
    from nebula.cli.programs import run_recorder
    from nebula.record.lossless import notes_on
    from nebula.record.recorder import Recorder

    destinations, into = list(recording.destinations), recording.into
    # Notes, not errors: losing what comes while the recorder is away may be acceptable.
    notes = notes_on(destinations, recording.durable)

    def announce() -> None:
        sentence = "\n".join([f"recording {', '.join(destinations)} into {into}", *notes])
        output.event(sentence, event="recording", destinations=destinations, into=str(into), notes=notes)

    shown = _Shown(output)
    run_recorder(Recorder(recording, broker, on_status=shown.tell), log_level, announce)
    shown.end()


class _Shown:
    """How it goes, on one line that is written over, or on a JSON line now and then."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._line = output.console.spinner("connecting") if output.is_for_people else None
        self._latest: RecorderStatus | None = None
        self._told = 0.0

    def tell(self, status: RecorderStatus) -> None:
        self._latest = status
        # Checked each time: the user may press Ctrl-Z and type `bg`.
        if self._line is not None and is_in_foreground():
            self._line.start()
            self._line.update(text(_sentence(status), keep=""))
        elif self._line is not None:
            # It would be drawn over the output of other programs.
            self._line.stop()
        elif status.told - self._told >= _LINE_SECONDS:
            self._told = status.told
            with suppress(OSError):  # it may be on the disk that is full
                self._output.json_line({"event": "status", **status.as_dict()})

    def end(self) -> None:
        if self._line is not None:
            self._line.stop()
        if (status := self._latest) is not None:
            sentence = f"recorded {_count(status.messages, 'message')} in {_count(status.files, 'file')}"
            self._output.event(sentence, event="stopped", **status.as_dict())


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _sentence(status: RecorderStatus) -> str:
    said = f"{status.state}: {_count(status.messages, 'message')}, {status.rate:,.0f}/s, "
    said += _count(status.files, "file")
    if status.doubles:
        said += f", {status.doubles:,} doubles dropped"
    # Of the broker, perhaps.
    return f"{said} ({status.failure})" if status.failure else said


def _show_statuses(output: Output, into: Path) -> None:
    from nebula.record.status import read_statuses

    rows: list[dict[str, Any]] = read_statuses(into)
    shown = rows
    if output.is_for_people:
        shown = [
            {
                **row,
                # An age that grows shows that a recorder has ended without reporting it.
                "age": f"{row['age']:,.0f} s",
                "rate": f"{row['rate']:,.0f}/s",
                "destinations": " ".join(row["destinations"]),
            }
            for row in rows
        ]
    output.rows(_COLUMNS, shown, none=f"no recorder has written into {into}")
    for row in rows if output.is_for_people else ():
        if row["failure"]:
            output.show(visible(f"{row['instance']}: {row['failure']}"))


def _bare(given: list[str]) -> dict[str, Schema]:
    from nebula.avro.schema import Schema
    from nebula.errors import AvroError

    found = {}
    for each in given:
        # At the last `=`: a destination may contain one, a file name rarely does.
        destination, equals, file = each.rpartition("=")
        if not equals:
            raise BadParameter(f"{each!r}: write DEST=FILE, for example /queue/readings=reading.avsc")
        try:
            found[named_source(destination) or ""] = Schema.from_text(Path(file).read_bytes())
        except (OSError, AvroError) as error:
            raise BadParameter(f"{file}: {error}") from error
    return found
