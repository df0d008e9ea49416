"""Views of the broker for operators: plain values, each field declared once with title, unit and meaning.

`rows` makes them from the core, the verbs of `nebula.host` return them, and the command line derives its
tables from their fields. Nothing of the broker is imported here: the command line starts quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from nebula.shown import Shown, Unit


@dataclass(frozen=True, slots=True)
class QueueRow:
    """A queue."""

    # The order of fields is that of the columns. An empty title keeps a field out of tables: it is in JSON
    # alone.
    queue: Annotated[str, Shown("queue")]
    depth: Annotated[int, Shown("depth", Unit.COUNT, "Messages held: waiting, un-ACKed and postponed.")]
    unacked: Annotated[int, Shown("un-ACKed", Unit.COUNT, "Messages delivered and not settled.")]
    paged_out: Annotated[int, Shown("on disk", Unit.COUNT, "Messages held on disk alone.")]
    stored_bytes: Annotated[
        int, Shown("memory", Unit.BYTES, "What messages in memory count for against limits.")
    ]
    paged_bytes: Annotated[int, Shown("", Unit.BYTES, "The same for messages on disk alone.")]
    consumers: Annotated[int, Shown("consumers", Unit.COUNT, "Subscriptions.")]
    taken: Annotated[
        int,
        Shown(
            "taken",
            Unit.COUNT,
            "Messages accepted since the queue was made. What `taken - depth` grows by has left it.",
        ),
    ]
    # A lower bound (`rows.Arrivals`), of messages in memory: looking at those on disk would cost a read for
    # each queue of a list.
    oldest_seconds: Annotated[
        float | None,
        Shown("oldest", Unit.SECONDS, "Age of the first message, at least; null: none waits in memory."),
    ]
    postponed: Annotated[
        int,
        Shown("postponed", Unit.COUNT, "Messages that were NACKed and wait for their `redelivery-delay`."),
    ]


@dataclass(frozen=True, slots=True)
class SubscriptionRow:
    """A subscription of a connected session."""

    session: Annotated[str, Shown("session", Unit.ID)]
    principal: Annotated[str, Shown("principal")]
    id: Annotated[str, Shown("id", about="Chosen by the client; unique in its session.")]
    destination: Annotated[str, Shown("destination", about="May be a glob.")]
    ack: Annotated[str, Shown("ack", about="`auto`, `client` or `client-individual`.")]
    prefetch: Annotated[
        int, Shown("prefetch", Unit.COUNT, "Messages that may be un-ACKed before delivery pauses.")
    ]
    unacked: Annotated[int, Shown("un-ACKed", Unit.COUNT, "Messages delivered and not settled.")]


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """A queue, its limits, and its consumers (the first thousand)."""

    summary: QueueRow
    max_messages: Annotated[int, Shown("may hold", Unit.COUNT, "Messages that it may hold.")]
    max_bytes: Annotated[int, Shown("may hold, bytes", Unit.BYTES, "Bytes that it may hold.")]
    is_exclusive: Annotated[bool, Shown("exclusive", Unit.FLAG, "One subscription alone may consume.")]
    auto_delete: Annotated[bool, Shown("auto-delete", Unit.FLAG, "Deleted with its last subscription.")]
    # Without `Shown`: a list of rows is a table of its own.
    subscriptions: list[SubscriptionRow]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic or glob of topics with subscriptions, or a last-value destination."""

    topic: Annotated[str, Shown("topic")]
    kind: Annotated[str, Shown("kind", about="`topic` or `last-value`.")]
    # None for a last value: subscriptions to globs reach it too, and are not counted for each value.
    subscribers: Annotated[
        int | None,
        Shown("subscribers", Unit.COUNT, "Of a topic: subscriptions, including those of absent sessions."),
    ]
    waiting: Annotated[
        int,
        Shown(
            "waiting",
            Unit.COUNT,
            "Of a topic: messages that wait for subscribers. Of a last value: subscribers that still have"
            " to receive it.",
        ),
    ]
    stored_bytes: Annotated[int, Shown("memory", Unit.BYTES, "Counts against limits.")]
    has_value: Annotated[
        bool | None, Shown("value", Unit.FLAG, "Of a last value: it is set, and was not deleted.")
    ] = None
    changed_seconds: Annotated[
        float | None, Shown("changed", Unit.SECONDS, "Of a last value: since its last change, at least.")
    ] = None
    sender: Annotated[str | None, Shown("sender", about="Of a last value: its principal.")] = None
    # None for a value that outlives its sender's session.
    owner: Annotated[
        str | None, Shown("", Unit.ID, "Of an ephemeral last value: the session whose end deletes it.")
    ] = None


