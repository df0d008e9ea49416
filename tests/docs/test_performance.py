"""The page of performance, its plots, and the README show the last results of the benchmarks."""

from __future__ import annotations

import re

import pytest

from benchmarks import performance
from benchmarks.figures import RESULTS, Figures
from benchmarks.pages import renewed


@pytest.fixture(scope="module")
def figures() -> Figures:
    return Figures.of(RESULTS.read_text(encoding="utf-8"))


def test_tables_of_the_page_are_those_of_the_results(figures: Figures) -> None:
    page = performance.PAGE.read_text(encoding="utf-8")

    assert renewed(page, performance.tables(figures)) == page


def test_plots_are_those_of_the_results(figures: Figures) -> None:
    drawn = {path.name: path.read_text(encoding="utf-8") for path in performance.PLOTS.iterdir()}

    assert drawn == performance.plots(figures)


def test_page_shows_every_plot() -> None:
    page = performance.PAGE.read_text(encoding="utf-8")

    shown = set(re.findall(r"!\[[^\]]+\]\(plots/([\w.]+)\)", page))
    assert shown == {path.name for path in performance.PLOTS.iterdir()}


def test_figures_of_the_readme_are_those_of_the_results(figures: Figures) -> None:
    readme = performance.README.read_text(encoding="utf-8")

    assert renewed(readme, {"speed": performance.summary(figures)}) == readme
