"""`nebula job list|show|result|log|watch|cancel|rerun`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer
from typer import Option

from nebula.cli.ids import find_job
from nebula.cli.jobs import cancel, jobs, watch
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, JobId, Timeout, Url
from nebula.cli.render import Output
from nebula.cli.replies import Job, checked
from nebula.cli.results import show_preview, show_result
from nebula.cli.starting import NotBefore, Notify, Priority, start_options
from nebula.cli.tables import Column, date, moment, table
from nebula.cli.terminal import text
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.results.types import ResultFormat

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client
    from nebula.rpc.jobs.handle import JobHandle
    from nebula.rpc.jobs.model.record import LogLine

job = typer.Typer(
    name="job",
    help="List the jobs of a service; show, follow, cancel or rerun one.",
    no_args_is_help=True,
)
# The functions of the short forms `nebula jobs`, `watch` and `cancel`, with the same help.
job.command(name="list")(jobs)
job.command()(watch)
job.command()(cancel)

# Two screens; the service keeps a thousand lines for each job.
_LOG_LINES: Final = 100

Follow: TypeAlias = Annotated[bool, Option("--follow", "-f", help="Continue until the job ends.")]
Lines: TypeAlias = Annotated[
    int | None,
    Option("--lines", "-n", min=1, max=1000, help="Only the last lines, this many. The default is 100."),
]
After: TypeAlias = Annotated[
    int | None, Option(min=0, metavar="NUMBER", help="Only lines that come after this one.")
]

# As table cells do: a service may send any number.
_MOMENT: Final = Column("", "at", moment)
_DATE: Final = Column("", "at", date)


@job.command()
def show(
    job: JobId,
    *,
    lines: Annotated[int, Option("--lines", "-n", min=0, max=1000, help="How many lines of its log.")] = 10,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show everything about a job: parameters, steps and how long they took, result or error, end of its log.

    Example: nebula job show reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB
    """
    from nebula.cli.asking import ask

    async def look(client: Client) -> dict[str, Any]:
        return await (await _handle(client, job, timeout)).show(lines)

    known = ask(broker, look)
    # Checked before anything is shown: half a job above an error would look complete.
    checked(Job, known, job.rpartition("/")[0], "job.show")
    output = Output(as_json=as_json)
    if output.is_for_people:
        _show(output, known)
    else:
        output.json_line(known)


