import { expect, it } from "vitest";
import { clock, clocks, spanOf } from "./time-axis";

it("a chart without values, or with one, spans half a minute", () => {
  expect(spanOf([], 1_000)).toEqual([970, 1_000]);
  expect(spanOf([500], 1_000)).toEqual([470, 500]);
  expect(spanOf([500, 510], 1_000)).toEqual([480, 510]);
});

it("a chart with many values spans all of them", () => {
  expect(spanOf([0, 60, 3_600], 9_000)).toEqual([0, 3_600]);
});

it("ticks have seconds where they are less than a minute apart", () => {
  expect(clocks([0, 10])).toEqual([clock(0), clock(10)]);
  expect(clocks([0, 600])).toEqual([clock(0).slice(0, 5), clock(600).slice(0, 5)]);
});
