"""Views of jobs, steps and engines: the fields of replies to `job.list`, `job.show` and `engine.status`.

Each field is declared once, see `nebula.shown`: the verbs build their replies from these classes, the command
line takes titles and formats from them, and the reference page its tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from nebula.shown import Shown, Unit

__all__ = ["EngineView", "JobDetails", "JobRow", "StepView"]


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job in a list: what all callers of the service may know."""

    job: Annotated[str, Shown("job", Unit.ID, "SERVICE/ULID.")]
    verb: Annotated[str, Shown("verb")]
    state: Annotated[
        str,
        Shown(
            "state",
            about="`queued`, `starting`, `running` or `cancelling`; at the end `done`, `failed`, `cancelled`,"
            " `timed_out`, `lost` or `expired`.",
        ),
    ]
    progress: Annotated[
        float | None, Shown("progress", Unit.FRACTION, "The part that is done; null if it is not known.")
    ]
    note: Annotated[str, Shown("note", about="What the job reports that it is doing.")]
    position: Annotated[int | None, Shown("position", Unit.COUNT, "Place among the waiting jobs.")]
    owner: Annotated[str | None, Shown("owner", about="The principal that started it.")]
    attempt: Annotated[int, Shown("attempt", Unit.COUNT, "1 on the first run.")]
    accepted_at: Annotated[float, Shown("accepted_at", Unit.TIME)]
    started_at: Annotated[float | None, Shown("started_at", Unit.TIME, "Start of the last run.")]
    ended_at: Annotated[float | None, Shown("ended_at", Unit.TIME)]
    error: Annotated[
        Mapping[str, str] | None,
        Shown("error", about="`code` and `message` of a failure, and `sqlstate` if Spark gave one."),
    ]
    # Left out of replies where it is null.
    rerun_of: Annotated[str | None, Shown("rerun_of", about="The job that this one repeats.")]


@dataclass(frozen=True, slots=True)
class StepView:
    """A step of a job's last run."""

    number: Annotated[int, Shown("step", Unit.COUNT, "From 1.")]
    total: Annotated[int, Shown("", Unit.COUNT, "How many steps there are.")]
    name: Annotated[str, Shown("name")]
    started_at: Annotated[float, Shown("begun", Unit.TIME)]
    ended_at: Annotated[float | None, Shown("", Unit.TIME)]


@dataclass(frozen=True, slots=True)
class JobDetails:
    """The fields that `job.show` adds to those of the list: what the owner alone may know."""

    seq: Annotated[int, Shown("", Unit.NUMBER, "Number of the last status that was published.")]
    via: Annotated[str, Shown("", about="The queue that takes requests about the job.")]
    parameters: Annotated[Any, Shown("parameters", about="Those of the call that started it.")]
    priority: Annotated[int, Shown("priority", Unit.COUNT, "0 to 9; jobs with a higher one start first.")]
    timeout: Annotated[float | None, Shown("", Unit.SECONDS, "The longest that a run may take.")]
    expires_at: Annotated[float | None, Shown("expires_at", Unit.TIME, "The job does not start after this.")]
    not_before: Annotated[float | None, Shown("not_before", Unit.TIME, "The job does not start before this.")]
    exclusive: Annotated[
        str | None, Shown("exclusive", about="Jobs with the same key do not run at the same time.")
    ]
    steps: Annotated[
        Sequence[Mapping[str, Any]], Shown("", about="The steps of the last run that have begun.")
    ]
    tasks: Annotated[
        Mapping[str, Any] | None,
        Shown(
            "", Unit.COUNT, "Spark's tasks: `done`, `known`, `active`, and `stages` with the same for each."
        ),
    ]
    counters: Annotated[Mapping[str, int], Shown("counters", Unit.COUNT, "The job's own counts.")]
    result: Annotated[
        Mapping[str, Any] | None,
        Shown("result", about="`value`; or `path`, with what is known about the data there."),
    ]
    log: Annotated[Sequence[Mapping[str, Any]], Shown("", about="Its last lines: `at`, `text` and `number`.")]


@dataclass(frozen=True, slots=True)
class EngineView:
    """An engine. A field that an engine does not have is missing: the service itself has the first three."""

    state: Annotated[
        str, Shown("state", about="`stopped`, `starting`, `ready`, or `waiting` before it is started again.")
    ]
    broken: Annotated[str | None, Shown("", about="Why no job can run; null if jobs can run.")]
    jobs: Annotated[
        Mapping[str, int],
        Shown(
            "",
            Unit.COUNT,
            "Jobs now: `waiting` for the engine, `open` in it, `settling` (cancelled, but still using it) and"
            " `stuck` (cancelled, but their code does not end); and, by final state, how many have ended.",
        ),
    ]
    may_restart: Annotated[bool, Shown("", Unit.FLAG, "Whether the caller may call `engine.restart` for it.")]
    last_end: Annotated[str | None, Shown("", about="Why the last process ended.")]
    starts: Annotated[
        int, Shown("starts", Unit.COUNT, "How often it has been started since the service began.")
    ]
    master: Annotated[str, Shown("", about="As declared.")]
    memory: Annotated[str | None, Shown("", about="As declared.")]
    max_running: Annotated[int, Shown("", Unit.COUNT, "Jobs at the same time, as declared.")]
    warm: Annotated[bool, Shown("", Unit.FLAG, "Whether it starts with the service, as declared.")]
    idle_stop: Annotated[float | None, Shown("", Unit.SECONDS, "As declared.")]
    conf: Annotated[
        Mapping[str, str | None], Shown("", about="As declared; null in place of values that may be secret.")
    ]
    incarnation: Annotated[str | None, Shown("", about="Identifies the present process.")]
    pid: Annotated[int | None, Shown("", Unit.NUMBER, "Of the present process.")]
    jvm_pid: Annotated[int | None, Shown("", Unit.NUMBER, "Of its Java process.")]
    spark: Annotated[str | None, Shown("", about="Version of Spark.")]
    java: Annotated[str | None, Shown("", about="Version of Java.")]
    ui: Annotated[str | None, Shown("", about="Address of Spark's web pages.")]
    start_seconds: Annotated[float | None, Shown("", Unit.SECONDS, "How long the start took.")]
    up_seconds: Annotated[float | None, Shown("up", Unit.SECONDS, "Age of the present process.")]
    jobs_since_start: Annotated[int | None, Shown("had", Unit.COUNT, "Jobs given to the present process.")]
    rss_bytes: Annotated[
        int | None, Shown("memory", Unit.BYTES, "Memory of the present process and its Java process.")
    ]
    threads: Annotated[int | None, Shown("", Unit.COUNT)]
    archive: Annotated[
        str,
        Shown(
            "",
            about="The archive of Java's classes: `off`, `missing`, `used`, `unused`, `refused` by Java, or"
            " `distrusted` because others may write it; later `making`, `made` for the next start,"
            " `elsewhere` if another service makes it, or `failed`.",
        ),
    ]
    isolated: Annotated[
        Sequence[Mapping[str, Any]],
        Shown("", about="One entry for each isolated job: `job`, pids, `rss_bytes`, `seconds`."),
    ]
