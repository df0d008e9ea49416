// Statistics of services, asked for again and again, with a short history for charts.

import { useRef } from "preact/hooks";
import { session } from "../session";
import { usePolled } from "../widgets/poll";
import type { Instance, Statistics } from "./model";
import { ratesBetween, type Look, type Rates } from "./statistics";

/** How much is remembered while a page is open. */
const MOST_LOOKS = 300;
const MOST_AT_ONCE = 8;
const PATIENCE = 3_000;

export interface Watched {
  /** The last look; null: none yet. */
  last: Look | null;
  rates: Rates | null;
  history: readonly Rates[];
  /** Instances that did not reply to the last look. */
  silent: readonly string[];
}

const NOTHING: Watched = { last: null, rates: null, history: [], silent: [] };

/** The statistics of services, by name. */
export function useStatistics(services: ReadonlyMap<string, readonly Instance[]>, seconds: number): ReadonlyMap<string, Watched> {
  const known = useRef(new Map<string, Watched>());
  const asked = useRef(services);
  asked.current = services;
  const polled = usePolled(
    async (signal) => {
      const now = await lookAll([...asked.current.values()].flat(), signal);
      const next = new Map<string, Watched>();
      for (const [service, instances] of asked.current) {
        const replies = new Map<string, Statistics>();
        for (const { name, service: of } of instances) {
          const reply = now.replies.get(`${of}.${name}`);
          if (reply !== undefined) replies.set(name, reply);
        }
        const silent = instances.filter(({ name }) => !replies.has(name)).map(({ name }) => name);
        next.set(service, after(known.current.get(service) ?? NOTHING, { at: now.at, replies }, silent));
      }
      known.current = next;
      return next;
    },
    seconds,
    // Instances that come and go are asked at once.
    [[...services].map(([name, instances]) => `${name}:${instances.map((one) => one.name).join()}`).join(";")],
  );
  return polled.data ?? known.current;
}

function after(before: Watched, look: Look, silent: string[]): Watched {
  if (before.last === null) return { last: look, rates: null, history: [], silent };
  const rates = ratesBetween(before.last, look);
  return { last: look, rates, history: [...before.history.slice(1 - MOST_LOOKS), rates], silent };
}

async function lookAll(instances: readonly Instance[], signal: AbortSignal): Promise<{ at: number; replies: Map<string, Statistics> }> {
  const replies = new Map<string, Statistics>();
  const waiting = instances.filter(({ queue }) => queue !== null);
  const ask = async (): Promise<void> => {
    for (let one = waiting.shift(); one !== undefined && !signal.aborted; one = waiting.shift()) {
      try {
        const reply = await session.call<Statistics>(one.queue ?? "", "stats", {}, { timeout: PATIENCE, signal });
        replies.set(`${one.service}.${one.name}`, reply);
      } catch {
        // Silence is what is shown.
      }
    }
  };
  await Promise.all(Array.from({ length: MOST_AT_ONCE }, ask));
  return { at: Date.now() / 1000, replies };
}
