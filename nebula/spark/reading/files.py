"""Files of a data set, and the columns in the names of their folders, as in `date=2026-11-22/hour=05/`."""

from __future__ import annotations

import datetime as dt
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from nebula.spark.reading.errors import DataError

Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
Value: TypeAlias = "str | int | dt.date | None"

NULL_NAME: Final = "__HIVE_DEFAULT_PARTITION__"
"""As Hive and Spark write a column's null into a folder's name."""

_HIDDEN: Final = (".", "_")
_SCHEMA: Final = "_schema.avsc"
_INTEGER: Final = re.compile(r"-?\d{1,18}")
_INT_LIMIT: Final = 1 << 31
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class File:
    """A file of a data set.

    Attributes:
        path: absolute.
        size_bytes: when it was listed.
        parts: the names and values of its folders below the path that was given, as they are written.
    """

    path: str
    size_bytes: int
    parts: tuple[tuple[str, str | None], ...]


def list_files(paths: Paths) -> list[File]:
    """The Avro files at some paths, in the order of their names.

    A path is a file, a folder (with all below it) or a glob. Below folders, names that begin with `.` or `_`
    are left out, as unfinished files have them, and so are names with another ending than `.avro`, unless
    it has no ending at all, as what Hive writes. Links are followed; a file that several names lead to is
    listed once, by the name without a link below the path, else by the first.

    Raises:
        DataError: nothing is there, a link leads nowhere or up again, or folders disagree about the
            columns in their names.
    """
    # By what links lead to: what has several names would be counted as often.
    files: dict[str, tuple[bool, File]] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        for root in _roots(_local(os.fspath(path))):
            real_root = os.path.realpath(root)
            for found in _below(root):
                # A file that is named itself has no folders to take columns from.
                parts = _parts(Path(found).parent.relative_to(root)) if root != found else ()
                file = File(found, _size_bytes(found), parts)
                real = os.path.realpath(found)
                is_linked = real != real_root + found.removeprefix(root)
                # A name without a link wins, then the first in order, so that the choice does not depend on
                # the listing.
                known = files.get(real)
                if known is None or (is_linked, found) < (known[0], known[1].path):
                    files[real] = is_linked, file
    # By name, which says which file is the last one, whose schema counts.
    ordered = sorted((file for _, file in files.values()), key=lambda file: file.path)
    # All have to agree, so each is compared with the first.
    for file in ordered[1:]:
        if [name for name, _ in file.parts] != [name for name, _ in ordered[0].parts]:
            raise DataError(
                f"{file.path} and {ordered[0].path} lie in folders of different columns: read them apart"
            )
    return ordered


def name_hidden_from_java(paths: Iterable[str]) -> str | None:
    """The first name that Java's readers leave out without a word, even where it is asked for; None: none."""
    names = (Path(path).name for path in paths)
    return next((name for name in names if name.startswith(_HIDDEN) or name.endswith("._COPYING_")), None)


def column_types(files: Sequence[File]) -> dict[str, str]:
    """The columns in the names of folders with their types: `int`, `bigint`, `date` or `string`.

    A type is the narrowest that every value has, as where Spark lists files itself.
    """
    # From the first file, as all have the same columns.
    values: dict[str, set[str]] = {name: set() for file in files[:1] for name, _ in file.parts}
    for file in files:
        for name, value in file.parts:
            if value is not None:
                values[name].add(value)
    return {name: _type_of(found) for name, found in values.items()}


def recorded_schema(paths: Paths) -> str | None:
    """The `_schema.avsc` of the first folder that has one, as `nebula record` writes it before any file."""
    return next((str(found) for root in _folders(paths) if (found := root / _SCHEMA).is_file()), None)


def folder_types(paths: Paths) -> dict[str, str]:
    """The columns in folder names, as `column_types`, while the folders have no files yet."""
    values: dict[str, set[str]] = {}
    for root in _folders(paths):
        for folder, folders, _ in os.walk(root):
            # `folders[:] =` in place: that is how `os.walk` is told where not to go.
            folders[:] = [each for each in folders if not each.startswith(_HIDDEN)]
            for name, value in _parts(Path(folder).relative_to(root)):
                values.setdefault(name, set()).update(() if value is None else (value,))
    return {name: _type_of(found) for name, found in values.items()}


def typed(file: File, types: Mapping[str, str]) -> dict[str, Value]:
    """The values of the columns in the names of a file's folders, of those that `types` has."""
    return {name: _value(text, types[name]) for name, text in file.parts if name in types}


def _folders(paths: Paths) -> Iterator[Path]:
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        yield from (Path(root) for root in _roots(_local(os.fspath(path))) if Path(root).is_dir())


def _local(path: str) -> str:
    scheme, is_uri, rest = path.partition("://")
    if not is_uri:
        return path
    if scheme == "file":
        return rest
    raise DataError(
        f"{path}: our readers read folders that each worker has mounted; for {scheme}:// configure "
        "the spark-avro jar (spark.jars) and use ctx.spark.read"
    )


def _roots(path: str) -> list[str]:
    absolute = str(Path(path).absolute())
    if Path(absolute).exists():
        return [absolute]
    # A path that exists is never a glob, whatever characters are in it.
    found = sorted(glob.glob(absolute)) if glob.has_magic(path) else []  # noqa: PTH207  of an absolute path
    if not found:
        raise DataError(f"{path}: there is no such file or folder")
    return found


def _below(root: str) -> Iterator[str]:
    if not Path(root).is_dir():
        yield root
        return
    # Links are followed, as Hadoop does.
    for folder, folders, names in os.walk(root, followlinks=True):
        _check_ends_somewhere(folder, root)
        folders[:] = sorted(each for each in folders if not each.startswith(_HIDDEN))
        for name in names:
            # Hive writes files without an ending.
            if not name.startswith(_HIDDEN) and Path(name).suffix in (".avro", ""):
                yield str(Path(folder, name))


def _check_ends_somewhere(folder: str, root: str) -> None:
    path = Path(folder)
    if path.is_symlink() and folder != root:
        target = path.resolve()
        # A link to a folder above the root is found when the walk comes to it again.
        above = [each for each in path.parents if each.is_relative_to(root)]
        if any(each.resolve() == target for each in above):
            raise DataError(f"{folder} is a link to a folder above it ({target}): its files would never end")


def _size_bytes(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except OSError as error:
        raise DataError(f"{path}: it cannot be read: {error.strerror}") from error


def _parts(folder: Path) -> tuple[tuple[str, str | None], ...]:
    # Hive and Spark escape characters that file systems do not allow, as in a URL.
    pairs = (part.split("=", 1) for part in folder.parts if "=" in part)
    return tuple((unquote(name), None if value == NULL_NAME else unquote(value)) for name, value in pairs)


def _type_of(values: set[str]) -> str:
    if values and all(_INTEGER.fullmatch(value) for value in values):
        # Spark's own rule, so that a table has the same types where Spark lists the files.
        return "int" if all(-_INT_LIMIT <= int(value) < _INT_LIMIT for value in values) else "bigint"
    return "date" if values and all(map(_is_date, values)) else "string"


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and dt.date.fromisoformat(text))
    except ValueError:
        return False


def _value(text: str | None, kind: str) -> Value:
    if text is None or kind == "string":
        return text
    return dt.date.fromisoformat(text) if kind == "date" else int(text)


def as_python(value: Any) -> Any:
    """A value that Spark compares with, as a `Value`."""
    return value.date() if isinstance(value, dt.datetime) else value
