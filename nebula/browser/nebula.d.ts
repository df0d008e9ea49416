// The types of nebula.js. All times are milliseconds.

import type { IMessage, StompSubscription } from "@stomp/stompjs";

/** What went wrong. */
export class NebulaError extends Error {
  constructor(code: string, message: string, more?: { details?: unknown; retryable?: boolean });

  /**
   * A word to branch on: the service's own, or "no-responder", "rejected-...", "timeout", "aborted", "lost",
   * "refused", "stream-broken", "not-a-stream".
   */
  readonly code: string;
  /** What the service adds; null where it adds nothing. */
  readonly details: unknown;
  /** The same call may succeed later. */
  readonly retryable: boolean;
}

export interface NebulaOptions {
  login?: string;
  /** It may be a token (JWT). */
  passcode?: string;
  /** Of a call that does not say how long, and of an attempt to connect; 30 s by default. */
  timeout?: number;
  /** Between two attempts to connect; 0: never again. One second by default. */
  reconnectDelay?: number;
}

export interface CallOptions {
  /** How long the call may take. */
  timeout?: number;
  /** Takes the call back: the service is told. */
  signal?: AbortSignal;
}

export interface StreamOptions {
  /** How long all of the stream may take; without it as long as the service is heard of. */
  timeout?: number;
  /** Ends the stream as "aborted": the handler is closed. */
  signal?: AbortSignal;
  /** Items that may be under way or unread, from 1; 256 by default. */
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
   * @returns the verb's value; null where there is nothing to report. Its type is believed, not checked.
   */
  call<T = unknown>(service: string, verb: string, parameters?: unknown, options?: CallOptions): Promise<T>;

  /** What a verb yields, as it comes; leaving the loop closes the handler. The type of items is believed. */
  stream<T = unknown>(
    service: string,
    verb: string,
    parameters?: unknown,
    options?: StreamOptions,
  ): AsyncGenerator<T, void, void>;

  /** Have a service begin a job: resolves as soon as it is accepted. */
  start<T = unknown>(service: string, verb: string, parameters?: unknown, options?: CallOptions): Promise<Job<T>>;

  /** The job of an id, "reports/01J...", that was started before, here or elsewhere. */
  job<T = unknown>(id: string): Job<T>;

  /** Subscribe, and wait until the broker has done so. It is gone with the connection. */
  subscribe(
    destination: string,
    heard: (message: IMessage) => void,
    headers?: Record<string, string>,
  ): Promise<StompSubscription>;

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

/** What a service tells of a job; there is more in it than is named here. */
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

/** One job of one service, seen from afar. Made by `start` and `job` of a `Nebula`. */
export class Job<T = unknown> {
  private constructor();

  readonly id: string;

  /** How the job is now. */
  status(): Promise<JobStatus>;

  /** End the job. Resolves at once, with its status. */
  cancel(): Promise<JobStatus>;

  /** The status now, and each newer one as it comes; the last one is the job's end. */
  watch(): AsyncGenerator<JobStatus, void, void>;

  /** What the job returned, once it has ended; rejects where it ended otherwise than done. */
  result(): Promise<T>;
}
