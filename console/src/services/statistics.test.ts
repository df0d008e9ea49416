import { describe, expect, it } from "vitest";
import type { Statistics } from "./model";
import { byVerb, quantile, ratesBetween, since, totalOf, type Look } from "./statistics";

function reply(verbs: Record<string, [number, number, [number, number][]]>): Statistics {
  const told = Object.entries(verbs).map(([name, [requests, errors, latency]]) => [name, { requests, errors, latency, mean_seconds: 0.1, longest_seconds: 1 }]);
  return { service: "a", instance: "1", uptime_seconds: 1, busy: 0, waiting: 0, verbs: Object.fromEntries(told) };
}

function look(at: number, replies: Record<string, Statistics>): Look {
  return { at, replies: new Map(Object.entries(replies)) };
}

describe("quantile", () => {
  // Buckets as Python's `Histogram` makes them of 0.001, 0.0156, 0.1, 1.0 and 7.5 seconds.
  it.each([
    [-128, 0.001037597656],
    [-65, 0.015625],
    [-23, 0.1015625],
    [32, 1.0625],
    [78, 7.75],
  ])("ends bucket %i at %f, as the service does", (bucket, seconds) => {
    expect(quantile({ requests: 1, errors: 0, seconds: 0, longest: 99, latency: new Map([[bucket, 1]]) }, 0.5)).toBeCloseTo(seconds, 9);
  });

  it("is no more than the longest, and nothing of nothing", () => {
    const tally = { requests: 1, errors: 0, seconds: 0, longest: 1.01, latency: new Map([[32, 1]]) };

    expect(quantile(tally, 0.99)).toBe(1.01);
    expect(quantile({ ...tally, latency: new Map() }, 0.5)).toBeNull();
  });

  it("counts from the smallest", () => {
    const tally = { requests: 100, errors: 0, seconds: 0, longest: 99, latency: new Map([[32, 1], [-23, 99]]) };

    expect(quantile(tally, 0.5)).toBeCloseTo(0.1015625);
    expect(quantile(tally, 0.99)).toBeCloseTo(0.1015625);
    expect(quantile(tally, 1)).toBeCloseTo(1.0625);
  });
});

it("adds up what users asked for, and not what a console did", () => {
  const sum = totalOf([reply({ quote: [3, 1, [[32, 2]]], stats: [99, 0, []] }), reply({ quote: [4, 0, [[32, 4]]] })]);

  expect(sum).toMatchObject({ requests: 7, errors: 1 });
  expect(sum.latency).toEqual(new Map([[32, 6]]));
  expect(byVerb([reply({ stats: [99, 0, []] })]).get("stats")?.requests).toBe(99);
});

it("has no difference where counts began anew", () => {
  const [few, many] = [totalOf([reply({ a: [1, 0, [[1, 1]]] })]), totalOf([reply({ a: [5, 1, [[1, 5]]] })])];

  expect(since(few, many)).toMatchObject({ requests: 4, errors: 1, latency: new Map([[1, 4]]) });
  expect(since(many, few)).toBeNull();
});

describe("ratesBetween", () => {
  it("counts per second, by the instances that are in both looks", () => {
    const before = look(10, { one: reply({ a: [10, 0, [[32, 10]]] }) });
    const now = look(12, { one: reply({ a: [30, 4, [[32, 30]]] }), other: reply({ a: [500, 0, []] }) });

    expect(ratesBetween(before, now)).toEqual({ at: 12, requests: 10, errors: 2, p50: 1, p99: 1 });
  });

  it("does not know where an instance began anew", () => {
    const before = look(10, { one: reply({ a: [10, 0, []] }) });

    expect(ratesBetween(before, look(12, { one: reply({ a: [3, 0, []] }) })).requests).toBeNull();
    expect(ratesBetween(before, look(12, {})).requests).toBeNull();
  });
});
