"""Heads of one sender that differ in values only, recognised by their names and by what is read of them.

Theory. A sender's SENDs to one destination mostly have the same header lines in the same order. They differ
in values that the broker does not read, such as a correlation-id and a timestamp, in the receipt that they
ask for, and in the length of the body. An expression made from one of its heads therefore matches most
others. It has the lines that are read as they are, and only the names of all other lines. Matching takes a
third of the time of a split by names (`nebula.stomp.header_lines`) and finds the same headers.

Most values are in the usual form. A value with colons or escapes, in the head that the expression is made
from, is a group by itself, since its colons have to be escaped.

What this saves, and why other ways were not taken: docs/decisions/0059.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from nebula.stomp.header_block import Headers
from nebula.stomp.header_lines import LENGTH, ODD_VALUE, USUAL_VALUE

# A longer number is too large, or begins with zeros: reading the head finds out.
_LENGTH: Final = rb"(?P<length>[0-9]{1,9}+)"
_RECEIPT: Final = b"\nreceipt:(?P<receipt>%b)" % USUAL_VALUE


class HeadPattern:
    """Heads with the same names and the same lines that are read.

    Args:
        parts: of such a head, as `HeaderNames.split` returns them. None of its lines is dropped, except one
            `receipt`, and those that are not read match `header_lines.LINES`.
        headers: what is read of it.
        length: of its body, where no header says it.
        most_bytes: of a head that is recognised; longer ones may break a limit.
    """

    def __init__(self, parts: Sequence[bytes | None], headers: Headers, length: int, most_bytes: int) -> None:
        self.headers, self._length, self._most_bytes = headers, length, most_bytes
        expression = b"SEND"
        for place, part in enumerate(parts):
            if part is None:  # a line that is dropped, and the rest of it
                expression += _RECEIPT * (place % 3 == 1)
            elif place % 3 == 1:  # a line that is read
                is_length = part == LENGTH and _LENGTH not in expression  # of two the first one counts
                expression += b"\n" + re.escape(part) + _LENGTH * is_length
            elif place % 3 == 2:  # the rest of that line
                expression += b"" if is_length else re.escape(part)
            elif lines := [line.partition(b":") for line in part.split(b"\n")[1:]]:
                each = [b"\n%b:%b" % (re.escape(name), _like(value)) for name, _, value in lines]
                expression += b"(%b)" % b"".join(each)
        self._pattern = re.compile(expression + b"\n\n")
        # Places among the groups, from 0; -1: there is no such group.
        named = {name: group - 1 for name, group in self._pattern.groupindex.items()}
        self._length_group, self._receipt_group = named.get("length", -1), named.get("receipt", -1)
        self._unread = [group for group in range(self._pattern.groups) if group not in named.values()]
        self._has_odd_values = ODD_VALUE in expression

    def match(self, data: bytes, position: int) -> tuple[int, bytes, int, str | None] | None:
        """Recognise the head at a position, with the empty line behind it.

        Returns:
            The length of the body, the unread lines, where the body begins, and the receipt, or None if none
            is asked for; None: it is another head, or it is not complete.
        """
        found = self._pattern.match(data, position)
        if found is None or (end := found.end()) - position > self._most_bytes:
            return None
        groups: tuple[bytes, ...] = found.groups()
        length = int(groups[self._length_group]) if self._length_group >= 0 else self._length
        receipt = groups[self._receipt_group].decode() if self._receipt_group >= 0 else None
        unread = [groups[group] for group in self._unread]
        if self._has_odd_values:
            # All other groups are lines, each with its LF.
            unread = [each if each[:1] == b"\n" else each.replace(b":", b"\\c") for each in unread]
        return length, b"".join(unread), end, receipt


def _like(value: bytes) -> bytes:
    """A pattern for values of a header that has this one. An odd value is a group by itself."""
    return b")%b(" % ODD_VALUE if b":" in value or b"\\" in value else USUAL_VALUE
