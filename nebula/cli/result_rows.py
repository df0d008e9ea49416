"""Output of the rows of a job's result."""

from __future__ import annotations

from functools import partial

from nebula.cli.terminal import is_redirected, write_bytes
from nebula.errors import RemoteError, SettingsError
from nebula.rpc.errors import UnexpectedReply
from nebula.rpc.jobs.handle import JobHandle
from nebula.rpc.jobs.results.formats import NotRows, form_of, writer_of
from nebula.rpc.jobs.results.types import ResultFormat
from nebula.rpc.wire.envelope import dump_json

__all__ = ["write_rows"]


async def write_rows(job: JobHandle, to: ResultFormat) -> None:
    """Write all rows of a result, a page at a time; a value without rows is one line of JSON.

    Raises:
        SettingsError: the result or the output does not allow this format.
        NebulaError: as `JobHandle.rows`.
    """
    # Checked before any request: Parquet is binary.
    if to is ResultFormat.PARQUET and not is_redirected():
        raise SettingsError("Parquet cannot be written to a terminal: add > FILE")
    writer = writer_of(to)
    write = partial(write_bytes, is_json=to is ResultFormat.NDJSON)
    try:
        # By pages, so that a table of any size needs the memory of one page.
        async for page in job.pages(form_of(to)):
            await write(writer.add(page))
    except UnexpectedReply as error:
        raise UnexpectedReply(f"{job.id}: {error}") from error
    except NotRows as error:
        raise SettingsError(f"{job.id}: {error}") from error
    except RemoteError as error:
        # A single value: NDJSON writes it as one line, CSV and Parquet cannot represent it.
        if error.code != "no-rows" or to is not ResultFormat.NDJSON:
            raise
        await write(dump_json(await job.result()) + b"\n")
    else:
        # Parquet's footer comes last, so readers refuse a result that was cut off.
        await write(writer.end())
