"""`GET /jobs/SERVICE/ID/result`: what jobs returned, as other programs read it."""

from __future__ import annotations

import csv
import http.client
import io
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import anyio
import argon2
import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
import pytest
from pyarrow import parquet

from nebula.broker.server.http_posts import CutOff, Posted, Response, Streamed
from nebula.host.http_calls import Call
from nebula.host.http_results import HttpResults, NotAcceptable, format_of
from nebula.rpc.jobs.results.formats import NotRows, writer_of
from nebula.rpc.jobs.results.types import ResultFormat
from nebula.sync import Client
from tests.cli.programs import running
from tests.host.http_house import DEADLINE, basic
from tests.rpc.jobs.results.tables import COLUMNS, write

_APP = """
from pathlib import Path
from typing import Any

import anyio

from nebula import Responder
from nebula.rpc.contract.job_runner import JobOutput


class Tables:
    operators, can_isolate, is_broken, max_running = None, False, None, 1

    def runner(self, state, service, name, *, is_shared):
        return self

    def status(self):
        return {"state": "ready"}

    def submit(self, task):
        self.tasks.append(task)
        self.more.set()

    async def run(self, listener, *, started=None):
        self.tasks, self.more = [], anyio.Event()
        started.set()
        while True:
            await self.more.wait()
            self.more = anyio.Event()
            while self.tasks:
                task = self.tasks.pop()
                listener.on_started(task.job, 1)
                listener.on_done(task.job, 1, JobOutput(path=task.parameters["path"], rows=200))


app = Responder("shop", spark=Tables())


@app.job
def table(path: str) -> Any: ...


@app.job(engine=None)
def value(value: Any) -> Any:
    return value


@app.job(engine=None)
async def forever() -> None:
    await anyio.sleep_forever()
"""

_CONFIG = """
store = "memory"
app = ["shop:app"]

[identity]
users = "users.toml"

[[listener]]
port = 0
anonymous = true

[[listener]]
port = 0
http = true
calls = true
anonymous = true
"""