@dataclass(frozen=True, slots=True)
class TopicDetails:
    """A topic with its connected subscribers (the first thousand), or a last value."""

    summary: TopicRow
    subscriptions: list[SubscriptionRow]


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A session with durable subscriptions, which outlives its connection."""

    session: Annotated[str, Shown("session", Unit.ID, "Its client-id.")]
    principal: Annotated[str, Shown("principal")]
    away_seconds: Annotated[
        float | None, Shown("away", Unit.SECONDS, "Since its connection ended; null: it is connected.")
    ]
    subscriptions: Annotated[int, Shown("subscriptions", Unit.COUNT, "Durable subscriptions.")]
    waiting: Annotated[
        int,
        Shown("waiting", Unit.COUNT, "Messages, and last values, that wait for it."),
    ]
    stored_bytes: Annotated[int, Shown("memory", Unit.BYTES, "Counts against limits.")]


@dataclass(frozen=True, slots=True)
class DurableRow:
    """A durable subscription, with what waits for it."""

    id: Annotated[str, Shown("id", about="Chosen by the client; unique in its session.")]
    destination: Annotated[str, Shown("destination", about="May be a glob.")]
    ack: Annotated[str, Shown("ack", about="`auto`, `client` or `client-individual`.")]
    prefetch: Annotated[int, Shown("", Unit.COUNT, "Messages that may be un-ACKed before delivery pauses.")]
    is_active: Annotated[bool, Shown("active", Unit.FLAG, "Its session is connected and subscribed.")]
    waiting: Annotated[int, Shown("waiting", Unit.COUNT, "Messages or last values that wait for it.")]
    stored_bytes: Annotated[int, Shown("memory", Unit.BYTES, "Counts against limits.")]


@dataclass(frozen=True, slots=True)
class SessionDetails:
    """A session with its durable subscriptions (the first thousand)."""

    summary: SessionRow
    subscriptions: list[DurableRow]


@dataclass(frozen=True, slots=True)
class PrincipalRow:
    """What one principal uses of the broker's resources."""

    principal: Annotated[str, Shown("principal", about="Its name; an anonymous peer has its address in it.")]
    # One number for all resources orders principals by how close they are to a refusal.
    used_fraction: Annotated[
        float,
        Shown(
            "used",
            Unit.FRACTION,
            "The part of its share that is used, for the resource that is closest to the limit; 1.0: all.",
        ),
    ]
    refusals: Annotated[
        int, Shown("refusals", Unit.COUNT, "Requests that were refused because its share was used up.")
    ]
    is_operator: Annotated[bool, Shown("", Unit.FLAG, "It may use the reserve.")]
    memory_bytes: Annotated[
        int,
        Shown("memory", Unit.BYTES, "Messages, values, transactions, subscriptions and names."),
    ]
    disk_bytes: Annotated[int, Shown("disk", Unit.BYTES, "Messages on disk.")]
    connections: Annotated[int, Shown("connections", Unit.COUNT)]
    destinations: Annotated[int, Shown("destinations", Unit.COUNT)]
    subscriptions: Annotated[int, Shown("", Unit.COUNT)]
    globs: Annotated[int, Shown("", Unit.COUNT, "Subscriptions to globs.")]
    durable_sessions: Annotated[int, Shown("", Unit.COUNT)]
    durable_subscriptions: Annotated[int, Shown("", Unit.COUNT)]
    delayed_messages: Annotated[int, Shown("", Unit.COUNT)]
    dedup_ids: Annotated[int, Shown("", Unit.COUNT, "Ids by which duplicates are recognised.")]


