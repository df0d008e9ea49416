// The verbs of the service "nebula", for web pages and Node.
// Written by `nebula stubs nebula.broker --typescript` from its own description.
// Do not edit it: write it anew.

import type { CallOptions, Nebula } from "nebula";

/** Parameters of "broker.history". */
export interface BrokerHistoryParameters {
  /** @defaultValue `0.0` */
  after?: number;
}

/** Figures of a broker at one time. Totals count from its start. */
export interface HistorySample {
  /** When they were taken. */
  at: number;
  connections: number;
  /** Messages sent to the broker. */
  received: number;
  /** Deliveries, and replies of the protocol. */
  sent_frames: number;
  /** Read from all connections, within TLS. */
  read_bytes: number;
  /** Written to all connections, within TLS. */
  written_bytes: number;
  /** Memory in use, as the broker counts it. */
  memory_bytes: number;
  /** Messages on disk. */
  disk_bytes: number;
  /** Messages that all queues hold. */
  messages: number;
  /** Messages delivered and not settled. */
  unacked: number;
  /** Messages in the dead-letter queue. */
  dead_letters: number;
}

/** What a broker runs on, and what it needs of it. No path of the machine is in it. */
export interface MachineView {
  /** The version of Nebula. */
  nebula: string;
  /** The version of Python. */
  python: string;
  /** Whether wire and core run `compiled` or `interpreted`. */
  build: string;
  /** The time by its clock. */
  time: number;
  /** Files that the process may open; null: any number. */
  open_files_limit: number | null;
  /** Files that it opens when its limits are reached. */
  wanted_files: number;
  /** Memory of its control group, or of the machine; null: not known. */
  memory_limit_bytes: number | null;
  /** `max_memory_bytes` and `max_transit_bytes` together. */
  counted_bytes: number;
  /** The system's limit `somaxconn`; null: not known. */
  backlog: number | null;
  /** First port of outgoing connections; null: not known. */
  first_port: number | null;
  /** Last port of outgoing connections; null: not known. */
  last_port: number | null;
  /** Settings whose files have changed since the broker read them. */
  stale_files: string[];
  dead_letter: string;
  store: DiskView | null;
  listeners: ListenerView[];
}

/** The disk of the broker's store. */
export interface DiskView {
  /** The version of the store's tables. */
  schema: number;
  /** Its kind; null: not known. */
  file_system: string | null;
  /** null: not known. */
  free_bytes: number | null;
  /** The limit `min_free_disk_bytes`. */
  min_free_bytes: number;
}

/** An address where the broker listens. */
export interface ListenerView {
  url: string;
  /** Only this machine reaches it. */
  is_loopback: boolean;
  /** Peers may connect without authentication. */
  is_anonymous: boolean;
  /** Of the certificates in use, the first to expire; null: no TLS. */
  certificate_ends_at: number | null;
  /** Of the CAs of clients, the first to expire; null: none. */
  client_ca_ends_at: number | null;
}

/**
 * A broker at this moment. Totals count from its start; the difference of two of them is a rate.
 */
export interface BrokerStatus {
  /** The version of the broker. */
  version: string;
  /** Since the start. */
  uptime_seconds: number;
  /** Why it should get no traffic at present; null: it is ready. */
  not_ready: string | null;
  /** Connections, including those that have not authenticated. */
  connections: number;
  /** The limit `max_connections`. */
  max_connections: number;
  /** Sessions with durable subscriptions. */
  sessions: number;
  /**
   * Messages sent to the broker, and those that it makes itself, such as dead letters and copies.
   */
  received: number;
  /** Deliveries, and replies of the protocol. */
  sent_frames: number;
  /** Read from all connections, within TLS. */
  read_bytes: number;
  /** Written to all connections, within TLS. */
  written_bytes: number;
  /** Memory in use, as the broker counts it. */
  memory_bytes: number;
  /** The limit `max_memory_bytes`. */
  max_memory_bytes: number;
  /** To be written to connections. */
  outbox_bytes: number;
  /** Connections that are not read until there is room. */
  held_back: number;
  /** Delayed messages. */
  delayed: number;
  /** Messages in the dead-letter queue. */
  dead_letters: number;
  /** Messages that were not delivered, by reason. */
  dropped: Record<string, number>;
  /** Log events about connections, by event. */
  events: Record<string, number>;
  /** Connections ended by the broker, by reason. */
  ended: Record<string, number>;
  kinds: Record<string, KindTotals>;
  /** Principals that use something. */
  principals: number;
  pools: Record<string, PoolStatus>;
  store: StoreStatus | null;
}

