"""STOMP frames, and limits of their size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nebula.stomp import header_lines

CLIENT_COMMANDS = frozenset(
    {"SEND", "ACK", "NACK", "SUBSCRIBE", "UNSUBSCRIBE", "BEGIN", "COMMIT", "ABORT", "DISCONNECT"}
    | {"CONNECT", "STOMP"}
)
SERVER_COMMANDS = frozenset({"CONNECTED", "MESSAGE", "RECEIPT", "ERROR"})

# A.1; STOMP 1.1 and 1.2, "Body": all other frames MUST NOT have one.
COMMANDS_WITH_BODY = frozenset({"SEND", "MESSAGE", "ERROR"})

# A.2; STOMP 1.2, "Value Encoding": these are not escaped, so that 1.0 peers can read them. STOMP is another
# name of CONNECT and is read like it.
UNESCAPED_COMMANDS = frozenset({"CONNECT", "STOMP", "CONNECTED"})


class Memo:
    """A place for what the layer above derives from headers, so that it does so once for many frames.

    Attributes:
        value: None until that layer sets it.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None


class Frame:
    """One STOMP frame.

    Attributes:
        command: SEND, MESSAGE, …
        headers: by name, unescaped, without `receipt`.
        body: bytes, possibly empty.
        receipt: value of the `receipt` header, or None.
        unread: further headers, as lines that were not read; see `nebula.stomp.header_lines`. Empty where
            the parser reads all headers.
        memo: shared by frames that share `headers`; None where frames share none.

    Mutable and without checks, because the parser makes one for each frame. Not a dataclass: its `__init__`
    would be interpreted where this one is compiled.

    `receipt` and `unread` are not among `headers`: they differ from frame to frame, and without them most
    frames of a sender share one `headers`.
    """

    __slots__ = ("body", "command", "headers", "memo", "receipt", "unread")

    def __init__(
        self,
        command: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        receipt: str | None = None,
        unread: bytes = b"",
        memo: Memo | None = None,
    ) -> None:
        self.command, self.headers, self.body = command, headers, body
        self.receipt, self.unread, self.memo = receipt, unread, memo

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Frame):
            return NotImplemented
        return self._parts() == other._parts()

    def _parts(self) -> tuple[object, ...]:
        return self.command, self.all_headers(), self.body, self.receipt

    def all_headers(self) -> dict[str, str]:
        """The headers, with those that are `unread` among them. Of repeated ones the first counts."""
        fields = dict(self.headers)
        for name, value in header_lines.read(self.unread):
            fields.setdefault(name, value)
        return fields

    # `__eq__` looks at `all_headers`: whether a header was read is no part of what a frame says.
    __hash__ = None  # type: ignore[assignment]  # a value with a dict inside

    def __repr__(self) -> str:
        receipt = f", receipt={self.receipt!r}" if self.receipt is not None else ""
        return f"Frame({self.command!r}, {self.all_headers()!r}, {self.body!r}{receipt})"


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """Maximum sizes of one frame (A.5). Checked before anything is buffered.

    For comparison, RabbitMQ has 100 headers, 100 KiB for a header, 100 MiB for a body, and 64 KiB before
    authentication. NebulousStomp's own tests send bodies of half a MiB.
    """

    max_headers: int = 128
    max_header_line_bytes: int = 16 * 1024
    max_body_bytes: int = 8 * 1024 * 1024
    max_opening_frame_bytes: int = 64 * 1024
    # A head is read at once. One that consists of escapes takes about 15 ns per byte.
    max_head_bytes: int = 64 * 1024
