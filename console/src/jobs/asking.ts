// Verbs about one job, asked of the instance that has it.

import { isObject } from "../forms/schema";
import { session, NebulaError, type Message } from "../session";

/** Where each job was found last, if that is not its service's own queue. */
const places = new Map<string, string>();
const MOST_PLACES = 500;

/** Ask about a job. An instance that does not have it names the one that does. */
export async function askJob<T>(job: string, verb: string, parameters: Record<string, unknown> = {}, options: { signal?: AbortSignal; timeout?: number; headers?: Record<string, string> } = {}): Promise<T> {
  const service = `/queue/${job.slice(0, job.indexOf("/"))}`;
  const given = { job, ...parameters };
  const place = places.get(job);
  try {
    return await session.call<T>(place ?? service, verb, given, options);
  } catch (error) {
    if (!(error instanceof NebulaError)) throw error;
    // The instance is gone; its service may know where the job is now.
    if (place !== undefined && error.code === "no-responder") {
      places.delete(job);
      return session.call<T>(service, verb, given, options);
    }
    const via = error.code === "elsewhere" && isObject(error.details) ? error.details.via : null;
    // A reply that names another service's queue is ignored.
    if (typeof via !== "string" || !via.startsWith(`${service}.`)) throw error;
    if (places.size >= MOST_PLACES) places.clear();
    places.set(job, via);
    return session.call<T>(via, verb, given, options);
  }
}

/** Hear each status of the jobs that a pattern names: `X/jobs.*.*`. */
export function hearStatuses(pattern: string, heard: (message: Message) => void, options: { eager: boolean; failed?: (error: NebulaError) => void }): () => void {
  const headers: Record<string, string> = { ack: "client-individual", ...(options.eager ? { eager: "true" } : {}) };
  return session.subscribe(
    pattern,
    headers,
    (message) => {
      message.ack();
      heard(message);
    },
    options.failed,
  );
}
