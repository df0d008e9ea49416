// Figures over the last hour: what the broker has kept, and what was read since the page was opened.

import { effect, signal, type ReadonlySignal } from "@preact/signals";
import type { BrokerStatus, HistorySample } from "../broker";
import { session } from "../session";

/** Figures at one time; totals count from the start of the broker. */
export type Sample = HistorySample;

export const WINDOW_SECONDS = 3600;
const EVERY_MS = 2_000;

/** A row of samples, the oldest first, of an hour at most. */
export function appended(samples: readonly Sample[], sample: Sample): Sample[] {
  const begin = samples.findIndex(({ at }) => at > sample.at - WINDOW_SECONDS);
  const kept = begin === -1 ? [] : samples.slice(begin);
  return [...kept.filter(({ at }) => at < sample.at), sample];
}

/**
 * The samples that the broker has kept, on the clock of this machine.
 *
 * @param now of this machine, when they were read
 */
export function aligned(kept: readonly Sample[], now: number, everySeconds = 10): Sample[] {
  const last = kept.at(-1);
  if (last === undefined) return [];
  // The newest sample is at most one period old. Where it seems older, or to come, the clocks differ.
  const age = now - last.at;
  const shift = age < -1 || age > 3 * everySeconds ? age : 0;
  return kept.map((sample) => ({ ...sample, at: sample.at + shift }));
}

export function sampleOf(status: BrokerStatus, at: number): Sample {
  const queues = status.kinds["queue"];
  return {
    at,
    connections: status.connections,
    received: status.received,
    sent_frames: status.sent_frames,
    read_bytes: status.read_bytes,
    written_bytes: status.written_bytes,
    memory_bytes: status.memory_bytes,
    disk_bytes: status.pools["disk"]?.used ?? 0,
    messages: queues?.messages ?? 0,
    unacked: queues?.unacked ?? 0,
    dead_letters: status.dead_letters,
  };
}

type Total = "received" | "sent_frames" | "read_bytes" | "written_bytes";

/** How fast a total grew before each sample; null for the first, and where the broker has begun anew. */
export function rates(samples: readonly Sample[], total: Total): (number | null)[] {
  return samples.map((sample, place) => {
    const before = samples[place - 1];
    if (before === undefined) return null;
    const grown = sample[total] - before[total];
    const seconds = sample.at - before.at;
    return grown < 0 || seconds <= 0 ? null : grown / seconds;
  });
}

/** Samples of the last seconds, with one a point where there are too many to be told apart. */
export function lately(samples: readonly Sample[], seconds: number, now: number, most = 400): Sample[] {
  const recent = samples.filter(({ at }) => at > now - seconds);
  if (recent.length <= most) return recent;
  const step = Math.ceil(recent.length / most);
  // Counted from the newest, so that points stay what they are while the row moves on.
  return recent.filter((_, place) => (recent.length - 1 - place) % step === 0);
}

const samples = signal<readonly Sample[]>([]);
const status = signal<BrokerStatus | null>(null);
const failure = signal<string | null>(null);

export const history: ReadonlySignal<readonly Sample[]> = samples;
export const latestStatus: ReadonlySignal<BrokerStatus | null> = status;
export const historyFailure: ReadonlySignal<string | null> = failure;

let timer: ReturnType<typeof setTimeout> | undefined;
let isReading = false;

async function read(): Promise<void> {
  clearTimeout(timer);
  if (!session.isOpen.value || !session.may("broker.status")) return;
  if (!isReading && !document.hidden) {
    isReading = true;
    try {
      const told = await session.broker.broker_status();
      const before = status.value;
      status.value = told;
      failure.value = null;
      // After a restart the totals begin at 0, and the difference is no rate.
      if (before !== null && told.uptime_seconds < before.uptime_seconds) await readKept();
      samples.value = appended(samples.value, sampleOf(told, Date.now() / 1000));
    } catch (error) {
      failure.value = error instanceof Error ? error.message : String(error);
    } finally {
      isReading = false;
    }
  }
  timer = setTimeout(read, EVERY_MS);
}

async function readKept(): Promise<void> {
  if (!session.may("broker.history")) return;
  try {
    const kept = aligned(await session.broker.broker_history(), Date.now() / 1000);
    const last = kept.at(-1);
    if (last === undefined) return;
    // What was read here is more exact than what the broker has kept.
    const first = samples.value[0]?.at ?? Infinity;
    samples.value = [...kept.filter(({ at }) => at < first), ...samples.value];
  } catch {
    // Without it the charts begin now.
  }
}

// From the sign-in on, whatever page is shown: the overview then has what came before.
effect(() => {
  if (session.epoch.value === 0 || !session.isOpen.value) return;
  void readKept().then(read);
});
effect(() => {
  if (session.state.value !== "signed-out") return;
  samples.value = [];
  status.value = null;
});
document.addEventListener("visibilitychange", () => void (document.hidden || read()));
