"""Declared events: every line of the broker's log, every counted event, every end of a connection.

The log, the metrics (`nebula_events_total`, `nebula_connections_ended_total`) and the tables of
docs/reference/running.md are all made from this one declaration. An event that is missing here is a line that
no operator can look up and a count that ends up under `other`, so a test compares the names here with those
in the code, in both directions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from nebula.log_events import CRITICAL, DEBUG, ERROR, INFO, WARNING, Event, Level

EVENTS: Final = (
    # --- connections ---
    Event(
        "session opened",
        "a client has connected",
        DEBUG,
        "principal, session, address, version",
        is_counted=True,
    ),
    Event("session closed", "a client that had connected is gone", is_counted=True),
    Event(
        "connection closed",
        "the transport of a connection is closed: [its fields](#the-end-of-a-connection)",
        (Level.DEBUG, Level.INFO, Level.WARNING),
        "reason, detail, principal, session, address, listener, version, duration_seconds, read_frames,"
        " sent_frames, read_bytes, written_bytes, unsent_bytes",
    ),
    Event(
        "connection refused",
        "too many connections; closed before the TLS handshake",
        WARNING,
        "address, reason",
        is_counted=True,
    ),
    Event("peer refused", "a certificate that is denied or has expired", is_counted=True),
    Event("peer ended", "the broker ended a connection for a reason outside its frames", is_counted=True),
    Event(
        "login refused",
        "an HTTP request whose sender did not prove who it is",
        INFO,
        "address",
        is_counted=True,
    ),
    Event("passcode refused", "an unknown login, or a wrong passcode", INFO, "login, is_known"),
    Event("passcode not checked", "too many passcodes wait for their check", WARNING, "login, reason"),
    Event("token refused", "a token that is not valid", (Level.INFO, Level.WARNING), "reason, sub"),
    Event("origin refused", "a web page of this origin may not connect", INFO, "origin, host"),
    Event(
        "connection failed",
        "a bug in the broker; it ends only that connection",
        ERROR,
        "principal, session, exception",
        is_counted=True,
    ),
    # --- HTTP ---
    Event("response cut off", "a response that its reader left unread", WARNING, "reason"),
    Event("reader cut off", "a reader of a stream that reads nothing", INFO, "reason"),
    Event("page failed", "a bug in a page; the request gets status 500", ERROR, "exception"),
    Event("post failed", "a bug in the handler of a request; it gets status 500", ERROR, "exception"),
    Event("stream failed", "a bug in a stream of replies; it ends with an error", ERROR, "exception"),
    # --- messages ---
    Event(
        "request refused",
        "missing rights, or a body that its destination does not accept",
        WARNING,
        "principal, session, what, destination, verdict",
    ),
    Event("further requests refused", "more of them in the same second", WARNING, "count"),
    Event(
        "send rejected without receipt",
        "once per connection and reason: the sender asked for no RECEIPT, so it does not learn that its"
        " messages are rejected. The reason is a [verdict](headers.md#verdicts)",
        WARNING,
        "principal, session, destination, reason",
    ),
    Event(
        "messages dropped",
        "expired, full, no consumer, duplicate, ...",
        WARNING,
        "reason, count, principal, session, destination",
    ),
    Event(
        "messages dead-lettered",
        "messages became dead letters",
        WARNING,
        "reason, count, principal, destination",
    ),
    Event(
        "publishers paused",
        "a queue or the broker's memory is full, and senders are not read until there is room",
        WARNING,
        "reason, count, principal, session, destination",
    ),
    Event(
        "share exceeded",
        "a principal has used up its share of the resource that is the reason",
        WARNING,
        "reason, count, principal, session",
    ),
    Event(
        "sessions expired",
        "sessions ended, with their durable subscriptions",
        WARNING,
        "reason, count, principal, session",
    ),
    # --- the broker itself ---
    Event("messages kept", "the broker starts with a store", INFO, "folder"),
    Event("messages kept in memory only", "the broker starts without a store", INFO),
    Event(
        "disk nearly full",
        "persistent messages are refused from now on (`min_free_disk_bytes`)",
        ERROR,
        "free_bytes, min_free_disk_bytes",
    ),
    Event("disk has room again", "persistent messages are accepted again", WARNING, "free_bytes"),
    Event("store failed", "the broker ends with status 1", CRITICAL, "error"),
    Event(
        "certificate has expired",
        "a certificate of a listener or of a CA, at a start or reload",
        WARNING,
        "file, on",
    ),
    Event("certificate is not valid yet", "likewise", WARNING, "file, until"),
    Event(
        "restart needed",
        "a reload has found settings that [only a restart changes](settings.md#reload)",
        WARNING,
        "settings",
    ),
    Event("service manager not told", "systemd's socket cannot be written", WARNING, "states, error"),
    Event(
        "further events",
        "more of one kind in the same second than are logged",
        (Level.DEBUG, Level.WARNING),
        "what, count, reason",
    ),
)
"""All events of the broker's log, by room."""

