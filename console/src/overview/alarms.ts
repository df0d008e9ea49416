// What is wrong with a broker, and what to do about it.

import type { BrokerStatus, QueueRow } from "../broker";
import { bytes, count, duration, percent, plural } from "../widgets/format";
import { href } from "../router";

/** A queue, as far as it is looked at here. */
export type Queue = Pick<QueueRow, "queue" | "depth" | "consumers" | "unacked">;

export interface Alarm {
  /** The same alarm has the same key, whatever its figures are. */
  key: string;
  level: "bad" | "warn";
  title: string;
  cure: string;
  link?: { to: string; text: string };
}

const NEARLY = 0.9;
const SLOW_COMMIT_SECONDS = 0.25;

const POOLS: Record<string, string> = {
  memory: "memory",
  disk: "room on disk",
  destinations: "destinations",
  subscriptions: "subscriptions",
  globs: "subscriptions to globs",
  "durable-sessions": "durable sessions",
  "durable-subscriptions": "durable subscriptions",
  "delayed-messages": "delayed messages",
  "dedup-ids": "ids for recognising duplicates",
  connections: "connections",
};

const CURES: Record<string, string> = {
  memory: "Find the queues that hold most: start their consumers, or purge what is no longer needed.",
  disk: "Find the deepest queues: start their consumers, or purge what is no longer needed.",
  connections: "End clients that do not close theirs, or raise max_connections.",
};

/**
 * All alarms of a broker, the worst first.
 *
 * @param before an earlier status of the same broker; what has grown since then is news
 * @param queues the deepest
 */
export function alarmsOf(
  status: BrokerStatus,
  before: BrokerStatus | null,
  queues: readonly Queue[] = [],
): Alarm[] {
  const alarms = [
    ...readiness(status),
    ...pools(status, before),
    ...backlog(status, queues),
    ...store(status, before),
    ...losses(status, before),
  ];
  return alarms.sort((one, other) => Number(one.level === "warn") - Number(other.level === "warn"));
}

function readiness({ not_ready: reason }: BrokerStatus): Alarm[] {
  if (reason === null) return [];
  const cure = reason.includes("disk")
    ? "Free space on the disk of the store, or purge queues: persistent messages are refused until then."
    : reason.includes("store")
      ? "See the broker's log, repair its disk, and start it again: what had a RECEIPT is on disk."
      : "It ends after its last messages. Clients connect again when it is back.";
  return [{ key: "not-ready", level: "bad", title: `The broker is not ready: ${reason}`, cure }];
}

function pools(status: BrokerStatus, before: BrokerStatus | null): Alarm[] {
  const alarms: Alarm[] = [];
  for (const [name, pool] of Object.entries(status.pools)) {
    const what = POOLS[name] ?? name;
    const show = name === "memory" || name === "disk" ? bytes : count;
    const used = pool.limit > 0 ? pool.used / pool.limit : 0;
    if (used >= NEARLY) {
      alarms.push({
        key: `pool-${name}`,
        level: used >= 0.98 ? "bad" : "warn",
        title: `${percent(used)} of all ${what} in use (${show(pool.used)} of ${show(pool.limit)})`,
        cure: CURES[name] ?? "Find the principal that uses most, or raise the limit in the settings.",
        link:
          name === "connections"
            ? { to: href("connections"), text: "Connections" }
            : { to: href("queues"), text: "Queues" },
      });
    }
    const refused = pool.refusals - (before?.pools[name]?.refusals ?? pool.refusals);
    if (refused > 0) {
      alarms.push({
        key: `refusals-${name}`,
        level: "warn",
        title: `${plural(refused, "request")} refused: the principal has used up its share of ${what}`,
        cure: "See which principal it is (nebula principals), and end what it does not need.",
      });
    }
  }
  if (status.held_back > 0) {
    alarms.push({
      key: "held-back",
      level: "warn",
      title: `Held back until there is room: ${plural(status.held_back, "connection")}`,
      cure: "Publishers are faster than consumers: start more consumers of the deepest queues.",
      link: { to: href("queues"), text: "Queues" },
    });
  }
  return alarms;
}

function backlog(status: BrokerStatus, queues: readonly Queue[]): Alarm[] {
  const alarms: Alarm[] = [];
  const waiting = queues.filter(({ depth, consumers }) => depth > 0 && consumers === 0);
  // The dead letters have an alarm of their own.
  const idle = waiting.filter(({ queue }) => queue !== "/queue/DLQ");
  const first = idle[0];
  if (first !== undefined) {
    const others = idle.length > 1 ? `, and ${count(idle.length - 1)} other queues,` : "";
    alarms.push({
      key: "no-consumer",
      level: "warn",
      title: `${first.queue}${others} ${idle.length > 1 ? "have" : "has"} messages (${count(first.depth)}) and no consumer`,
      cure: "Start the service that reads it, or purge the queue if nothing will.",
      link: { to: href("queues", [first.queue]), text: "Look into it" },
    });
  }
  if (status.dead_letters > 0) {
    alarms.push({
      key: "dead-letters",
      level: "warn",
      title: plural(status.dead_letters, "dead letter"),
      cure: "See why they were not delivered; fix the cause, then replay or purge them.",
      link: { to: href("dead-letters"), text: "Dead letters" },
    });
  }
  return alarms;
}

function store(status: BrokerStatus, before: BrokerStatus | null): Alarm[] {
  if (status.store === null || before?.store == null) return [];
  const commits = status.store.commits - before.store.commits;
  const seconds = status.store.seconds - before.store.seconds;
  const each = commits > 0 ? seconds / commits : 0;
  if (each < SLOW_COMMIT_SECONDS) return [];
  return [
    {
      key: "slow-store",
      level: "warn",
      title: `The store is slow: a batch takes ${duration(each)}, and ${plural(status.store.waiting, "connection")} wait`,
      cure: "Look for what else uses its disk, or move the store to a faster one.",
    },
  ];
}

// Reasons of `nebula_messages_dropped_total` that an operator should know. The others are intended.
const LOSSES: Record<string, string> = {
  "rejected-invalid": "refused: not in the form that their destination asks for",
  "rejected-unauthorised": "refused: their senders lack the right",
  "rejected-full": "refused because there was no room",
  full: "dropped to make room for later ones",
  "dead-letter-full": "lost: there was no room for them among the dead letters",
};

function losses(status: BrokerStatus, before: BrokerStatus | null): Alarm[] {
  if (before === null) return [];
  return Object.entries(LOSSES)
    .map(([reason, what]) => ({
      reason,
      what,
      lost: (status.dropped[reason] ?? 0) - (before.dropped[reason] ?? 0),
    }))
    .filter(({ lost }) => lost > 0)
    .map(({ reason, what, lost }) => ({
      key: `dropped-${reason}`,
      level: "warn" as const,
      title: `${plural(lost, "message")} ${what}`,
      cure: "The broker's log names senders and destinations.",
    }));
}
