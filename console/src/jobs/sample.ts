// A job for tests.

import type { JobRow } from "./model";

export function row(job: string, more: Partial<JobRow> = {}): JobRow {
  return { job, verb: "count", state: "running", progress: null, note: "", position: null, owner: null, attempt: 1, accepted_at: 0, started_at: null, ended_at: null, error: null, ...more };
}
