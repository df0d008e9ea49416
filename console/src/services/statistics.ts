// Counts of services as they grow: rates, shares of errors, and quantiles of what happened in between.

import type { Statistics, VerbStatistics } from "./model";
import { isBuiltIn } from "./model";

/** A sum over verbs, instances, or both. */
export interface Tally {
  requests: number;
  errors: number;
  seconds: number;
  longest: number;
  latency: Map<number, number>;
}

export function emptyTally(): Tally {
  return { requests: 0, errors: 0, seconds: 0, longest: 0, latency: new Map() };
}

function addTo(sum: Tally, one: VerbStatistics, requests: number): void {
  const ended = (one.latency ?? []).reduce((all, [, count]) => all + count, 0);
  sum.requests += requests;
  sum.errors += one.errors;
  sum.seconds += one.mean_seconds * (ended || requests);
  sum.longest = Math.max(sum.longest, one.longest_seconds);
  for (const [bucket, count] of one.latency ?? []) sum.latency.set(bucket, (sum.latency.get(bucket) ?? 0) + count);
}

/** Everything that users asked instances for: the service's own verbs, and messages of its functions. */
export function totalOf(replies: Iterable<Statistics>): Tally {
  const sum = emptyTally();
  for (const { verbs, listens = [] } of replies) {
    for (const [name, one] of Object.entries(verbs)) if (!isBuiltIn(name)) addTo(sum, one, one.requests);
    for (const one of listens) addTo(sum, one, one.messages);
  }
  return sum;
}

/** The same by verb, with those that every service has. */
export function byVerb(replies: Iterable<Statistics>): Map<string, Tally> {
  const found = new Map<string, Tally>();
  for (const { verbs } of replies) {
    for (const [name, one] of Object.entries(verbs)) {
      const sum = found.get(name) ?? emptyTally();
      addTo(sum, one, one.requests);
      found.set(name, sum);
    }
  }
  return found;
}

/** What was added between two looks; null where counts have become smaller, as by a restart. */
export function since(before: Tally, now: Tally): Tally | null {
  if (now.requests < before.requests || now.errors < before.errors) return null;
  const latency = new Map<number, number>();
  for (const [bucket, count] of now.latency) {
    const more = count - (before.latency.get(bucket) ?? 0);
    if (more < 0) return null;
    if (more > 0) latency.set(bucket, more);
  }
  return {
    requests: now.requests - before.requests,
    errors: now.errors - before.errors,
    seconds: now.seconds - before.seconds,
    longest: now.longest,
    latency,
  };
}

const STEPS = 16;

/** The seconds that this share of all took at most, exact to a sixteenth; null without any. See `nebula.rpc.wire.histogram`. */
export function quantile({ latency, longest }: Tally, share: number): number | null {
  const total = [...latency.values()].reduce((sum, count) => sum + count, 0);
  let wanted = Math.max(1, Math.ceil(share * total));
  for (const [bucket, count] of [...latency].sort(([one], [other]) => one - other)) {
    wanted -= count;
    if (wanted <= 0) return Math.min(upperBound(bucket), longest);
  }
  return null;
}

function upperBound(bucket: number): number {
  const from = bucket - STEPS;
  const power = Math.floor(from / STEPS);
  const step = from - power * STEPS;
  return ((STEPS + step + 1) / (2 * STEPS)) * 2 ** power;
}

/** One look at a service. */
export interface Look {
  /** Seconds since 1970. */
  at: number;
  /** By instance. */
  replies: Map<string, Statistics>;
}

export interface Rates {
  at: number;
  /** Per second. */
  requests: number | null;
  errors: number | null;
  p50: number | null;
  p99: number | null;
}

/** What happened between two looks, by the instances that are in both. */
export function ratesBetween(before: Look, now: Look): Rates {
  const seconds = now.at - before.at;
  const both = [...now.replies.keys()].filter((name) => before.replies.has(name));
  let isKnown = both.length > 0 && seconds > 0;
  const sum = emptyTally();
  for (const name of both) {
    const [was, is] = [before.replies.get(name), now.replies.get(name)];
    const more = was && is ? since(totalOf([was]), totalOf([is])) : null;
    if (more === null) {
      isKnown = false;
      continue;
    }
    sum.requests += more.requests;
    sum.errors += more.errors;
    sum.longest = Math.max(sum.longest, more.longest);
    for (const [bucket, count] of more.latency) sum.latency.set(bucket, (sum.latency.get(bucket) ?? 0) + count);
  }
  if (!isKnown) return { at: now.at, requests: null, errors: null, p50: null, p99: null };
  return {
    at: now.at,
    requests: sum.requests / seconds,
    errors: sum.errors / seconds,
    p50: quantile(sum, 0.5),
    p99: quantile(sum, 0.99),
  };
}