/** All destinations of one kind together. */
export interface KindTotals {
  /** Destinations that hold or feed something. */
  destinations: number;
  /** Messages waiting or un-ACKed; for `last-value`, the values held. */
  messages: number;
  /** Messages delivered and not settled. */
  unacked: number;
  /** Messages held on disk alone. */
  paged_out: number;
  /** What messages in memory count for against limits. */
  stored_bytes: number;
  /** Subscriptions; those to last values are not counted. */
  subscriptions: number;
}

/** A resource that all principals share. */
export interface PoolStatus {
  /** How much there is of each shared resource. */
  limit: number;
  /** How much of it only operators may use. */
  reserved: number;
  /** How much of it all principals use together. */
  used: number;
  /** How much of it the principal that uses most of it uses. */
  largest: number;
  /** Requests refused because their principal had used up its share. */
  refusals: number;
}

/** The work of the store since the start of the broker. */
export interface StoreStatus {
  /** Batches. */
  commits: number;
  /** Rows written to the store. */
  rows: number;
  /** Time that all batches took together. */
  seconds: number;
  /** Rows that wait for the next batch. */
  backlog: number;
  /** Connections whose RECEIPTs wait for the store. */
  waiting: number;
}

/** Parameters of "connection.end". */
export interface ConnectionEndParameters {
  session: string;
}

/** Parameters of "connection.show". */
export interface ConnectionShowParameters {
  session: string;
}

/** A connection with its subscriptions (the first thousand). */
export interface ConnectionDetails {
  summary: ConnectionRow;
  transactions: number;
  subscriptions: SubscriptionRow[];
}

/** A connection that has a session. */
export interface ConnectionRow {
  /** Its id, or the client-id that it gave. */
  session: string;
  principal: string;
  subscriptions: number;
  /** Messages delivered and not settled. */
  unacked: number;
  /** To be written to it. */
  outbox_bytes: number;
  link: ConnectionFacts;
}

/** What the server knows about a connection. */
export interface ConnectionFacts {
  /** Address and port, or `in process`. */
  peer: string;
  /** Of its URL: `stomp`, `stomps`, `ws` or `wss`. */
  scheme: string;
  /** Of its listener. */
  profile: string;
  /** Of STOMP. */
  version: string | null;
  /** Since it was accepted. */
  since_seconds: number;
  /** With TLS, of what is inside. */
  read_bytes: number;
  /** With TLS, of what is inside. */
  written_bytes: number;
  sent_frames: number;
  /** Handed over to be written, and not yet taken by the system. */
  buffered_bytes: number;
  /**
   * It is not read, because it sends more than there is room for or than the store keeps up with.
   */
  is_held_back: boolean;
}

/** A subscription of a connected session. */
export interface SubscriptionRow {
  session: string;
  principal: string;
  /** Chosen by the client; unique in its session. */
  id: string;
  /** May be a glob. */
  destination: string;
  /** `auto`, `client` or `client-individual`. */
  ack: string;
  /** Messages that may be un-ACKed before delivery pauses. */
  prefetch: number;
  /** Messages delivered and not settled. */
  unacked: number;
}

/** What connections are listed by. */
export type ConnectionOrder = "name" | "traffic" | "outbox" | "unacked";
export const ConnectionOrder = {
  NAME: "name",
  TRAFFIC: "traffic",
  OUTBOX: "outbox",
  UNACKED: "unacked",
} as const;

/** Parameters of "connections.list". */
export interface ConnectionsListParameters {
  /** @defaultValue `"**"` */
  pattern?: string;
  /** @defaultValue `null` */
  principal?: string | null;
  /** @defaultValue `"name"` */
  order?: ConnectionOrder;
  /** @defaultValue `""` */
  after?: string;
  /** @defaultValue `100` */
  limit?: number;
}

/**
 * A page of rows.
 *
 * Attributes:
 *     rows: in the order that was asked for.
 *     matched: how many there are, on all pages.
 *     after: of the next page, where the order is by name and there is one.
 *     hidden: the number of internal ones left out.
 */
export interface ConnectionsListReply {
  rows: ConnectionRow[];
  matched: number;
  after: string | null;
  hidden: number;
}

/** Parameters of "delayed.list". */
export interface DelayedListParameters {
  /** @defaultValue `"**"` */
  pattern?: string;
  /** @defaultValue `null` */
  principal?: string | null;
  /** @defaultValue `0` */
  after?: number;
  /** @defaultValue `100` */
  limit?: number;
}

