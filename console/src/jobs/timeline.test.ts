import { describe, expect, it } from "vitest";
import { row } from "./sample";
import { marksOf, spanOf, timelineOf } from "./timeline";

describe("timelineOf", () => {
  it("shows when a job waited and when it ran", () => {
    const { lanes } = timelineOf([row("a/1", { accepted_at: 0, started_at: 50, ended_at: 75, state: "done" })], 100, 100);

    expect(lanes).toMatchObject([{ name: "a count", lines: 1, bars: [{ line: 0, waits: [0, 0.5], runs: [0.5, 0.75] }] }]);
  });

  it("lets what is open end now, and cuts what began before", () => {
    const { lanes } = timelineOf([row("a/1", { accepted_at: -50, started_at: -20 }), row("a/2", { accepted_at: 90 })], 100, 100);

    expect(lanes[0]?.bars.map(({ waits, runs }) => [waits, runs])).toEqual([
      [[0, 0], [0, 1]],
      [[0.9, 1], null],
    ]);
  });

  it("puts jobs that overlap on lines of their own, and takes lines again", () => {
    const jobs = [
      row("a/1", { accepted_at: 0, started_at: 0, ended_at: 20 }),
      row("a/2", { accepted_at: 10, started_at: 10, ended_at: 40 }),
      row("a/3", { accepted_at: 30, started_at: 30, ended_at: 50 }),
    ];

    expect(timelineOf(jobs, 100, 100).lanes[0]?.bars.map(({ line }) => line)).toEqual([0, 1, 0]);
  });

  it("leaves out what is over, and counts what has no line", () => {
    const many = Array.from({ length: 9 }, (_, number) => row(`a/${number}`, { accepted_at: 50, started_at: 50 }));
    const { lanes } = timelineOf([row("a/old", { accepted_at: -90, started_at: -80, ended_at: -70 }), ...many], 100, 100);

    expect(lanes[0]).toMatchObject({ lines: 6, hidden: 3 });
  });
});

it("spans what there is, up to a day", () => {
  expect(spanOf([row("a/1", { accepted_at: 900 })], 1000)).toBeCloseTo(105);
  expect(spanOf([], 1000)).toBe(60);
  expect(spanOf([row("a/1", { accepted_at: 0 })], 1e6)).toBe(86_400);
});

it("marks round times", () => {
  const marks = marksOf(3601, 3661, 6);

  expect(marks.every((mark) => mark % 10 === 0)).toBe(true);
  expect(marks.length).toBeGreaterThan(2);
});
