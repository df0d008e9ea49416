"""Limits of what peers can use, as settings: number, unit, why this number, and what happens at it.

Bounds that no setting changes are in `fixed_limits`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from nebula.stomp.frames import FrameLimits

_FRAMES = FrameLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What peers may use at most. The comment of each says why this number, and what happens at it.

    Raises:
        ValueError: numbers that contradict each other.
    """

    # a peer that has not connected yet gets little; RabbitMQ has the same.
    # At it: ERROR and close.
    max_opening_frame_bytes: int = _FRAMES.max_opening_frame_bytes
    # RabbitMQ has 100; ours adds its own to them.
    # At it: ERROR and close.
    max_headers: int = _FRAMES.max_headers
    # a token or a trace fits.
    # At it: ERROR and close.
    max_header_line_bytes: int = _FRAMES.max_header_line_bytes
    # of a frame's command and headers together; parsing one that consists of escapes takes a millisecond.
    # At it: ERROR and close.
    max_head_bytes: int = _FRAMES.max_head_bytes
    # NebulousStomp's tests push half a MiB; large results belong in files.
    # At it: ERROR and close.
    max_body_bytes: int = _FRAMES.max_body_bytes
    # seconds for a TLS handshake, then for CONNECT or an HTTP request, then for each 64 KiB of an HTTP
    # answer; a slow link needs three.
    # At it: ERROR and close; in a handshake, the end; over HTTP, status 408; in an answer, the end.
    connect_timeout: float = 10.0
    # seconds from a frame's first byte to its last; at 70 KB/s the largest body takes as long.
    # At it: ERROR and close.
    frame_timeout: float = 120.0
    # of silence, then TCP asks whether the peer is still there: not all clients send heart-beats.
    # At it: without four answers, a quarter of it apart each, the connection is lost.
    keepalive_seconds: float = 60.0
    # some 10 KB each; the process needs as many files.
    # At it: ERROR and close; before a TLS handshake, close.
    max_connections: int = 10_000
    # of one address, or one IPv6 subnet (/64), that are anonymous or have not authenticated: half, so that
    # others can connect.
    # At it: a new one takes the place of one that has not authenticated, else ERROR and close; before a TLS
    # handshake, close.
    max_connections_per_address: int = 5_000
    # HTTP connections that are no calls and no WebSockets; each holds a file.
    # At it: close.
    max_http_requests: int = 1_000
    # calls of a listener that wait for their answers, and streams and results that are being read: each of
    # these as long as it lasts; half of them of one address, and of one principal; apart from
    # max_http_requests, so that slow calls keep no probe out.
    # At it: status 503.
    max_http_calls: int = 1_000
    # of a listener's answers that were not read to their end; eight of the largest.
    # At it: who holds most is cut off.
    max_http_unread_bytes: int = 64 * 1024 * 1024
    # of what is posted to `/call/`; of a listener's bodies that are not answered yet, 64 of that size, half
    # of them of one principal, or of one address of anonymous peers.
    # At it: status 413; beyond that, status 503.
    max_http_body_bytes: int = 1024 * 1024
    # per connection; a subscription costs about 1 KB.
    # At it: ERROR and close.
    max_subscriptions: int = 1_000
    # of all connections; with max_durable_subscriptions half a GB.
    # At it: ERROR and close.
    max_subscriptions_in_all: int = 500_000
    # different ones; each takes some 7 KB, and microseconds at each name that was not sent to before.
    # At it: ERROR and close.
    max_globs: int = 10_000
    # of a name; globs take time in proportion to it, and it is kept.
    # At it: ERROR and close.
    max_destination_characters: int = 1_024
    # of each identifier that a peer chooses and the broker keeps: client-ids, ids of subscriptions, names of
    # transactions, `dedup-id`, `neb-reply-to` and `neb-reply-id`; a ULID, a digest or a path fits.
    # At it: ERROR and close; on SEND `rejected-invalid`.
    max_identifier_characters: int = 256
    # covers a round trip at full rate without hoarding.
    # At it: the queue waits for ACKs.
    default_prefetch: int = 1_000
    # un-ACKed messages per subscription; a recorder syncs in groups.
    # At it: it is capped.
    max_prefetch: int = 100_000
    # per connection; enough to fill a socket, little enough to be fair.
    # At it: queues stop dispatching to it until it has been written.
    outbox_high_water_bytes: int = 256 * 1024
    # per connection; a fan-out peer may be slow for a moment, not for ever.
    # At it: the connection is ended as too slow.
    max_outbox_bytes: int = 16 * 1024 * 1024
    # outboxes, write buffers and frames that are not whole or wait, of all connections together; 2,000
    # consumers that are as slow as they like.
    # At it: who holds most is ended first, as too slow or too large.
    max_transit_bytes: int = 512 * 1024 * 1024
    # for peers to read what was told them, and for hosted services to answer, at SIGTERM.
    # At it: the others are ended without a word.
    drain_seconds: float = 5.0
    # left on the store's disk: the broker can still take things out, and stop well.
    # At it: persistent SENDs and last values are `rejected-full`; consumers go on.
    min_free_disk_bytes: int = 256 * 1024 * 1024
    # of messages that the store has still to write: a tenth of a second's work.
    # At it: a publisher that consumes nothing is read again when the store has caught up.
    max_commit_backlog_bytes: int = 16 * 1024 * 1024
    # waiting and un-ACKed ones of one queue.
    # At it: the sender waits, or `rejected-full`.
    max_queue_messages: int = 10_000_000
    # of one queue, in memory and on disk, each message counted with what keeping it costs.
    # At it: the sender waits, or `rejected-full`.
    max_queue_bytes: int = 8 * 1024 * 1024 * 1024
    # of one queue in memory, counted likewise; persistent messages beyond a window are on disk alone.
    # At it: the sender waits, or `rejected-full`; and no more is read from disk until consumers ACK.
    max_queue_memory_bytes: int = 256 * 1024 * 1024
    # of one queue in memory: some 8,000 small messages, and a page of half as many is read in a few ms.
    # At it: persistent messages beyond it are on disk alone, until it is their turn.
    queue_window_bytes: int = 4 * 1024 * 1024
    # of all queues, last values and open transactions together, counted likewise.
    # At it: the sender waits, or `rejected-full`.
    max_memory_bytes: int = 1024 * 1024 * 1024
    # a consumer's hiccup passes; a dead one must not stop its senders.
    # At it: `rejected-full`.
    max_pause_seconds: float = 5.0
    # above a responder's max_attempts of 3.
    # At it: the message goes to the dead-letter queue.
    max_deliveries: int = 10
    # with `delay` or `deliver-at`; they wait in memory, counted there.
    # At it: `rejected-full`.
    max_delayed_messages: int = 100_000
    # of all destinations together; some 900 bytes each.
    # At it: a principal's own oldest may be used again.
    max_dedup_ids: int = 100_000
    # a sender that was cut off has sent again by then.
    # At it: a `dedup-id` may be used again.
    dedup_seconds: float = 300.0
    # waiting at `/queue/nebula.broker`, of those who may call its verbs, and as many of all others: they are
    # answered within a second or so.
    # At it: `rejected-full`.
    max_own_requests: int = 1_000
    # waiting there, of one connection; with 1 MiB together at most.
    # At it: `rejected-full`.
    max_own_requests_per_session: int = 64
    # open ones of one connection.
    # At it: ERROR and close.
    max_transactions: int = 100
    # of one transaction; a COMMIT is done in one go.
    # At it: ERROR and close.
    max_transaction_frames: int = 10_000
    # of all open ones of one connection: two bodies of the largest size.
    # At it: ERROR and close.
    max_transaction_bytes: int = 16 * 1024 * 1024
    # last values of one connection; a reader that ACKs needs few.
    # At it: last values wait for ACKs.
    max_unacked_values: int = 1_000
    # each keeps what its subscriptions have not had.
    # At it: ERROR and close.
    max_durable_sessions: int = 10_000
    # of all sessions together; some 1.3 KB each.
    # At it: ERROR and close.
    max_durable_subscriptions: int = 100_000
    # a week's holiday of a client.
    # At it: its durable subscriptions are forgotten.
    session_expiry_seconds: float = 7 * 86_400.0
    # of one connection; a client has one, a bridge a few.
    # At it: ERROR and close.
    max_inboxes: int = 64
    # a month, for `delay` and `deliver-at`: schedule what waits longer elsewhere.
    # At it: `rejected-invalid`.
    max_delay_seconds: float = 30 * 86_400.0
    # fraction of each bound of the whole broker that a single principal may use; with the default, each
    # principal may use up to three times what is still free, so that a part always stays free.
    # At it: more is refused, or makes room.
    principal_share: float = 0.75
    # fraction of each bound of the whole broker that is kept for principals with a right to call the broker's
    # verbs, so that they can work when everything else is used up.
    # At it: others have that much less.
    operator_reserve: float = 0.05
    # queues, topics and last values that hold or feed something.
    # At it: `rejected-full`, or ERROR.
    max_destinations: int = 100_000

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
