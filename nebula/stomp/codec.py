"""The codec: bytes to frames and back. The only place that knows STOMP's octets.

How to think about the parser. It is fed any split of the octets and works on one chunk at a
time with a cursor. A frame is a *head* (command and header lines, up to an empty line), a
body, and a NUL. Senders repeat themselves, so a head that was read before is found in a small
table by its octets and costs one look-up; `receipt`, the one header that changes with each
frame, is cut out first. What is left of a chunk is held, with a note of what it waits for, so
that no octet is searched twice however small the pieces are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nebula.errors import RemoteProtocolError
from nebula.stomp.dialects import OPENING, Dialect
from nebula.stomp.frames import (
    CLIENT_COMMANDS,
    COMMANDS_WITH_BODY,
    SERVER_COMMANDS,
    UNESCAPED_COMMANDS,
    Frame,
    Headers,
)

__all__ = ["FrameLimits", "FrameParser", "serialize"]


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """What one frame may be at most. Checked before anything is buffered.

    The numbers beside RabbitMQ's (100 headers, 100 KiB a header, 100 MiB a body, 64 KiB before
    authentication): NebulousStomp's own tests push bodies of half a MiB.
    """

    max_headers: int = 128
    max_header_line_bytes: int = 16 * 1024
    max_body_bytes: int = 8 * 1024 * 1024
    max_opening_frame_bytes: int = 64 * 1024


# A table of heads is worth having when it is small and hit often: a sender uses few
# destinations. Long heads are rare, and holding 32 of them would cost memory per connection.
_MAX_KNOWN_HEADS: Final = 32
_MAX_KNOWN_HEAD_BYTES: Final = 512
_LONGEST_COMMAND: Final = max(map(len, CLIENT_COMMANDS | SERVER_COMMANDS))
_RECEIPT: Final = b"\nreceipt:"

# Length of a body that ends at the first NUL.
_UNTIL_NUL: Final = -1

_Head = tuple[str, Headers, int]


class FrameParser:
    """Reads one side of a connection.

    It begins with the opening frame (CONNECT, STOMP, CONNECTED or ERROR), stops after it, and
    goes on when `begin` has told the negotiated dialect.

    Args:
        commands: what the peer may send, CLIENT_COMMANDS or SERVER_COMMANDS.
        limits: what a frame may be at most.

    Attributes:
        failure: the fault that ended the parsing, or None. After it nothing more is read.
    """

    def __init__(self, commands: frozenset[str], limits: FrameLimits | None = None) -> None:
        self.failure: RemoteProtocolError | None = None
        self._commands = commands
        self._limits = limits or FrameLimits()
        self._dialect = OPENING
        self._max_body_bytes = self._limits.max_opening_frame_bytes
        self._is_halted = False
        self._heads: dict[bytes, _Head] = {}
        # What is held of an unfinished frame, and what it waits for.
        self._held = bytearray()
        self._missing_bytes = 0
        self._waits_for_nul = False
        self._lines_held = 0

    def begin(self, dialect: Dialect) -> None:
        """Read on by the rules of `dialect`. Call `feed(b"")` for what is held already."""
        self._dialect = dialect
        self._max_body_bytes = self._limits.max_body_bytes
        self._is_halted = False

    def feed(self, data: bytes) -> list[Frame]:
        """Take octets as they come and return the frames that they complete, in order.

        Frames that precede a fault are returned; `failure` then tells of the fault, so look at
        it after each call. Never raises.
        """
        if self.failure is not None:
            return []
        frames: list[Frame] = []
        try:
            if self._held:
                if not self._may_go_on(data):
                    return frames
                data = bytes(self._held)
                self._held.clear()
            end = self._parse(data, frames)
            if end < len(data):
                self._held += data[end:]
        except RemoteProtocolError as error:
            self.failure = error
            self._held.clear()
        return frames

    # The loop is longer than our other functions: a call per step would cost a third of the
    # rate of small frames.
    def _parse(self, data: bytes, frames: list[Frame]) -> int:  # noqa: C901
        """Append the frames in `data`; return where the first unfinished one begins."""
        size = len(data)
        known_heads = self._heads
        has_cr = self._dialect.allows_crlf and b"\r" in data
        position = 0
        blank = 0  # where the next LF LF is; a head of CR LF lines must not search for it anew
        receipt: str | None = None
        try:
            while position < size and not self._is_halted:
                octet = data[position]
                if octet == 10:
                    position += 1
                    continue
                if octet == 13 and data[position : position + 2] in (b"\r", b"\r\n"):
                    if position + 1 == size:
                        break
                    position += 2
                    continue
                receipt = None
                if 0 <= blank <= position:
                    blank = data.find(b"\n\n", position)
                end, start = blank, blank + 2
                if has_cr:
                    crlf = data.find(b"\n\r\n", position, size if blank < 0 else blank + 1)
                    if crlf >= 0:
                        end, start = crlf, crlf + 3
                if end < 0:
                    self._check_unfinished_head(data, position)
                    break
                head = data[position:end]
                if _RECEIPT in head:
                    head, receipt = self._cut_receipt(head)
                known = known_heads.get(head)
                command, headers, length = known if known is not None else self._read_head(head)
                if length == _UNTIL_NUL:
                    stop = data.find(b"\0", start)
                    if (stop if stop >= 0 else size) - start > self._max_body_bytes:
                        raise RemoteProtocolError(f"a body exceeds {self._max_body_bytes} octets")
                    if stop < 0:
                        self._waits_for_nul = True
                        break
                else:
                    stop = start + length
                    if stop >= size:
                        self._missing_bytes = stop + 1 - size
                        break
                    if data[stop]:
                        raise RemoteProtocolError("the octet after the body is not NUL")
                body = data[start:stop]
                if body and command not in COMMANDS_WITH_BODY:
                    body = self._stray_body(command)
                frames.append(Frame(command, headers, body, receipt))
                position = stop + 1
                if self._dialect is OPENING:
                    self._is_halted = True
        except RemoteProtocolError as error:
            error.receipt = receipt
            raise
        return position

    def _may_go_on(self, data: bytes) -> bool:
        """Add `data` to what is held; tell whether parsing it again can get any further."""
        held = self._held
        searched = max(0, len(held) - 2)  # the end of a head is three octets at most
        held += data
        if self._is_halted:
            return False
        if self._missing_bytes > 0:
            self._missing_bytes -= len(data)
            return self._missing_bytes <= 0
        if self._waits_for_nul:
            if b"\0" not in data and len(held) <= self._max_body_bytes:
                return False
            self._waits_for_nul = False
            return True
        # Inside a head: go on at its end, at a NUL (a fault), at the first line's end (the
        # command can be judged), or when a limit may have been passed.
        lines = data.count(b"\n")
        was_first = not self._lines_held
        self._lines_held += lines
        return (
            (was_first and (lines > 0 or len(held) > _LONGEST_COMMAND))
            or held.find(b"\n\n", searched) >= 0
            or held.find(b"\n\r\n", searched) >= 0
            or b"\0" in data
            or self._lines_held > self._limits.max_headers
            or len(held) - held.rfind(b"\n", searched) > self._limits.max_header_line_bytes
        )

    def _check_unfinished_head(self, data: bytes, position: int) -> None:
        """Refuse early what can never become a legal head, before more of it is held."""
        if data.find(b"\0", position) >= 0:
            raise RemoteProtocolError("a NUL octet before the end of the headers")
        self._lines_held = data.count(b"\n", position)
        limits = self._limits
        if self._dialect is OPENING and len(data) - position > limits.max_opening_frame_bytes:
            raise RemoteProtocolError(f"the opening frame exceeds {limits.max_opening_frame_bytes} octets")
        lines = data[position:].split(b"\n")
        if len(lines) == 1:
            if len(lines[0]) > _LONGEST_COMMAND + 1:
                raise RemoteProtocolError("not a STOMP command")
        else:
            self._read_command(lines[0].decode(errors="replace"))
            self._check_lines(lines[1:])

    def _check_lines(self, lines: list[bytes]) -> None:
        if len(lines) > self._limits.max_headers + 1:
            raise RemoteProtocolError(f"more than {self._limits.max_headers} headers")
        if max(map(len, lines)) > self._limits.max_header_line_bytes:
            raise RemoteProtocolError(f"a header line exceeds {self._limits.max_header_line_bytes} octets")

    def _read_command(self, line: str) -> str:
        command = line.removesuffix("\r") if self._dialect.allows_crlf else line
        if command not in self._commands:
            raise RemoteProtocolError(f"unknown command {command[:_LONGEST_COMMAND]!r}")
        return command

    def _cut_receipt(self, head: bytes) -> tuple[bytes, str]:
        """Take the first `receipt` line out of a head; returns what is left, and its value."""
        begin = head.find(_RECEIPT)
        end = head.find(b"\n", begin + 1)
        line = head[begin + 1 :] if end < 0 else head[begin + 1 : end]
        if len(line) > self._limits.max_header_line_bytes:
            self._check_lines([line])
        _, value = self._read_line(self._decoded(line))
        return (head[:begin] if end < 0 else head[:begin] + head[end:]), value

    def _decoded(self, octets: bytes) -> str:
        try:
            return octets.decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError("a header is not UTF-8") from None

    def _read_line(self, line: str) -> tuple[str, str]:
        if self._dialect.allows_crlf:
            line = line.removesuffix("\r")
            if "\r" in line and self._dialect is not OPENING:
                # STOMP 1.2, "Augmented BNF": CR has an escape and never stands for itself.
                raise RemoteProtocolError("a CR inside a header")
        name, colon, value = line.partition(":")
        if not colon:
            raise RemoteProtocolError(f"a header line without a colon: {line[:40]!r}")
        if self._dialect.trims_values:
            name, value = name.strip(" "), value.strip(" ")
        if not name:
            raise RemoteProtocolError("a header without a name")
        return self._dialect.unescape(name), self._dialect.unescape(value)

    def _read_head(self, head: bytes) -> _Head:
        """Read a head that is not known yet, and remember it if it may come again."""
        if b"\0" in head:
            raise RemoteProtocolError("a NUL octet before the end of the headers")
        if len(head) > self._limits.max_header_line_bytes:
            self._check_lines(head.split(b"\n"))
        line, _, block = self._decoded(head).partition("\n")
        command = line if line in self._commands else self._read_command(line)
        headers = self._read_headers(block) if block else Headers()
        length = self._body_length(headers) if "content-length" in headers else _UNTIL_NUL
        read = command, headers, length
        # ACKs and MESSAGEs each name a message of their own: they would only push SENDs out.
        if command == "SEND" and len(head) <= _MAX_KNOWN_HEAD_BYTES:
            if len(self._heads) == _MAX_KNOWN_HEADS:
                self._heads.clear()
            self._heads[head] = read
        return read

    def _read_headers(self, block: str) -> Headers:
        lines = block.split("\n")
        if len(lines) > self._limits.max_headers:
            raise RemoteProtocolError(f"more than {self._limits.max_headers} headers")
        if not ("\\" in block or "\r" in block or self._dialect.trims_values):
            # Nothing to trim or to unescape: let `dict` do the work, and check what it made.
            try:
                headers = Headers([line.split(":", 1) for line in lines])
            except ValueError:
                headers = Headers()
            if len(headers) == len(lines) and "" not in headers:
                headers.pop("receipt", None)
                return headers
        headers = Headers()
        for line in lines:
            name, value = self._read_line(line)
            # STOMP 1.2, "Repeated Header Entries": the first one counts.
            headers.setdefault(name, value)
        headers.pop("receipt", None)
        return headers

    def _body_length(self, headers: Headers) -> int:
        text = headers["content-length"]
        # `int` would take signs, spaces and digits of other scripts too.
        if not (text.isascii() and text.isdigit()):
            raise RemoteProtocolError(f"content-length {text[:20]!r} is not a number")
        # A number of many digits is too large before it is worth converting.
        if len(text) > 19 or int(text) > self._max_body_bytes:
            raise RemoteProtocolError(f"a body exceeds {self._max_body_bytes} octets")
        return int(text)

    def _stray_body(self, command: str) -> bytes:
        if not self._dialect.ignores_stray_bodies:
            raise RemoteProtocolError(f"{command} must not have a body")
        return b""


def serialize(frame: Frame, dialect: Dialect) -> bytes:
    """The octets of `frame` in `dialect`.

    `content-length` is written by us, on frames that may have a body. A line feed or carriage
    return that the version cannot express becomes a space.
    """
    writer = OPENING if frame.command in UNESCAPED_COMMANDS else dialect
    headers = [item for item in frame.headers.items() if item[0] != "content-length"]
    if frame.receipt is not None:
        headers.append(("receipt", frame.receipt))
    if frame.command in COMMANDS_WITH_BODY:
        headers.append(("content-length", str(len(frame.body))))
    return b"%b\n%b\n%b\0" % (frame.command.encode(), writer.header_block(headers), frame.body)