/**
 * A page of rows.
 *
 * Attributes:
 *     rows: in the order that was asked for.
 *     matched: how many there are, on all pages.
 *     after: of the next page, where the order is by name and there is one.
 *     hidden: the number of internal ones left out.
 */
export interface DelayedListReply {
  rows: DelayedRow[];
  matched: number;
  after: string | null;
  hidden: number;
}

/** A delayed message. */
export interface DelayedRow {
  /** Identifies it. */
  number: number;
  destination: string;
  /** Its sender. */
  principal: string;
  /** Until it is put into its queue. */
  due_seconds: number;
  /** Counts against limits. */
  size_bytes: number;
  is_persistent: boolean;
}

/** Parameters of "delayed.purge". */
export interface DelayedPurgeParameters {
  /** @defaultValue `"**"` */
  pattern?: string;
  /** @defaultValue `null` */
  principal?: string | null;
}

/** Parameters of "dlq.list". */
export interface DlqListParameters {
  /** @defaultValue `null` */
  source?: string | null;
  /** @defaultValue `null` */
  reason?: string | null;
  /** @defaultValue `0` */
  after?: number;
  /** @defaultValue `100` */
  limit?: number;
  /** @defaultValue `false` */
  reverse?: boolean;
}

/**
 * Dead letters of a list.
 *
 * Attributes:
 *     rows: in its order.
 *     on_disk: on disk alone, and not looked at. In a list from the oldest on, all that are there. In one
 *         from the newest on, older ones, where reading stopped early: at most this many, and mostly 0.
 */
export interface Letters {
  rows: DeadLetter[];
  on_disk: number;
}

/** A message that could not be delivered. */
export interface DeadLetter {
  /** Its place in the order of arrival. */
  number: number;
  /** The destination that it was sent to. */
  source: string;
  /** `exhausted`, `expired`, `full` or `rejected`. */
  reason: string;
  died_at: number;
  deliveries: number;
  /** A principal. */
  sender: string;
  body_bytes: number;
  is_persistent: boolean;
  /** What its last consumer said went wrong; empty: nothing. */
  code: string;
  /** The consumer's explanation. */
  text: string;
  /** The handler that could not process it. */
  handler: string;
  /** Whether it can be replayed and purged now, and not only when those before it are. */
  is_at_hand: boolean;
}

/** Parameters of "dlq.purge". */
export interface DlqPurgeParameters {
  /** @defaultValue `null` */
  numbers?: number[] | null;
  /** @defaultValue `null` */
  source?: string | null;
  /** @defaultValue `null` */
  reason?: string | null;
  /** @defaultValue `100000` */
  limit?: number;
}

/** How many were dropped; and how many are on disk alone, which were not looked at. */
export interface Purged {
  purged: number;
  on_disk: number;
}

/** Parameters of "dlq.replay". */
export interface DlqReplayParameters {
  /** @defaultValue `null` */
  numbers?: number[] | null;
  /** @defaultValue `null` */
  source?: string | null;
  /** @defaultValue `null` */
  reason?: string | null;
  /** @defaultValue `null` */
  to?: string | null;
  /** @defaultValue `1000` */
  limit?: number;
}

/**
 * The result of a replay of dead letters.
 *
 * Attributes:
 *     replayed: are where they came from.
 *     full: found no room there, and are still dead letters.
 *     without_queue: came from topics, whose messages go to many, or were sent here in the first place: they
 *         are still dead letters, and can be put into a queue that is named.
 *     not_permitted: likewise where their sender may not send any more (D.36).
 *     on_disk: dead letters on disk alone, which were not looked at: they come when those before them go.
 */
export interface Replayed {
  replayed: number;
  full: number;
  without_queue: number;
  not_permitted: number;
  on_disk: number;
}

/** Parameters of "dlq.show". */
export interface DlqShowParameters {
  number: number;
  /** @defaultValue `100000` */
  max_bytes?: number;
}

/** A waiting message or a dead letter, with its headers and the beginning of its body. */
export interface MessageView {
  /** Its place in the order of arrival. */
  number: number;
  destination: string;
  /** A principal. */
  sender: string;
  /** As receivers get them. */
  headers: Record<string, string>;
  /** Its beginning: text if it is UTF-8, else Base64. */
  body: string;
  /** `text` or `base64`. */
  encoding: "text" | "base64";
  /** Of the whole body. */
  body_bytes: number;
  /** There is more of the body. */
  is_cut: boolean;
  is_persistent: boolean;
  /** Deliveries that failed. */
  attempts: number;
  /** Since it came, at least. */
  age_seconds: number;
  /** null: never. */
  expires_in_seconds: number | null;
}

