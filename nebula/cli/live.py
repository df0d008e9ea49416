"""Live screens: drawn over on a terminal, one line of JSON for each look off it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from rich.console import RenderableType

from nebula.cli.render import Output


# Not in `nebula.cli.watching`, because the options of `nebula top` need it at each start of the program, and
# that module imports more.
class Table(StrEnum):
    """The tables of `nebula top`, in the order of their keys."""

    QUEUES = "queues"
    CONNECTIONS = "connections"
    PRINCIPALS = "principals"


@contextmanager
def screen(
    output: Output, draw: Callable[[Any], RenderableType], *, is_live: bool = True
) -> Iterator[Callable[[Any], None]]:
    """What shows a view, over the one before if it is live, or writes it as a line.

    Args:
        output: of the command.
        draw: makes of what is shown what a person reads.
        is_live: there will be more than one view.
    """
    if not output.is_for_people:
        yield output.json_line
    elif not is_live:
        yield lambda shown: output.show(draw(shown))
    else:
        # Redrawn only for new content, instead of on rich's thread.
        with output.console.live() as live:
            yield lambda shown: live.update(draw(shown), refresh=True)
