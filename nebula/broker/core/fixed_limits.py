"""Fixed limits: bounds on what peers can do that no setting changes.

They are turns and portions that follow from how fast a machine is, caches, and waits without a reason to
change them. Settings are in `limits`.

The comment of each says its unit, why this number, and what happens at it. The reference page of the settings
is made from these comments.
"""

from __future__ import annotations

from typing import Final

from nebula import milliseconds

# --- connections ---

# Seconds: to read what is still to be written when the connection ends; a slow link needs two.
# At it: the connection is cut off.
FLUSH_SECONDS: Final = 5.0

# Seconds: for the peer's own end after the last byte: closing at once could reset the connection under an
# ERROR.
# At it: the connection is closed.
LINGER_SECONDS: Final = 1.0

# Seconds: the same over TLS, which cannot be closed by halves: the transport below may still hold two
# portions.
# At it: the connection is closed.
TLS_LINGER_SECONDS: Final = 5.0

# Seconds: an ERROR waits for RECEIPTs that wait for the store; a disk that hangs must not keep a faulty peer
# connected.
# At it: the ERROR is sent without them.
ERROR_WAIT_SECONDS: Final = 5.0

# Probes: a packet or three may get lost.
# At it: the connection is lost.
KEEPALIVE_PROBES: Final = 4

# Bits: an owner of an IPv6 address owns its subnet (RFC 4291, 2.5.4).
# At it: its addresses count as one.
SUBNET_BITS: Final = 64

# Seconds: pause in reading after each refusal for a used-up share, so that refused senders do not slow
# others.
# At it: the connection is not read.
REFUSAL_REST_SECONDS: Final = 0.005

# Seconds: the longest pause of this kind; heart-beats are still read in time.
# At it: the connection is read again.
MAX_REFUSAL_REST_SECONDS: Final = 0.2

# Seconds: from the ERROR that ends all connections when the broker stops, until those that are left are cut
# off: a supervisor waits for the broker meanwhile.
# At it: the connection is cut off.
STOP_SECONDS: Final = 0.5

# --- turns ---

# Bytes: in one read: the peer has more to send, and uvloop would read 8 MB before it looks at another one.
# At it: the connection waits its turn.
LONG_READ_BYTES: Final = 128 * 1024

# Bytes: as `LONG_READ_BYTES`, while large bodies wait to be written to any connection.
# At it: the connection waits its turn.
READ_BEHIND_BYTES: Final = 4 * 1024

# Reads: connections from the queue of those that wait, in a turn of the loop: others wait for one MB at most.
# At it: the rest waits for the next turn.
LONG_READS_AT_ONCE: Final = 4

# Seconds: of work with frames that waited, in a turn of the loop.
# At it: the rest waits for the next turn.
TURN_SECONDS: Final = 0.004

# Seconds: of work with one read while others are at work: a request waits for four such turns.
# At it: the rest waits for the next turn.
SHORT_TURN_SECONDS: Final = 0.0005

# Seconds: since another connection was read: only then are turns short.
# At it: turns are long again.
AT_WORK_SECONDS: Final = 0.1

# Bytes: of large outboxes in a turn of the loop; the kernel takes a GB/s or less.
# At it: the rest is written in later turns.
LONG_WRITES_BYTES: Final = 4 * 1024 * 1024

# Bytes: given to the parser at once: frames cost many times their bytes, and those behind one that waits are
# kept.
# At it: the rest stays unparsed.
SLICE_BYTES: Final = 32 * 1024

# Frames: of one read: some milliseconds of work.
# At it: the connection waits its turn.
FRAMES_AT_ONCE: Final = 1500

# Slices: of one read that hold frames, as heads may be large; a WebSocket message may have some MB.
# At it: the connection waits its turn.
SLICES_AT_ONCE: Final = 8

# Frames: handled between two checks of the time, while other connections are at work.
# At it: the time is checked.
FRAMES_BETWEEN_LOOKS: Final = 8

# Messages, subscriptions or actions: that one frame concerns before it counts as much work: some hundred
# microseconds.
# At it: the connection waits its turn after that frame.
LONG_FRAME_ACTIONS: Final = 100

# Bytes: from here on a body is handed on without a copy: below, copying is cheaper than one more write.
# At it: no copy, and large writes take turns.
LARGE_BODY_BYTES: Final = 64 * 1024

# --- HTTP and WebSocket ---

# Bytes: of a request's head: a browser's cookies for this host fit.
# At it: status 431 or 400, and close.
MAX_HTTP_HEAD_BYTES: Final = 16 * 1024

# Bytes: of a reply handed to the transport at once, to be read within `connect_timeout`.
# At it: the peer is cut off.
HTTP_PORTION_BYTES: Final = 64 * 1024

# Chunks: of one read; a chunk takes six bytes and eight microseconds at least, and a read may hold 43,000.
# At it: the rest waits for the next turn.
HTTP_CHUNKS_AT_ONCE: Final = 400

# Bodies: of the largest size, posted to a listener and not replied to yet; half of them of one principal.
# At it: status 503.
HTTP_BODIES: Final = 64

# Frames: of one read; a frame takes six bytes and ten microseconds at least, and a read may hold 43,000.
# At it: the connection waits its turn.
WEBSOCKET_FRAMES_AT_ONCE: Final = 400

