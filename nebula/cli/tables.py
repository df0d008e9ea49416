"""Tables of a broker's and a service's views: numbers, bytes and times as people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from nebula.cli.ids import shortened
from nebula.cli.layout import Heading, Rows
from nebula.cli.terminal import cell_of, text
from nebula.shown import Shown, Unit, shown_field, shown_fields
from nebula.visible import visible

_STEPS: Final = (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        heading: for people.
        field: of a row; with dots, of what is in it.
        form: how a value is written; None values are left empty.
        is_id: abbreviated, see `nebula.cli.ids`.
    """

    heading: str
    field: str
    form: Callable[[Any], str] | None = None
    is_id: bool = False

    def text(self, row: Mapping[str, Any]) -> str:
        """What stands in this column."""
        value: Any = row
        for part in self.field.split("."):
            # A reply may have any value in place of an object.
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            return ""
        if self.form is not None:
            # A peer may send anything: a value that is not such a number is shown as it is.
            with suppress(ArithmeticError, OSError, TypeError, ValueError):
                return self.form(value)
        # Escaped here, because widths are computed from this text.
        return visible(cell_of(value))


def table(
    columns: Sequence[Column], rows: Iterable[Mapping[str, Any]], *, has_full_ids: bool = False
) -> Rows:
    """Rows as a table; columns with a format are aligned to the right.

    Args:
        columns: from left to right.
        rows: from top to bottom.
        has_full_ids: do not abbreviate ids.
    """
    rows = list(rows)
    texts = [_texts(column, rows, is_full=has_full_ids) for column in columns]
    cells = zip(*texts, strict=True)
    headings = [Heading(text(column.heading, keep=""), column.form is not None) for column in columns]
    return Rows(headings, ([text(cell, keep="") for cell in row] for row in cells))


def _texts(column: Column, rows: Sequence[Mapping[str, Any]], *, is_full: bool) -> list[str]:
    found = [column.text(row) for row in rows]
    return shortened(found) if column.is_id and not is_full else found


def number(value: float) -> str:
    """`12,300`, and `0.5` where less than ten count."""
    # With a digit after the point, so that 0.5 a second is not shown as 0.
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def byte_size(value: float) -> str:
    """`2.6 MB`."""
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1_000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        # By 1,000, as the unit says: 1,024 bytes are a KiB.
        value /= 1_000
    return f"{value:,.1f} TB"


def percent(fraction: float) -> str:
    """`74 %`."""
    return f"{fraction:.0%}".replace("%", " %")


def duration(seconds: float) -> str:
    """`250 ms`, `4.2 s`, `3 m 5 s`, `2 d 7 h`."""
    if seconds < 1:
        return f"{seconds * 1_000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    parts: list[str] = []
    for unit, length in _STEPS:
        if seconds >= length or parts:
            parts.append(f"{int(seconds // length)} {unit}")
            seconds %= length
    # Two units are precise enough.
    return " ".join([*parts, f"{int(seconds)} s"][:2])


def age(seconds: float) -> str:
    """As `duration`, in one unit: `4.2 s`, `3 m`, `2 d`."""
    return " ".join(duration(seconds).split()[:2])


def latency(seconds: float) -> str:
    """`0.35 ms`; from ten milliseconds on as `duration`."""
    return f"{seconds * 1_000:.2f} ms" if seconds < 0.01 else duration(seconds)


def moment(seconds: float) -> str:
    """Seconds since 1970 by the reader's clock."""
    # The reader's zone and not the service's: it is compared with a clock on the wall.
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%d %b %H:%M:%S")


def date(seconds: float) -> str:
    """As `moment`, where it may be in another year."""
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%d %b %Y %H:%M:%S")


_FORMS: Final[Mapping[Unit, Callable[[Any], str]]] = {
    Unit.COUNT: number,
    Unit.NUMBER: str,
    Unit.BYTES: byte_size,
    Unit.SECONDS: duration,
    Unit.AGE: age,
    Unit.LATENCY: latency,
    Unit.FRACTION: percent,
    Unit.TIME: moment,
}


def columns(view: type, *names: str) -> tuple[Column, ...]:
    """Columns of fields of a view, with the titles and formats that it declares.

    Args:
        view: a dataclass, see `nebula.shown`.
        names: of its fields, from left to right; `link.peer` is a field of the view in `link`.

    Raises:
        KeyError: the view has no such field.
    """
    return tuple(_column(name, shown_field(view, name)) for name in names)


def facts(details: type, first: Sequence[Column]) -> tuple[Column, ...]:
    """All titled fields of a view of details, and of the `summary` in it.

    Args:
        details: the view.
        first: columns of the summary that come first, as a list has them.
    """
    # `is_id=False`, because a single row shows its whole id, for copying.
    lead = [replace(column, field=f"summary.{column.field}", is_id=False) for column in first]
    known = {column.field for column in lead}
    rest = (_column(name, shown) for name, shown in shown_fields(details).items() if shown.title)
    return (*lead, *(column for column in rest if column.field not in known))


def _column(field: str, shown: Shown) -> Column:
    return Column(shown.title, field, _FORMS.get(shown.unit), shown.unit is Unit.ID)
