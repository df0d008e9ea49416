"""The codec: bytes to frames and back (A.1). The only place that knows how STOMP is written.

Theory of the parser. A frame is a *head* (command and header lines, up to an empty line), a body, and a NUL
(A.1.3); line ends may stand between frames (A.1.1). The parser is fed any split of the bytes, and three
things hold for every split:

- The frames are the same, and so is the fault, if any. Frames before a fault are returned first.
- No byte is searched twice: a frame that arrives byte by byte costs time in proportion to its length, not to
  its square.
- What is held is bounded. Input that can no longer become a legal frame is refused before more is held.

`_parse` works on one chunk with a cursor. It cuts out a head by one search for the empty line, gets the
head's meaning from the table of known heads (below) or from `_read_head`, and knows then where the body ends:
after `content-length` bytes, or at the first NUL. It stops at the first frame that is not whole. Only that
rest is held, with a note of what it waits for, which `_may_go_on` keeps up to date:

- the rest of a body of known length: `_missing_bytes`;
- a NUL, within the room that is left: `_room_bytes`;
- the empty line of a head: `_scan_head` goes over the new bytes once, checks each line's length and the
  command as soon as they are there, and so finds most faults before the head is whole. It may be laxer than
  `_read_head`, and never stricter, since otherwise the verdict would depend on the split.

Until the note says that the frame is whole, new bytes are added and nothing is parsed. Then the rest is
parsed as if it had come in one chunk.

The first frame of a connection is read by rules that fit every version (`OPENING`, A.1.5), and the parser
halts after it: how the next byte is read depends on the version, which only the reply to that frame settles.
`begin` goes on.

Traps. A line may end with CR LF in some versions, so the empty line has two forms, and the nearer one counts;
a head of CR LF lines must not search for LF LF anew at each frame, which would be quadratic. `content-length`
may be followed by a body that holds NULs. A body is only cut out once it is whole: a slice for each piece
would copy it many times.
"""

from __future__ import annotations

from typing import Final

from nebula.errors import RemoteProtocolError
from nebula.stomp import header_lines
from nebula.stomp.dialects import OPENING, Dialect
from nebula.stomp.frames import (
    CLIENT_COMMANDS,
    COMMANDS_WITH_BODY,
    SERVER_COMMANDS,
    UNESCAPED_COMMANDS,
    Frame,
    FrameLimits,
    Memo,
)
from nebula.stomp.head_patterns import HeadPattern, KnownHead, lines_of
from nebula.stomp.header_lines import LENGTH, HeaderNames

__all__ = ["FrameLimits", "FrameParser", "serialize"]


# Known heads (docs/decisions/0008). A sender repeats itself: the same command, destination and options, over
# and over. So headers that were read before are looked up by their bytes, which costs one hash instead of a
# split, a decode and a dict. Frames that have the same share one dict, and `Frame.memo` lets the layer above
# keep what it derives from them: rights, verdicts and the encoded block for receivers are computed once.
# Bytes are first compared with the head before: if it comes again, its end need not be searched for.
#
# In most applications something in each head differs: a correlation-id, a timestamp, a length. So the lines
# of a SEND are split (`nebula.stomp.header_lines`). Those that the layer above reads are looked up; all
# others stay bytes (`Frame.unread`). Of the lines that are read, the `receipt` and the value of
# `content-length` differ each time, and are kept out of the look-up. Some senders do repeat whole heads; of
# these, the split is remembered too. And the heads of most senders differ in values only, so that a pattern
# made from one of them recognises the others (`nebula.stomp.head_patterns`), also those of other frames.
#
# The tables are small and nothing is evicted piece by piece: a full one is cleared, and filled again by the
# next frames. They hold only SENDs (an ACK names a message of its own) and only short heads. These numbers
# bound what a connection can make the broker keep. Long heads are rare, and holding many of them would cost
# memory per connection; so would many lines that are read, each of which takes some 230 bytes.
_MAX_KNOWN_HEADS: Final = 32
_MAX_KNOWN_HEAD_BYTES: Final = 512
_MAX_KNOWN_LINES: Final = 12
_MAX_PATTERNS: Final = 8
_MAX_PATTERN_BYTES: Final = 1024
_MAX_PATTERN_LINES: Final = 32
# A lesson, with the expression that it may need, costs as much as reading some fifty heads. So each comes
# after more heads that had to be read than the one before, by this number: then a sender with new names in
# each head costs little more.
_HEADS_BETWEEN_LESSONS: Final = 16
_LONGEST_COMMAND: Final = max(map(len, CLIENT_COMMANDS | SERVER_COMMANDS))
_RECEIPT: Final = b"\nreceipt:"
_NUL_IN_HEAD: Final = "a NUL before the end of the headers"
_MOST_DIGITS: Final = 19

