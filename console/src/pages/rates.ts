// Rates of queues: differences of their counters between two readings.

import type { QueueRow } from "../broker";

/** Messages a second. */
export interface Rates {
  in: number;
  out: number;
}

/** Rates between two readings; null: the queue began anew between them, or no time has passed. */
export function ratesOf(before: QueueRow, now: QueueRow, seconds: number): Rates | null {
  const taken = now.taken - before.taken;
  // What left it: accepted, and not there any more.
  const left = taken - (now.depth - before.depth);
  if (seconds <= 0 || taken < 0 || left < 0) return null;
  return { in: taken / seconds, out: left / seconds };
}

/** Remembers the last reading of each queue. */
export class RateReader {
  #rows = new Map<string, QueueRow>();
  #at = 0;
  #rates = new Map<string, Rates>();

  /**
   * Take the rows of a reading.
   *
   * @param at milliseconds
   */
  read(rows: readonly QueueRow[], at: number): void {
    const seconds = (at - this.#at) / 1000;
    const rates = new Map<string, Rates>();
    for (const row of rows) {
      const before = this.#rows.get(row.queue);
      const found = before === undefined ? null : ratesOf(before, row, seconds);
      if (found !== null) rates.set(row.queue, found);
    }
    this.#rates = rates;
    this.#rows = new Map(rows.map((row) => [row.queue, row]));
    this.#at = at;
  }

  of(queue: string): Rates | null {
    return this.#rates.get(queue) ?? null;
  }
}