# Bytes: before CONNECTED, in addition to `max_opening_frame_bytes`: uvloop reads as much at once behind a
# CONNECT.
# At it: close code 1009.
WEBSOCKET_OPENING_BYTES: Final = 256 * 1024

# Bytes: given to the codec at once, so that a turn can end after `WEBSOCKET_FRAMES_AT_ONCE`: a read of 256 kB
# may hold a hundred times as many.
# At it: the rest stays unparsed.
WEBSOCKET_PORTION_BYTES: Final = 4 * 1024

# Types: of an Accept header; browsers name fewer than ten.
# At it: the others are not considered.
MAX_ACCEPTED_TYPES: Final = 20

# Seconds: `/metrics` walks over all destinations, once in this time however many ask.
# At it: the same page again.
METRICS_SECONDS: Final = 1.0

# --- frames, and what is said about them ---

# Digits: of a number in a header, times too: a double still has all of them, and none needs more.
# At it: the header is invalid.
MAX_NUMBER_DIGITS: Final = milliseconds.MOST_DIGITS

# Characters: of an ERROR's `message` header; the body has the whole text.
# At it: the header is cut.
MAX_ERROR_MESSAGE_CHARACTERS: Final = 200

# Characters: of a name in the log that a peer has chosen; it may be as long as a header line.
# At it: it is cut.
MAX_LOGGED_CHARACTERS: Final = 200

# Lines: of one event in a second. Ten thousand connects a second would take longer to log than to serve.
# At it: the others are counted in one line.
MAX_LINES_OF_ONE_EVENT: Final = 5

# Refusals: kept until the operator's log takes them, once a second.
# At it: they are counted in one line.
MAX_KEPT_REFUSALS: Final = 4

# --- authentication ---

# Hashes: of passcodes; an argon2 hash takes 64 MiB and a core.
# At it: the others wait.
HASHES_AT_ONCE: Final = 2

# Seconds: for the check of a passcode: the line is as long as `verifications_per_second` allows in this time.
# At it: the login is refused.
MAX_PASSCODE_WAIT_SECONDS: Final = 10.0

# Passcodes: known to be good, so that clients that reconnect are not hashed again; some 300 bytes each.
# At it: the oldest is hashed again.
MAX_REMEMBERED_PASSCODES: Final = 4096

# Seconds: clocks of those who make tokens differ.
# At it: the token has expired.
TOKEN_LEEWAY_SECONDS: Final = 10.0

# --- names and patterns ---

# Names: whose matching globs are remembered.
# At it: the oldest is matched anew.
MAX_KNOWN_DESTINATIONS: Final = 100_000

# Matches: of all remembered names; 64 MB.
# At it: the oldest is matched anew.
MAX_KNOWN_MATCHES: Final = 4_000_000

# Characters: of a remembered name: senders choose them.
# At it: the name is matched each time.
MAX_KNOWN_CHARACTERS: Final = 256

# Globs: added or removed since a destination was last matched, that are tried on it one by one.
# At it: the destination is matched anew.
MAX_LATEST_GLOBS: Final = 64

# Bytes: of the latest headers of a connection that later messages may share: more than a parser remembers.
# At it: the oldest are shared no more.
MAX_KNOWN_HEAD_BYTES: Final = 64 * 1024

# Characters: of such headers: no parser remembers longer ones, so they are new with each SEND.
# At it: they are not shared.
MAX_KNOWN_HEAD_CHARACTERS: Final = 1024

# Answers: about rights of one principal; some MB.
# At it: they are worked out anew.
MAX_REMEMBERED_RIGHTS: Final = 10_000

# Characters: of a name in such an answer.
# At it: it is worked out each time.
MAX_REMEMBERED_CHARACTERS: Final = 256

# --- the core's work in one go ---

# Messages: checked for expiry at a time, over all queues: some 10 ms.
# At it: the others are checked next time.
EXPIRED_AT_ONCE: Final = 20_000

# Messages: postponed ones that are due, put back at a time, over all queues: some 10 ms.
# At it: the others are put back next time.
PUT_BACK_AT_ONCE: Final = 5_000

# Messages: delayed ones that are due, put into queues at a time: some 10 ms.
# At it: the others follow next time.
DUE_AT_ONCE: Final = 5_000

# Destinations: looked at for a snapshot: some milliseconds.
# At it: the connection waits its turn.
SNAPSHOT_DESTINATIONS_AT_ONCE: Final = 2_000

# --- requests and replies ---

# Seconds: in which a request without a time to live may be replied to.
# At it: the reply is `rejected-unauthorised`.
REPLY_RIGHT_SECONDS: Final = 3600.0

# Rights: of one connection: a consumer that never replies collects them.
# At it: the oldest goes.
MAX_REPLY_RIGHTS: Final = 100_000

# Seconds: the name of an inbox that is gone is not given to another principal.
# At it: it may be used again.
RETIRED_INBOX_SECONDS: Final = 3600.0

# Names: of inboxes that are gone; some 150 bytes each.
# At it: the oldest of the principal with most goes.
MAX_RETIRED_INBOXES: Final = 100_000

# Bytes: of requests to the broker itself that wait, of one connection.
# At it: `rejected-full`.
MAX_OWN_REQUEST_BYTES: Final = 1024 * 1024
