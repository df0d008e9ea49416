// One attempt at a verb: a call, a stream or the start of a job, from here to its end.

import { session, NebulaError } from "../session";
import { asNebulaError } from "../widgets/poll";

export type Kind = "call" | "stream" | "job";

export interface Attempt {
  kind: Kind;
  state: "open" | "done" | "failed" | "stopped";
  parameters: unknown;
  /** Milliseconds since the page began. */
  began: number;
  /** Milliseconds to the reply, or to the end of the stream. */
  took: number | null;
  /** To the first item of a stream. */
  firstAfter: number | null;
  value: unknown;
  /** The last items of a stream. */
  items: readonly unknown[];
  count: number;
  error: NebulaError | null;
}

export interface Asked {
  kind: Kind;
  address: string;
  verb: string;
  parameters: unknown;
  timeout: number | undefined;
  headers: Record<string, string>;
}

/** Items of a stream that are shown. */
export const MOST_ITEMS = 200;
/** Items may come faster than a page is drawn. */
const DRAW_EVERY = 100;

/**
 * Ask, and report each change. It ends when the reply or the end of the stream is there, or when the signal says so.
 */
export async function tryCall(asked: Asked, signal: AbortSignal, report: (attempt: Attempt) => void, now = () => performance.now()): Promise<void> {
  let attempt: Attempt = {
    kind: asked.kind,
    state: "open",
    parameters: asked.parameters,
    began: now(),
    took: null,
    firstAfter: null,
    value: undefined,
    items: [],
    count: 0,
    error: null,
  };
  const change = (more: Partial<Attempt>): void => report((attempt = { ...attempt, ...more }));
  report(attempt);
  try {
    if (asked.kind === "stream") {
      const items: unknown[] = [];
      let drawn = 0;
      for await (const item of session.stream(asked.address, asked.verb, asked.parameters, { signal, ...(asked.timeout === undefined ? {} : { timeout: asked.timeout }) })) {
        items.push(item);
        if (items.length > MOST_ITEMS) items.shift();
        attempt = { ...attempt, count: attempt.count + 1, firstAfter: attempt.firstAfter ?? now() - attempt.began };
        if (now() - drawn >= DRAW_EVERY) {
          drawn = now();
          change({ items: [...items] });
        } else attempt.items = items;
      }
      change({ items: [...items], state: "done", took: now() - attempt.began });
    } else {
      const options = { signal, headers: asked.headers, ...(asked.timeout === undefined ? {} : { timeout: asked.timeout }) };
      const value = await session.call(asked.address, asked.verb, asked.parameters, options);
      change({ value, state: "done", took: now() - attempt.began });
    }
  } catch (error) {
    const told = asNebulaError(error);
    const items = [...attempt.items];
    if (told.code === "aborted" && signal.aborted) change({ items, state: "stopped", took: now() - attempt.began });
    else change({ items, state: "failed", error: told, took: now() - attempt.began });
  }
}
