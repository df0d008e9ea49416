"""Pages of results as `job.result` answers them, and as handles read them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from nebula.errors import JobEnded, NoResponder, RemoteError, SettingsError
from nebula.rpc.contract.job_runner import JobFailure, JobOutput
from nebula.rpc.errors import UnexpectedReply, VerbError
from nebula.rpc.jobs.results import fetching, pages
from nebula.rpc.jobs.results.tables import TableReader
from nebula.rpc.jobs.service.service import JobService
from tests.rpc.jobs.handles import Watched, watching
from tests.rpc.jobs.harness import House, ask, request
from tests.rpc.jobs.results.tables import is_same, write

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def _done(
    tmp_path: Path, output: JobOutput, owner: str | None = None
) -> AsyncIterator[tuple[Any, str]]:
    house = House(tmp_path / "state")
    async with house.living() as service:
        receipt = await service.accept(request("count", principal=owner), house.verb, ((), {}))
        task = await house.runner.next_task()
        house.runner.listener.on_started(task.job, 1)
        house.runner.listener.on_done(task.job, 1, output)
        yield service, str(receipt["job"])


def _table(tmp_path: Path, rows: int = 100) -> tuple[JobOutput, list[dict[str, Any]]]:
    written = write(tmp_path / "t.parquet", files=2, rows=rows // 2)
    return JobOutput(path=str(tmp_path / "t.parquet"), rows=rows), written


async def _error(service: JobService, parameters: Any, principal: str | None = None) -> VerbError:
    with pytest.raises(VerbError) as caught:
        await ask(service, "job.result", parameters, principal)
    return caught.value


async def test_pages_of_a_table_follow_each_other(tmp_path: Path) -> None:
    output, written = _table(tmp_path)
    async with _done(tmp_path, output) as (service, job):
        first = await ask(service, "job.result", {"job": job, "rows": 30})
        ids, page = [one["id"] for one in first["data"]], first
        while page["next"] is not None:
            page = await ask(service, "job.result", {"job": job, "rows": 30, "page": page["next"]})
            ids += [one["id"] for one in page["data"]]
        # The same question has the same answer.
        again = await ask(service, "job.result", {"job": job, "rows": 30})

    assert (first["total"], first["next"], len(first["data"])) == (100, "0.30", 30)
    assert first["schema"][1] == {"name": "price", "type": {"decimal": [20, 4]}}
    assert ids == [one["id"] for one in written]
    assert again == first


async def test_page_that_follows_is_read_on_and_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    class Counted(TableReader):
        def __init__(self, *arguments: Any) -> None:
            opened.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(pages, "TableReader", Counted)
    output, _ = _table(tmp_path)
    async with _done(tmp_path, output) as (service, job):
        page = await ask(service, "job.result", {"job": job, "rows": 10})
        while page["next"] is not None:
            page = await ask(service, "job.result", {"job": job, "rows": 10, "page": page["next"]})

    assert len(opened) == 1


async def test_files_without_a_reader_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_MOST_OPEN", 2)
    output, _ = _table(tmp_path)
    async with _done(tmp_path, output) as (service, job):
        for rows in range(1, 10):
            await ask(service, "job.result", {"job": job, "rows": rows})

        assert len(service.pages._kept) == 2
    assert not service.pages._kept


@pytest.mark.parametrize(("asks", "may"), [("alice", True), ("mallory", False), (None, False)])
async def test_pages_are_their_owners(tmp_path: Path, asks: str | None, may: bool) -> None:
    output, _ = _table(tmp_path)
    async with _done(tmp_path, output, "alice") as (service, job):
        if may:
            assert await ask(service, "job.result", {"job": job, "rows": 1}, asks)
        else:
            assert (await _error(service, {"job": job, "rows": 1}, asks)).code == "not-allowed"
            assert (await _error(service, {"job": job, "page": "0.1"}, asks)).code == "not-allowed"


async def test_result_whose_files_are_gone_is_reported_even_in_the_middle_of_it(tmp_path: Path) -> None:
    output, _ = _table(tmp_path)
    async with _done(tmp_path, output) as (service, job):
        page = await ask(service, "job.result", {"job": job, "rows": 10})
        shutil.rmtree(tmp_path / "t.parquet")
        first = await _error(service, {"job": job, "rows": 10})
        later = await _error(service, {"job": job, "rows": 10, "page": page["next"]})

        assert not service.pages._kept
    assert [first.code, later.code] == ["result-gone", "result-gone"]
    assert str(tmp_path / "t.parquet") in first.message


async def test_damaged_file_is_reported(tmp_path: Path) -> None:
    output, _ = _table(tmp_path)
    for file in (tmp_path / "t.parquet").glob("part-*"):
        file.write_bytes(b"PAR1" + file.read_bytes()[:-40])
    async with _done(tmp_path, output) as (service, job):
        error = await _error(service, {"job": job, "rows": 10})

    assert (error.code, error.message) == ("result-unreadable", "the files of the result are damaged")


async def test_service_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "find_spec", lambda _name: None)
    output, _ = _table(tmp_path)
    async with _done(tmp_path, output) as (service, job):
        error = await _error(service, {"job": job, "rows": 10})

    assert error.code == "result-unreadable"
    assert "nebula-rpc[arrow]" in error.message


@pytest.mark.parametrize("page", ["3", "9.0", "0.51", "x"])
async def test_page_that_there_is_not_is_refused(tmp_path: Path, page: str) -> None:
    output, _ = _table(tmp_path)
    async with _done(tmp_path, output) as (service, job):
        error = await _error(service, {"job": job, "page": page})

    assert error.code == "bad-parameters"


async def test_list_has_pages_too(tmp_path: Path) -> None:
    async with _done(tmp_path, JobOutput(value=[{"n": n} for n in range(10)])) as (service, job):
        first = await ask(service, "job.result", {"job": job, "rows": 6})
        last = await ask(service, "job.result", {"job": job, "rows": 6, "page": first["next"]})
        beyond = await _error(service, {"job": job, "page": "0.11"})

    assert first == {"data": [{"n": n} for n in range(6)], "schema": None, "total": 10, "next": "0.6"}
    assert last == {"data": [{"n": n} for n in range(6, 10)], "schema": None, "total": 10, "next": None}
    assert beyond.code == "bad-parameters"


async def test_value_has_no_rows(tmp_path: Path) -> None:
    async with _done(tmp_path, JobOutput(value={"n": 1})) as (service, job):
        assert (await _error(service, {"job": job, "rows": 6})).code == "no-rows"


async def test_number_of_callers_that_wait_for_pages_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "_MOST_WAITING", 0)
    output, _ = _table(tmp_path)
    async with _done(tmp_path, output) as (service, job):
        error = await _error(service, {"job": job, "rows": 6})

    assert (error.code, error.retryable) == ("busy", True)


async def test_one_principal_leaves_places_to_others_that_wait_for_pages(tmp_path: Path) -> None:
    output, _ = _table(tmp_path)
    many, answers = pages.ResultPages(), list[str]()
    # Nothing is read before it has a turn.
    many._threads = anyio.CapacityLimiter(1)
    await many._threads.acquire()

    async def ask(asker: str) -> None:
        try:
            await many.page(output, None, 6, "json", asker=asker)
            answers.append(asker)
        except VerbError as error:
            answers.append(error.code)

    async with anyio.create_task_group() as tasks:
        for _ in range(40):
            tasks.start_soon(ask, "alice")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask, "bob")
        await anyio.wait_all_tasks_blocked()
        refused = len(answers)
        many._threads.release()

    assert refused == 32
    assert sorted(answers)[:9] == ["alice"] * 8 + ["bob"]


# --- handles ---


def _ends_with(job: Watched, output: JobOutput | JobFailure) -> Callable[[], Awaitable[None]]:
    async def end() -> None:
        listener = job.house.runner.listener
        if isinstance(output, JobOutput):
            listener.on_done(*job.key, output)
        else:
            listener.on_failed(*job.key, output)

    return end


async def test_rows_are_waited_for_and_have_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PAGE_ROWS", 7)
    output, written = _table(tmp_path)
    async with watching(tmp_path / "state") as job:
        job.client.at["subscribed"] = _ends_with(job, output)
        read = [row async for row in job.handle.rows()]

    assert is_same(read, written)


async def test_rows_go_on_when_the_service_was_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_PAGE_ROWS", 40)
    output, written = _table(tmp_path)
    async with watching(tmp_path / "state", ask_after=0.01) as job:
        await _ends_with(job, output)()
        read = []
        async for row in job.handle.rows():
            read.append(row["id"])
            if len(read) == 1:
                job.client.away["/queue/counting"] = NoResponder("rejected-no-consumer", "/queue/counting")

                async def return_() -> None:
                    job.client.away.clear()

                job.client.at["asking"] = return_

    assert read == [row["id"] for row in written]


async def test_rows_of_a_failed_job_raise_its_error(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        await _ends_with(job, JobFailure("empty", "no rows"))()
        with pytest.raises(JobEnded) as caught:
            await anext(job.handle.rows())

    assert caught.value.code == "empty"


async def test_arrow_and_pandas_have_the_types_of_the_table(tmp_path: Path) -> None:
    output, written = _table(tmp_path)
    async with watching(tmp_path / "state") as job:
        await _ends_with(job, output)()
        table = await job.handle.to_arrow()
        frame = await job.handle.to_pandas()

    assert [str(kind) for kind in table.schema.types[:3]] == ["int64", "decimal128(20, 4)", "double"]
    assert table["id"].to_pylist() == [row["id"] for row in written]
    assert frame["at"].dt.tz is not None
    assert frame["day"][1] == written[1]["day"]


async def test_list_is_read_as_rows_and_not_as_arrow(tmp_path: Path) -> None:
    async with watching(tmp_path) as job:
        await _ends_with(job, JobOutput(value=[1, 2, 3]))()
        items: list[Any] = [one async for one in job.handle.rows()]
        with pytest.raises(RemoteError) as caught:
            await job.handle.to_arrow()

    assert (items, caught.value.code) == ([1, 2, 3], "no-rows")


async def test_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "find_spec", lambda name: None if name == "pandas" else object())
    async with watching(tmp_path) as job:
        with pytest.raises(SettingsError, match=r"pip install 'nebula-rpc\[pandas\]'"):
            await job.handle.to_pandas()


@pytest.mark.parametrize(
    "page",
    [
        None,
        {},
        {"next": None},
        {"next": None, "data": 1, "schema": None},
        {"next": None, "data": [{"a": "x"}], "schema": [{"name": "a", "type": "date"}]},
        {"next": None, "data": [{"a": "x"}], "schema": [{"name": "b", "type": "date"}]},
        {"next": None, "data": [{"a": "x"}], "schema": [{"name": "a", "type": {"decimal": [1, 1]}}]},
        {"next": None, "data": [1], "schema": [{"name": "a", "type": "odd"}]},
        {"next": None, "data": [1], "schema": [{"name": "a", "type": {"odd": 1, "list": 2}}]},
    ],
)
async def test_malformed_page_is_unexpected(page: Any) -> None:
    async def answer(_wanted: Any) -> Any:
        return page

    async def read() -> None:
        async for one in fetching.each_page(answer, answer):
            fetching.rows_of(one)

    with pytest.raises(UnexpectedReply):
        await read()
