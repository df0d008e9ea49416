"""Limits of what peers can use, as settings (A.5): number, unit, why this number, and what happens at it.

Bounds that no setting changes are in `fixed_limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from nebula.stomp.frames import FrameLimits

_FRAMES = FrameLimits()


def _limit(default: Any, why: str, at_it: str) -> Any:
    return field(default=default, metadata={"why": why, "at_it": at_it})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What peers may use at most. Each field's metadata says why this number, and what happens at it.

    Raises:
        ValueError: the numbers contradict each other.
    """

    max_opening_frame_bytes: int = _limit(
        _FRAMES.max_opening_frame_bytes,
        "a peer that has not connected yet gets little; RabbitMQ has the same",
        "ERROR and close",
    )
    max_headers: int = _limit(
        _FRAMES.max_headers, "RabbitMQ has 100; this broker adds some of its own", "ERROR and close"
    )
    max_header_line_bytes: int = _limit(
        _FRAMES.max_header_line_bytes, "a token or a trace fits", "ERROR and close"
    )
    max_head_bytes: int = _limit(
        _FRAMES.max_head_bytes,
        "of a frame's command and headers together; parsing the largest one, all escapes, takes a"
        " millisecond",
        "ERROR and close",
    )
    max_body_bytes: int = _limit(
        _FRAMES.max_body_bytes,
        "NebulousStomp's tests send half a MiB; large results belong in files",
        "ERROR and close",
    )
    connect_timeout: float = _limit(
        10.0,
        "seconds for a TLS handshake, then for CONNECT or an HTTP request, then for each 64 KiB of an HTTP"
        " response; a slow link needs three",
        "ERROR and close; in a handshake or an HTTP response, close; in an HTTP request, status 408",
    )
    frame_timeout: float = _limit(
        120.0,
        "seconds from a frame's first byte to its last; the largest body takes this long at 70 KB/s",
        "ERROR and close",
    )
    keepalive_seconds: float = _limit(
        60.0,
        "seconds of silence, after which TCP probes whether the peer is still there: not all clients send"
        " heart-beats",
        "after four probes without a reply, a quarter of this time apart, the connection is lost",
    )
    max_connections: int = _limit(
        10_000,
        "about 10 KB each; the process needs a file descriptor for each",
        "ERROR and close; before a TLS handshake, close",
    )
    max_connections_per_address: int = _limit(
        5_000,
        "anonymous or unauthenticated connections of one address, or one IPv6 subnet (/64); half of all, so"
        " that others can connect",
        "a new one takes the place of one that has not authenticated, otherwise ERROR and close; before a TLS"
        " handshake, close",
    )
    max_http_requests: int = _limit(
        1_000,
        "HTTP connections, without calls and WebSockets; each needs a file descriptor",
        "close",
    )
    max_http_calls: int = _limit(
        1_000,
        "calls of a listener that wait for their replies, and streams and results that are being read; at"
        " most half of them of one address or principal; not counted in max_http_requests, so that slow"
        " calls do"
        " not keep probes out",
        "status 503",
    )
    max_http_unread_bytes: int = _limit(
        64 * 1024 * 1024,
        "of a listener's responses that were not read to their end; eight of the largest",
        "the largest response of the principal or address that holds most is cut off",
    )
    max_http_body_bytes: int = _limit(
        1024 * 1024,
        "of a request to `/call/`; all requests of a listener without a response may have 64 times as much,"
        " and half of that may be of one principal, or of one address of anonymous peers",
        "status 413; beyond that, status 503",
    )
    max_subscriptions: int = _limit(
        1_000, "per connection; a subscription costs about 1 KB", "ERROR and close"
    )
    max_subscriptions_in_all: int = _limit(
        500_000, "of all connections; with max_durable_subscriptions half a GB", "ERROR and close"
    )
    max_globs: int = _limit(
        10_000,
        "different ones; each takes about 7 KB, and microseconds for each name that was not sent to before",
        "ERROR and close",
    )
    max_destination_characters: int = _limit(
        1_024, "of a name; globs take time in proportion to it, and it is stored", "ERROR and close"
    )
    # G.identifiers
    max_identifier_characters: int = _limit(
        256,
        "of each identifier that a peer chooses and the broker keeps: client-ids, ids of subscriptions, names"
        " of transactions, `dedup-id`, `neb-reply-to` and `neb-reply-id`; a ULID, a digest or a path fits",
        "ERROR and close; on SEND `rejected-invalid`",
    )
    default_prefetch: int = _limit(
        1_000, "covers a round trip at full rate without hoarding", "the queue waits for ACKs"
    )
    max_prefetch: int = _limit(
        100_000, "un-ACKed messages per subscription; a recorder syncs in groups", "larger values are capped"
    )
    outbox_high_water_bytes: int = _limit(
        256 * 1024,
        "per connection; enough to fill a socket, little enough to be fair",
        "queues stop dispatching to it until it has been written",
    )
    max_outbox_bytes: int = _limit(
        16 * 1024 * 1024,
        "per connection; a subscriber of topics may be slow for a moment, but not permanently",
        "the connection is ended as too slow",
    )
    max_transit_bytes: int = _limit(
        512 * 1024 * 1024,
        "outboxes, write buffers, and frames that are incomplete or wait, of all connections together; enough"
        " for 2,000 slow consumers",
        "the largest connections of the principals that hold most are ended",
    )
    drain_seconds: float = _limit(
        5.0,
        "seconds at SIGTERM for peers to read their output, and for hosted services to reply",
        "the other connections are closed without an ERROR",
    )
    min_free_disk_bytes: int = _limit(
        256 * 1024 * 1024,
        "free on the store's disk, so that messages can still be consumed, and the broker can stop cleanly",
        "persistent SENDs and last values are `rejected-full`; consumers go on",
    )
    max_commit_backlog_bytes: int = _limit(
        16 * 1024 * 1024,
        "of messages that the store has not written yet; a tenth of a second's work",
        "connections that only send are not read until the store has caught up",
    )
    max_queue_messages: int = _limit(
        10_000_000, "waiting and un-ACKed messages of one queue", "the sender waits, or `rejected-full`"
    )
    max_queue_bytes: int = _limit(
        8 * 1024 * 1024 * 1024,
        "of one queue, in memory and on disk, with the overhead of each message",
        "the sender waits, or `rejected-full`",
    )
    max_queue_memory_bytes: int = _limit(
        256 * 1024 * 1024,
        "of one queue in memory, counted likewise; persistent messages beyond a window are on disk only",
        "the sender waits, or `rejected-full`; nothing more is read from disk for consumers that do not ACK",
    )
    queue_window_bytes: int = _limit(
        4 * 1024 * 1024,
        "of one queue in memory; about 8,000 small messages, and a page of half as many is read in a few ms",
        "further persistent messages are on disk only, until it is their turn",
    )
    max_memory_bytes: int = _limit(
        1024 * 1024 * 1024,
        "of all queues, last values and open transactions together, counted likewise",
        "the sender waits, or `rejected-full`",
    )
    max_pause_seconds: float = _limit(
        5.0,
        "how long a sender waits for room; a short delay of a consumer passes, a dead one must not stop"
        " senders",
        "`rejected-full`",
    )
    max_deliveries: int = _limit(
        10, "more than a responder's max_attempts of 3", "the message becomes a dead letter"
    )
    max_delayed_messages: int = _limit(
        100_000, "with `delay` or `deliver-at`; they wait in memory and count there", "`rejected-full`"
    )
    max_dedup_ids: int = _limit(
        100_000,
        "of all destinations together; about 900 bytes each",
        "the principal's oldest one is forgotten",
    )
    dedup_seconds: float = _limit(
        300.0, "a sender that lost its connection has sent again by then", "a `dedup-id` may be used again"
    )
    max_own_requests: int = _limit(
        1_000,
        "requests that wait in `/queue/nebula.broker`, of principals that may call its verbs, and as many"
        " of all others; they are handled within about a second",
        "`rejected-full`",
    )
    max_own_requests_per_session: int = _limit(
        64, "requests that wait there, of one connection; together at most 1 MiB", "`rejected-full`"
    )
    max_transactions: int = _limit(100, "open ones of one connection", "ERROR and close")
    max_transaction_frames: int = _limit(
        10_000, "of one transaction; a COMMIT is handled without interruption", "ERROR and close"
    )
    max_transaction_bytes: int = _limit(
        16 * 1024 * 1024,
        "of all open transactions of one connection; two bodies of the largest size",
        "ERROR and close",
    )
    max_unacked_values: int = _limit(
        1_000, "last values per connection; a reader that ACKs needs few", "further last values wait for ACKs"
    )
    max_durable_sessions: int = _limit(
        10_000, "each keeps what its subscriptions have not received", "ERROR and close"
    )
    max_durable_subscriptions: int = _limit(
        100_000, "of all sessions together; about 1.3 KB each", "ERROR and close"
    )
    session_expiry_seconds: float = _limit(
        7 * 86_400.0, "a client may be away for a week", "its durable subscriptions are removed"
    )
    max_inboxes: int = _limit(64, "of one connection; a client has one, a bridge a few", "ERROR and close")
    max_delay_seconds: float = _limit(
        30 * 86_400.0,
        "a month, for `delay` and `deliver-at`; schedule later messages elsewhere",
        "`rejected-invalid`",
    )
    principal_share: float = _limit(
        0.75,
        "fraction of each limit of the whole broker that a single principal may use; with the default, each"
        " principal may use up to three times what is still free, so that a part always stays free",
        "more is refused, or replaces the principal's own",
    )
    operator_reserve: float = _limit(
        0.05,
        "fraction of each limit of the whole broker that is reserved for principals with a right to call the"
        " broker's verbs, so that they can work when everything else is used up",
        "other principals cannot use it",
    )
    max_destinations: int = _limit(
        100_000, "queues, topics and last values that hold or feed something", "`rejected-full`, or ERROR"
    )

    def __post_init__(self) -> None:
        for limit in fields(self):
            if getattr(self, limit.name) <= 0:
                raise ValueError(f"{limit.name} must be above 0")
        if self.principal_share > 1 or self.operator_reserve >= 1:
            raise ValueError("principal_share must not be above 1, and operator_reserve must be below 1")
        relations = (
            ("outbox_high_water_bytes", "max_outbox_bytes"),
            ("max_body_bytes", "max_outbox_bytes"),
            ("max_outbox_bytes", "max_transit_bytes"),
            ("max_body_bytes", "max_queue_bytes"),
            ("max_body_bytes", "max_memory_bytes"),
            ("default_prefetch", "max_prefetch"),
        )
        for smaller, larger in relations:
            if getattr(self, smaller) > getattr(self, larger):
                raise ValueError(f"{smaller} must not be above {larger}")

    @property
    def frames(self) -> FrameLimits:
        """The limits that the codec checks."""
        return FrameLimits(
            max_headers=self.max_headers,
            max_header_line_bytes=self.max_header_line_bytes,
            max_body_bytes=self.max_body_bytes,
            max_opening_frame_bytes=self.max_opening_frame_bytes,
            max_head_bytes=self.max_head_bytes,
        )
