"""The pages of the docs that start Spark do what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs_runner import ROOT, SPARK_PAGES, run_page


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(SPARK_PAGES))
def test_page_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    run_page(ROOT / "docs" / "how-to" / name, tmp_path)
