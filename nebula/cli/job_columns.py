"""Columns of the tables of jobs and engines: selected fields of the views of `nebula.rpc.jobs`.

Commands import this when they run, as `nebula.cli.columns`: else the start of every command would pay for it.
"""

from __future__ import annotations

from typing import Final

from nebula.cli.tables import Column, columns, duration, number
from nebula.rpc.jobs.model.views import EngineView, JobDetails, JobRow, StepView

JOBS: Final = columns(JobRow, "job", "verb", "state", "progress", "accepted_at")

# In the order in which they matter to a reader.
JOB_FACTS: Final = (
    *columns(JobRow, "job", "verb", "state", "progress", "note", "position"),
    *columns(JobDetails, "priority", "exclusive"),
    *columns(JobRow, "owner", "attempt", "accepted_at"),
    *columns(JobDetails, "not_before", "expires_at"),
    *columns(JobRow, "started_at", "ended_at", "rerun_of"),
    *columns(JobDetails, "parameters", "counters"),
    *columns(JobRow, "error"),
    *columns(JobDetails, "result"),
)
STEPS: Final = (*columns(StepView, "number", "name", "started_at"), Column("took", "seconds", duration))

# Columns without a view are of what `nebula.cli.engines` derives: sums over an engine and its isolated jobs.
ENGINES: Final = (
    Column("instance", "instance"),
    Column("engine", "engine"),
    *columns(EngineView, "state", "up_seconds"),
    Column("running", "running", number),
    Column("waiting", "jobs.waiting", number),
    *columns(EngineView, "jobs_since_start", "starts", "rss_bytes"),
    Column("why", "why"),
)
