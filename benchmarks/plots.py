"""Bar charts as SVG: text that is the same for the same figures, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH = 720
# What a letter of a label takes in a wide font, and what the figure behind the longest bar does.
_LETTER_WIDTH, _SHOWN_WIDTH = 9, 100
_BAR_HEIGHT, _BAR_STEP = 14, 20
_PANEL_HEAD, _PANEL_GAP = 26, 14
_STYLE = """\
  text { font: 13px system-ui, sans-serif; fill: #1f2328; }
  .head { font-weight: 600; }
  .ours { fill: #0969da; }
  .other { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .ours { fill: #4493f8; }
    .other { fill: #6e7681; }
  }"""


@dataclass(frozen=True, slots=True)
class Bar:
    """One value; `shown` is what the reader sees of it."""

    label: str
    value: float
    shown: str
    is_ours: bool


@dataclass(frozen=True, slots=True)
class Panel:
    """Bars of one unit, on one linear scale that begins at zero."""

    title: str
    bars: Sequence[Bar]


def svg(title: str, panels: Sequence[Panel]) -> str:
    """The chart; `title` is what a screen reader says about it."""
    parts = list(_parts(panels))
    height = sum(_height(panel) for panel in panels)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>\n{_STYLE}\n</style>", *parts, "</svg>\n"]
    )


def _height(panel: Panel) -> int:
    return _PANEL_HEAD + len(panel.bars) * _BAR_STEP + _PANEL_GAP


def _parts(panels: Sequence[Panel]) -> Iterator[str]:
    top = 0
    for panel in panels:
        yield f'<text class="head" x="0" y="{top + 16}">{escape(panel.title)}</text>'
        left = _LETTER_WIDTH * max(len(bar.label) for bar in panel.bars) + 8
        scale = (_WIDTH - left - _SHOWN_WIDTH) / (max(bar.value for bar in panel.bars) or 1)
        for number, bar in enumerate(panel.bars):
            yield from _bar(bar, left, top + _PANEL_HEAD + number * _BAR_STEP, scale)
        top += _height(panel)


def _bar(bar: Bar, left: int, top: int, scale: float) -> Iterator[str]:
    # A bar that rounds to nothing would look like a figure that is missing.
    width = max(1.0, round(bar.value * scale, 1))
    colour = "ours" if bar.is_ours else "other"
    base = top + _BAR_HEIGHT - 3
    yield f'<text x="{left - 8}" y="{base}" text-anchor="end">{escape(bar.label)}</text>'
    yield f'<rect class="{colour}" x="{left}" y="{top}" width="{width:g}" height="{_BAR_HEIGHT}" rx="2"/>'
    yield f'<text x="{left + width + 6:g}" y="{base}">{escape(bar.shown)}</text>'
