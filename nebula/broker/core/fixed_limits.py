"""Fixed limits: bounds on what peers can do that no setting changes, with number, unit and reason.

They are turns and portions that follow from how fast a machine is, caches, and waits without a reason to
change them. Settings are in `limits`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar


@dataclass(frozen=True, slots=True)
class FixedLimit:
    """A bound that no setting changes.

    Attributes:
        value: the number, in `unit`.
        why: what it counts, and why this number.
        at_it: what happens at it.
    """

    value: float
    unit: str
    why: str
    at_it: str


_fixed_limits: dict[str, FixedLimit] = {}

FIXED_LIMITS: Final[Mapping[str, FixedLimit]] = MappingProxyType(_fixed_limits)
"""All of them by the name of their constant. The reference page of the settings lists them, and a test names
the test of each."""

_N = TypeVar("_N", int, float)


def _fixed(name: str, value: _N, unit: str, why: str, at_it: str) -> _N:
    _fixed_limits[name] = FixedLimit(value, unit, why, at_it)
    return value


# --- connections ---
FLUSH_SECONDS: Final = _fixed(
    "FLUSH_SECONDS",
    5.0,
    "seconds",
    "to read what is still to be written when the connection ends; a slow link needs two",
    "the connection is cut off",
)
LINGER_SECONDS: Final = _fixed(
    "LINGER_SECONDS",
    1.0,
    "seconds",
    "for the peer's own end after the last byte: closing at once could reset the connection under an ERROR",
    "the connection is closed",
)
TLS_LINGER_SECONDS: Final = _fixed(
    "TLS_LINGER_SECONDS",
    5.0,
    "seconds",
    "the same over TLS, which cannot be closed by halves: the transport below may still hold two portions",
    "the connection is closed",
)
ERROR_WAIT_SECONDS: Final = _fixed(
    "ERROR_WAIT_SECONDS",
    5.0,
    "seconds",
    "an ERROR waits for RECEIPTs that wait for the store; a disk that hangs must not keep a faulty "
    "peer connected",
    "the ERROR is sent without them",
)
KEEPALIVE_PROBES: Final = _fixed(
    "KEEPALIVE_PROBES",
    4,
    "probes",
    "a packet or three may get lost",
    "the connection is lost",
)
SUBNET_BITS: Final = _fixed(
    "SUBNET_BITS",
    64,
    "bits",
    "an owner of an IPv6 address owns its subnet (RFC 4291, 2.5.4)",
    "its addresses count as one",
)
REFUSAL_REST_SECONDS: Final = _fixed(
    "REFUSAL_REST_SECONDS",
    0.005,
    "seconds",
    "per refusal for a used-up share: a refusal must not cost others more than a message",
    "the connection is not read",
)
MAX_REFUSAL_REST_SECONDS: Final = _fixed(
    "MAX_REFUSAL_REST_SECONDS",
    0.2,
    "seconds",
    "the longest rest of this kind; heart-beats are still read in time",
    "the connection is read again",
)

# --- turns ---
LONG_READ_BYTES: Final = _fixed(
    "LONG_READ_BYTES",
    128 * 1024,
    "bytes",
    "in one read: the peer has more to send, and uvloop would read 8 MB before it looks at another one",
    "the connection lines up",
)
READ_BEHIND_BYTES: Final = _fixed(
    "READ_BEHIND_BYTES",
    4 * 1024,
    "bytes",
    "the same while large bodies wait to be written",
    "the connection lines up",
)
LONG_READS_AT_ONCE: Final = _fixed(
    "LONG_READS_AT_ONCE",
    4,
    "reads",
    "connections taken from the line in a turn of the loop: others wait for one MB at most",
    "the rest waits for the next turn",
)
TURN_SECONDS: Final = _fixed(
    "TURN_SECONDS",
    0.004,
    "seconds",
    "of work with frames that waited, in a turn of the loop",
    "the rest waits for the next turn",
)
SHORT_TURN_SECONDS: Final = _fixed(
    "SHORT_TURN_SECONDS",
    0.0005,
    "seconds",
    "of work with one read while others are at work: a request waits for four such turns",
    "the rest waits for the next turn",
)
AT_WORK_SECONDS: Final = _fixed(
    "AT_WORK_SECONDS",
    0.1,
    "seconds",
    "since another connection was read: only then are turns short",
    "turns are long again",
)
LONG_WRITES_BYTES: Final = _fixed(
    "LONG_WRITES_BYTES",
    4 * 1024 * 1024,
    "bytes",
    "of large outboxes in a turn of the loop; the kernel takes a GB/s or less",
    "the rest is written in later turns",
)
SLICE_BYTES: Final = _fixed(
    "SLICE_BYTES",
    32 * 1024,
    "bytes",
    "given to the parser at once: frames cost many times their bytes, and those behind one that waits"
    " are kept",
    "the rest stays unparsed",
)
FRAMES_AT_ONCE: Final = _fixed(
    "FRAMES_AT_ONCE",
    1500,
    "frames",
    "of one read: some milliseconds of work",
    "the connection lines up",
)
SLICES_AT_ONCE: Final = _fixed(
    "SLICES_AT_ONCE",
    8,
    "slices",
    "of one read that hold frames, as heads may be large; a WebSocket message may have some MB",
    "the connection lines up",
)
FRAMES_BETWEEN_LOOKS: Final = _fixed(
    "FRAMES_BETWEEN_LOOKS",
    8,
    "frames",
    "handled between two looks at the clock while others are at work",
    "the clock is looked at",
)
LARGE_BODY_BYTES: Final = _fixed(
    "LARGE_BODY_BYTES",
    64 * 1024,
    "bytes",
    "from here on a body is handed on without a copy: below, copying is cheaper than one more write",
    "no copy, and large writes take turns",
)

# --- HTTP and WebSocket ---
MAX_HTTP_HEAD_BYTES: Final = _fixed(
    "MAX_HTTP_HEAD_BYTES",
    16 * 1024,
    "bytes",
    "of a request's head: a browser's cookies for this host fit",
    "status 431 or 400, and close",
)
HTTP_PORTION_BYTES: Final = _fixed(
    "HTTP_PORTION_BYTES",
    64 * 1024,
    "bytes",
    "of a reply handed to the transport at once, to be read within `connect_timeout`",
    "the peer is cut off",
)
HTTP_CHUNKS_AT_ONCE: Final = _fixed(
    "HTTP_CHUNKS_AT_ONCE",
    400,
    "chunks",
    "of one read; a chunk takes six bytes and eight microseconds at least, and a read may hold 43,000",
    "the rest waits for the next turn",
)
HTTP_BODIES: Final = _fixed(
    "HTTP_BODIES",
    64,
    "bodies",
    "of the largest size, posted to a listener and not replied to yet; half of them of one principal",
    "status 503",
)
WEBSOCKET_FRAMES_AT_ONCE: Final = _fixed(
    "WEBSOCKET_FRAMES_AT_ONCE",
    400,
    "frames",
    "of one read; a frame takes six bytes and ten microseconds at least, and a read may hold 43,000",
    "the connection lines up",
)
WEBSOCKET_OPENING_BYTES: Final = _fixed(
    "WEBSOCKET_OPENING_BYTES",
    256 * 1024,
    "bytes",
    "before CONNECTED, in addition to `max_opening_frame_bytes`: uvloop reads as much at once behind "
    "a CONNECT",
    "close code 1009",
)
METRICS_SECONDS: Final = _fixed(
    "METRICS_SECONDS",
    1.0,
    "seconds",
    "`/metrics` walks over all destinations, once in this time however many ask",
    "the same page again",
)

# --- authentication ---
HASHES_AT_ONCE: Final = _fixed(
    "HASHES_AT_ONCE",
    2,
    "hashes",
    "of passcodes; an argon2 hash takes 64 MiB and a core",
    "the others wait",
)
MAX_PASSCODE_WAIT_SECONDS: Final = _fixed(
    "MAX_PASSCODE_WAIT_SECONDS",
    10.0,
    "seconds",
    "for the check of a passcode: the line is as long as `verifications_per_second` allows in this time",
    "the login is refused",
)
MAX_REMEMBERED_PASSCODES: Final = _fixed(
    "MAX_REMEMBERED_PASSCODES",
    4096,
    "passcodes",
    "known to be good, so that clients that reconnect are not hashed again; some 300 bytes each",
    "the oldest is hashed again",
)
TOKEN_LEEWAY_SECONDS: Final = _fixed(
    "TOKEN_LEEWAY_SECONDS",
    10.0,
    "seconds",
    "clocks of those who make tokens differ",
    "the token has expired",
)

# --- names and patterns ---
MAX_GLOB_CHARACTERS: Final = _fixed(
    "MAX_GLOB_CHARACTERS",
    512,
    "characters",
    "a name of 8 KiB against the worst glob within these takes some milliseconds",
    "ERROR and close",
)
MAX_GLOB_STARS: Final = _fixed(
    "MAX_GLOB_STARS",
    32,
    "stars",
    "the same",
    "ERROR and close",
)
MAX_KNOWN_DESTINATIONS: Final = _fixed(
    "MAX_KNOWN_DESTINATIONS",
    100_000,
    "names",
    "whose matching globs are remembered",
    "the oldest is matched anew",
)
MAX_KNOWN_MATCHES: Final = _fixed(
    "MAX_KNOWN_MATCHES",
    4_000_000,
    "matches",
    "of all remembered names; 64 MB",
    "the oldest is matched anew",
)
MAX_KNOWN_CHARACTERS: Final = _fixed(
    "MAX_KNOWN_CHARACTERS",
    256,
    "characters",
    "of a remembered name: senders choose them",
    "the name is matched each time",
)
MAX_REMEMBERED_ANSWERS: Final = _fixed(
    "MAX_REMEMBERED_ANSWERS",
    10_000,
    "answers",
    "about rights of one principal; some MB",
    "they are worked out anew",
)
MAX_REMEMBERED_CHARACTERS: Final = _fixed(
    "MAX_REMEMBERED_CHARACTERS",
    256,
    "characters",
    "of a name in such an answer",
    "it is worked out each time",
)

# --- the core's work in one go ---
EXPIRED_AT_ONCE: Final = _fixed(
    "EXPIRED_AT_ONCE",
    20_000,
    "messages",
    "looked at because they may have expired, over all queues: some 10 ms",
    "the others at the next look",
)
PUT_BACK_AT_ONCE: Final = _fixed(
    "PUT_BACK_AT_ONCE",
    5_000,
    "messages",
    "postponed ones that are due, over all queues: some 10 ms",
    "the others at the next look",
)
DUE_AT_ONCE: Final = _fixed(
    "DUE_AT_ONCE",
    5_000,
    "messages",
    "delayed ones that are due: some 10 ms",
    "the others at the next look",
)
SNAPSHOT_DESTINATIONS_AT_ONCE: Final = _fixed(
    "SNAPSHOT_DESTINATIONS_AT_ONCE",
    2_000,
    "destinations",
    "looked at for a snapshot: some milliseconds",
    "the connection lines up",
)

# --- requests and replies ---
REPLY_RIGHT_SECONDS: Final = _fixed(
    "REPLY_RIGHT_SECONDS",
    3600.0,
    "seconds",
    "in which a request without a time to live may be replied to",
    "the reply is `rejected-unauthorised`",
)
MAX_REPLY_RIGHTS: Final = _fixed(
    "MAX_REPLY_RIGHTS",
    100_000,
    "rights",
    "of one connection: a consumer that never replies collects them",
    "the oldest goes",
)
RETIRED_INBOX_SECONDS: Final = _fixed(
    "RETIRED_INBOX_SECONDS",
    3600.0,
    "seconds",
    "the name of an inbox that is gone is not given to another principal",
    "it may be used again",
)
MAX_RETIRED_INBOXES: Final = _fixed(
    "MAX_RETIRED_INBOXES",
    100_000,
    "names",
    "of inboxes that are gone; some 150 bytes each",
    "the oldest of the principal with most goes",
)
MAX_OWN_REQUEST_BYTES: Final = _fixed(
    "MAX_OWN_REQUEST_BYTES",
    1024 * 1024,
    "bytes",
    "of requests to the broker itself that wait, of one connection",
    "`rejected-full`",
)
