"""Pages of job results: tables from their files, lists from memory."""

from __future__ import annotations

import socket
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeAlias

import anyio
import anyio.from_thread
import anyio.to_thread

from nebula.logs import get_logger
from nebula.rpc.contract.job_runner import JobOutput
from nebula.rpc.errors import VerbError
from nebula.rpc.jobs.results.foreign_arrow import MOST_ROWS
from nebula.rpc.jobs.results.tables import Form, Place, TableError, TableReader, files_of
from nebula.rpc.wire.envelope import dump_json

__all__ = ["MOST_ROWS", "ResultPages"]

_log = get_logger(__name__)

# Maximum size of a page as JSON, and as Arrow before base64. A larger row is a page of its own.
_PAGE_BYTES: Final = 512 * 1024

# Few threads, apart from those of handlers: decoding a page takes a core. Eight of one principal may wait, so
# that one caller cannot have all 32 places.
_READING_AT_ONCE: Final = 2
_MOST_WAITING: Final = 32
_MOST_OF_ONE: Final = 8

# Open readers: the next page continues where the last one ended.
_MOST_OPEN: Final = 16
_OPEN_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 15.0

_Key: TypeAlias = tuple[Path, Place]


@dataclass(slots=True)
class _Kept:
    reader: TableReader
    since: float


# docs/decisions/0055: a page names the next position, as counting rows from the start reads them again.
class ResultPages:
    """Reads pages in a small number of threads.

    A page is found by where it begins, so any instance that has the files can return it, and a restart
    does not matter. Finding the middle of a large file takes a while, so files stay open for the request of
    the next page.
    """

    def __init__(self) -> None:
        self._threads = anyio.CapacityLimiter(_READING_AT_ONCE)
        self._asking = Counter[str | None]()
        self._kept: OrderedDict[_Key, _Kept] = OrderedDict()

    async def run(self) -> None:
        """Close idle readers until cancelled, then all of them."""
        try:
            while True:
                await anyio.sleep(_SWEEP_SECONDS)
                await self._sweep()
        finally:
            while self._kept:
                self._kept.popitem()[1].reader.close()

    async def page(
        self, output: JobOutput, page: str | None, rows: int, form: Form, *, asker: str | None = None
    ) -> dict[str, Any]:
        """A page of what a job returned.

        Args:
            output: a table, or a list.
            asker: the principal that requests it: the number of its waiting requests is limited.
            page: `next` of the page before it; None: the first one.
            rows: how many at most.
            form: how they are told.

        Returns:
            `data`, the rows, and their `schema` (null for a list), see `nebula.rpc.jobs.results.types`;
            `total`, how many rows there are in all; `next`, null on the last page.

        Raises:
            VerbError: `result-gone`, `result-unreadable`, `bad-parameters`, `busy`; `no-rows`: the result is
                neither.
        """
        try:
            place = Place() if page is None else Place.read(page)
            if output.path is None:
                return _page_of_list(output.value, place, rows, form)
            with self._turn(asker):
                return await self._page_of_table(output, place, rows, form)
        except TableError as error:
            raise VerbError("bad-parameters", str(error)) from error

    @contextmanager
    def _turn(self, asker: str | None) -> Iterator[None]:
        if self._asking.total() >= _MOST_WAITING or self._asking[asker] >= _MOST_OF_ONE:
            raise VerbError("busy", "too many results are being read, try later")
        self._asking[asker] += 1
        try:
            yield
        finally:
            # Subtracting a Counter drops an entry that becomes 0; otherwise one would stay for each principal
            # that ever asked.
            self._asking -= Counter([asker])

    async def _page_of_table(self, output: JobOutput, place: Place, rows: int, form: Form) -> dict[str, Any]:
        assert output.path is not None
        if find_spec("pyarrow") is None:
            text = "the service cannot read Parquet: pip install 'nebula-rpc[arrow]' in its environment"
            raise VerbError("result-unreadable", text)
        path = Path(output.path)
        # A reader that is taken out is not shared while it reads.
        kept = self._kept.pop((path, place), None)
        read = partial(_read, path, place, None if kept is None else kept.reader, rows, form)
        reader, told = await anyio.to_thread.run_sync(read, limiter=self._threads)
        if reader is not None:
            self._keep((path, reader.place), reader)
        return {**told, "total": output.rows}

    def _keep(self, key: _Key, reader: TableReader) -> None:
        # Two callers may have read the same page: only one reader can wait at this place.
        before = self._kept.pop(key, None)
        if before is not None:
            before.reader.close()
        self._kept[key] = _Kept(reader, monotonic())
        if len(self._kept) > _MOST_OPEN:
            # The least recently used: a reader is taken out to be read, and put back at the end.
            self._kept.popitem(last=False)[1].reader.close()

    async def _sweep(self) -> None:
        until = monotonic() - _OPEN_SECONDS
        for key in [key for key, kept in self._kept.items() if kept.since <= until]:
            self._kept.pop(key).reader.close()


def _read(
    path: Path, place: Place, reader: TableReader | None, rows: int, form: Form
) -> tuple[TableReader | None, dict[str, Any]]:
    """A page, and its reader if there is more to read. Runs in a thread."""
    from pyarrow import ArrowException  # type: ignore[import-untyped]  # it ships no types

    is_kept = False
    try:
        # An open file can be read after it was removed, so check each time that it still exists.
        files = files_of(path)
        if reader is None:
            reader = TableReader(files, place, anyio.from_thread.check_cancelled)
        taken = reader.take(form, rows, _PAGE_BYTES)
        is_kept = not reader.is_over
    except FileNotFoundError as error:
        # The caller is the owner of the job, so it may see the path.
        text = f"the files of the result are not on {socket.gethostname()} (any more): {path}"
        raise VerbError("result-gone", text) from error
    except (OSError, ArrowException) as error:
        _log.warning("result not read", path=str(path), reason=str(error))
        raise VerbError("result-unreadable", "the files of the result are damaged") from error
    finally:
        if reader is not None and not is_kept:
            reader.close()
    told = {"data": taken.data, "schema": reader.schema, "next": str(reader.place) if is_kept else None}
    return (reader if is_kept else None), told


# A list is in the record and therefore small: it needs no thread and no reader.
def _page_of_list(value: Any, place: Place, rows: int, form: Form) -> dict[str, Any]:
    if not isinstance(value, list):
        raise VerbError("no-rows", "the result is neither a table nor a list: ask without rows and page")
    if form != "json":
        raise VerbError("no-rows", "the result is a list, not a table: use form=json")
    if place.file or place.row > len(value):
        raise TableError(f"there is no page {place}")
    data: list[Any] = []
    size = 0
    for item in islice(value, place.row, place.row + rows):
        size += len(dump_json(item))
        if data and size > _PAGE_BYTES:
            break
        data.append(item)
    following = place._replace(row=place.row + len(data))
    return {
        "data": data,
        "schema": None,
        "next": str(following) if following.row < len(value) else None,
        "total": len(value),
    }
