"""Dialects: the versions of STOMP, one frozen row of properties each.

No other module knows how the versions differ. They are compared where they are negotiated (`negotiate`) and
nowhere else: all other code asks a field of its dialect, so another version would be another row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from nebula.errors import RemoteProtocolError

_ESCAPES_1_1 = MappingProxyType({"n": "\n", "c": ":", "\\": "\\"})
_ESCAPES_1_2 = MappingProxyType({**_ESCAPES_1_1, "r": "\r"})
_NO_ESCAPES: Mapping[str, str] = MappingProxyType({})

# A backslash and the character after it, which is missing at the end of a text.
_ESCAPE: Final = re.compile(r"\\(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Dialect:
    """The rules of one STOMP version. The defaults are those of 1.2, so a row names only what differs.

    Attributes:
        version: as negotiated, "1.2".
        escapes: the character after a backslash → what it stands for (A.2; STOMP 1.1 and 1.2, "Value
            Encoding"); the backslash is one of them. Empty: headers are not escaped, and a backslash is
            itself (1.0, and frames before the version is known).
        allows_crlf: a line may end with CR LF (1.2, "Augmented BNF"; 1.0 and 1.1: a CR belongs to the value).
        trims_values: spaces around values, not names, are dropped (A.3: 1.0's examples pad them; 1.1 and 1.2
            forbid it).
        ignores_stray_bodies: a body on a frame that may have none is ignored (1.0, "SUBSCRIBE"), not a fault
            (1.1 and 1.2, "Body").
        announces_version: CONNECTED has `version` and `heart-beat` (A.7; from 1.1 on).
        needs_subscription_id: SUBSCRIBE and UNSUBSCRIBE name an `id` (A.6; 1.0 may use the destination).
        has_nack: a client may send NACK (A.6; from 1.1 on).
        ack_by_id: ACK and NACK name the `id` that MESSAGE gave in `ack` (A.6; 1.0 and 1.1 the `message-id`).
        ack_on_message: MESSAGE has `ack` in the client modes (1.2, "MESSAGE"; harmless in 1.1, D.21).
    """

    version: str
    escapes: Mapping[str, str]
    allows_crlf: bool = True
    trims_values: bool = False
    ignores_stray_bodies: bool = False
    announces_version: bool = True
    needs_subscription_id: bool = True
    has_nack: bool = True
    ack_by_id: bool = True
    ack_on_message: bool = True
    # Characters that a version cannot express become spaces: refusing the frame would let a sender harm
    # receivers that speak another version. No version has an escape for NUL.
    _substitutes: tuple[tuple[str, str], ...] = field(init=False, repr=False)
    _unescapes: tuple[tuple[str, str], ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        written = {plain: f"\\{letter}" for letter, plain in self.escapes.items()}
        substitutes = {plain: written.get(plain, " ") for plain in ("\0", "\n", "\r")} | written
        # The backslash first, because the other escapes contain one.
        ordered = sorted(substitutes.items(), key=lambda pair: pair[0] != "\\")
        unescapes = tuple((escaped, plain) for plain, escaped in written.items() if plain != "\\")
        object.__setattr__(self, "_substitutes", tuple(ordered))
        object.__setattr__(self, "_unescapes", unescapes)

    def escape(self, text: str) -> str:
        """Write `text` as a header value of this version."""
        # Three checks cost less than five replacements, and hardly any value needs one. LF, CR and NUL are
        # not printable.
        if ":" in text or "\\" in text or not text.isprintable():
            for plain, written in self._substitutes:
                text = text.replace(plain, written)
        return text

    def unescape(self, text: str) -> str:
        """Read a header name or value; one pass from left to right.

        Raises:
            RemoteProtocolError: an escape that this version does not know (A.2; 1.2, "Value Encoding": a
            fatal protocol error).
        """
        if not self.escapes or "\\" not in text:
            return text
        # A head may consist of escapes, and a few replacements in the whole text cost a tenth of handling
        # each escape. Pairs of backslashes come first, from the left: a NUL, which no header contains, marks
        # each of them, so that its second half does not begin an escape.
        plain = text.replace("\\\\", "\\\0")
        for escaped, meant in self._unescapes:
            plain = plain.replace(escaped, meant)
        if "\0" in text or plain.count("\\") != plain.count("\\\0"):
            # One escape after the other, which finds the unknown one.
            return _ESCAPE.sub(self._meaning, text)
        return plain.replace("\\\0", "\\")

    def _meaning(self, escape: re.Match[str]) -> str:
        letter = escape[1]
        if not letter:
            raise RemoteProtocolError("a header ends with a lone backslash")
        if letter not in self.escapes:
            raise RemoteProtocolError(f"undefined escape \\{letter} in a header of STOMP {self.version}")
        return self.escapes[letter]

    def header_block(self, headers: Iterable[tuple[str, str]]) -> bytes:
        """Encode `name:value` lines, each ended by LF. A lone surrogate becomes `?`."""
        escape = self.escape
        # Where nothing is escaped a colon ends the name: left there, a sender of another version could name a
        # header so that it is read as one that only the server may write.
        escape_name = escape if self.escapes else lambda name: escape(name.replace(":", " "))
        lines = [f"{escape_name(name)}:{escape(value)}\n" for name, value in headers]
        return "".join(lines).encode("utf-8", "replace")


V1_2 = Dialect("1.2", _ESCAPES_1_2)
V1_1 = Dialect("1.1", _ESCAPES_1_1, allows_crlf=False, ack_by_id=False)
V1_0 = Dialect(
    "1.0",
    _NO_ESCAPES,
    allows_crlf=False,
    trims_values=True,
    ignores_stray_bodies=True,
    announces_version=False,
    needs_subscription_id=False,
    has_nack=False,
    ack_by_id=False,
    ack_on_message=False,
)

# CONNECT, STOMP and CONNECTED come before the version is known: either line end, no escapes (A.1.5). A
# client that names no version is a 1.0 one, and its values are trimmed once that is known (D.45). No session
# is in this dialect, so only the rules for the bytes of a frame matter.
OPENING = Dialect("opening", _NO_ESCAPES)

# The order is that of the versions: `negotiate` takes the last one in common, and a client offers them all.
DIALECTS = MappingProxyType({dialect.version: dialect for dialect in (V1_0, V1_1, V1_2)})
"""By version, lowest first."""


def negotiate(accept_version: str | None, served: Sequence[Dialect] = (V1_0, V1_1, V1_2)) -> Dialect | None:
    """The highest version in common, or None (A.9.2, A.9.3).

    Without `accept-version` the client speaks 1.0 only (A.9.1). Items of the list are trimmed (D.45).

    Args:
        served: what the server speaks, lowest first.
    """
    offered = {"1.0"} if accept_version is None else {item.strip() for item in accept_version.split(",")}
    common = [dialect for dialect in served if dialect.version in offered]
    return common[-1] if common else None
