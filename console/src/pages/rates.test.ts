import { expect, it } from "vitest";
import type { QueueRow } from "../broker";
import { RateReader, ratesOf } from "./rates";

function row(taken: number, depth: number, queue = "/queue/a"): QueueRow {
  return {
    queue,
    depth,
    taken,
    unacked: 0,
    paged_out: 0,
    stored_bytes: 0,
    paged_bytes: 0,
    consumers: 0,
    oldest_seconds: null,
    postponed: 0,
  };
}

it("what came and what left are differences of counters", () => {
  expect(ratesOf(row(10, 5), row(30, 15), 2)).toEqual({ in: 10, out: 5 });
});

it("a queue that began anew has no rate", () => {
  expect(ratesOf(row(10, 5), row(1, 1), 2)).toBeNull();
  expect(ratesOf(row(10, 5), row(10, 5), 0)).toBeNull();
});

it("a reader knows the rates of queues that it has seen twice", () => {
  const reader = new RateReader();
  reader.read([row(10, 0)], 1_000);
  reader.read([row(20, 0), row(1, 0, "/queue/b")], 2_000);

  expect(reader.of("/queue/a")).toEqual({ in: 10, out: 10 });
  expect(reader.of("/queue/b")).toBeNull();
});
