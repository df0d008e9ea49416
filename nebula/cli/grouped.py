"""The help of `nebula`: commands by what they are for, each with its whole summary."""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from typer.core import TyperGroup

__all__ = ["Grouped"]

HEADINGS: Final = ("Run", "Call", "Publish", "Jobs", "Operate", "Secure", "Tools")

# Longer than any summary: what is cut off is what the reader needs.
_WHOLE = 1_000


class Grouped(TyperGroup):
    """Lists commands under the headings that they were added with (`rich_help_panel`)."""

    # Typer has headings only in rich's help, and click would cut the summaries.
    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002  # as typer calls it
        """Write the headings with their commands."""
        shown = [command for command in self.commands.values() if not command.hidden]
        # Typer has commands before groups of them.
        shown.sort(key=lambda each: _rank_of(_heading_of(each)))
        for heading, commands in groupby(shown, key=_heading_of):
            # `groupby` groups neighbours; the sort above is stable, so commands keep the order of
            # `nebula.cli`.
            with formatter.section(heading):
                formatter.write_dl([(each.name, each.get_short_help_str(_WHOLE)) for each in commands])


def _heading_of(command: Any) -> str:
    # What was not given is a placeholder of typer's.
    heading = command.rich_help_panel
    return heading if isinstance(heading, str) else "Commands"


def _rank_of(heading: str) -> int:
    return HEADINGS.index(heading) if heading in HEADINGS else len(HEADINGS)
