"""`nebula jobs`, `nebula watch` and `nebula cancel`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Exit as Leave
from typer import Option

from nebula.cli.exits import Exit
from nebula.cli.ids import find_job
from nebula.cli.options import DEFAULT_TIMEOUT, AsJson, FullIds, JobId, Service, Timeout, Url, job_named
from nebula.cli.render import JobView, Output
from nebula.cli.replies import Jobs, checked
from nebula.cli.results import show_result
from nebula.rpc.jobs.model.states import JobState
from nebula.rpc.jobs.model.status import JobStatus

if TYPE_CHECKING:
    from nebula.rpc.client.client import Client

States: TypeAlias = Annotated[
    list[JobState] | None,
    Option(metavar="STATE", help="Only jobs in this state, such as running; repeatable."),
]
OnlyVerb: TypeAlias = Annotated[str | None, Option(help="Only jobs of this verb.")]
Owner: TypeAlias = Annotated[str | None, Option(help="Only jobs that this principal asked for.")]
Since: TypeAlias = Annotated[
    str | None,
    Option(
        metavar="TIME",
        help="Only jobs accepted then or later: 90m, 2h, 7d (ago), or a date such as 2026-10-31T12:30: local"
        " time, unless it has an offset such as +02:00.",
    ),
]
Until: TypeAlias = Annotated[
    str | None, Option(metavar="TIME", help="Only jobs accepted before this time, in the same forms.")
]
Words: TypeAlias = Annotated[
    str | None, Option(help="Only jobs whose note or error contains this text (A to Z in either case).")
]
Before: TypeAlias = Annotated[
    str | None, Option(metavar="JOB", help="Only jobs accepted before this one: the next page.")
]
# A service lists at most 200 jobs in a reply, and this command reads one page.
Limit: TypeAlias = Annotated[int, Option(min=1, max=200, help="How many, the latest first.")]


def jobs(
    service: Service,
    *,
    state: States = None,
    verb: OnlyVerb = None,
    owner: Owner = None,
    since: Since = None,
    until: Until = None,
    text: Words = None,
    before: Before = None,
    limit: Limit = 50,
    full: FullIds = False,
    broker: Url = None,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List the jobs of a service, the latest first; `nebula job show` shows one of them.

    On a terminal a note says how to get the next page. With JSON, pass the last `job` as --before.

    \b
    Examples:
      nebula job list reports --state running --state queued
      nebula job list reports --verb delays --since 2h --text "no readings"
      nebula job list reports --since 2026-10-01 --until 2026-11-01 --limit 200
    """
    from nebula.cli.times import moment_of

    # Times are made absolute here, so that "2h" does not depend on when a busy service reads it.
    wanted = {
        "state": state or None, "verb": verb, "owner": owner, "since": moment_of(since),
        "until": moment_of(until), "text": text, "before": before, "limit": limit,
    }  # fmt: skip
    _show_page(Output(as_json=as_json), service, _page(broker, service, wanted, timeout), is_full=full)


def _page(broker: str | None, service: str, wanted: Mapping[str, Any], timeout: float) -> Mapping[str, Any]:
    """The reply to `job.list`. Filters that are None are left out; `before` may be the begin of an id."""
    from nebula.cli.asking import ask, asking_for_jobs

    given = {name: value for name, value in wanted.items() if value is not None}

    async def read(client: Client) -> Any:
        # `--before` accepts an abbreviated id, which is completed over the same connection.
        if "before" in given:
            given["before"] = await find_job(client, _of(service, given["before"]), timeout)
        return await client.call(service, "job.list", given, timeout=timeout)

    with asking_for_jobs(service):
        page: Mapping[str, Any] = checked(Jobs, ask(broker, read), service, "job.list")
    return page


def _show_page(output: Output, service: str, page: Mapping[str, Any], *, is_full: bool) -> None:
    from nebula.cli.job_columns import JOBS

    columns = [column.field for column in JOBS]
    none = f"{service} remembers no such jobs"
    output.rows(columns, page["jobs"], none=none, ids="" if is_full else "job")
    if output.is_for_people and page.get("next"):
        output.show(f"older ones: --before {page['next']}")


def _of(service: str, job: str) -> str:
    """A job's id with its service, which may be missing in `job`."""
    return job_named(job if "/" in job else f"{service}/{job}")


def watch(
    job: JobId,
    *,
    result: Annotated[bool, Option("--result", help="When it is done, show what it returned.")] = False,
    broker: Url = None,
    as_json: AsJson = False,
) -> None:
    """Follow a job to its end: a progress bar, or a JSON line for each status. Ctrl-C leaves the job running.

    Exit status 0 if it ended as done, else 1.

    \b
    Examples:
      nebula job watch reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB
      nebula call reports delays month:=1 | nebula job watch - --result
    """
    from nebula.cli.asking import ask

    output = Output(as_json=as_json)

    async def follow(client: Client) -> tuple[JobStatus, Any]:
        handle = client.job(await find_job(client, job, DEFAULT_TIMEOUT))
        # Closed before the result is shown, because a bar and a table cannot share the screen.
        with JobView(output) as view:
            # A lost connection ends the command with status 3; the job goes on and can be watched again.
            async for status in handle.watch():
                view.show(status.to_json())
        return status, await handle.result() if result and status.state == JobState.DONE else None

    last, value = ask(broker, follow)
    # The status is the job's: scripts need to know whether there is a result.
    if last.state != JobState.DONE:
        raise Leave(Exit.FAILED)
    if result:
        show_result(output, value)


def cancel(
    job: JobId, *, broker: Url = None, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False
) -> None:
    """Cancel a job and show its status; `nebula job watch` shows how it ends.

    Example: nebula job cancel reports/01JD3Z7VTP5W0Q4YH2X8K6M9NB
    """
    from nebula.cli.asking import ask

    async def end(client: Client) -> JobStatus:
        found = await find_job(client, job, timeout)
        return await client.with_options(timeout=timeout).job(found).cancel()

    status = ask(broker, end)
    Output(as_json=as_json).event(f"{status.job} is {status.state}", **status.to_json())
