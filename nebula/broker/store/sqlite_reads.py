"""SQL reads of the store: everything at a start, and pages of deep lines later.

A page is packed into one row, since a thread lets go of the interpreter at each row that it fetches
(docs/decisions/0014 has the figures). At a start nothing runs next to it, and shallow lines are read row by
row.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import accumulate, groupby
from operator import attrgetter, itemgetter
from typing import Any, Final

from nebula.broker.core.storage import (
    PAGE_BYTES,
    PAGE_MESSAGES,
    KeptLine,
    PageRequest,
    StoredMessage,
)
from nebula.broker.core.tables import (
    BODIES,
    DELAYED,
    DUPLICATES,
    MESSAGES,
    PENDING,
    POSTPONED,
    SESSIONS,
    SHARED_MESSAGES,
    SUBSCRIPTIONS,
    VALUES,
    DuplicateRow,
    Headers,
    PostponedRow,
    SessionRow,
    SubscriptionRow,
    Table,
    may_share,
)
from nebula.broker.store.columns import columns_of
from nebula.broker.store.store import Snapshot

__all__ = ["read_into", "read_page"]

# Of the messages that wait, many have the same headers: read once, they are one object in memory.
_DECODED: Final = 256

# What a message of a first page costs in memory in addition to its body.
_ROW_BYTES: Final = 320

# What the lines hold, without a look at the bodies: LENGTH reads the heads of rows only.
_EXTENTS: Final = """
SELECT line, COUNT(*), SUM(LENGTH(body)), MIN(number), MAX(number) FROM messages GROUP BY line
"""
_SHARED_EXTENTS: Final = """
SELECT line, COUNT(*), SUM(LENGTH(body)), MIN(number), MAX(number), COUNT(body)
FROM shared_messages LEFT JOIN bodies USING (number) GROUP BY line
"""

# Of lines that are not in a list.
_SHALLOW: Final = "WHERE line NOT IN (SELECT value FROM JSON_EACH(?))"
_BY_LINE: Final = f"{_SHALLOW} ORDER BY line, number"

# Each once, however many lines it is in.
_OF_SHALLOW: Final = f"WHERE number IN (SELECT number FROM {SHARED_MESSAGES.name} {_SHALLOW})"  # noqa: S608 - our names

# The rows of a page, in order of number: as many as may be in it.
_ROWS: Final = """
SELECT number, {body}, destination, headers, expires_at, attempts, is_request FROM {tables}
WHERE line = ?1 AND number > ?2 AND number <= ?3
"""
_PAGE: Final = f"""
FROM ({_ROWS.replace("{tables}", "messages")} ORDER BY number LIMIT ?4)
"""
# For a line whose messages may share content: both kinds, merged as they are read.
_SHARING_PAGE: Final = f"""
FROM ({_ROWS.replace("{tables}", "messages")} UNION ALL
    {_ROWS.replace("{tables}", "shared_messages CROSS JOIN bodies USING (number)")} ORDER BY number LIMIT ?4)
"""

# What a page is like: how large its bodies are together, and the extremes of all else.
_OUTLINE: Final = """
SELECT SUM(size), MIN(destination), MAX(destination), MIN(headers), MAX(headers),
    COUNT(expires_at), MIN(attempts), MAX(attempts), MIN(is_request), MAX(is_request)
"""

# How large each body is, where not all of them fit.
_SIZES: Final = "SELECT GROUP_CONCAT(size)"

# Each statement says it all of its rows: some may go after the one before it.
_BODIES: Final = "GROUP_CONCAT(number), GROUP_CONCAT(LENGTH(body)), CAST(GROUP_CONCAT(body, '') AS BLOB)"

# Rows that differ in nothing else, as one.
# Most pages have one sender and one kind of message.
_ALIKE: Final = f"SELECT {_BODIES}"

# All rows as one, a column of them as one text. JSON has no bare line feed; QUOTE gives all digits of a
# number; and a BLOB that is taken for text stays as it is in UTF-8.
_PACKED: Final = f"""
SELECT {_BODIES}, GROUP_CONCAT(JSON_QUOTE(destination), CHAR(10)), GROUP_CONCAT(headers, CHAR(10)),
    GROUP_CONCAT(QUOTE(expires_at)), GROUP_CONCAT(attempts), GROUP_CONCAT(is_request)