/** Parameters of "flows.list". */
export interface FlowsListParameters {
  /** @defaultValue `200` */
  limit?: number;
}

/** The messages of one sender to one destination. */
export interface FlowRow {
  /** A principal. */
  sender: string;
  destination: string;
  /** Accepted since the pair was first seen, or was seen again. */
  messages: number;
  /** Principals that are subscribed at present, the first twenty. */
  receivers: string[];
}

/** What principals are listed by. */
export type PrincipalOrder =
  | "name"
  | "used"
  | "memory"
  | "disk"
  | "connections"
  | "destinations"
  | "refusals";
export const PrincipalOrder = {
  NAME: "name",
  USED: "used",
  MEMORY: "memory",
  DISK: "disk",
  CONNECTIONS: "connections",
  DESTINATIONS: "destinations",
  REFUSALS: "refusals",
} as const;

/** Parameters of "principals.list". */
export interface PrincipalsListParameters {
  /** @defaultValue `"**"` */
  pattern?: string;
  /** @defaultValue `"name"` */
  order?: PrincipalOrder;
  /** @defaultValue `""` */
  after?: string;
  /** @defaultValue `100` */
  limit?: number;
}

/**
 * A page of rows.
 *
 * Attributes:
 *     rows: in the order that was asked for.
 *     matched: how many there are, on all pages.
 *     after: of the next page, where the order is by name and there is one.
 *     hidden: the number of internal ones left out.
 */
export interface PrincipalsListReply {
  rows: PrincipalRow[];
  matched: number;
  after: string | null;
  hidden: number;
}

/** What one principal uses of the broker's resources. */
export interface PrincipalRow {
  /** Its name; an anonymous peer has its address in it. */
  principal: string;
  /**
   * The part of its share that is used, for the resource that is closest to the limit; 1.0: all.
   */
  used_fraction: number;
  /** Requests that were refused because its share was used up. */
  refusals: number;
  /** It may use the reserve. */
  is_operator: boolean;
  /** Messages, values, transactions, subscriptions and names. */
  memory_bytes: number;
  /** Messages on disk. */
  disk_bytes: number;
  connections: number;
  destinations: number;
  subscriptions: number;
  /** Subscriptions to globs. */
  globs: number;
  durable_sessions: number;
  durable_subscriptions: number;
  delayed_messages: number;
  /** Ids by which duplicates are recognised. */
  dedup_ids: number;
}

/** Parameters of "queue.peek". */
export interface QueuePeekParameters {
  queue: string;
  /** @defaultValue `0` */
  after?: number;
  /** @defaultValue `10` */
  limit?: number;
  /** @defaultValue `1000` */
  max_bytes?: number;
}

/** Parameters of "queue.purge". */
export interface QueuePurgeParameters {
  queue: string;
}

/** Parameters of "queue.show". */
export interface QueueShowParameters {
  queue: string;
}

/** A queue, its limits, and its consumers (the first thousand). */
export interface QueueDetails {
  summary: QueueRow;
  /** Messages that it may hold. */
  max_messages: number;
  /** Bytes that it may hold. */
  max_bytes: number;
  /** One subscription alone may consume. */
  is_exclusive: boolean;
  /** Deleted with its last subscription. */
  auto_delete: boolean;
  subscriptions: SubscriptionRow[];
}

/** A queue. */
export interface QueueRow {
  queue: string;
  /** Messages held: waiting, un-ACKed and postponed. */
  depth: number;
  /** Messages delivered and not settled. */
  unacked: number;
  /** Messages held on disk alone. */
  paged_out: number;
  /** What messages in memory count for against limits. */
  stored_bytes: number;
  /** The same for messages on disk alone. */
  paged_bytes: number;
  /** Subscriptions. */
  consumers: number;
  /** Messages accepted since the queue was made. What `taken - depth` grows by has left it. */
  taken: number;
  /** Age of the first message, at least; null: none waits in memory. */
  oldest_seconds: number | null;
  /** Messages that were NACKed and wait for their `redelivery-delay`. */
  postponed: number;
}