COUNTED: Final = tuple(event.name for event in EVENTS if event.is_counted)
"""Events with a series of their own in the metrics."""


class EndReason(StrEnum):
    """Why a connection was closed, as the log says it. `ENDS` has the level and meaning of each."""

    DISCONNECTED = "disconnected"
    LOST = "lost"
    PROTOCOL_ERROR = "protocol error"
    TIMED_OUT = "timed out"
    NOT_ADMITTED = "not admitted"
    TOO_MANY = "too many connections"
    EVICTED = "evicted"
    EXPIRED = "identity expired"
    TOO_OLD = "maximum age"
    TAKEN_OVER = "session taken over"
    TOO_SLOW = "too slow"
    NO_ROOM = "no memory"
    OPERATOR = "operator"
    SHUTDOWN = "shutdown"
    STORE_FAILED = "store failed"
    BUG = "internal error"


@dataclass(frozen=True, slots=True)
class End:
    """What the log and the page say of one `EndReason`.

    Attributes:
        level: of the line. Strangers that never connected are told at debug level instead of info.
        when: a connection ends for it, in Markdown.
    """

    level: Level
    when: str


# Clients come and go: debug. An ERROR may point to a bug in a client: info. The others may need an operator.
ENDS: Final[Mapping[EndReason, End]] = {
    EndReason.DISCONNECTED: End(Level.DEBUG, "the client sent DISCONNECT"),
    EndReason.LOST: End(Level.DEBUG, "the client or the network closed the connection without one"),
    EndReason.PROTOCOL_ERROR: End(
        Level.INFO, "a frame that the protocol or a limit does not allow; detail is the ERROR"
    ),
    EndReason.TIMED_OUT: End(Level.INFO, "no heart-beat, no CONNECT, or no end of a frame in time"),
    EndReason.NOT_ADMITTED: End(
        Level.WARNING, "a certificate or a login that was not accepted, or is no longer valid after a reload"
    ),
    EndReason.TOO_MANY: End(Level.WARNING, "`max_connections` or `max_connections_per_address`"),
    EndReason.EVICTED: End(Level.INFO, "it made room for a new connection before it had authenticated"),
    EndReason.EXPIRED: End(
        Level.WARNING,
        "its [certificate or token has expired](../how-to/certificates.md#when-connections-end)",
    ),
    EndReason.TOO_OLD: End(Level.WARNING, "`max_connection_seconds`"),
    EndReason.TAKEN_OVER: End(Level.WARNING, "another connection has the same client-id"),
    EndReason.TOO_SLOW: End(
        Level.WARNING, "it reads more slowly than messages arrive for it (`max_outbox_bytes`)"
    ),
    EndReason.NO_ROOM: End(
        Level.WARNING, "the in-flight bytes of all connections have reached `max_transit_bytes`"
    ),
    EndReason.OPERATOR: End(Level.WARNING, "an operator has ended it or its session"),
    EndReason.SHUTDOWN: End(Level.INFO, "the broker stops"),
    EndReason.STORE_FAILED: End(Level.INFO, "the store cannot store messages, and the broker ends"),
    EndReason.BUG: End(Level.WARNING, "a bug in the broker; the event `connection failed` has the traceback"),
}

# What the server tells peers at the end of a connection. The core has its own texts.
NO_ROOM: Final = "the broker has no room for what is on its way to and from you"
NOT_ADMITTED: Final = "not admitted"
TOO_OLD: Final = "the connection has reached its greatest age"

# By text, because the core ends sessions with a text for the peer, and knows no `EndReason`.
ENDINGS: Final[Mapping[str, EndReason]] = {
    "an operator has ended the connection": EndReason.OPERATOR,
    "an operator has ended the session": EndReason.OPERATOR,
    "session taken over": EndReason.TAKEN_OVER,
    "too slow": EndReason.TOO_SLOW,
    NO_ROOM: EndReason.NO_ROOM,
    NOT_ADMITTED: EndReason.NOT_ADMITTED,
    TOO_OLD: EndReason.TOO_OLD,
    "your certificate has expired": EndReason.EXPIRED,
    "your token has expired": EndReason.EXPIRED,
}
"""What a peer is told when the broker ends its connection for a reason outside its frames, up to a colon.

These are the series of `nebula_connections_ended_total`. A refused peer learns no more than `NOT_ADMITTED`:
the log has the reason.
"""