"""

# `quick_check` does not compare tables with their indexes.
_DISAGREE: Final = "a table and its index disagree"


# --- at a start ---


@dataclass(frozen=True, slots=True)
class _Extent:
    """Of a line: how much, and its first and last number."""

    count: int
    body_bytes: int
    first: int
    last: int

    def joined(self, other: _Extent) -> _Extent:
        """The sum of both."""
        return _Extent(
            self.count + other.count,
            self.body_bytes + other.body_bytes,
            min(self.first, other.first),
            max(self.last, other.last),
        )

    def exceeds(self, page: _Page) -> bool:
        """Whether a line has more than that."""
        return self.count > page.messages or self.body_bytes > page.size_bytes


@dataclass(frozen=True, slots=True)
class _Page:
    """How much of each line is read at a start."""

    messages: int = PAGE_MESSAGES
    size_bytes: int = PAGE_BYTES


# Theory of the first pages. All that a start reads must fit into memory (`most_bytes`). If the first pages of
# all lines are larger together, each line gets an equal share: half for bodies, half for the fixed cost of
# messages. A line whose first body does not fit gets no page until it is read.
def _first_page(extents: Iterable[_Extent], most_bytes: int) -> _Page:
    line_bytes = [
        min(each.body_bytes, PAGE_BYTES) + min(each.count, PAGE_MESSAGES) * _ROW_BYTES for each in extents
    ]
    if sum(line_bytes) <= most_bytes:
        return _Page()
    share = most_bytes // len(line_bytes)
    return _Page(max(1, share // _ROW_BYTES // 2), max(1, share // 2))


def read_into(
    snapshot: Snapshot,
    db: sqlite3.Connection,
    on_line: Callable[[int, int], None],
    most_bytes: int,
) -> None:
    """Add all rows to a snapshot, of each line the first page.

    Args:
        on_line: called for each line with how many messages the lines so far have, and all have.
        most_bytes: of all pages together, about: where the lines are many, their pages are smaller, and
            where they begin with large bodies some have none.

    Raises:
        sqlite3.Error, ValueError, TypeError: the file is broken.
    """
    _read_lines(snapshot, db, on_line, most_bytes)
    # In the order of the columns in the row classes, whatever the order in the file is.
    for number, destination, deliver_at, *content in _rows(db, DELAYED, "ORDER BY deliver_at, number"):
        snapshot.delayed.append((_message(number, destination, *content), deliver_at))
    snapshot.postponed = [PostponedRow(*row) for row in _rows(db, POSTPONED)]
    snapshot.duplicates = [DuplicateRow(*row) for row in _rows(db, DUPLICATES, "ORDER BY until")]
    for destination, number, *content in _rows(db, VALUES, "ORDER BY number"):
        snapshot.values.append(_message(number, destination, *content))
    snapshot.sessions = [SessionRow(*row) for row in _rows(db, SESSIONS)]
    snapshot.subscriptions = [SubscriptionRow(*row) for row in _rows(db, SUBSCRIPTIONS)]
    for session, subscription, destinations in _rows(db, PENDING):
        snapshot.pending[session, subscription] = tuple(json.loads(destinations))


def _rows(
    db: sqlite3.Connection, table: Table, rest: str = "", bound: tuple[str, ...] = ()
) -> sqlite3.Cursor:
    """Rows of a table, all columns in their declared order.

    Args:
        rest: of the statement: conditions and order.
        bound: its parameters.
    """
    columns = ", ".join(column.name for column in columns_of(table))
    return db.execute(f"SELECT {columns} FROM {table.name} {rest}", bound)  # noqa: S608 - our names


def _read_lines(
    snapshot: Snapshot, db: sqlite3.Connection, on_line: Callable[[int, int], None], most_bytes: int
) -> None:
    extents = _extents(db)
    total = sum(extent.count for extent in extents.values())
    done = 0
    most = _first_page(extents.values(), most_bytes)
    for line, page in _first_pages(db, extents, most, most_bytes):
        extent = extents[line]
        if not extent.exceeds(most) and len(page) != extent.count:
            raise ValueError(_DISAGREE)
        snapshot.lines[line] = KeptLine(page, extent.count, extent.body_bytes, extent.last)
        done += extent.count
        on_line(done, total)


def _extents(db: sqlite3.Connection) -> dict[str, _Extent]:
    extents = {line: _Extent(*extent) for line, *extent in db.execute(_EXTENTS)}
    for line, *columns, bodies in db.execute(_SHARED_EXTENTS):
        extent, others = _Extent(*columns), extents.get(line)
        if bodies != extent.count:
            raise ValueError("a message lacks its body")
        extents[line] = extent if others is None else extent.joined(others)
    return extents


def _first_pages(
    db: sqlite3.Connection, extents: Mapping[str, _Extent], most: _Page, left_bytes: int
) -> Iterator[tuple[str, list[StoredMessage]]]:
    deep = {line: extent for line, extent in extents.items() if extent.exceeds(most)}
    left_bytes -= sum(extent.body_bytes for line, extent in extents.items() if line not in deep)
    # The shallow ones together: a statement for each of a hundred thousand took as long as all else.
    but_deep = (json.dumps(list(deep)),)
    bodies = {number: columns for number, *columns in _rows(db, BODIES, _OF_SHALLOW, but_deep)}
    shared = {
        line: [_shared_message(number, attempts, *bodies[number]) for _, number, attempts in group]
        for line, group in groupby(_rows(db, SHARED_MESSAGES, _BY_LINE, but_deep), itemgetter(0))
    }
    for line, group in groupby(_rows(db, MESSAGES, _BY_LINE, but_deep), itemgetter(0)):
        page = [_message(*row) for _, *row in group]
        if line in shared:
            page = sorted((*page, *shared.pop(line)), key=attrgetter("number"))
        yield line, page
    yield from shared.items()
    known: dict[int, bytes] = {}
    for line, extent in deep.items():
        # `_OUTLINE` finds the size without reading the body.
        if _size_of(db, line, extent.first) > max(left_bytes, most.size_bytes):
            # It would be there alone: it is read when it is its turn.
            yield line, []
            continue
        first, last = extent.first - 1, extent.last
        page = read_page(db, PageRequest(line, first, last, most.messages, most.size_bytes))
        if not page:
            raise ValueError(_DISAGREE)
        left_bytes -= sum(len(message.body) for message in page)
        if may_share(line):
            # A message at the head of several lines is one object in memory.
            page = [each._replace(body=known.setdefault(each.number, each.body)) for each in page]
        yield line, page


def _size_of(db: sqlite3.Connection, line: str, number: int) -> int:
    """How large the body of a message is."""
    size_bytes, *_ = _one(db, _OUTLINE, PageRequest(line, number - 1, number, 1, 1))
    if size_bytes is None:
        raise ValueError(_DISAGREE)
    return int(size_bytes)


# --- pages ---


def read_page(db: sqlite3.Connection, request: PageRequest) -> list[StoredMessage]:
    """The page that is asked for, in two statements however long it is, or in three if its size cuts it off.

    Raises:
        sqlite3.Error, ValueError, TypeError: the file is broken.
    """
    # The first statement finds how many rows fit, the second reads them. Reading rows until the size is
    # exceeded would take a step of SQLite for each.
    size_bytes, destination, last_destination, headers, last_headers, *others = _one(db, _OUTLINE, request)
    if size_bytes is None:
        return []
    page = request if size_bytes <= request.max_bytes else _that_fits(db, request)
    if destination == last_destination and headers == last_headers and others == _PLAIN:
        return _alike(db, page, destination, headers)
    return _various(db, page)


def _that_fits(db: sqlite3.Connection, request: PageRequest) -> PageRequest:
    """The page, with as many messages as their size allows."""
    (sizes,) = _one(db, _SIZES, request)
    totals = accumulate(map(int, (sizes or "0").split(",")))
    # The first one is in the page, however large it is.
    return replace(request, max_messages=max(1, sum(total <= request.max_bytes for total in totals)))


# No time, no attempts, no request.
_PLAIN: Final = [0, 0, 0, 0, 0]


def _one(db: sqlite3.Connection, columns: str, page: PageRequest) -> Any:
    statement = _of_page(columns, shares=may_share(page.line))
    with closing(db.execute(statement, (page.line, page.after, page.up_to, page.max_messages))) as found:
        return found.fetchone()


@cache
def _of_page(columns: str, *, shares: bool) -> str:
    # Selecting the size here leaves the body unread.
    body = "LENGTH(body) AS size" if columns in (_OUTLINE, _SIZES) else "body"
    return columns + (_SHARING_PAGE if shares else _PAGE).replace("{body}", body)


def _alike(db: sqlite3.Connection, page: PageRequest, destination: str, headers: str) -> list[StoredMessage]:
    """The rows of a page that differ in their bodies alone, as most do: half the work."""
    # Interned, because all messages of a line share it.
    name, headed = sys.intern(destination), _headers(headers)
    numbers, sizes, bodies = _one(db, _ALIKE, page)
    if numbers is None:
        return []
    # The constructor of a named tuple is a function of Python, and takes longer: docs/decisions/0067.
    new = tuple.__new__
    return [
        new(StoredMessage, (number, name, headed, body, None, 0, False))
        for number, body in zip(map(int, numbers.split(",")), _cut(bodies, sizes), strict=True)
    ]


def _various(db: sqlite3.Connection, page: PageRequest) -> list[StoredMessage]:
    """The rows of a page, whatever they are."""
    numbers, sizes, bodies, *packed = _one(db, _PACKED, page)
    if numbers is None:
        return []
    if None in packed:
        raise ValueError("a row lacks a column")
    destinations, headers, expiries, attempts, requests = packed
    columns = zip(
        map(int, numbers.split(",")),
        map(_text, destinations.split("\n")),
        map(_headers, headers.split("\n")),
        _cut(bodies, sizes),
        map(_time, expiries.split(",")),
        map(int, attempts.split(",")),
        map(bool, map(int, requests.split(","))),
        strict=True,
    )
    return list(map(StoredMessage._make, columns))


def _cut(bodies: bytes | None, sizes: str | None) -> Iterator[bytes]:
    if sizes is None:
        raise ValueError("a row lacks a body")
    bodies, begin = bodies or b"", 0
    for size in map(int, sizes.split(",")):
        yield bodies[begin : begin + size]
        begin += size
    # SQLite's LENGTH counts characters of a text, so a body that is no blob shows here.
    if begin != len(bodies):
        raise ValueError("a body is no bytes")


def _time(quoted: str) -> float | None:
    return None if quoted == "NULL" else float(quoted)


# --- columns ---


# The types that a row's columns have to have, which SQLite does not promise.
_TYPES: Final = (int, bytes, int, int)


def _message(
    number: int,
    destination: str,
    headers: str,
    body: bytes,
    expires_at: float | None,
    attempts: int,
    is_request: int,
) -> StoredMessage:
    # `type`, not `isinstance`: one comparison for all four, for each row.
    if (type(number), type(body), type(attempts), type(is_request)) != _TYPES:
        raise ValueError("a column is of another type")
    if expires_at is not None and type(expires_at) is not float:
        raise ValueError("a time is none")
    headed = _headers(headers)
    return StoredMessage(
        number, sys.intern(destination), headed, body, expires_at, attempts, bool(is_request)
    )


def _shared_message(
    number: int,
    attempts: int,
    destination: str,
    headers: str,
    body: bytes,
    expires_at: float | None,
    is_request: int,
) -> StoredMessage:
    return _message(number, destination, headers, body, expires_at, attempts, is_request)


@lru_cache(_DECODED)
def _headers(text: str) -> Headers:
    return tuple((name, value) for name, value in json.loads(text))


@lru_cache(_DECODED)
def _text(quoted: str) -> str:
    text: Any = json.loads(quoted)
    return sys.intern(text)