@job.command()
def result(
    job: JobId,
    *,
    to: Annotated[
        ResultFormat | None,
        Option("--format", help="Write all rows in this format. The default off a terminal is ndjson."),
    ] = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show the result of a job that has ended; with --format, all rows of a table or list.

    On a terminal, without --format, shows the value, or for a table its location and first rows. Rows are
    fetched a page at a time, as they are written.

    \b
    Examples:
      nebula job result reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB
      nebula job result reports/01JD3Z7VTP5W --format csv > delays.csv
    """
    from nebula.cli.asking import ask
    from nebula.cli.result_rows import write_rows

    output = Output(as_json=as_json)

    async def read(client: Client) -> None:
        handle = await _handle(client, job, timeout)
        if to is None and output.is_for_people:
            show_result(output, await handle.result())
        else:
            # Off a terminal always rows, whatever kind of value the job returned.
            await write_rows(handle, to or ResultFormat.NDJSON)

    ask(broker, read)


@job.command()
def log(
    job: JobId,
    *,
    follow: Follow = False,
    lines: Lines = None,
    after: After = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Show the log of a job; off a terminal a line of JSON for each of its lines, with number and time.

    A job keeps its last 1,000 lines. --follow shows them all and then each new one; Ctrl-C leaves the job
    running. If lines were dropped before they could be shown, a note on a terminal says so, and their
    numbers are missing.

    \b
    Examples:
      nebula job log reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB
      nebula job log reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB --follow
      nebula job log reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB --follow --after 200
    """
    from nebula.cli.asking import ask

    view = LogView(Output(as_json=as_json), after)

    async def read(client: Client) -> None:
        handle = await _handle(client, job, timeout)
        if follow:
            await view.follow(handle, lines)
        else:
            view.show(await handle.log_lines(lines or _LOG_LINES, after=after))

    ask(broker, read)


@job.command()
def rerun(
    job: JobId,
    *,
    priority: Priority = None,
    not_before: NotBefore = None,
    notify: Notify = None,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Start a new job with the parameters of this one, and show its id.

    Only the parameters are copied: give the priority and other options again.

    \b
    Examples:
      nebula job rerun reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB
      nebula job rerun reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB --priority 8
      nebula job rerun reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB | nebula job watch -
    """
    from nebula.cli.asking import ask

    options = start_options(priority, not_before, notify)

    async def again(client: Client) -> tuple[str, str]:
        old = await _handle(client, job, timeout)
        return (await old.rerun(**options)).id, old.id

    # Both ids are whole, even if a prefix was given.
    new, old = ask(broker, again)
    Output(as_json=as_json).event(f"{new} does {old} again", job=new, rerun_of=old)


async def _handle(client: Client, job: str, timeout: float) -> JobHandle[Any]:
    found = await find_job(client, job, timeout)
    # The time limit is for each request of the handle, not for the job.
    return client.with_options(timeout=timeout).job(found)


class LogView:
    """Lines of a log: for people with their time, for programs as JSON.

    Args:
        output: where to.
        last: the number of the line that was seen last, None where nothing was.
    """

    def __init__(self, output: Output, last: int | None = None) -> None:
        self._output = output
        self.last = last

    async def follow(self, job: JobHandle[Any], lines: int | None) -> None:
        """Write these last lines, if the log is not followed from a line on, and each new one."""
        if lines is not None and self.last is None:
            self.show(await job.log_lines(lines))
        # From the first line that is kept: a gap in the numbers shows that earlier ones are gone.
        self.last = self.last or 0
        async for line in job.log(follow=True, after=self.last):
            self.show([line])

    def show(self, lines: Iterable[LogLine]) -> None:
        """Write these, and say what is missing between them and those before."""
        for line in lines:
            # Before the first line nothing is missing: earlier ones were not requested.
            gone = 0 if self.last is None else line.number - self.last - 1
            self.last = line.number
            if not self._output.is_for_people:
                self._output.json_line(line._asdict())
                continue
            if gone > 0:
                self._output.show(text(f"… {gone:,} lines are gone", "yellow"))
            self._output.show(f"{_MOMENT.text({'at': line.at})}  {line.text}")


def _show(output: Output, known: Mapping[str, Any]) -> None:
    from nebula.cli.job_columns import JOB_FACTS, STEPS

    result = dict(known.get("result") or {})
    preview = result.pop("preview", None)
    facts = {column.heading: known.get(column.field) for column in JOB_FACTS}
    facts |= {"result": result} | _times_ahead(known)
    output.value({name: value for name, value in facts.items() if value not in (None, "", {})})
    if steps := known.get("steps"):
        # A job that another instance has taken over has times by two clocks; negative ones are shown as zero.
        ended = [{**step, "seconds": _seconds(step)} for step in steps]
        output.show("", table(STEPS, ended))
    show_preview(output, preview)
    if log := known.get("log"):
        output.show(text("\nlog", "bold"))
        view = LogView(output)
        view.show(_line(one) for one in log)


def _times_ahead(known: Mapping[str, Any]) -> dict[str, str | None]:
    """The times that a job waits for, with their years; what has begun does not expire."""
    # Shown of a job that runs or has ended, they would look like plans.
    waits = known.get("state") == JobState.QUEUED
    times = {name: known.get(name) for name in ("not_before", "expires_at")}
    return {name: _DATE.text({"at": at}) if waits and at is not None else None for name, at in times.items()}


def _seconds(step: Mapping[str, Any]) -> float | None:
    return None if step["ended_at"] is None else max(0.0, step["ended_at"] - step["started_at"])


def _line(one: Mapping[str, Any]) -> LogLine:
    from nebula.rpc.jobs.model.record import LogLine

    return LogLine(one["at"], str(one["text"]), one["number"])