@dataclass(frozen=True, slots=True)
class DelayedRow:
    """A delayed message."""

    number: Annotated[int, Shown("number", Unit.NUMBER, "Identifies it.")]
    destination: Annotated[str, Shown("queue")]
    principal: Annotated[str, Shown("principal", about="Its sender.")]
    due_seconds: Annotated[float, Shown("due in", Unit.SECONDS, "Until it is put into its queue.")]
    size_bytes: Annotated[int, Shown("memory", Unit.BYTES, "Counts against limits.")]
    is_persistent: Annotated[bool, Shown("persistent", Unit.FLAG)]


@dataclass(frozen=True, slots=True)
class ConnectionFacts:
    """What the server knows about a connection."""

    peer: Annotated[str, Shown("peer", about="Address and port, or `in process`.")]
    scheme: Annotated[str, Shown("came by", about="Of its URL: `stomp`, `stomps`, `ws` or `wss`.")]
    profile: Annotated[str, Shown("profile", about="Of its listener.")]
    version: Annotated[str | None, Shown("version", about="Of STOMP.")]
    since_seconds: Annotated[float, Shown("since", Unit.AGE, "Since it was accepted.")]
    read_bytes: Annotated[int, Shown("read", Unit.BYTES, "With TLS, of what is inside.")]
    written_bytes: Annotated[int, Shown("written", Unit.BYTES, "With TLS, of what is inside.")]
    sent_frames: Annotated[int, Shown("frames sent", Unit.COUNT)]
    # What the transport holds. The operating system's own buffer cannot be seen from here.
    buffered_bytes: Annotated[
        int,
        Shown("not yet written", Unit.BYTES, "Handed over to be written, and not yet taken by the system."),
    ]
    is_held_back: Annotated[
        bool,
        Shown(
            "held back",
            Unit.FLAG,
            "It is not read, because it sends more than there is room for or than the store keeps up with.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """A connection that has a session."""

    session: Annotated[str, Shown("session", Unit.ID, "Its id, or the client-id that it gave.")]
    principal: Annotated[str, Shown("principal")]
    subscriptions: Annotated[int, Shown("", Unit.COUNT)]
    unacked: Annotated[int, Shown("un-ACKed", Unit.COUNT, "Messages delivered and not settled.")]
    outbox_bytes: Annotated[int, Shown("outbox", Unit.BYTES, "To be written to it.")]
    # What the server adds to what the core knows. Fields in it have dotted names, such as `link.peer`.
    link: ConnectionFacts


@dataclass(frozen=True, slots=True)
class ConnectionDetails:
    """A connection with its subscriptions (the first thousand)."""

    summary: ConnectionRow
    transactions: Annotated[int, Shown("open transactions", Unit.COUNT)]
    subscriptions: list[SubscriptionRow]


@dataclass(frozen=True, slots=True)
class MessageView:
    """A waiting message or a dead letter, with its headers and the beginning of its body."""

    number: Annotated[int, Shown("number", Unit.NUMBER, "Its place in the order of arrival.")]
    destination: Annotated[str, Shown("destination")]
    sender: Annotated[str, Shown("sender", about="A principal.")]
    headers: Annotated[dict[str, str], Shown("headers", about="As receivers get them.")]
    # Text where possible, because people read it; `encoding` is for programs.
    body: Annotated[str, Shown("body", about="Its beginning: text if it is UTF-8, else Base64.")]
    encoding: Annotated[Literal["text", "base64"], Shown("encoding", about="`text` or `base64`.")]
    body_bytes: Annotated[int, Shown("size", Unit.BYTES, "Of the whole body.")]
    is_cut: Annotated[bool, Shown("cut", Unit.FLAG, "There is more of the body.")]
    is_persistent: Annotated[bool, Shown("persistent", Unit.FLAG)]
    attempts: Annotated[int, Shown("tries", Unit.COUNT, "Deliveries that failed.")]
    age_seconds: Annotated[float, Shown("age", Unit.SECONDS, "Since it came, at least.")]
    expires_in_seconds: Annotated[float | None, Shown("expires in", Unit.SECONDS, "null: never.")]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that could not be delivered."""

    number: Annotated[int, Shown("number", Unit.NUMBER, "Its place in the order of arrival.")]
    # Most fields come from the `dead-letter-…` headers that the broker wrote when the message died.
    source: Annotated[str, Shown("from", about="The destination that it was sent to.")]
    reason: Annotated[str, Shown("why", about="`exhausted`, `expired`, `full` or `rejected`.")]
    died_at: Annotated[float, Shown("when", Unit.TIME)]
    deliveries: Annotated[int, Shown("tries", Unit.COUNT)]
    sender: Annotated[str, Shown("sender", about="A principal.")]
    body_bytes: Annotated[int, Shown("body", Unit.BYTES)]
    is_persistent: Annotated[bool, Shown("", Unit.FLAG)]
    code: Annotated[str, Shown("code", about="What its last consumer said went wrong; empty: nothing.")]
    text: Annotated[str, Shown("", about="The consumer's explanation.")]
    handler: Annotated[str, Shown("", about="The handler that could not process it.")]
    is_at_hand: Annotated[
        bool,
        Shown(
            "", Unit.FLAG, "Whether it can be replayed and purged now, and not only when those before it are."
        ),
    ]


@dataclass(frozen=True, slots=True)
class KindTotals:
    """All destinations of one kind together."""

    destinations: Annotated[
        int, Shown("destinations", Unit.COUNT, "Destinations that hold or feed something.")
    ] = 0
    messages: Annotated[
        int, Shown("messages", Unit.COUNT, "Messages waiting or un-ACKed; for `last-value`, the values held.")
    ] = 0
    unacked: Annotated[int, Shown("un-ACKed", Unit.COUNT, "Messages delivered and not settled.")] = 0
    paged_out: Annotated[int, Shown("on disk", Unit.COUNT, "Messages held on disk alone.")] = 0
    stored_bytes: Annotated[
        int, Shown("memory", Unit.BYTES, "What messages in memory count for against limits.")
    ] = 0
    subscriptions: Annotated[
        int, Shown("subscriptions", Unit.COUNT, "Subscriptions; those to last values are not counted.")
    ] = 0


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The work of the store since the start of the broker."""

    commits: Annotated[int, Shown("commits", Unit.COUNT, "Batches.")]
    rows: Annotated[int, Shown("rows", Unit.COUNT, "Rows written to the store.")]
    seconds: Annotated[float, Shown("seconds", Unit.SECONDS, "Time that all batches took together.")]
    backlog: Annotated[int, Shown("backlog", Unit.COUNT, "Rows that wait for the next batch.")]
    waiting: Annotated[int, Shown("waiting", Unit.COUNT, "Connections whose RECEIPTs wait for the store.")]


@dataclass(frozen=True, slots=True)
class ListenerView:
    """An address where the broker listens."""

    url: Annotated[str, Shown("listener")]
    is_loopback: Annotated[bool, Shown("loopback", Unit.FLAG, "Only this machine reaches it.")]
    is_anonymous: Annotated[bool, Shown("anonymous", Unit.FLAG, "Peers may connect without authentication.")]
    certificate_ends_at: Annotated[
        float | None,
        Shown(
            "certificate ends", Unit.TIME, "Of the certificates in use, the first to expire; null: no TLS."
        ),
    ]
    client_ca_ends_at: Annotated[
        float | None,
        Shown("client CA ends", Unit.TIME, "Of the CAs of clients, the first to expire; null: none."),
    ]


@dataclass(frozen=True, slots=True)
class DiskView:
    """The disk of the broker's store."""

    schema: Annotated[int, Shown("store version", Unit.NUMBER, "The version of the store's tables.")]
    file_system: Annotated[str | None, Shown("file system", about="Its kind; null: not known.")]
    free_bytes: Annotated[int | None, Shown("free", Unit.BYTES, "null: not known.")]
    min_free_bytes: Annotated[int, Shown("", Unit.BYTES, "The limit `min_free_disk_bytes`.")]


@dataclass(frozen=True, slots=True)
class MachineView:
    """What a broker runs on, and what it needs of it. No path of the machine is in it."""

    nebula: Annotated[str, Shown("nebula", about="The version of Nebula.")]
    python: Annotated[str, Shown("python", about="The version of Python.")]
    build: Annotated[str, Shown("build", about="Whether wire and core run `compiled` or `interpreted`.")]
    time: Annotated[float, Shown("clock", Unit.TIME, "The time by its clock.")]
    open_files_limit: Annotated[
        int | None, Shown("may open", Unit.COUNT, "Files that the process may open; null: any number.")
    ]
    wanted_files: Annotated[
        int, Shown("opens at most", Unit.COUNT, "Files that it opens when its limits are reached.")
    ]
    memory_limit_bytes: Annotated[
        int | None,
        Shown("may use", Unit.BYTES, "Memory of its control group, or of the machine; null: not known."),
    ]
    counted_bytes: Annotated[
        int, Shown("counts up to", Unit.BYTES, "`max_memory_bytes` and `max_transit_bytes` together.")
    ]
    backlog: Annotated[
        int | None, Shown("backlog", Unit.COUNT, "The system's limit `somaxconn`; null: not known.")
    ]
    first_port: Annotated[
        int | None, Shown("ports from", Unit.NUMBER, "First port of outgoing connections; null: not known.")
    ]
    last_port: Annotated[
        int | None, Shown("ports to", Unit.NUMBER, "Last port of outgoing connections; null: not known.")
    ]
    stale_files: Annotated[
        list[str],
        Shown("changed files", about="Settings whose files have changed since the broker read them."),
    ]
    dead_letter: Annotated[str, Shown("dead-letter queue")]
    # None without a store.
    store: DiskView | None
    listeners: list[ListenerView]


@dataclass(frozen=True, slots=True)
class RightsView:
    """Grants that are probably mistakes. Of each list the first hundred."""

    is_open: Annotated[
        bool,
        Shown("open", Unit.FLAG, "No rights are configured: every principal may do almost everything."),
    ]
    capabilities: Annotated[int, Shown("capabilities", Unit.COUNT)]
    identities: Annotated[int, Shown("identities", Unit.COUNT, "Principals that are given capabilities.")]
    unused_capabilities: Annotated[list[str], Shown("unused", about="Capabilities that no principal has.")]
    without_rights: Annotated[
        list[str],
        Shown("without rights", about="Users, and connected principals, that have no capability."),
    ]
    unknown_verbs: Annotated[
        list[str],
        Shown(
            "unknown verbs",
            about="Grants of `call` that match no verb of this broker, each after its capability.",
        ),
    ]
    unmatched: Annotated[
        list[str],
        Shown(
            "unmatched",
            about="Grants of `publish` and `subscribe` that match no destination that exists"
            " now, each after its capability.",
        ),
    ]
    anonymous_verbs: Annotated[
        list[str],
        Shown(
            "anonymous verbs",
            about="Verbs of the broker that anonymous peers may call; those that need no right are left out.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """A resource that all principals share."""

    limit: Annotated[int, Shown("limit", Unit.COUNT, "How much there is of each shared resource.")]
    reserved: Annotated[int, Shown("reserved", Unit.COUNT, "How much of it only operators may use.")]
    used: Annotated[int, Shown("used", Unit.COUNT, "How much of it all principals use together.")]
    largest: Annotated[
        int, Shown("largest use", Unit.COUNT, "How much of it the principal that uses most of it uses.")
    ]
    refusals: Annotated[
        int,
        Shown(
            "refusals",
            Unit.COUNT,
            "Requests refused because their principal had used up its share.",
        ),
    ]


@dataclass(frozen=True, slots=True)
class FlowRow:
    """The messages of one sender to one destination."""

    sender: Annotated[str, Shown("sender", about="A principal.")]
    destination: Annotated[str, Shown("destination")]
    messages: Annotated[
        int, Shown("messages", Unit.COUNT, "Accepted since the pair was first seen, or was seen again.")
    ]
    receivers: Annotated[
        list[str], Shown("receivers", about="Principals that are subscribed at present, the first twenty.")
    ]


@dataclass(frozen=True, slots=True)
class HistorySample:
    """Figures of a broker at one time. Totals count from its start."""

    at: Annotated[float, Shown("at", Unit.TIME, "When they were taken.")]
    connections: Annotated[int, Shown("connections", Unit.COUNT)]
    received: Annotated[int, Shown("messages in", Unit.COUNT, "Messages sent to the broker.")]
    sent_frames: Annotated[int, Shown("frames out", Unit.COUNT, "Deliveries, and replies of the protocol.")]
    read_bytes: Annotated[int, Shown("read", Unit.BYTES, "Read from all connections, within TLS.")]
    written_bytes: Annotated[int, Shown("written", Unit.BYTES, "Written to all connections, within TLS.")]
    memory_bytes: Annotated[int, Shown("memory", Unit.BYTES, "Memory in use, as the broker counts it.")]
    disk_bytes: Annotated[int, Shown("disk", Unit.BYTES, "Messages on disk.")]
    messages: Annotated[int, Shown("messages", Unit.COUNT, "Messages that all queues hold.")]
    unacked: Annotated[int, Shown("un-ACKed", Unit.COUNT, "Messages delivered and not settled.")]
    dead_letters: Annotated[int, Shown("dead", Unit.COUNT, "Messages in the dead-letter queue.")]


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """A broker at this moment. Totals count from its start; the difference of two of them is a rate."""

    version: Annotated[str, Shown("version", about="The version of the broker.")]
    uptime_seconds: Annotated[float, Shown("up", Unit.SECONDS, "Since the start.")]
    not_ready: Annotated[
        str | None,
        Shown("not ready", about="Why it should get no traffic at present; null: it is ready."),
    ]
    connections: Annotated[
        int, Shown("connections", Unit.COUNT, "Connections, including those that have not authenticated.")
    ]
    max_connections: Annotated[int, Shown("", Unit.COUNT, "The limit `max_connections`.")]
    sessions: Annotated[int, Shown("sessions", Unit.COUNT, "Sessions with durable subscriptions.")]
    received: Annotated[
        int,
        Shown(
            "messages in",
            Unit.COUNT,
            "Messages sent to the broker, and those that it makes itself, such as dead letters and copies.",
        ),
    ]
    sent_frames: Annotated[int, Shown("frames out", Unit.COUNT, "Deliveries, and replies of the protocol.")]
    read_bytes: Annotated[int, Shown("read", Unit.BYTES, "Read from all connections, within TLS.")]
    written_bytes: Annotated[int, Shown("written", Unit.BYTES, "Written to all connections, within TLS.")]
    memory_bytes: Annotated[int, Shown("memory", Unit.BYTES, "Memory in use, as the broker counts it.")]
    max_memory_bytes: Annotated[int, Shown("", Unit.BYTES, "The limit `max_memory_bytes`.")]
    # Sessions' outboxes only; what transports hold counts as in-flight bytes (`inflight`).
    outbox_bytes: Annotated[int, Shown("outbox", Unit.BYTES, "To be written to connections.")]
    held_back: Annotated[
        int, Shown("held back", Unit.COUNT, "Connections that are not read until there is room.")
    ]
    delayed: Annotated[int, Shown("delayed", Unit.COUNT, "Delayed messages.")]
    dead_letters: Annotated[int, Shown("dead", Unit.COUNT, "Messages in the dead-letter queue.")]
    # Reasons, events and endings are closed sets; metrics have a series for each.
    dropped: Annotated[
        Mapping[str, int], Shown("dropped", Unit.COUNT, "Messages that were not delivered, by reason.")
    ]
    events: Annotated[Mapping[str, int], Shown("", Unit.COUNT, "Log events about connections, by event.")]
    ended: Annotated[Mapping[str, int], Shown("", Unit.COUNT, "Connections ended by the broker, by reason.")]
    kinds: Mapping[str, KindTotals]
    principals: Annotated[int, Shown("principals", Unit.COUNT, "Principals that use something.")]
    # By resource, memory included.
    pools: Mapping[str, PoolStatus]
    # None without a store: its metrics are then missing instead of 0.
    store: StoreStatus | None
