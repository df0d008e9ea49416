// What services say about themselves: instances, contracts, statistics.

import type { Schema } from "../forms/schema";

/** One instance, as its last value describes it. */
export interface Instance {
  service: string;
  name: string;
  queue: string | null;
  queues: string[];
  verbs: string[];
  /** A hash of its contract; empty: unknown. */
  schemas: string;
  version: string;
  busy: number;
  waiting: number;
  started_at: number;
}

export interface Verb {
  verb: string;
  description: string;
  parameters: Schema;
  result?: unknown;
  item?: unknown;
  stream?: boolean;
  job?: boolean;
  idempotent?: boolean;
  deprecated?: boolean;
  /** False: the caller may not call it. */
  allowed?: boolean;
  queue: string;
  errors?: { code: string; description: string; retryable: boolean }[];
  [more: string]: unknown;
}

export interface Contract {
  service: string;
  version?: string;
  queues: string[];
  idempotency?: string;
  verbs: Verb[];
  listens?: { destination: string; handler: string; description: string; message?: unknown }[];
}

export interface VerbStatistics {
  requests: number;
  errors: number;
  mean_seconds: number;
  longest_seconds: number;
  /** Pairs of bucket and count. */
  latency: [number, number][];
}

export interface Statistics {
  service: string;
  instance: string;
  uptime_seconds: number;
  busy: number;
  waiting: number;
  expired?: number;
  cancelled?: number;
  overloaded?: number;
  verbs: Record<string, VerbStatistics>;
  listens?: (VerbStatistics & { destination: string; handler: string; messages: number; unreadable: number; given_up: number; waiting: number })[];
}

export interface Engine {
  state: string;
  broken: string | null;
  jobs: Record<string, number>;
  /** Whether we may restart it; older services do not say. */
  may_restart?: boolean;
  last_end?: string | null;
  starts?: number;
  master?: string;
  memory?: string | null;
  max_running?: number;
  spark?: string | null;
  java?: string | null;
  ui?: string | null;
  up_seconds?: number | null;
  rss_bytes?: number | null;
}

/** Verbs of every service. */
const BUILT_IN = new Set(["ping", "describe", "stats"]);

export function isBuiltIn(verb: string): boolean {
  return BUILT_IN.has(verb) || /^(job|engine|neb)\./.test(verb);
}

/** Where a verb is asked for: the service by its name, or one of its instances by its queue. */
export function addressOf(instances: readonly Instance[], service: string): string {
  // A service whose first queue is not named like it is reached there alone.
  return instances[0]?.queues[0] ?? `/queue/${service}`;
}

/** Instances by service, each sorted by name. */
export function byService(instances: Iterable<Instance>): Map<string, Instance[]> {
  const found = new Map<string, Instance[]>();
  for (const one of instances) found.set(one.service, [...(found.get(one.service) ?? []), one]);
  for (const group of found.values()) group.sort((one, other) => one.name.localeCompare(other.name));
  return new Map([...found].sort(([one], [other]) => one.localeCompare(other)));
}

/** Whether the contracts of instances differ, as far as they are known. */
export function differ(instances: readonly Instance[]): boolean {
  return new Set(instances.map(({ schemas }) => schemas).filter(Boolean)).size > 1;
}

/** The versions of instances, each once. */
export function versionsOf(instances: readonly Instance[]): string {
  const versions = [...new Set(instances.map(({ version }) => version).filter(Boolean))];
  return versions.sort((one, other) => one.localeCompare(other, "en", { numeric: true })).join(", ");
}

/** The body of an instance's last value; null if it describes none. */
export function readInstance(body: string, destination: string): Instance | null {
  let told: unknown;
  try {
    told = JSON.parse(body);
  } catch {
    return null;
  }
  if (typeof told !== "object" || told === null) return null;
  const one = told as Partial<Record<keyof Instance, unknown>>;
  if (typeof one.service !== "string" || typeof one.name !== "string") return null;
  const made: Instance = {
    service: one.service,
    name: one.name,
    queue: typeof one.queue === "string" ? one.queue : null,
    queues: texts(one.queues),
    verbs: texts(one.verbs),
    schemas: typeof one.schemas === "string" ? one.schemas : "",
    version: typeof one.version === "string" ? one.version : "",
    busy: number(one.busy),
    waiting: number(one.waiting),
    started_at: number(one.started_at),
  };
  // It must not speak for another one, nor send our calls to a queue that is not its own.
  if (destination !== `X/nebula.services.${made.service}.${made.name}`) return null;
  if (made.queue !== `/queue/${made.service}.${made.name}`) made.queue = null;
  return made;
}

function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((one) => typeof one === "string") : [];
}

function number(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}