/** What queues are listed by. */
export type QueueOrder = "name" | "depth" | "bytes" | "taken" | "unacked" | "consumers" | "oldest";
export const QueueOrder = {
  NAME: "name",
  DEPTH: "depth",
  BYTES: "bytes",
  TAKEN: "taken",
  UNACKED: "unacked",
  CONSUMERS: "consumers",
  OLDEST: "oldest",
} as const;

/** Parameters of "queues.list". */
export interface QueuesListParameters {
  /** @defaultValue `"**"` */
  pattern?: string;
  /** @defaultValue `"name"` */
  order?: QueueOrder;
  /** @defaultValue `""` */
  after?: string;
  /** @defaultValue `100` */
  limit?: number;
  /** @defaultValue `true` */
  internal?: boolean;
  /** @defaultValue `0` */
  skip?: number;
  /** @defaultValue `false` */
  reverse?: boolean;
}

/**
 * A page of rows.
 *
 * Attributes:
 *     rows: in the order that was asked for.
 *     matched: how many there are, on all pages.
 *     after: of the next page, where the order is by name and there is one.
 *     hidden: the number of internal ones left out.
 */
export interface QueuesListReply {
  rows: QueueRow[];
  matched: number;
  after: string | null;
  hidden: number;
}

/** Grants that are probably mistakes. Of each list the first hundred. */
export interface RightsView {
  /** No rights are configured: every principal may do almost everything. */
  is_open: boolean;
  capabilities: number;
  /** Principals that are given capabilities. */
  identities: number;
  /** Capabilities that no principal has. */
  unused_capabilities: string[];
  /** Users, and connected principals, that have no capability. */
  without_rights: string[];
  /** Grants of `call` that match no verb of this broker, each after its capability. */
  unknown_verbs: string[];
  /**
   * Grants of `publish` and `subscribe` that match no destination that exists now, each after its capability.
   */
  unmatched: string[];
  /** Verbs of the broker that anonymous peers may call; those that need no right are left out. */
  anonymous_verbs: string[];
}

/** Parameters of "rights.mine". */
export interface RightsMineParameters {
  /** @defaultValue `null` */
  destination?: string | null;
}

/**
 * Who a caller is to the broker, and which of the broker's verbs it may call.
 *
 * `value_prefixes` are those of last-value destinations, by which a client tells them from topics.
 * `may_publish` and `may_subscribe` are about the destination that it asked for, and null without one.
 */
export interface OwnRights {
  principal: string;
  verbs: string[];
  value_prefixes: string[];
  may_publish: boolean | null;
  may_subscribe: boolean | null;
}

/** Parameters of "schema.bound". */
export interface SchemaBoundParameters {
  destination: string;
}

/** What the bodies of a destination must be: of the type `name`, in an `envelope` or `bare`. */
export interface SchemaBinding {
  name: string;
  content: string;
}

/** Parameters of "schema.get". */
export interface SchemaGetParameters {
  fingerprint: string;
}

/** A schema with its definition. */
export interface SchemaText {
  name: string;
  fingerprint: string;
  definition: unknown;
}

/** Parameters of "schema.list". */
export interface SchemaListParameters {
  /** @defaultValue `null` */
  name?: string | null;
}

/** A schema, as `schema.list` names it. */
export interface SchemaEntry {
  name: string;
  fingerprint: string;
}

/** Parameters of "schema.register". */
export interface SchemaRegisterParameters {
  definition: unknown;
}

/** Parameters of "session.end". */
export interface SessionEndParameters {
  session: string;
}

/** Parameters of "session.purge". */
export interface SessionPurgeParameters {
  session: string;
}

/** Parameters of "session.show". */
export interface SessionShowParameters {
  session: string;
}

/** A session with its durable subscriptions (the first thousand). */
export interface SessionDetails {
  summary: SessionRow;
  subscriptions: DurableRow[];
}

/** A session with durable subscriptions, which outlives its connection. */
export interface SessionRow {
  /** Its client-id. */
  session: string;
  principal: string;
  /** Since its connection ended; null: it is connected. */
  away_seconds: number | null;
  /** Durable subscriptions. */
  subscriptions: number;
  /** Messages, and last values, that wait for it. */
  waiting: number;
  /** Counts against limits. */
  stored_bytes: number;
}

/** A durable subscription, with what waits for it. */
export interface DurableRow {
  /** Chosen by the client; unique in its session. */
  id: string;
  /** May be a glob. */
  destination: string;
  /** `auto`, `client` or `client-individual`. */
  ack: string;
  /** Messages that may be un-ACKed before delivery pauses. */
  prefetch: number;
  /** Its session is connected and subscribed. */
  is_active: boolean;
  /** Messages or last values that wait for it. */
  waiting: number;
  /** Counts against limits. */
  stored_bytes: number;
}

