import { expect, test } from "vitest";
import { aligned, appended, lately, rates, WINDOW_SECONDS, type Sample } from "./history";

function sample(at: number, received = 0): Sample {
  return {
    at,
    received,
    connections: 0,
    sent_frames: 0,
    read_bytes: 0,
    written_bytes: 0,
    memory_bytes: 0,
    disk_bytes: 0,
    messages: 0,
    unacked: 0,
    dead_letters: 0,
  };
}

test("a rate is what has come between two samples, and unknown where the broker has begun anew", () => {
  const samples = [sample(0, 100), sample(10, 150), sample(20, 150), sample(30, 4)];

  expect(rates(samples, "received")).toEqual([null, 5, 0, null]);
});

test("samples older than an hour are forgotten", () => {
  let samples: Sample[] = [];
  for (let at = 0; at <= 2 * WINDOW_SECONDS; at += 600) samples = appended(samples, sample(at));

  expect(samples.map(({ at }) => at)).toEqual([4200, 4800, 5400, 6000, 6600, 7200]);
});

test("samples of a broker whose clock differs are moved to ours", () => {
  const kept = [sample(990), sample(1000)];

  expect(aligned(kept, 1004).map(({ at }) => at)).toEqual([990, 1000]);
  expect(aligned(kept, 5000).map(({ at }) => at)).toEqual([4990, 5000]);
  expect(aligned([], 5000)).toEqual([]);
});

test("of very many samples some are drawn, the newest always", () => {
  const samples = Array.from({ length: 1000 }, (_, at) => sample(at));

  const drawn = lately(samples, 900, 999, 100);

  expect(drawn.length).toBeLessThanOrEqual(100);
  expect(drawn.at(-1)?.at).toBe(999);
  expect(drawn[0]!.at).toBeGreaterThan(99);
});
