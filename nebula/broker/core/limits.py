"""Limits of what peers can use, as settings: number, unit, why this number, and what happens at it.

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
        ValueError: numbers that contradict each other.
    """

    max_opening_frame_bytes: int = _limit(
        _FRAMES.max_opening_frame_bytes,
        "who has not connected yet gets little; RabbitMQ has the same",
        "ERROR and close",
    )
    max_headers: int = _limit(
        _FRAMES.max_headers, "RabbitMQ has 100; ours adds its own to them", "ERROR and close"
    )
    max_header_line_bytes: int = _limit(
        _FRAMES.max_header_line_bytes, "a token or a trace fits", "ERROR and close"
    )
    max_head_bytes: int = _limit(
        _FRAMES.max_head_bytes,
        "of a frame's command and headers together; parsing one that consists of escapes takes a millisecond",
        "ERROR and close",
    )
    max_body_bytes: int = _limit(
        _FRAMES.max_body_bytes,
        "NebulousStomp's tests push half a MiB; large results belong in files",
        "ERROR and close",
    )
    connect_timeout: float = _limit(
        10.0,
        "seconds for a TLS handshake, then for CONNECT or an HTTP request, then for each 64 KiB of an HTTP"
        " answer; a slow link needs three",
        "ERROR and close; in a handshake, the end; over HTTP, status 408; in an answer, the end",
    )
    frame_timeout: float = _limit(
        120.0,
        "seconds from a frame's first octet to its last; at 70 KB/s the largest body takes as long",
        "ERROR and close",
    )
    keepalive_seconds: float = _limit(
        60.0,
        "of silence, then TCP asks whether the peer is still there: not all clients send heart-beats",
        "without four answers, a quarter of it apart each, the connection is lost",
    )
    max_connections: int = _limit(
        10_000,
        "some 10 KB each; the process needs as many files",
        "ERROR and close; before a TLS handshake, close",
    )
    max_connections_per_address: int = _limit(
        5_000,
        "of one address, or one IPv6 subnet (/64), that are anonymous or have not authenticated: half, so"
        " that others can connect",
        "a new one takes the place of one that has not authenticated, else ERROR and close; before a TLS"
        " handshake, close",
    )
    max_http_requests: int = _limit(
        1_000, "HTTP connections that are no calls and no WebSockets; each holds a file", "close"
    )
    max_http_calls: int = _limit(
        1_000,
        "calls of a listener that wait for their answers, and streams and results that are being read: each"
        " of these as long as it lasts; half of them of one address, and of one principal; beside"
        " max_http_requests, so that slow calls keep no probe out",
        "status 503",
    )
    max_http_unread_bytes: int = _limit(
        64 * 1024 * 1024,
        "of a listener's answers that were not read to their end; eight of the largest",
        "who holds most is cut off",
    )
    max_http_body_bytes: int = _limit(
        1024 * 1024,
        "of what is posted to `/call/`; of a listener's bodies that are not answered yet, 64 of that size,"
        " half of them of one principal, or of one address of anonymous peers",
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
        "different ones; each takes some 7 KB, and microseconds at each name that was not sent to before",
        "ERROR and close",
    )
    max_destination_characters: int = _limit(
        1_024, "of a name; globs take time in proportion to it, and it is kept", "ERROR and close"
    )
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
        100_000, "un-ACKed messages per subscription; a recorder syncs in groups", "it is capped"
    )
    outbox_high_water_bytes: int = _limit(
        256 * 1024,
        "per connection; enough to fill a socket, little enough to be fair",
        "queues stop dispatching to it until it has been written",
    )
    max_outbox_bytes: int = _limit(
        16 * 1024 * 1024,
        "per connection; a fan-out peer may be slow for a moment, not for ever",
        "the connection is ended as too slow",
    )
    max_transit_bytes: int = _limit(
        512 * 1024 * 1024,
        "outboxes, write buffers and frames that are not whole or wait, of all connections together; 2,000"
        " consumers that are as slow as they like",
        "who holds most is ended first, as too slow or too large",
    )
    drain_seconds: float = _limit(
        5.0,
        "for peers to read what was told them, and for hosted services to answer, at SIGTERM",
        "the others are ended without a word",
    )
    min_free_disk_bytes: int = _limit(
        256 * 1024 * 1024,
        "left on the store's disk: the broker can still take things out, and stop well",
        "persistent SENDs and last values are `rejected-full`; consumers go on",
    )
    max_commit_backlog_bytes: int = _limit(
        16 * 1024 * 1024,
        "of messages that the store has still to write: a tenth of a second's work",
        "who sends more of them, and consumes nothing, is read when it has caught up",
    )
    max_queue_messages: int = _limit(
        10_000_000, "waiting and un-ACKed ones of one queue", "the sender waits, or `rejected-full`"
    )
    max_queue_bytes: int = _limit(
        8 * 1024 * 1024 * 1024,
        "of one queue, in memory and on disk, each message counted with what keeping it costs",
        "the sender waits, or `rejected-full`",
    )
    max_queue_memory_bytes: int = _limit(
        256 * 1024 * 1024,
        "of one queue in memory, counted likewise; persistent messages beyond a window are on disk alone",
        "the sender waits, or `rejected-full`; and no more is read from disk for who does not ACK",
    )
    queue_window_bytes: int = _limit(
        4 * 1024 * 1024,
        "of one queue in memory: some 8,000 small messages, and a page of half as many is read in a few ms",
        "persistent messages beyond it are on disk alone, until it is their turn",
    )
    max_memory_bytes: int = _limit(
        1024 * 1024 * 1024,
        "of all queues, last values and open transactions together, counted likewise",
        "the sender waits, or `rejected-full`",
    )
    max_pause_seconds: float = _limit(
        5.0, "a consumer's hiccup passes; a dead one must not stop its senders", "`rejected-full`"
    )
    max_deliveries: int = _limit(
        10, "above a responder's max_attempts of 3", "the message goes to the dead-letter queue"
    )
    max_delayed_messages: int = _limit(
        100_000, "with `delay` or `deliver-at`; they wait in memory, counted there", "`rejected-full`"
    )
    max_dedup_ids: int = _limit(
        100_000,
        "of all destinations together; some 900 bytes each",
        "a principal's own oldest may be used again",
    )
    dedup_seconds: float = _limit(
        300.0, "a sender that was cut off has sent again by then", "a `dedup-id` may be used again"
    )
    max_own_requests: int = _limit(
        1_000,
        "waiting at `/queue/nebula.broker`, of those who may call its verbs, and as many of all others: they"
        " are answered within a second or so",
        "`rejected-full`",
    )
    max_own_requests_per_session: int = _limit(
        64, "waiting there, of one connection; with 1 MiB together at most", "`rejected-full`"
    )
    max_transactions: int = _limit(100, "open ones of one connection", "ERROR and close")
    max_transaction_frames: int = _limit(
        10_000, "of one transaction; a COMMIT is done in one go", "ERROR and close"
    )
    max_transaction_bytes: int = _limit(
        16 * 1024 * 1024,
        "of all open ones of one connection: two bodies of the largest size",
        "ERROR and close",
    )
    max_unacked_values: int = _limit(
        1_000, "last values of one connection; a reader that ACKs needs few", "last values wait for ACKs"
    )
    max_durable_sessions: int = _limit(
        10_000, "each keeps what its subscriptions have not had", "ERROR and close"
    )
    max_durable_subscriptions: int = _limit(
        100_000, "of all sessions together; some 1.3 KB each", "ERROR and close"
    )
    session_expiry_seconds: float = _limit(
        7 * 86_400.0, "a week's holiday of a client", "its durable subscriptions are forgotten"
    )
    max_inboxes: int = _limit(64, "of one connection; a client has one, a bridge a few", "ERROR and close")
    max_delay_seconds: float = _limit(
        30 * 86_400.0,
        "a month, for `delay` and `deliver-at`: schedule what waits longer elsewhere",
        "`rejected-invalid`",
    )
    principal_share: float = _limit(
        0.75,
        "fraction of each bound of the whole broker that a single principal may use; with the default, each"
        " principal may use up to three times what is still free, so that a part always stays free",
        "more is refused, or makes room",
    )
    operator_reserve: float = _limit(
        0.05,
        "fraction of each bound of the whole broker that is kept for principals with a right to call the"
        " broker's verbs, so that they can work when everything else is used up",
        "others have that much less",
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
        """The part that the codec watches."""
        return FrameLimits(
            max_headers=self.max_headers,
            max_header_line_bytes=self.max_header_line_bytes,
            max_body_bytes=self.max_body_bytes,
            max_opening_frame_bytes=self.max_opening_frame_bytes,
            max_head_bytes=self.max_head_bytes,
        )