/** Parameters of "sessions.list". */
export interface SessionsListParameters {
  /** @defaultValue `"**"` */
  pattern?: string;
  /** @defaultValue `""` */
  after?: string;
  /** @defaultValue `100` */
  limit?: number;
}

/**
 * A page of rows.
 *
 * Attributes:
 *     rows: in the order that was asked for.
 *     matched: how many there are, on all pages.
 *     after: of the next page, where the order is by name and there is one.
 *     hidden: the number of internal ones left out.
 */
export interface SessionsListReply {
  rows: SessionRow[];
  matched: number;
  after: string | null;
  hidden: number;
}

/** Parameters of "settings.check". */
export interface SettingsCheckParameters {
  /** @defaultValue `null` */
  text?: string | null;
}

/**
 * What new settings would change: the names of those that a reload takes, and those for a restart.
 */
export interface SettingsCheck {
  reload: string[];
  restart: string[];
  problems: SettingsProblem[];
}

/**
 * A mistake in settings: where (`file`, a variable or a flag), and what is wrong, without the value.
 */
export interface SettingsProblem {
  source: string;
  problem: string;
}

/** Parameters of "store.backup". */
export interface StoreBackupParameters {
  name: string;
}

/** A copy of the store: how large it is, and its name in the folder of copies. */
export interface CopyMade {
  name: string;
  size_bytes: number;
}

/** Parameters of "topic.show". */
export interface TopicShowParameters {
  topic: string;
}

/** A topic with its connected subscribers (the first thousand), or a last value. */
export interface TopicDetails {
  summary: TopicRow;
  subscriptions: SubscriptionRow[];
}

/** A topic or glob of topics with subscriptions, or a last-value destination. */
export interface TopicRow {
  topic: string;
  /** `topic` or `last-value`. */
  kind: string;
  /** Of a topic: subscriptions, including those of absent sessions. */
  subscribers: number | null;
  /**
   * Of a topic: messages that wait for subscribers. Of a last value: subscribers that still have to receive it.
   */
  waiting: number;
  /** Counts against limits. */
  stored_bytes: number;
  /** Of a last value: it is set, and was not deleted. */
  has_value: boolean | null;
  /** Of a last value: since its last change, at least. */
  changed_seconds: number | null;
  /** Of a last value: its principal. */
  sender: string | null;
  /** Of an ephemeral last value: the session whose end deletes it. */
  owner: string | null;
}

/** What topics and last values are listed by. */
export type TopicOrder = "name" | "subscribers" | "waiting" | "bytes" | "changed";
export const TopicOrder = {
  NAME: "name",
  SUBSCRIBERS: "subscribers",
  WAITING: "waiting",
  BYTES: "bytes",
  CHANGED: "changed",
} as const;

/** Parameters of "topics.list". */
export interface TopicsListParameters {
  /** @defaultValue `"**"` */
  pattern?: string;
  /** @defaultValue `null` */
  kind?: "topic" | "last-value" | null;
  /** @defaultValue `""` */
  after?: string;
  /** @defaultValue `100` */
  limit?: number;
  /** @defaultValue `true` */
  internal?: boolean;
  /** @defaultValue `"name"` */
  order?: TopicOrder;
  /** @defaultValue `0` */
  skip?: number;
  /** @defaultValue `false` */
  reverse?: boolean;
}

/**
 * A page of rows.
 *
 * Attributes:
 *     rows: in the order that was asked for.
 *     matched: how many there are, on all pages.
 *     after: of the next page, where the order is by name and there is one.
 *     hidden: the number of internal ones left out.
 */
export interface TopicsListReply {
  rows: TopicRow[];
  matched: number;
  after: string | null;
  hidden: number;
}

/** Calls to the service "nebula". */
export class NebulaService {
  readonly #nebula: Pick<Nebula, "call">;

  constructor(nebula: Pick<Nebula, "call">) {
    this.#nebula = nebula;
  }

  /**
   * Figures of the last hour, one sample each ten seconds, after the time `after` (since 1970).
   */
  broker_history(
    parameters?: BrokerHistoryParameters,
    options?: CallOptions,
  ): Promise<HistorySample[]> {
    return this.#nebula.call("/queue/nebula.broker", "broker.history", parameters, options);
  }

