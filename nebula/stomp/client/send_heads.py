"""Encoded heads of SENDs that a client sends often, without I/O.

Requests to one service differ in a few header values, and so do replies to one caller. The lines that they share
are escaped and encoded once; a SEND then costs one formatting of the values that differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from nebula.errors import LocalProtocolError
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
            varying: the other headers, in an order that is the same each time. The last one may name the
                exchange (`neb-reply-id`): the broker's parser expects it there.
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
        if any(name == "receipt" for name, _ in shared):
            raise LocalProtocolError("a receipt is different for each frame")
        lines = self._dialect.header_block([("destination", destination), *shared]).decode().replace("%", "%%")
        varying = self._dialect.header_block((name, "") for name in names).decode().replace("%", "%%")
        template = f"SEND\n{lines}content-length:%d\n{varying.replace(':' + chr(10), ':%s' + chr(10))}\n"
        if len(self._templates) == _MOST:
            self._templates.clear()
        self._templates[destination, shared, names] = template
        return template