# Length of a body that ends at the first NUL.
_UNTIL_NUL: Final = -1

_SEND: Final = b"SEND\n"


class FrameParser:
    """Reads one side of a connection.

    It begins with the opening frame (CONNECT, STOMP, CONNECTED or ERROR), stops after it, and goes on when
    `begin` is called with the negotiated dialect.

    Args:
        commands: what the peer may send, CLIENT_COMMANDS or SERVER_COMMANDS.
        limits: what a frame may be at most.
        names: of the headers of a SEND that are read; the lines of others are `Frame.unread`. None: all
            headers of all frames are read.

    Attributes:
        failure: the fault that ended the parsing, or None. After it nothing more is read.
        held: the bytes of a frame that is not complete yet. Read-only.
    """

    def __init__(
        self, commands: frozenset[str], limits: FrameLimits | None = None, names: HeaderNames | None = None
    ) -> None:
        self.failure: RemoteProtocolError | None = None
        self._commands = commands
        self._limits = limits or FrameLimits()
        self._names = names
        self._dialect = OPENING
        self._max_body_bytes = self._limits.max_opening_frame_bytes
        self._is_halted = False
        # Up to this size a head breaks no limit of sizes: they need no check.
        self._safe_head_bytes = min(self._limits.max_head_bytes, self._limits.max_header_line_bytes)
        # Whole heads, and the lines of heads that are read.
        self._heads: dict[bytes, KnownHead] = {}
        self._alike: dict[tuple[bytes | None, ...], tuple[dict[str, str], Memo]] = {}
        self._patterns: list[HeadPattern] = []
        # Those that matched last, by the lowest bits of their first byte: SEND, ACK and NACK differ there.
        self._likely: list[KnownHead | None] = [None] * 4
        self._heads_read = 0
        self._lessons = 0
        self._next_lesson = _HEADS_BETWEEN_LESSONS
        # What is held of an unfinished frame, and what it waits for.
        self.held = bytearray()
        self._missing_bytes = 0  # of a body of known length, and its NUL
        self._room_bytes = 0  # how far a body that ends at a NUL may go on
        self._lines_held = self._line_begin = self._searched_bytes = 0  # of a head

    def begin(self, dialect: Dialect) -> None:
        """Read on by the rules of `dialect`. Call `feed(b"")` for what is held already."""
        self._dialect = dialect
        self._max_body_bytes = self._limits.max_body_bytes
        self._is_halted = False
        self.forget_heads()  # they were read by other rules

    def forget_heads(self) -> None:
        """Free the tables of known heads, when no more frames will come."""
        self._heads.clear()
        self._alike.clear()
        self._patterns.clear()
        self._likely = [None] * 4

    def feed(self, data: bytes) -> list[Frame]:
        """Take bytes in any split, and return the frames that they complete, in order.

        Frames that precede a fault are returned; the fault is in `failure`, so look at it after each call.
        Never raises.
        """
        if self.failure is not None:
            return []
        frames: list[Frame] = []
        try:
            if self.held or self._is_halted:
                if not self._may_go_on(data):
                    return frames
                data = bytes(self.held)
                self.held.clear()
                self._missing_bytes = self._room_bytes = 0
                self._lines_held = self._line_begin = self._searched_bytes = 0
            end = self._parse(data, frames)
            if end < len(data):
                self.held += data[end:]
        except RemoteProtocolError as error:
            self.failure = error
            self.held.clear()
        return frames

    # One loop over local names: a call for each step would cost a third of the rate of small frames. Only
    # what few senders need, or what happens once in a chunk, is a method.
    def _parse(self, data: bytes, frames: list[Frame]) -> int:  # noqa: C901
        """Append the frames in `data`; return where the first unfinished one begins."""
        size = len(data)
        known_heads, with_body = self._heads, COMMANDS_WITH_BODY
        max_body_bytes = self._max_body_bytes
        is_opening = self._dialect is OPENING
        has_cr = self._dialect.allows_crlf and 13 in data
        position = 0
        blank = 0  # where the next LF LF is; a head of CR LF lines must not search for it anew
        receipt: str | None = None
        try:
            while position < size:
                first = data[position]
                if first <= 13:  # A.1.1: LF or CR; anything else begins a fault
                    if first == 10:
                        position += 1
                        continue
                    if data[position : position + 2] == b"\r\n":
                        position += 2
                        continue
                receipt = None
                known = self._likely[first & 3]
                if known is not None and (start := known.match(data, position)) >= 0:
                    # Like one before: neither its end nor a receipt has to be searched for.
                    receipt = known.receipt
                else:
                    if 0 <= blank <= position:
                        blank = data.find(b"\n\n", position)
                    end, start = blank, blank + 2
                    if has_cr:
                        crlf = data.find(b"\n\r\n", position, size if blank < 0 else blank + 1)
                        if crlf >= 0:
                            end, start = crlf, crlf + 3
                    if end < 0:
                        self._scan_head(data[position:])  # notes what it waits for, and finds early faults
                        break
                    head = data[position:end]
                    if has_cr:
                        head = self._without_cr(head)
                    known = self._likely[first & 3] = known_heads.get(head)
                    if known is None:
                        whole = head
                        # `in` takes twice as long: it tries bytes as a number first.
                        if head.find(_RECEIPT) >= 0:
                            head, receipt = self._cut_receipt(head)
                        known = self._read_new_head(head, whole)
                command, length = known.command, known.length
                # The limit of the opening frame counts its head too (A.5).
                counted_from = position if is_opening else start
                stop = data.find(b"\0", start) if length == _UNTIL_NUL else start + length
                if not 0 <= stop < size or stop - counted_from > max_body_bytes:
                    self._wait_for_body(size, counted_from, stop)
                    break
                if data[stop]:
                    raise RemoteProtocolError("the byte after the body is not NUL")
                body = data[start:stop]
                if body and command not in with_body:
                    if not self._dialect.ignores_stray_bodies:
                        raise RemoteProtocolError(f"{command} must not have a body")
                    body = b""
                frames.append(Frame(command, known.headers, body, receipt, known.unread, known.memo))
                position = stop + 1
                if is_opening:
                    self._is_halted = True
                    break
        except RemoteProtocolError as error:
            error.receipt = receipt
            raise
        return position

    def _without_cr(self, head: bytes) -> bytes:
        """A head with LF as its only line end."""
        head = head.replace(b"\r\n", b"\n").removesuffix(b"\r")
        if 13 in head and self._dialect is not OPENING:
            # STOMP 1.2, "Augmented BNF": CR has an escape and never stands for itself.
            raise RemoteProtocolError("a CR inside a header")
        return head

    def _wait_for_body(self, size: int, counted_from: int, stop: int) -> None:
        """Note what a body waits for that is not whole. Refuse one that is too large, whole or not.

        Args:
            size: of the chunk.
            counted_from: where the bytes begin that are limited.
            stop: where the NUL behind the body is or has to come; below 0: anywhere.
        """
        room = self._max_body_bytes + counted_from - (size if stop < 0 else stop)
        if room < 0:
            raise self._too_large()
        if stop < 0:
            self._room_bytes = room + 1  # and its NUL
        else:
            self._missing_bytes = stop + 1 - size

    def _may_go_on(self, data: bytes) -> bool:
        """Add `data` to what is held. True: parsing it again can get further.

        Looks at each byte once, no matter how small the pieces are.
        """
        if self._is_halted and data and len(self.held) > self._limits.max_opening_frame_bytes:
            # The chunk with the opening frame may have any number of bytes after it: the reading side chose
            # its size. After that a peer has to wait for the reply.
            raise RemoteProtocolError("too much was sent before the reply to the opening frame")
        self.held += data
        if self._is_halted:
            return False
        if self._missing_bytes > 0:
            self._missing_bytes -= len(data)
            return self._missing_bytes <= 0
        if self._room_bytes > 0:
            self._room_bytes -= len(data)
            return self._room_bytes <= 0 or 0 in data
        return self._scan_head(self.held)

    def _scan_head(self, held: bytes | bytearray) -> bool:
        """Go over the new bytes of an unfinished head. True: its empty line has arrived.

        Refuses early what can never become a legal head, before more of it is held. It may be laxer than
        `_read_head` and never stricter, so that the verdict does not depend on the split.
        """
        while (end := held.find(b"\n", self._searched_bytes)) >= 0:
            line = held[self._line_begin : end]
            # Between frames CR LF is skipped in every version.
            if not line or (line == b"\r" and (self._dialect.allows_crlf or not self._lines_held)):
                return True
            if not self._lines_held:
                self._check_command(line)
            self._lines_held += 1
            self._line_begin = self._searched_bytes = end + 1
            self._check_head_so_far(line, len(line))
        new = held[self._searched_bytes :]
        self._searched_bytes = len(held)
        self._check_head_so_far(new, len(held) - self._line_begin)
        # A CR at the end of each line does not count, nor does the LF of the last one.
        self._check_sizes(len(held) - self._lines_held - 2, 0)
        if not self._lines_held and len(held) > _LONGEST_COMMAND + 1:
            self._check_command(held)
        if self._dialect is OPENING and len(held) > self._max_body_bytes:
            raise self._too_large()
        return False

    def _check_command(self, line: bytes | bytearray) -> None:
        command = line.removesuffix(b"\r") if self._dialect.allows_crlf else line
        text = command[: _LONGEST_COMMAND + 1].decode(errors="replace")
        if text not in self._commands:
            raise _unknown(text)

    def _check_head_so_far(self, new: bytes | bytearray, line_bytes: int) -> None:
        if 0 in new:
            raise RemoteProtocolError(_NUL_IN_HEAD)
        self._check_count(self._lines_held - 1)  # without the command
        self._check_sizes(0, line_bytes - 1)  # without a CR

    def _cut_receipt(self, head: bytes) -> tuple[bytes, str]:
        """Take the first `receipt` line out of a head; returns what is left, and its value."""
        before, _, rest = head.partition(_RECEIPT)
        value, line_end, after = rest.partition(b"\n")
        if len(head) > self._safe_head_bytes:
            self._check_sizes(len(head), len(_RECEIPT) - 1 + len(value))
        return before + line_end + after, self._unescaped(_decoded(value))

    def _read_new_head(self, head: bytes, whole: bytes) -> KnownHead:
        """Read a head that is not known: of a SEND only the headers that are named.

        Args:
            head: without the line of its receipt.
            whole: with that line, if it has one.
        """
        if len(head) > self._safe_head_bytes:
            self._check_sizes(len(head), max(map(len, head.split(b"\n"))))
        ended = whole + b"\n\n"
        for pattern in self._patterns:
            # Most patterns of a sender are for other destinations.
            if ended.startswith(pattern.begin) and pattern.match(ended, 0) >= 0:
                self._likely[whole[0] & 3] = pattern  # the next one may be like it
                return pattern
        known = None if head is whole else self._heads.get(head)
        if known is None:
            if self._names is None or not head.startswith(_SEND):
                known = self._read_head(head, has_receipt=head is not whole)
            else:
                known = self._read_split_head(head, whole, self._names)
        self._heads_read += 1
        if self._heads_read >= self._next_lesson and len(whole) <= _MAX_PATTERN_BYTES:
            self._learn(whole, known)
        return known

    def _learn(self, whole: bytes, known: KnownHead) -> None:
        """Learn from a head that no pattern has matched."""
        self._lessons += 1
        self._next_lesson += self._lessons * _HEADS_BETWEEN_LESSONS
        command = known.command
        if self._dialect.trims_values or not header_lines.LINES.fullmatch(known.unread):
            return
        lines = lines_of(whole, self._dialect, self._names if command == "SEND" else None)
        if not 0 < len(lines) <= _MAX_PATTERN_LINES:
            return
        if not any(one.command == command and one.learn(lines) for one in self._patterns):
            newest = HeadPattern(known, lines, self._dialect, self._safe_head_bytes)
            self._patterns = [newest, *self._patterns[: _MAX_PATTERNS - 1]]

    def _read_split_head(self, head: bytes, whole: bytes, names: HeaderNames) -> KnownHead:
        """Read a head of a SEND of which each line has been looked at."""
        parts = names.split(head)
        lines = header_lines.usual_lines(head)
        count = (lines if lines >= 0 else head.count(b"\n")) + 1
        self._check_count(count - (head is whole))
        # The receipt, which was cut out, counts too, and may come the next time.
        may_be_known = count <= self._limits.max_headers
        # Lines that are dropped have the same faults. Hardly any head has one of these, and needs the look.
        if lines < 0 and (not head.isascii() or head.find(b"\0") >= 0 or head.find(b"\\") >= 0):
            self._read_headers(_decoded(head).split("\n")[1:])
        unread = b"".join(parts[::3])[len(_SEND) - 1 :]
        # As they came: written anew, the unread lines may be longer.
        is_short = len(head) - len(unread) <= _MAX_KNOWN_HEAD_BYTES
        if self._dialect.trims_values or (lines < 0 and header_lines.usual_lines(unread) < 0):
            unread = header_lines.write(self._read_headers(_decoded(unread).split("\n")[1:]).items())
        read = tuple(parts[1::3])
        length = _UNTIL_NUL
        if LENGTH in read:  # of two the first one counts
            length = self._body_length(parts[3 * read.index(LENGTH) + 2])
        alike = self._alike.get(read)
        if alike is None:
            alike = self._read_headers([_decoded(line) for line in read if line is not None]), Memo()
            if may_be_known and is_short and len(read) <= _MAX_KNOWN_LINES:
                if len(self._alike) == _MAX_KNOWN_HEADS:
                    self._heads.clear()
                    self._alike.clear()
                self._alike[read] = alike
        headers, memo = alike
        known = KnownHead(head, "SEND", headers, length, unread, memo)
        # A line that is dropped may be a second receipt: known with it, a head would hide the first one.
        may_be_known = may_be_known and None not in read
        if may_be_known and len(head) <= _MAX_KNOWN_HEAD_BYTES:
            if len(self._heads) == _MAX_KNOWN_HEADS:
                self._heads.clear()
            self._heads[head] = known
        return known

    def _read_head(self, head: bytes, *, has_receipt: bool) -> KnownHead:
        """Read a whole head."""
        lines = _decoded(head).split("\n")
        command = lines.pop(0)
        if command not in self._commands:
            raise _unknown(command)
        if len(lines) >= self._limits.max_headers:
            self._check_count(len(lines) + has_receipt)
        headers = self._read_headers(lines)
        if has_receipt:
            headers.pop("receipt", None)  # a repeated one
        text = headers.get("content-length")
        length = _UNTIL_NUL if text is None else self._body_length(text.encode())
        return KnownHead(head, command, headers, length, b"", None)

    def _read_headers(self, lines: list[str]) -> dict[str, str]:
        headers: dict[str, str] = {}
        # A.3; STOMP 1.2, "Repeated Header Entries": the first one counts.
        add = headers.setdefault
        for line in lines:
            # A.1.2 and A.1.6: split at the first colon; others belong to the value. A.1.4: both parts are
            # needed.
            name, colon, value = line.partition(":")
            if not name or not colon:
                what = "without a name" if colon else "without a colon"
                raise RemoteProtocolError(f"a header line {what}: {line[:40]!r}")
            if "\\" in line or self._dialect.trims_values:
                name, value = self._dialect.unescape(name), self._unescaped(value)
            add(name, value)
        return headers

    def _unescaped(self, value: str) -> str:
        value = value.strip(" ") if self._dialect.trims_values else value
        return self._dialect.unescape(value) if "\\" in value else value

    def _body_length(self, text: bytes) -> int:
        if not text.isdigit():  # `int` would take signs and spaces too
            text = self._unescaped(text.decode(errors="replace")).encode()
            if not text.isdigit():
                shown = text[:20].decode(errors="replace")
                raise RemoteProtocolError(f"content-length {shown!r} is not a number")
        # A number of many digits is too large before it is worth converting.
        if len(text) > _MOST_DIGITS:
            raise self._too_large()
        return int(text)

    def _too_large(self) -> RemoteProtocolError:
        what = "the opening frame" if self._dialect is OPENING else "a body"
        return RemoteProtocolError(f"{what} exceeds {self._max_body_bytes} bytes")

    def _check_count(self, headers: int) -> None:
        if headers > self._limits.max_headers:
            raise RemoteProtocolError(f"more than {self._limits.max_headers} headers")

    def _check_sizes(self, head_bytes: int, line_bytes: int) -> None:
        if head_bytes > self._limits.max_head_bytes:
            raise RemoteProtocolError(f"the headers of a frame exceed {self._limits.max_head_bytes} bytes")
        if line_bytes > self._limits.max_header_line_bytes:
            raise RemoteProtocolError(f"a header line exceeds {self._limits.max_header_line_bytes} bytes")


def _decoded(data: bytes) -> str:
    if 0 in data:
        raise RemoteProtocolError(_NUL_IN_HEAD)
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a header is not UTF-8") from None


def _unknown(command: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"unknown command {command[: _LONGEST_COMMAND + 1]!r}")


def serialize(frame: Frame, dialect: Dialect) -> bytes:
    """Write `frame` in `dialect`.

    `content-length` is added on frames that may have a body (A.4). A line feed or carriage return that the
    version cannot express becomes a space (A.2).
    """
    writer = OPENING if frame.command in UNESCAPED_COMMANDS else dialect
    headers = [item for item in frame.all_headers().items() if item[0] != "content-length"]
    if frame.receipt is not None:
        headers.append(("receipt", frame.receipt))
    if frame.command in COMMANDS_WITH_BODY:
        headers.append(("content-length", str(len(frame.body))))
    return b"%b\n%b\n%b\0" % (frame.command.encode(), writer.header_block(headers), frame.body)
