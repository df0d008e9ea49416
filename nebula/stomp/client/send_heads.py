"""Encoded heads of SENDs that a client sends often, without I/O.

Requests to one service differ in a few header values, and so do replies to one caller. The lines that they
share are escaped once; after that, a SEND costs one formatting of the values that differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from nebula.stomp.dialects import Dialect

__all__ = ["SendHeads", "Shared"]

Shared: TypeAlias = tuple[tuple[str, str], ...]
"""Names and values of headers that SENDs have in common."""

# Heads that are kept at a time. A client has few destinations; a service has one for each of its callers.
_MOST: Final = 256


# docs/decisions/0061 has the measurements.
class SendHeads:
    """Writes SENDs of one connection.

    Args:
        dialect: of the connection.
    """

    __slots__ = ("_dialect", "_templates")

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._templates: dict[tuple[str, Shared, tuple[str, ...]], str] = {}

    def send(self, destination: str, body: bytes, shared: Shared, varying: Mapping[str, str]) -> bytes:
        """A whole SEND.

        Args:
            destination: where to.
            body: of the frame.
            shared: the first headers. The same tuples again and again: the encoded lines are kept.
            varying: the other headers, in an order that is the same each time.
        """
        names = tuple(varying)
        template = self._templates.get((destination, shared, names)) or self._new(destination, shared, names)
        values = [*varying.values()]
        text = "".join(values)
        # As in `Dialect.escape`: one look at all values costs less than one at each.
        if ":" in text or "\\" in text or not text.isprintable():
            values = [self._dialect.escape(value) for value in values]
        return b"%b%b\0" % ((template % (len(body), *values)).encode("utf-8", "replace"), body)

    def _new(self, destination: str, shared: Shared, names: tuple[str, ...]) -> str:
        head = self._lines([("destination", destination), *shared])
        own = "".join(self._lines([(name, "")]).removesuffix("\n") + "%s\n" for name in names)
        template = f"SEND\n{head}content-length:%d\n{own}\n"
        if len(self._templates) == _MOST:
            self._templates.clear()
        self._templates[destination, shared, names] = template
        return template

    def _lines(self, headers: Iterable[tuple[str, str]]) -> str:
        return self._dialect.header_block(headers).decode().replace("%", "%%")
