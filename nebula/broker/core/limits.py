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
    # RabbitMQ has 100; this broker adds some of its own.
    # At it: ERROR and close.
    max_headers: int = _FRAMES.max_headers
    # a token or a trace fits.
    # At it: ERROR and close.
    max_header_line_bytes: int = _FRAMES.max_header_line_bytes
    # of a frame's command and headers together; parsing the largest one, all escapes, takes a
    # millisecond.
    # At it: ERROR and close.
    max_head_bytes: int = _FRAMES.max_head_bytes
    # NebulousStomp's tests send half a MiB; large results belong in files.
    # At it: ERROR and close.
    max_body_bytes: int = _FRAMES.max_body_bytes
    # seconds for a TLS handshake, then for CONNECT or an HTTP request, then for each 64 KiB of an HTTP
    # response; a slow link needs three.
    # At it: ERROR and close; in a handshake or an HTTP response, close; in an HTTP request, status 408.
    connect_timeout: float = 10.0
    # seconds from a frame's first byte to its last; the largest body takes this long at 70 KB/s.
    # At it: ERROR and close.
    frame_timeout: float = 120.0
    # seconds of silence, after which TCP probes whether the peer is still there: not all clients send
    # heart-beats.
    # At it: after four probes without a reply, a quarter of this time apart, the connection is lost.
    keepalive_seconds: float = 60.0
    # about 10 KB each; the process needs a file descriptor for each.
    # At it: ERROR and close; before a TLS handshake, close.
    max_connections: int = 10_000
    # anonymous or unauthenticated connections of one address, or one IPv6 subnet (/64); half of all, so
    # that others can connect.
    # At it: a new one takes the place of one that has not authenticated, otherwise ERROR and close;
    # before a TLS handshake, close.
    max_connections_per_address: int = 5_000
    # HTTP connections, without calls and WebSockets; each needs a file descriptor.
    # At it: close.
    max_http_requests: int = 1_000
    # calls of a listener that wait for their replies, and streams and results that are being read; at
    # most half of them of one address or principal; not counted in max_http_requests, so that slow calls
    # do not keep probes out.
    # At it: status 503.
    max_http_calls: int = 1_000
    # of a listener's responses that were not read to their end; eight of the largest.
    # At it: the largest response of the principal or address that holds most is cut off.
    max_http_unread_bytes: int = 64 * 1024 * 1024
    # of a request to `/call/`; all requests of a listener without a response may have 64 times as much,
    # and half of that may be of one principal, or of one address of anonymous peers.
    # At it: status 413; beyond that, status 503.
    max_http_body_bytes: int = 1024 * 1024
    # per connection; a subscription costs about 1 KB.
    # At it: ERROR and close.
    max_subscriptions: int = 1_000
    # of all connections; with max_durable_subscriptions half a GB.
    # At it: ERROR and close.
    max_subscriptions_in_all: int = 500_000
    # different ones; each takes about 7 KB, and microseconds for each name that was not sent to before.
    # At it: ERROR and close.
    max_globs: int = 10_000
    # of a name; globs take time in proportion to it, and it is stored.
    # At it: ERROR and close.
    max_destination_characters: int = 1_024
    # of each identifier that a peer chooses and the broker keeps: client-ids, ids of subscriptions, names
    # of transactions, `dedup-id`, `neb-reply-to` and `neb-reply-id`; a ULID, a digest or a path fits.
    # At it: ERROR and close; on SEND `rejected-invalid`.
    max_identifier_characters: int = 256
    # covers a round trip at full rate without hoarding.
    # At it: the queue waits for ACKs.
    default_prefetch: int = 1_000
    # un-ACKed messages per subscription; a recorder syncs in groups.
    # At it: larger values are capped.
    max_prefetch: int = 100_000
    # per connection; enough to fill a socket, little enough to be fair.
    # At it: queues stop dispatching to it until it has been written.
    outbox_high_water_bytes: int = 256 * 1024
    # per connection; a subscriber of topics may be slow for a moment, but not permanently.
    # At it: the connection is ended as too slow.
    max_outbox_bytes: int = 16 * 1024 * 1024
    # outboxes, write buffers, and frames that are incomplete or wait, of all connections together; enough
    # for 2,000 slow consumers.
    # At it: the largest connections of the principals that hold most are ended.
    max_transit_bytes: int = 512 * 1024 * 1024
    # seconds at SIGTERM for peers to read their output, and for hosted services to reply.
    # At it: the other connections are closed without an ERROR.
    drain_seconds: float = 5.0
    # free on the store's disk, so that messages can still be consumed, and the broker can stop cleanly.
    # At it: persistent SENDs and last values are `rejected-full`; consumers go on.
    min_free_disk_bytes: int = 256 * 1024 * 1024
    # of messages that the store has not written yet; a tenth of a second's work.
    # At it: connections that only send are not read until the store has caught up.
    max_commit_backlog_bytes: int = 16 * 1024 * 1024
    # waiting and un-ACKed messages of one queue.
    # At it: the sender waits, or `rejected-full`.
    max_queue_messages: int = 10_000_000
    # of one queue, in memory and on disk, with the overhead of each message.
    # At it: the sender waits, or `rejected-full`.
    max_queue_bytes: int = 8 * 1024 * 1024 * 1024
    # of one queue in memory, counted likewise; persistent messages beyond a window are on disk only.
    # At it: the sender waits, or `rejected-full`; nothing more is read from disk for consumers that do
    # not ACK.
    max_queue_memory_bytes: int = 256 * 1024 * 1024
    # of one queue in memory; about 8,000 small messages, and a page of half as many is read in a few ms.
    # At it: further persistent messages are on disk only, until it is their turn.
    queue_window_bytes: int = 4 * 1024 * 1024
    # of all queues, last values and open transactions together, counted likewise.
    # At it: the sender waits, or `rejected-full`.
    max_memory_bytes: int = 1024 * 1024 * 1024
    # how long a sender waits for room; a short delay of a consumer passes, a dead one must not stop
    # senders.
    # At it: `rejected-full`.
    max_pause_seconds: float = 5.0
    # more than a responder's max_attempts of 3.
    # At it: the message becomes a dead letter.
    max_deliveries: int = 10
    # with `delay` or `deliver-at`; they wait in memory and count there.
    # At it: `rejected-full`.
    max_delayed_messages: int = 100_000
    # of all destinations together; about 900 bytes each.
    # At it: the principal's oldest one is forgotten.
    max_dedup_ids: int = 100_000
    # a sender that lost its connection has sent again by then.
    # At it: a `dedup-id` may be used again.
    dedup_seconds: float = 300.0
    # requests that wait in `/queue/nebula.broker`, of principals that may call its verbs, and as many of
    # all others; they are handled within about a second.
    # At it: `rejected-full`.
    max_own_requests: int = 1_000
    # requests that wait there, of one connection; together at most 1 MiB.
    # At it: `rejected-full`.
    max_own_requests_per_session: int = 64
    # open ones of one connection.
    # At it: ERROR and close.
    max_transactions: int = 100
    # of one transaction; a COMMIT is handled without interruption.
    # At it: ERROR and close.
    max_transaction_frames: int = 10_000
    # of all open transactions of one connection; two bodies of the largest size.
    # At it: ERROR and close.
    max_transaction_bytes: int = 16 * 1024 * 1024
    # last values per connection; a reader that ACKs needs few.
    # At it: further last values wait for ACKs.
    max_unacked_values: int = 1_000
    # each keeps what its subscriptions have not received.
    # At it: ERROR and close.
    max_durable_sessions: int = 10_000
    # of all sessions together; about 1.3 KB each.
    # At it: ERROR and close.
    max_durable_subscriptions: int = 100_000
    # a client may be away for a week.
    # At it: its durable subscriptions are removed.
    session_expiry_seconds: float = 7 * 86_400.0
    # of one connection; a client has one, a bridge a few.
    # At it: ERROR and close.
    max_inboxes: int = 64
    # a month, for `delay` and `deliver-at`; schedule later messages elsewhere.
    # At it: `rejected-invalid`.
    max_delay_seconds: float = 30 * 86_400.0
    # a principal may use at most f / (1 - f) times what is still free: alone, the fraction f of each limit
    # of the whole broker; several get equal parts, and a part always stays free.
    # At it: its request is refused, or its own oldest item is replaced.
    principal_share: float = 0.75
    # fraction of each limit of the whole broker that is reserved for principals with a right to call the
    # broker's verbs, so that they can work when everything else is used up.
    # At it: other principals cannot use it.
    operator_reserve: float = 0.05
    # queues, topics and last values that hold or feed something.
    # At it: `rejected-full`, or ERROR.
    max_destinations: int = 100_000

    def __post_init__(self) -> None:
        for limit in fields(self):
            if getattr(self, limit.name) <= 0:
                raise ValueError(f"{limit.name} must be above 0: write {limit.name} = {limit.default}")
        if self.principal_share > 1 or self.operator_reserve >= 1:
            raise ValueError("a share is at most 1: write principal_share = 0.75 and operator_reserve = 0.05")
        relations = (
            ("outbox_high_water_bytes", "max_outbox_bytes"),
            ("max_body_bytes", "max_outbox_bytes"),
            ("max_outbox_bytes", "max_transit_bytes"),
            ("max_body_bytes", "max_queue_bytes"),
            ("max_body_bytes", "max_memory_bytes"),
            ("default_prefetch", "max_prefetch"),
        )
        for smaller, larger in relations:
            if getattr(self, smaller) > (most := getattr(self, larger)):
                raise ValueError(f"{smaller} must not be above {larger}: write {smaller} = {most}")

    @property
    def frames(self) -> FrameLimits:
        """The part that the codec watches."""
        # They have the same names here.
        return FrameLimits(**{each.name: getattr(self, each.name) for each in fields(FrameLimits)})