class Place:
    """A broker that hosts a service with tables, and one of these."""

    def __init__(self, folder: Path, url: str, port: int) -> None:
        self.folder, self.url, self.port = folder, url, port
        self.written = write(folder / "t.parquet", files=2, rows=100)

    def client(self, login: str) -> Client:
        """Of a user, whose passcode has what an address has to escape."""
        return Client(self.url.replace("stomp://", f"stomp://{login}:{login}'s%3A%20word@"))

    def done(self, verb: str, parameters: Any, login: str = "alice") -> str:
        """The path of an ended job's result."""
        with self.client(login) as client:
            job = client.start("shop", verb, parameters)
            job.wait()
        return f"/jobs/{job.id}/result"

    def get(
        self, path: str, headers: Mapping[str, str] | None = None, login: str = "alice"
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """What is answered."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request("GET", path, headers={**basic(login, f"{login}'s: word"), **(headers or {})})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("place")
    hasher = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
    users = {name: hasher.hash(f"{name}'s: word") for name in ("alice", "bob")}
    lines = [f'{name} = "{words}"\n' for name, words in users.items()]
    (folder / "users.toml").write_text("[users]\n" + "".join(lines))
    (folder / "shop.py").write_text(_APP)
    (folder / "nebula.toml").write_text(_CONFIG)
    with running("broker", cwd=folder) as (process, first):
        assert process.stdout is not None
        second = json.loads(process.stdout.readline())
        yield Place(folder, first["url"], urlsplit(second["url"]).port or 0)


@pytest.fixture(scope="module")
def table(place: Place) -> str:
    """The path of a result that is a table."""
    return place.done("table", {"path": str(place.folder / "t.parquet")})


# --- tables ---


def test_table_is_lines_of_json(place: Place, table: str) -> None:
    response, body = place.get(table)
    rows = [json.loads(line) for line in body.splitlines()]

    assert (response.status, response.headers["content-type"]) == (200, "application/x-ndjson")
    assert [row["id"] for row in rows] == [row["id"] for row in place.written]
    assert list(rows[0]) == COLUMNS.names
    assert (rows[1]["price"], rows[1]["raw"], rows[1]["ratio"]) == ("0.0001", "AP8B", "NaN")
    assert rows[0]["at"] == "1969-12-31T23:59:59.999999Z"


def test_table_is_csv(place: Place, table: str) -> None:
    response, body = place.get(table, {"Accept": "text/csv"})
    names, *lines = csv.reader(io.StringIO(body.decode(), newline=""), strict=True)

    assert response.headers["content-type"].startswith("text/csv")
    assert names == COLUMNS.names
    assert len(lines) == 200
    for line, row in zip(lines, place.written, strict=True):
        cells = dict(zip(names, line, strict=True))
        assert cells["name"] == (row["name"] or "")
        assert cells["price"] == ("" if row["price"] is None else f"{row['price']:.4f}")
        assert cells["day"] == ("" if row["day"] is None else row["day"].isoformat())


def test_table_is_parquet(place: Place, table: str) -> None:
    response, body = place.get(f"{table}?format=parquet")
    read = parquet.read_table(pa.BufferReader(body))
    foreign = parquet.read_table(place.folder / "t.parquet")

    assert response.headers["content-type"] == "application/vnd.apache.parquet"
    assert read.schema.equals(foreign.schema)
    assert read.drop_columns(["ratio"]).equals(foreign.drop_columns(["ratio"]))


def test_value_without_rows_is_one_line(place: Place) -> None:
    path = place.done("value", {"value": {"é": 1}})

    assert json.loads(place.get(path)[1]) == {"é": 1}
    assert place.get(f"{path}?format=csv")[0].status == 406
    assert place.get(f"{path}?format=parquet")[0].status == 406


def test_list_has_rows(place: Place) -> None:
    path = place.done("value", {"value": [{"a": 1, "b": "x,y"}, {"a": None, "b": ""}]})

    assert place.get(path)[1] == b'{"a":1,"b":"x,y"}\n{"a":null,"b":""}\n'
    assert place.get(f"{path}?format=csv")[1] == b'a,b\r\n1,"x,y"\r\n,""\r\n'


# --- what goes wrong ---


def _refused(place: Place, path: str, **options: Any) -> tuple[int, str]:
    response, body = place.get(path, **options)
    return response.status, json.loads(body)["code"]


def test_result_is_its_owners(place: Place, table: str) -> None:
    assert _refused(place, table, login="bob") == (403, "not-allowed")
    assert _refused(place, table, headers={"Authorization": "Basic eA=="}) == (401, "not-admitted")


def test_job_that_has_no_result_is_told_so(place: Place) -> None:
    with place.client("alice") as client:
        job = client.start("shop", "forever")

        assert _refused(place, f"/jobs/{job.id}/result") == (409, "not-ended")
        job.cancel()


def test_result_that_was_removed_is_gone(place: Place) -> None:
    path = place.done("table", {"path": str(place.folder / "nothing.parquet")})

    assert _refused(place, path) == (410, "result-gone")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/jobs/shop/01JDB3QK6M0000000000000000/result", 404, "not-found"),
        ("/jobs/shop/1/result", 400, "bad-request"),
        ("/jobs/nobody/01JDB3QK6M0000000000000000/result", 404, "no-responder"),
        ("/jobs/shop/01JDB3QK6M0000000000000000", 400, "bad-request"),
        ("/jobs/shop//result", 400, "bad-request"),
        ("/jobs/shop/01JDB3QK6M0000000000000000/result?format=xml", 406, "not-acceptable"),
        ("/jobs/shop/01JDB3QK6M0000000000000000/result?neb-timeout=x", 400, "bad-request"),
    ],
)
def test_what_cannot_be_got_is_told(place: Place, path: str, status: int, code: str) -> None:
    assert _refused(place, path) == (status, code)


# --- formats ---


@pytest.mark.parametrize(
    ("accept", "query", "wanted"),
    [
        ("", "", "ndjson"),
        ("*/*", "", "ndjson"),
        ("text/csv", "", "csv"),
        ("text/csv;q=0.5, application/vnd.apache.parquet;q=0.7, image/png", "", "parquet"),
        ("text/csv;q=0, */*;q=0.1", "", "ndjson"),
        ("image/png", "format=csv", "csv"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "", "ndjson"),
    ],
)
def test_format_is_chosen(accept: str, query: str, wanted: str) -> None:
    assert format_of(accept, query) == wanted


@pytest.mark.parametrize("accept", ["image/png", "text/csv;q=0", "text/csv;q=x", ",", "application/json"])
def test_format_that_there_is_not(accept: str) -> None:
    with pytest.raises(NotAcceptable):
        format_of(accept, "")


@pytest.mark.parametrize("rows", [[1], [{"a": 1}, [2]]])
def test_list_of_other_things_is_no_csv(rows: list[Any]) -> None:
    with pytest.raises(NotRows):
        writer_of(ResultFormat.CSV).add({"schema": None, "data": rows})


def test_cells_of_csv_tell_null_from_nothing_and_have_nested_values_as_json() -> None:
    schema = [{"name": name, "type": "string"} for name in ("a", 'b"', " c")]
    rows = [{"a": None, 'b"': "", " c": [1, {"é": None}]}, {"a": True, 'b"': 1e300, " c": " x"}]

    written = writer_of(ResultFormat.CSV).add({"schema": schema, "data": rows}).decode()

    assert written == (
        'a,"b"""," c"\r\n'
        ',"","[1,{""é"":null}]"\r\n'
        'true,1e+300," x"\r\n'
    )  # fmt: skip


