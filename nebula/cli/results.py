"""Display of what a job returned."""

from __future__ import annotations

from typing import Any

from nebula.cli.render import Output
from nebula.cli.terminal import text
from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.jobs.model.status import result_of

__all__ = ["show_preview", "show_result"]


def show_result(output: Output, value: Any) -> None:
    """A value; or of what is kept in a file: where, how much, and for people its first rows as a table."""
    if not isinstance(value, JobOutput):
        output.value(value)
        return
    known = result_of(value)
    # Only for people; JSON keeps it.
    preview = known.pop("preview", None) if output.is_for_people else None
    output.value(known)
    show_preview(output, preview)


def show_preview(output: Output, preview: Any) -> None:
    """The first rows of a result, for people."""
    if preview:
        output.show(text("\npreview", "bold"))
        output.value(preview)
