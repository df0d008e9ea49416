// What `broker.status` returns, as far as the console shows it.

export interface KindTotals {
  destinations: number;
  messages: number;
  unacked: number;
  paged_out: number;
  stored_bytes: number;
  subscriptions: number;
}

export interface PoolStatus {
  limit: number;
  reserved: number;
  used: number;
  largest: number;
  refusals: number;
}

export interface StoreStatus {
  commits: number;
  rows: number;
  seconds: number;
  backlog: number;
  waiting: number;
}

export interface BrokerStatus {
  version: string;
  uptime_seconds: number;
  not_ready: string | null;
  connections: number;
  max_connections: number;
  sessions: number;
  received: number;
  sent_frames: number;
  read_bytes: number;
  written_bytes: number;
  memory_bytes: number;
  max_memory_bytes: number;
  outbox_bytes: number;
  held_back: number;
  delayed: number;
  dead_letters: number;
  dropped: Record<string, number>;
  events: Record<string, number>;
  ended: Record<string, number>;
  kinds: Record<string, KindTotals>;
  principals: number;
  pools: Record<string, PoolStatus>;
  store: StoreStatus | null;
}

/** A row of `queues.list`. */
export interface QueueRow {
  queue: string;
  depth: number;
  consumers: number;
  unacked: number;
}
