"""Results of jobs for callers: rows with Python types, Arrow tables, pandas DataFrames."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from nebula.errors import SettingsError
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.results.foreign_arrow import read_foreign
from nebula.rpc.jobs.results.tables import Form
from nebula.rpc.jobs.results.types import from_wire, row_converter
from nebula.rpc.wire.replies import reading

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types

__all__ = ["Ask", "arrow_of", "batches_of", "each_page", "require", "rows_of"]

Ask = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Calls `job.result` with these parameters and the id of the job; returns the parameters of the reply."""

_PAGE_ROWS: Final = 5000

_EXTRAS: Final = {"pyarrow": "arrow", "pandas": "pandas"}


def require(package: str, what: str) -> None:
    """Check that a package is installed.

    Raises:
        SettingsError: it is not; says which extra has it.
    """
    if find_spec(package) is None:
        raise SettingsError(f"{what} needs {package}: pip install 'nebula-rpc[{_EXTRAS[package]}]'")


async def each_page(
    first: Ask, others: Ask, rows: int | None = None, form: Form = "json"
) -> AsyncGenerator[dict[str, Any]]:
    """The pages of a result; each is requested after the caller has handled the one before.

    Args:
        first: requests the first page.
        others: requests each of the other pages.
        rows: maximum number of rows of a page.
        form: format of the data.

    Raises:
        UnexpectedReply: what came is no page.
    """
    # `rows` is a maximum: the service also ends a page at 512 KiB, and only `next` says where
    # (docs/decisions/0055).
    wanted = {"rows": rows or _PAGE_ROWS, "form": form}
    reply = await first(wanted)
    while True:
        with reading("a page of a result"):
            following = reply["next"]
        yield reply
        if following is None:
            return
        reply = await others({**wanted, "page": str(following)})


def rows_of(page: Mapping[str, Any]) -> list[Any]:
    """The rows of a JSON page as Python values: dicts for a table, the items for a list.

    Raises:
        UnexpectedReply: they are not what their schema says.
    """
    with reading("a page of a result"):
        schema, data = page["schema"], list(page["data"])
        if schema is None:
            return data
        convert = row_converter(schema, from_wire)
        return [convert(row) for row in data]


def batches_of(page: Mapping[str, Any]) -> pa.Table:
    """The rows of an Arrow page. Raises as `rows_of`."""
    import pyarrow as pa

    try:
        with reading("a page of a result"):
            # Without `validate`, b64decode skips what is not base64, and the error comes later, from Arrow.
            return read_foreign(base64.b64decode(str(page["data"]), validate=True))
    except (pa.ArrowException, struct.error) as error:
        raise UnexpectedReply(f"a page of a result is not of Arrow: {error}") from error


async def arrow_of(pages: AsyncGenerator[dict[str, Any]]) -> pa.Table:
    """All pages as one table."""
    import pyarrow as pa

    return pa.concat_tables([batches_of(page) async for page in pages])
