"""Errors of jobs whose data cannot be read: code `data`, with the file's name."""

from __future__ import annotations

from nebula.errors import JobError


class DataError(JobError):
    """A data set cannot be read as it was asked for. Says which file or schema, and what is wrong."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="data")


class CorruptFileError(DataError):
    """A file is cut, damaged or no Avro container.

    Attributes:
        path: of the file.
        problem: what is wrong with it, and where.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem

    def __reduce__(self) -> tuple[type[CorruptFileError], tuple[str, str]]:
        return type(self), (self.path, self.problem)


class UnsupportedTypeError(DataError):
    """Spark, or the reader that was named, has nothing that such an Avro type could become."""
