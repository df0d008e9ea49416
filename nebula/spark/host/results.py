"""Results of a job: a small JSON value, or Parquet that appears at once or not at all."""

from __future__ import annotations

import threading
import typing
from collections.abc import Callable
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from nebula.rpc.contract.hints import annotations_of
from nebula.rpc.contract.results import BadResult, of_job
from nebula.rpc.contract.signature import Signature
from nebula.rpc.jobs.registry.atomic_publish import place, remove, restore
from nebula.rpc.jobs.registry.unfinished import UNFINISHED, AttemptNote
from nebula.rpc.wire.envelope import load_json
from nebula.spark.host.failures import ResultError
from nebula.spark.host.parquet import data_files, first_rows, sign
from nebula.spark.paths import spark_path


@dataclass(frozen=True, slots=True)
class Output:
    """A result that can travel: a value, or a path with what is there."""

    value: Any = None
    path: str | None = None
    rows: int | None = None
    bytes: int | None = None
    schema: dict[str, str] | None = None
    preview: list[dict[str, Any]] | None = None


class Results:
    """Where and how the results of one attempt are kept: nothing appears before `publish`.

    Args:
        folder: the service's results. A table becomes `<job>.parquet` in it: a folder of part files,
            as Spark writes and reads them.
        job: the job's id.
        attempt: its number; two attempts never write to one place.
        max_rows: of a table that is returned as a list.
        max_bytes: of a value as JSON.
        notes: where it is noted what this has begun to write.
    """

    def __init__(
        self, folder: Path, job: str, attempt: int, *, max_rows: int, max_bytes: int, notes: Path
    ) -> None:
        self._job, self._table = job, folder / f"{job}.parquet"
        self._suffix = f"{UNFINISHED}{job}.{attempt}"
        self._unfinished: dict[Path, Path] = {}
        self._note = AttemptNote(notes, f"{job}.{attempt}")
        self._lock = threading.Lock()
        self._max_rows, self._max_bytes = max_rows, max_bytes

    def reserve(self, path: Path) -> Path:
        """Where to write the output that will be at `path` when the job is done: next to it.

        The same place each time it is asked for.
        """
        path = path.absolute()
        with self._lock:
            if path not in self._unfinished:
                # An attempt before this one was killed, if it left anything: there is one of a job at a time.
                for left in path.parent.glob(f"{escape(path.name)}{UNFINISHED}{self._job}.*"):
                    restore(left, path)
                unfinished = path.with_name(path.name + self._suffix)
                self._note.add(path, unfinished)
                self._unfinished[path] = unfinished
            return self._unfinished[path]

    def take(self, result: Any, signature: Signature, function: Callable[..., Any]) -> Output:
        """Make what the job returned fit to travel. A table is written, and waits for `publish`.

        A DataFrame is collected where the job's return annotation is a list, and written otherwise. One
        without columns is what Spark gives for a statement such as CREATE TABLE or INSERT, which has taken
        effect by then: the result is null, or the empty list.

        Raises:
            ResultError: too large, no JSON, or not what the job's annotation says.
        """
        if not isinstance(result, DataFrame):
            return Output(value=self._value(result, signature))
        is_list = _returns_list(function)
        if not result.columns:
            return Output(value=[] if is_list else None)
        if is_list:
            return Output(value=self._value(self._collected(result), signature))
        return self._written(result)

    def publish(self) -> list[str]:
        """Let what was written appear under its name, each in one step, one after the other.

        Returns:
            What appeared where the job chose the place, for its log.
        """
        published = []
        for final, unfinished in self._unfinished.items():
            if unfinished.exists():
                if final != self._table:
                    published.append(self._described(final, unfinished))
                place(unfinished, final)
        return published

    def _described(self, final: Path, unfinished: Path) -> str:
        parts = data_files(unfinished)
        rows = [sign(part, self._job) for part in parts if part.suffix == ".parquet"]
        told = f", {sum(rows)} rows" if rows else ""
        return f"wrote {final}: {len(parts)} files, {sum(part.stat().st_size for part in parts)} bytes{told}"

    def discard(self) -> None:
        """Remove what is unfinished. Safe to call again: killed tasks may write a little longer."""
        for unfinished in self._unfinished.values():
            remove(unfinished)

    def close(self) -> None:
        """Nothing writes any more: there is nothing to remember."""
        with self._lock:
            self._note.close()

    def _value(self, result: Any, signature: Signature) -> Any:
        try:
            data = signature.dump(result)
            # A large one is not read: that would take several times its size once more.
            if len(data) <= self._max_bytes:
                return load_json(data)
        except BadResult as error:
            raise ResultError(of_job(error), code=error.code) from error
        except ValueError as error:  # a number of more digits than Python reads
            raise ResultError(f"the result cannot be read again: {error}", code=BadResult.code) from error
        raise ResultError(
            f"the result is {len(data)} bytes of JSON, more than {self._max_bytes}: "
            "return a DataFrame, which is kept as Parquet",
            code="result-too-large",
        )

    def _collected(self, table: DataFrame) -> list[dict[str, Any]]:
        # Arrow carries rows to Python several times as fast as collect() does.
        # One row too many tells that there are more, without fetching them.
        rows = table.limit(self._max_rows + 1).toArrow()
        if rows.num_rows > self._max_rows:
            raise ResultError(
                f"the result has more than {self._max_rows} rows: "
                "return it as a DataFrame, which is kept as Parquet",
                code="result-too-large",
            )
        collected: list[dict[str, Any]] = rows.to_pylist()
        return collected

    def _written(self, table: DataFrame) -> Output:
        unfinished = self.reserve(self._table)
        table.write.mode("overwrite").parquet(spark_path(unfinished))
        parts = [part for part in data_files(unfinished) if part.suffix == ".parquet"]
        if not parts:
            # Even an empty table has a file. Each worker wrote to a disk of its own.
            raise ResultError(
                f"Spark wrote the table, and nothing is in {unfinished.parent}: on a cluster "
                "NEBULA_RESULTS has to name a folder on storage that service and workers share"
            )
        return Output(
            path=str(self._table),
            rows=sum([sign(part, self._job) for part in parts]),
            bytes=sum(part.stat().st_size for part in parts),
            schema={field.name: field.dataType.simpleString() for field in table.schema.fields},
            preview=first_rows(parts, table),
        )


def _returns_list(function: Callable[..., Any]) -> bool:
    try:
        returned = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        # An annotation that only a type checker can read is not a list of models.
        returned = annotations_of(function).get("return")
    return (typing.get_origin(returned) or returned) is list