  /**
   * The machine and process that the broker runs in: versions, clock, limits, disk, certificates.
   */
  broker_machine(options?: CallOptions): Promise<MachineView> {
    return this.#nebula.call("/queue/nebula.broker", "broker.machine", undefined, options);
  }

  /** The state of the broker in numbers. The reply does not grow with what the broker holds. */
  broker_status(options?: CallOptions): Promise<BrokerStatus> {
    return this.#nebula.call("/queue/nebula.broker", "broker.status", undefined, options);
  }

  /** End a connection with an ERROR. Its durable subscriptions stay, and it may connect again. */
  connection_end(parameters: ConnectionEndParameters, options?: CallOptions): Promise<void> {
    return this.#nebula.call("/queue/nebula.broker", "connection.end", parameters, options);
  }

  /** A connection with its subscriptions. */
  connection_show(
    parameters: ConnectionShowParameters,
    options?: CallOptions,
  ): Promise<ConnectionDetails> {
    return this.#nebula.call("/queue/nebula.broker", "connection.show", parameters, options);
  }

  /**
   * Connections, or one principal's, by session (`after`: see queues.list) or the first by `order`.
   */
  connections_list(
    parameters?: ConnectionsListParameters,
    options?: CallOptions,
  ): Promise<ConnectionsListReply> {
    return this.#nebula.call("/queue/nebula.broker", "connections.list", parameters, options);
  }

  /** Delayed messages in order of arrival, beginning after the number `after`. */
  delayed_list(
    parameters?: DelayedListParameters,
    options?: CallOptions,
  ): Promise<DelayedListReply> {
    return this.#nebula.call("/queue/nebula.broker", "delayed.list", parameters, options);
  }

  /** Drop delayed messages; returns how many. */
  delayed_purge(parameters?: DelayedPurgeParameters, options?: CallOptions): Promise<number> {
    return this.#nebula.call("/queue/nebula.broker", "delayed.purge", parameters, options);
  }

  /** Dead letters in order of arrival, after the number `after`; `reverse`: the newest first. */
  dlq_list(parameters?: DlqListParameters, options?: CallOptions): Promise<Letters> {
    return this.#nebula.call("/queue/nebula.broker", "dlq.list", parameters, options);
  }

  /** Drop dead letters. */
  dlq_purge(parameters?: DlqPurgeParameters, options?: CallOptions): Promise<Purged> {
    return this.#nebula.call("/queue/nebula.broker", "dlq.purge", parameters, options);
  }

  /** Put dead letters back where they came from, or into the queue `to`; each in one batch. */
  dlq_replay(parameters?: DlqReplayParameters, options?: CallOptions): Promise<Replayed> {
    return this.#nebula.call("/queue/nebula.broker", "dlq.replay", parameters, options);
  }

  /** A dead letter with all its headers. */
  dlq_show(parameters: DlqShowParameters, options?: CallOptions): Promise<MessageView> {
    return this.#nebula.call("/queue/nebula.broker", "dlq.show", parameters, options);
  }

  /**
   * Counts of messages by sender and destination, with the subscribers: those with most messages.
   */
  flows_list(parameters?: FlowsListParameters, options?: CallOptions): Promise<FlowRow[]> {
    return this.#nebula.call("/queue/nebula.broker", "flows.list", parameters, options);
  }

  /**
   * What principals use of the broker's resources, by name (`after`: see queues.list) or by `order`.
   */
  principals_list(
    parameters?: PrincipalsListParameters,
    options?: CallOptions,
  ): Promise<PrincipalsListReply> {
    return this.#nebula.call("/queue/nebula.broker", "principals.list", parameters, options);
  }

  /** Waiting messages in order of arrival, after the number `after`; nothing is consumed. */
  queue_peek(parameters: QueuePeekParameters, options?: CallOptions): Promise<MessageView[]> {
    return this.#nebula.call("/queue/nebula.broker", "queue.peek", parameters, options);
  }

  /** Drop all messages that wait in a queue; returns the count. Un-ACKed messages stay. */
  queue_purge(parameters: QueuePurgeParameters, options?: CallOptions): Promise<number> {
    return this.#nebula.call("/queue/nebula.broker", "queue.purge", parameters, options);
  }

  /** A queue with its limits and consumers. */
  queue_show(parameters: QueueShowParameters, options?: CallOptions): Promise<QueueDetails> {
    return this.#nebula.call("/queue/nebula.broker", "queue.show", parameters, options);
  }