def test_single_column_of_csv_has_no_empty_lines() -> None:
    page = {"schema": [{"name": "a", "type": "string"}], "data": [{"a": None}]}

    assert writer_of(ResultFormat.CSV).add(page) == b'a\r\n""\r\n'


def test_parquet_goes_out_in_groups() -> None:
    from base64 import b64encode

    writer, octets = writer_of(ResultFormat.PARQUET), b""
    table = pa.table({"text": [f"{number:01000}" for number in range(2000)]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    sizes = []
    for _ in range(20):
        octets += writer.add({"data": b64encode(sink.getvalue()).decode()})
        sizes.append(len(octets))
    octets += writer.end()
    read = parquet.ParquetFile(pa.BufferReader(octets))

    assert sizes[10] > 1000
    assert (read.metadata.num_rows, read.metadata.num_row_groups) == (40_000, 4)


# --- bounds, and services that tell nonsense ---


class Pages:
    """Answers `job.result` instead of services."""

    def __init__(self, *pages: Any) -> None:
        self.pages = list(pages)
        self.may_go_on = anyio.Event()
        self.may_go_on.set()

    async def on_loop(self, work: Callable[[], Awaitable[Any]]) -> Any:
        return await work()

    async def ask(self, _principal: str, _call: Call) -> Any:
        await self.may_go_on.wait()
        return self.pages.pop(0)


def _asked(name: str, principal: str = "alice") -> Posted:
    path = "/jobs/shop/01JDB3QK6M0000000000000000/result"
    return Posted(principal, path, f"format={name}", "", b"")


@pytest.mark.anyio
async def test_principal_has_half_of_the_places_for_parquet_also_while_they_begin() -> None:
    calls = Pages()
    calls.may_go_on = anyio.Event()
    answer = HttpResults(cast(Any, calls)).reply
    statuses = []

    async def ask(principal: str) -> None:
        told = await answer(_asked("parquet", principal))
        assert isinstance(told, Response)
        statuses.append((principal, told.status))

    async with anyio.create_task_group() as tasks:
        for principal in ("alice", "bob", "carol"):
            for _ in range(5):
                tasks.start_soon(ask, principal)
                await anyio.wait_all_tasks_blocked()
        refused = sorted(statuses)
        tasks.cancel_scope.cancel()

    assert refused == [("alice", 503), ("bob", 503), *[("carol", 503)] * 5]
    calls.pages.append({"next": None, "data": "", "schema": []})
    calls.may_go_on.set()
    assert cast(Response, await answer(_asked("parquet"))).status == 502


@pytest.mark.anyio
async def test_list_whose_later_items_are_no_rows_is_cut_off_with_a_reason() -> None:
    first = {"schema": None, "data": [{"a": 1}], "next": "0.1"}
    calls = Pages(first, {"schema": None, "data": [{"b": 1}], "next": None})
    streamed = await HttpResults(cast(Any, calls)).reply(_asked("csv"))

    assert isinstance(streamed, Streamed)
    assert await streamed.pieces.next() == b"a\r\n1\r\n"
    with pytest.raises(CutOff, match="do not have the same fields"):
        await streamed.pieces.next()


@pytest.mark.anyio
@pytest.mark.parametrize("page", [None, {}, {"next": None}, {"next": None, "data": 7, "schema": 7}])
@pytest.mark.parametrize("name", ResultFormat)
async def test_what_is_no_page_is_a_bad_gateway(name: ResultFormat, page: Any) -> None:
    answer = await HttpResults(cast(Any, Pages(page))).reply(_asked(name))

    assert isinstance(answer, Response)
    assert answer.status == 502
