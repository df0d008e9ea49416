"""The pages of the docs that start Spark do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from nebula.spark.java import find_java
from tests.docs_runner import ROOT, SPARK_PAGES, run_page


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(SPARK_PAGES))
def test_page_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    run_page(_page(name), tmp_path)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_script_for_spark_submit_does_what_its_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Spark's own command does not look for a Java where Nebula does.
    for name, value in find_java(tmp_path / "java").environment().items():
        if value is not None:
            monkeypatch.setenv(name, value)

    run_page(_page("spark-submit-livy.md"), tmp_path, "shell-session")


def _page(name: str) -> Path:
    [page] = (ROOT / "docs").rglob(name)
    return page
