import { describe, expect, it } from "vitest";
import { hasEnded, lookOf, mayManage, merged, ranFor, readStatus, serviceOf, tasksOf, ulidOf, withStatus, type Status } from "./model";
import { row } from "./sample";

function status(job: string, state: string): Status {
  return { job, seq: 2, state, progress: 0.5, note: "half", step: null, tasks: null, position: null, via: "", error: null };
}

it("takes an id apart", () => {
  expect([serviceOf("reports/01J"), ulidOf("reports/01J")]).toEqual(["reports", "01J"]);
});

it("knows which states are final, and how they look", () => {
  expect(["done", "failed", "cancelled", "timed_out", "lost", "expired"].every(hasEnded)).toBe(true);
  expect(["queued", "starting", "running", "cancelling", "of-a-newer-service"].some(hasEnded)).toBe(false);
  expect(["done", "failed", "cancelled", "queued", "running", "of-a-newer-service"].map(lookOf)).toEqual(["ok", "bad", "warn", "", "accent", "accent"]);
});

it("lets owners alone manage their jobs, where they are known", () => {
  expect(mayManage("alice", "alice")).toBe(true);
  expect(mayManage("alice", "bob")).toBe(false);
  expect(mayManage("alice", null)).toBe(false);
  for (const owner of [null, "", "anonymous"]) expect(mayManage(owner, "bob")).toBe(true);
});

describe("withStatus", () => {
  it("brings a row up to date", () => {
    expect(withStatus(row("a/1"), status("a/1", "running"))).toMatchObject({ progress: 0.5, note: "half" });
    expect(withStatus(row("a/1"), undefined)).toEqual(row("a/1"));
  });

  it("does not bring an ended job back", () => {
    const ended = row("a/1", { state: "done", progress: 1 });

    expect(withStatus(ended, status("a/1", "running"))).toBe(ended);
    expect(withStatus(ended, status("a/1", "done")).note).toBe("half");
  });
});

it("shows the tasks that were told last", () => {
  const tasks = (done: number) => ({ done, known: 4, active: 0 });
  const told = { ...status("a/1", "running"), tasks: tasks(3) };

  expect(tasksOf({ seq: 1, tasks: tasks(2) }, told)?.done).toBe(3);
  expect(tasksOf({ seq: 3, tasks: tasks(4) }, told)?.done).toBe(4);
  expect(tasksOf({ seq: 3, tasks: tasks(4) }, undefined)?.done).toBe(4);
});

it("joins lists, each job once, the last accepted first", () => {
  const lists = [[row("a/1", { accepted_at: 1 }), row("b/2", { accepted_at: 3 })], [row("a/1", { accepted_at: 1, note: "again" }), row("c/3", { accepted_at: 2 })]];

  expect(merged(lists).map(({ job, note }) => [job, note])).toEqual([["b/2", ""], ["c/3", ""], ["a/1", ""]]);
});

it("reads statuses, and takes nothing else for one", () => {
  expect(readStatus(JSON.stringify(status("a/1", "done")))?.state).toBe("done");
  for (const body of ["", "{", "null", "[]", '{"job": "a/1"}']) expect(readStatus(body)).toBeNull();
});

it("counts how long a job ran", () => {
  expect(ranFor({ started_at: null, ended_at: null }, 10)).toBeNull();
  expect(ranFor({ started_at: 4, ended_at: null }, 10)).toBe(6);
  expect(ranFor({ started_at: 4, ended_at: 5 }, 10)).toBe(1);
});
