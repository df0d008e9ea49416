// The types of nebula.js. All times are milliseconds.

import type { IMessage, StompSubscription } from "@stomp/stompjs";

/** The error of a call, stream or job. */
export class NebulaError extends Error {
  constructor(code: string, message: string, more?: { details?: unknown; retryable?: boolean });

  /**
   * A word to branch on: the service's own, or "no-responder", "rejected-...", "timeout", "aborted", "lost",
   * "refused", "unexpected-reply", "stream-broken", "not-a-stream".
   */
  readonly code: string;
  /** Details from the service, or null. */
  readonly details: unknown;
  /** The same call may succeed later. */
  readonly retryable: boolean;
}

export interface NebulaOptions {
  login?: string;
  /** It may be a token (JWT). */
  passcode?: string;
  /** For calls without a timeout of their own, and for attempts to connect; 30 s by default. */
  timeout?: number;
  /** Between two attempts to connect; 0: never again. One second by default. */
  reconnectDelay?: number;
}

export interface CallOptions {
  /** Time limit of the call. */
  timeout?: number;
  /** Withdraws the call and notifies the service. */
  signal?: AbortSignal;
  /** Headers of the request in addition to those of every call: "neb-job-priority", "neb-idempotency-key". */
  headers?: Record<string, string>;
}

export interface StreamOptions {
  /** Time limit of the whole stream; without it, only a silent service ends the stream. */
  timeout?: number;
  /** Ends the stream as "aborted": the handler is closed. */
  signal?: AbortSignal;
  /** Items that may be in flight or unread, at least 1; 256 by default. */
  credit?: number;
}

/** A connection with an inbox of its own. It connects again whenever it is lost. */
export class Nebula extends EventTarget {
  /** @param url of the broker's HTTP listener: "wss://broker.example/stomp" */
  constructor(url: string, options?: NebulaOptions);

  /** Whether calls can be made at this moment. */
  get connected(): boolean;

  /** Connect, or wait until it has connected again. */
  connect(): Promise<void>;

  /** Disconnect for good. Calls in flight fail as "lost". */
  close(): Promise<void>;

  /**
   * Ask a service, and wait for its answer.
   *
   * @param service its name, or a destination ("/queue/...")
   * @param parameters an object by name, an array by position, anything else the single one
   * @returns the verb's value, or null. Its type is not checked.
   */
  call<T = unknown>(service: string, verb: string, parameters?: unknown, options?: CallOptions): Promise<T>;

  /** The items that a verb yields; leaving the loop closes the handler. Their type is not checked. */
  stream<T = unknown>(
    service: string,
    verb: string,
    parameters?: unknown,
    options?: StreamOptions,
  ): AsyncGenerator<T, void, void>;

  /** Start a job; resolves as soon as it is accepted. */
  start<T = unknown>(service: string, verb: string, parameters?: unknown, options?: CallOptions): Promise<Job<T>>;

  /** The job of an id, "reports/01J...", that was started before, here or elsewhere. */
  job<T = unknown>(id: string): Job<T>;

  /** Subscribe, and wait until the broker has done so. It is gone with the connection. */
  subscribe(
    destination: string,
    heard: (message: IMessage) => void,
    headers?: Record<string, string>,
  ): Promise<StompSubscription>;

  /**
   * Send a message, and wait until the broker has taken it. Resolves with the headers of its RECEIPT. Rejects where it
   * was not taken: the error's code is the broker's verdict, "rejected-full" for example.
   */
  publish(
    destination: string,
    body: string | Uint8Array,
    headers?: Record<string, string>,
  ): Promise<Record<string, string>>;

  addEventListener(
    type: "connected" | "lost",
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | AddEventListenerOptions,
  ): void;
  removeEventListener(
    type: "connected" | "lost",
    listener: EventListenerOrEventListenerObject | null,
    options?: boolean | EventListenerOptions,
  ): void;
}

export type JobState =
  | "queued"
  | "starting"
  | "running"
  | "cancelling"
  | "done"
  | "failed"
  | "cancelled"
  | "timed_out"
  | "lost"
  | "expired";

/** The status of a job; it has more fields than are declared here. */
export interface JobStatus {
  job: string;
  state: JobState;
  /** It grows with each status. */
  seq: number;
  /** 0 to 1. */
  progress: number | null;
  note: string | null;
  /** Its place in the line while it waits. */
  position: number | null;
  error: { code: string; message: string; details?: unknown } | null;
  [field: string]: unknown;
}

/** A handle for a job of a service, from `start` and `job` of a `Nebula`. */
export class Job<T = unknown> {
  private constructor();

  readonly id: string;

  /** The current status. */
  status(): Promise<JobStatus>;

  /** End the job. Resolves at once, with its status. */
  cancel(): Promise<JobStatus>;

  /** The current status and each newer one; the last one is the job's end. */
  watch(): AsyncGenerator<JobStatus, void, void>;

  /** The job's result, once it has ended; rejects if it ended in another state than done. */
  result(): Promise<T>;
}
