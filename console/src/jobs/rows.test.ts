import { describe, expect, it } from "vitest";
import { cellOf, columnsOf, isRows, numberOf, plotOf, ticksOf, typeOf } from "./rows";

it("takes lists of objects as rows, and nothing else", () => {
  expect(isRows([{ a: 1 }])).toBe(true);
  for (const value of [[], [1], [{ a: 1 }, null], { a: 1 }, "x", null]) expect(isRows(value)).toBe(false);
});

describe("columnsOf", () => {
  it("finds the columns of rows and their kinds", () => {
    const rows = [
      { day: "2026-01-31", n: 1, name: "x", odd: 1 },
      { day: "2026-02-01T10:00:00Z", n: null, name: "y", odd: "a", late: [1] },
    ];

    expect(columnsOf(rows, null).map(({ name, kind }) => [name, kind])).toEqual([
      ["day", "time"],
      ["n", "number"],
      ["name", "text"],
      ["odd", "other"],
      ["late", "other"],
    ]);
  });

  it("takes them as the table declares them", () => {
    const schema = [
      { name: "n", type: "integer" },
      { name: "price", type: { decimal: [10, 2] } },
      { name: "at", type: "timestamp" },
      { name: "who", type: "string" },
      { name: "tags", type: { list: "string" } },
    ];

    expect(columnsOf([], schema).map(({ kind, type }) => `${kind}: ${type}`)).toEqual([
      "number: integer",
      "number: decimal(10, 2)",
      "time: timestamp",
      "text: string",
      "other: list of string",
    ]);
  });

  it("writes nested types in one line", () => {
    expect(typeOf({ map: ["string", { list: "integer" }] })).toBe("map of string to list of integer");
    expect(typeOf({ struct: [] })).toBe("struct");
    expect(typeOf(7)).toBe("");
  });
});

describe("plotOf", () => {
  const of = (rows: Record<string, unknown>[]) => plotOf(rows, columnsOf(rows, null));

  it("draws lines by time", () => {
    expect(of([{ n: 1, day: "2026-01-01" }, { n: 2, day: "2026-01-02" }])).toEqual({ x: "day", y: ["n"] });
  });

  it("draws bars by name", () => {
    expect(of([{ carrier: "AA", flights: 10 }, { carrier: "UA", flights: 20 }])).toEqual({ x: "carrier", y: ["flights"] });
  });

  it("draws lines by a number that grows", () => {
    expect(of([{ month: 1, flights: 10 }, { month: 2, flights: 5 }])).toEqual({ x: "month", y: ["flights"] });
    expect(of([{ a: 2, b: 10 }, { a: 1, b: 5 }])).toBeNull();
  });

  it("leaves out what would be a flat line", () => {
    expect(of([{ c: "AA", flights: 10_000, seats: 90_000, delay: 4.5 }, { c: "UA", flights: 20_000, seats: 80_000, delay: 3 }])).toEqual({ x: "c", y: ["flights", "seats"] });
  });

  it("has nothing to show of one row, or without numbers", () => {
    expect(of([{ c: "AA", n: 1 }])).toBeNull();
    expect(of([{ c: "AA" }, { c: "UA" }])).toBeNull();
  });
});

it("reads numbers, also of decimals", () => {
  expect([1.5, "2.50", "x", "", null, Infinity, "NaN"].map(numberOf)).toEqual([1.5, 2.5, null, null, null, null, null]);
});

it("writes cells", () => {
  expect([null, undefined, 1, "a", true, { a: [1] }].map(cellOf)).toEqual([null, null, 1, "a", "true", '{"a":[1]}']);
});

it("puts round numbers on an axis", () => {
  expect(ticksOf(0, 27_009)).toEqual([0, 10_000, 20_000, 30_000]);
  expect(ticksOf(0, 0.7)).toEqual([0, 0.2, 0.4, 0.6, 0.8]);
  expect(ticksOf(-3, 5)).toEqual([-4, -2, 0, 2, 4, 6]);
  expect(ticksOf(0, 0)).toEqual([0, 0.25, 0.5, 0.75, 1]);
});