  /** Queues by name (`after`: the last name of the page before), or the greatest by `order`. */
  queues_list(parameters?: QueuesListParameters, options?: CallOptions): Promise<QueuesListReply> {
    return this.#nebula.call("/queue/nebula.broker", "queues.list", parameters, options);
  }

  /**
   * Grants that are probably mistakes: capabilities of no principal, globs that match nothing.
   */
  rights_check(options?: CallOptions): Promise<RightsView> {
    return this.#nebula.call("/queue/nebula.broker", "rights.check", undefined, options);
  }

  /**
   * The caller's principal, the verbs here that it may call, and what it may do with a destination.
   */
  rights_mine(parameters?: RightsMineParameters, options?: CallOptions): Promise<OwnRights> {
    return this.#nebula.call("/queue/nebula.broker", "rights.mine", parameters, options);
  }

  /** Read settings, certificates, deny lists, users and rights again, as SIGHUP does. */
  rights_reload(options?: CallOptions): Promise<void> {
    return this.#nebula.call("/queue/nebula.broker", "rights.reload", undefined, options);
  }

  /**
   * The type that bodies of a destination must have, and their `content`; null: any may be sent.
   */
  schema_bound(
    parameters: SchemaBoundParameters,
    options?: CallOptions,
  ): Promise<SchemaBinding | null> {
    return this.#nebula.call("/queue/nebula.broker", "schema.bound", parameters, options);
  }

  /** The schema of a fingerprint: 16 hexadecimal digits, the highest first. */
  schema_get(parameters: SchemaGetParameters, options?: CallOptions): Promise<SchemaText> {
    return this.#nebula.call("/queue/nebula.broker", "schema.get", parameters, options);
  }

  /** All schemas, or those of the types of one name. */
  schema_list(parameters?: SchemaListParameters, options?: CallOptions): Promise<SchemaEntry[]> {
    return this.#nebula.call("/queue/nebula.broker", "schema.list", parameters, options);
  }

  /** Register a schema. Those of one name must be readable by each other. */
  schema_register(
    parameters: SchemaRegisterParameters,
    options?: CallOptions,
  ): Promise<SchemaEntry> {
    return this.#nebula.call("/queue/nebula.broker", "schema.register", parameters, options);
  }

  /**
   * End a session: its durable subscriptions with everything kept for them, and its connection.
   */
  session_end(parameters: SessionEndParameters, options?: CallOptions): Promise<void> {
    return this.#nebula.call("/queue/nebula.broker", "session.end", parameters, options);
  }

  /**
   * Drop everything that waits for a session's durable subscriptions, which stay; returns the count.
   */
  session_purge(parameters: SessionPurgeParameters, options?: CallOptions): Promise<number> {
    return this.#nebula.call("/queue/nebula.broker", "session.purge", parameters, options);
  }

  /** A session with its durable subscriptions. */
  session_show(parameters: SessionShowParameters, options?: CallOptions): Promise<SessionDetails> {
    return this.#nebula.call("/queue/nebula.broker", "session.show", parameters, options);
  }

  /** Sessions with durable subscriptions, by client-id (`after`: see queues.list). */
  sessions_list(
    parameters?: SessionsListParameters,
    options?: CallOptions,
  ): Promise<SessionsListReply> {
    return this.#nebula.call("/queue/nebula.broker", "sessions.list", parameters, options);
  }

  /**
   * Check the settings file, or a new text: all errors, or what would change. Changes nothing.
   */
  settings_check(
    parameters?: SettingsCheckParameters,
    options?: CallOptions,
  ): Promise<SettingsCheck> {
    return this.#nebula.call("/queue/nebula.broker", "settings.check", parameters, options);
  }

  /**
   * Copy the store as it is now, and replace an earlier copy of this name. The broker goes on.
   */
  store_backup(parameters: StoreBackupParameters, options?: CallOptions): Promise<CopyMade> {
    return this.#nebula.call("/queue/nebula.broker", "store.backup", parameters, options);
  }

  /** A topic with its connected subscribers, or a last value. */
  topic_show(parameters: TopicShowParameters, options?: CallOptions): Promise<TopicDetails> {
    return this.#nebula.call("/queue/nebula.broker", "topic.show", parameters, options);
  }

  /** Topics that are subscribed to, and last values, by name or by `order` (see queues.list). */
  topics_list(parameters?: TopicsListParameters, options?: CallOptions): Promise<TopicsListReply> {
    return this.#nebula.call("/queue/nebula.broker", "topics.list", parameters, options);
  }
}
