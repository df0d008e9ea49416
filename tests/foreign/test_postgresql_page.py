"""The page on a registry in PostgreSQL does what it says, SQL and all."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest

from tests.docs_runner import Shell, matches, read_page
from tests.foreign.postgresql import PostgresServer

_PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "postgresql-registry.md"


@pytest.mark.foreign
@pytest.mark.timeout(300)
def test_page_runs_as_it_stands(tmp_path: Path) -> None:
    page = read_page(_PAGE)
    make, look = re.findall(r"^```sql\n(.*?)^```$", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for name, text in page.files.items():
        (tmp_path / name).write_text(text)
    server = PostgresServer()
    try:
        with psycopg.connect(server.url("postgres"), autocommit=True) as db:
            for statement in make.strip().splitlines():
                db.execute(statement)
        with Shell(tmp_path, {"5432": server.port}) as shell:
            for command in page.commands:
                said = shell.type(command)
                assert matches(command.shown, said), f"$ {command.words}\n{said}\n--- not:\n{command.shown}"
            with psycopg.connect(server.url("jobs")) as db:
                rows = db.execute(look).fetchall()
    finally:
        server.close()

    assert [row[1:4] for row in rows] == [("import_day", "done", None)]
