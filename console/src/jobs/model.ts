// Jobs as services tell them: rows of lists, details, statuses.

import { isObject } from "../forms/schema";

export interface JobRow {
  /** SERVICE/ULID. */
  job: string;
  verb: string;
  state: string;
  progress: number | null;
  note: string;
  position: number | null;
  owner: string | null;
  attempt: number;
  accepted_at: number;
  started_at: number | null;
  ended_at: number | null;
  error: JobError | null;
  rerun_of?: string | null;
}

export interface JobError {
  code: string;
  message: string;
  sqlstate?: string;
}

export interface Step {
  number: number;
  total: number;
  name: string;
  started_at: number;
  ended_at: number | null;
}

/** A stage of Spark; its name is empty where Spark has none. */
export interface Stage {
  id: number;
  name: string;
  done: number;
  known: number;
  active: number;
}

export interface Tasks {
  /** The newest that have begun, oldest first; missing where none is known. */
  stages?: readonly Stage[];
  done: number;
  known: number;
  active: number;
}

export interface LogLine {
  at: number;
  text: string;
  number: number;
}

export interface JobDetails extends JobRow {
  seq: number;
  via: string;
  parameters: unknown;
  priority: number;
  timeout: number | null;
  expires_at: number | null;
  not_before: number | null;
  exclusive: string | null;
  steps: Step[];
  tasks: Tasks | null;
  counters: Record<string, number>;
  result: JobResult | null;
}

export interface JobResult {
  value?: unknown;
  path?: string;
  rows?: number;
  bytes?: number;
  preview?: unknown;
}

/** The status of a job, sent at each change. */
export interface Status {
  job: string;
  seq: number;
  state: string;
  progress: number | null;
  note: string;
  step: [number, number, string] | null;
  tasks: Tasks | null;
  position: number | null;
  via: string;
  error: JobError | null;
  counters?: Record<string, number>;
}

export const WAITING: readonly string[] = ["queued"];
export const RUNNING: readonly string[] = ["starting", "running", "cancelling"];
export const ENDED: readonly string[] = ["done", "failed", "cancelled", "timed_out", "lost", "expired"];

export function hasEnded(state: string): boolean {
  return ENDED.includes(state);
}

/** How a state looks: a class of a pill. */
export function lookOf(state: string): string {
  if (state === "done") return "ok";
  if (["failed", "lost", "timed_out"].includes(state)) return "bad";
  if (["cancelled", "expired", "cancelling"].includes(state)) return "warn";
  return state === "queued" ? "" : "accent";
}

export function wordOf(state: string): string {
  return state.replaceAll("_", " ");
}

export function serviceOf(job: string): string {
  return job.slice(0, job.indexOf("/"));
}

export function ulidOf(job: string): string {
  return job.slice(job.indexOf("/") + 1);
}

/** Whether a principal may see and end a job: its owner alone, where owners are known. */
export function mayManage(owner: string | null, principal: string | null): boolean {
  return owner === null || owner === "" || owner === "anonymous" || owner === principal;
}

/** The status in the body of a message; null: it says that the service is away, or is none. */
export function readStatus(body: string): Status | null {
  try {
    const told: unknown = JSON.parse(body);
    const isStatus = isObject(told) && typeof told.job === "string" && typeof told.state === "string" && typeof told.seq === "number";
    return isStatus ? (told as unknown as Status) : null;
  } catch {
    return null;
  }
}

/** A row with the newest status applied. */
export function withStatus<R extends JobRow>(row: R, status: Status | undefined): R {
  // An end is final: what was told before it may come after it.
  if (status === undefined || (hasEnded(row.state) && !hasEnded(status.state))) return row;
  return { ...row, state: status.state, progress: status.progress, note: status.note, position: status.position, error: status.error };
}

/** Spark's tasks in the present or last step, by what was told last. */
export function tasksOf(details: Pick<JobDetails, "seq" | "tasks">, status: Status | undefined): Tasks | null {
  return status === undefined || status.seq < details.seq ? details.tasks : status.tasks;
}

/** Lists of jobs as one, the last accepted first, each job once: the first list that has it counts. */
export function merged(lists: readonly (readonly JobRow[])[]): JobRow[] {
  const found = new Map<string, JobRow>();
  for (const row of lists.flat()) if (!found.has(row.job)) found.set(row.job, row);
  return [...found.values()].sort((one, other) => other.accepted_at - one.accepted_at || (ulidOf(one.job) < ulidOf(other.job) ? 1 : -1));
}

/** Seconds that a job has run, or runs; null: it has not begun. */
export function ranFor({ started_at, ended_at }: Pick<JobRow, "started_at" | "ended_at">, now: number): number | null {
  return started_at === null ? null : Math.max(0, (ended_at ?? now) - started_at);
}
