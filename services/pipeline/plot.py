"""The hourly turnover as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path


def plot(hours: Sequence[tuple[datetime, int]], border: datetime, target: Path) -> None:
    """Draw what was bet in each hour as a PNG.

    Args:
        hours: with cents each, in order.
        border: from then on it was read as a stream, before as a batch.
        target: of the picture.
    """
    import matplotlib as mpl

    # No display is needed.
    mpl.use("Agg")
    from matplotlib import dates
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4), layout="constrained")
    for name, is_stream, colour in (("batch", False, "tab:blue"), ("stream", True, "tab:orange")):
        shown = [(hour, cents / 100_000) for hour, cents in hours if (hour >= border) is is_stream]
        if shown:
            starts, thousands = zip(*shown, strict=True)
            axes.bar(starts, thousands, width=1 / 26, align="edge", label=name, color=colour)
    formatter = dates.ConciseDateFormatter(dates.AutoDateLocator())  # type: ignore[no-untyped-call]  # matplotlib's
    axes.xaxis.set_major_formatter(formatter)
    axes.set_ylabel("turnover, thousands an hour")
    axes.set_title("Hourly turnover of the venue")
    axes.legend(loc="upper left")
    figure.savefig(target, dpi=120)
    plt.close(figure)
