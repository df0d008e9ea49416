"""Plots show the values that they are given, and the pages of speed what was measured."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from benchmarks import performance
from benchmarks.contestants import INTERPRETED
from benchmarks.figures import RESULTS, Figures
from benchmarks.pages import renewed
from benchmarks.plots import Bar, Panel, svg

_SVG = "{http://www.w3.org/2000/svg}"
_BARS = [Bar("ours & all", 40.0, "40", True), Bar("theirs", 10.0, "10", False)]


def _drawn(text: str) -> tuple[list[str], list[tuple[str, float]]]:
    """The texts of a plot, and its bars: class and width."""
    root = ET.fromstring(text)
    bars = [(bar.attrib["class"], float(bar.attrib["width"])) for bar in root.iter(f"{_SVG}rect")]
    return [node.text or "" for node in root.iter(f"{_SVG}text")], bars


def test_bars_of_a_panel_have_the_proportions_of_their_values() -> None:
    texts, bars = _drawn(svg("Rates", [Panel("a < b", _BARS)]))

    assert texts == ["a < b", "ours & all", "40", "theirs", "10"]
    assert [kind for kind, _ in bars] == ["ours", "other"]
    assert bars[0][1] == pytest.approx(4 * bars[1][1], abs=0.2)


def test_each_panel_has_a_scale_of_its_own() -> None:
    small = [replace(bar, value=bar.value / 1_000) for bar in _BARS]

    _, bars = _drawn(svg("Rates", [Panel("large", _BARS), Panel("small", small)]))

    assert [width for _, width in bars[:2]] == [width for _, width in bars[2:]]


def test_value_that_is_nearly_nothing_still_has_a_bar() -> None:
    _, bars = _drawn(svg("Rates", [Panel("", [_BARS[0], Bar("", 1e-9, "0", False)])]))

    assert bars[1][1] > 0


def test_plot_is_readable_on_dark_pages() -> None:
    assert "prefers-color-scheme: dark" in svg("Rates", [Panel("", _BARS)])


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Figures.of(RESULTS.read_text(encoding="utf-8"))


def test_figure_that_changes_is_seen_in_readme_page_and_plot(figures: Figures) -> None:
    title = "Queue, auto acks"
    table = figures.tables[title]
    changed = {**table, "Nebula": {**table["Nebula"], "messages/s": "123,456,789"}}
    other = Figures({**figures.tables, title: changed})

    assert "123,456,789" in performance.summary(other)
    assert "123,456,789" in performance.tables(other)["streams"]
    assert "123,456,789" in performance.plots(other)["streams.svg"]
    assert "123,456,789" not in performance.plots(figures)["streams.svg"]


def test_latency_is_compared_the_other_way_round(figures: Figures) -> None:
    values = {"Nebula": "100", INTERPRETED: "120", "RabbitMQ": "300", "ActiveMQ": "250"}
    table = {name: {"p50 µs": value} for name, value in values.items()}

    shown = performance.tables(Figures({**figures.tables, "Raw request/reply, one at a time": table}))[
        "requests"
    ]

    assert re.search(r"one at a time, median µs \| 100 \| 120 \| 300 \| 250 \| 2\.5 \|", shown)


def test_row_that_was_not_measured_is_left_out(figures: Figures) -> None:
    title = "Queue, auto acks, differing heads: jms"
    other = Figures({name: table for name, table in figures.tables.items() if name != title})

    assert "queue, jms" in performance.tables(figures)["heads"]
    assert "queue, jms" not in performance.tables(other)["heads"]
    assert "queue, jms" not in performance.plots(other)["heads.svg"]


def test_page_without_a_place_for_a_table_is_told() -> None:
    with pytest.raises(ValueError, match="no place for the table costs"):
        renewed("<!-- heads -->\n<!-- end -->", {"costs": "| |"})


def test_latencies_of_every_rate_that_was_measured_are_shown(figures: Figures) -> None:
    cells = {"p50 µs": "101", "p99 µs": "202", "p99.9 µs": "303"}
    titles = ["Latency of a delivery at 1,000 messages/s", "Latency of a delivery at 50,000 messages/s"]
    other = Figures(
        {
            **{title: table for title, table in figures.tables.items() if "Latency of" not in title},
            **{title: {"Nebula": cells} for title in titles},
        }
    )

    lines = performance.tables(other)["latency"].splitlines()[2:]
    texts, bars = _drawn(performance.plots(other)["latency.svg"])

    assert lines == ["| 1,000 | Nebula | 101 | 202 | 303 |", "| 50,000 | Nebula | 101 | 202 | 303 |"]
    assert [text for text in texts if text.startswith("Nebula at")] == [
        "Nebula at 1,000 messages/s, µs (less is better)",
        "Nebula at 50,000 messages/s, µs (less is better)",
    ]
    assert len(bars) == 6


def test_provisional_figures_have_a_mark_wherever_they_are_shown(figures: Figures) -> None:
    title = "Queue, auto acks"
    marked, plain = (Figures(figures.tables, frozenset(titles)) for titles in ({title}, ()))

    for mark, shown in ((" †", marked), ("", plain)):
        assert f"| queue, messages/s{mark} |" in performance.summary(shown)
        assert f"| queue, messages/s{mark} |" in performance.tables(shown)["streams"]
        assert f"| a message through a queue{mark} |" in performance.tables(shown)["costs"]
        assert f"queue, messages/s{mark}<" in performance.plots(shown)["streams.svg"]
