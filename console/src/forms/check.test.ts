import { describe, expect, it } from "vitest";
import { check, keyOf } from "./check";
import { fieldOf } from "./schema";

function faults(schema: unknown, value: unknown): string[] {
  return check(fieldOf(schema), value).map(({ path, message }) => `${keyOf(path)} ${message}`.trim());
}

describe("check", () => {
  it.each<[unknown, unknown, string[]]>([
    [{ type: "integer" }, 3, []],
    [{ type: "integer" }, 3.5, ["must be a whole number"]],
    [{ type: "integer" }, "3", ["must be a whole number"]],
    [{ type: "integer" }, 2 ** 60, ["is too large for a browser to send exactly; use `nebula call`"]],
    [{ type: "number" }, 3.5, []],
    [{ type: "number", minimum: 1 }, 0, ["must be at least 1"]],
    [{ type: "number", minimum: 1 }, 1, []],
    [{ type: "number", maximum: 9 }, 10, ["must be at most 9"]],
    [{ type: "number", exclusiveMinimum: 0 }, 0, ["must be more than 0"]],
    [{ type: "number", exclusiveMaximum: 1 }, 1, ["must be less than 1"]],
    [{ type: "number", multipleOf: 0.1 }, 0.3, []],
    [{ type: "number", multipleOf: 0.5 }, 0.3, ["must be a multiple of 0.5"]],
    [{ type: "boolean" }, true, []],
    [{ type: "boolean" }, "true", ["must be one of true, false"]],
    [{ enum: ["a", "b"] }, "c", ['must be one of "a", "b"']],
    [{ const: 5 }, 6, ["must be 5"]],
    [{ type: "string" }, null, ["null is not allowed here"]],
    [{ anyOf: [{ type: "string" }, { type: "null" }] }, null, []],
    [{ type: "null" }, null, []],
    [{}, null, []],
  ])("%j given %j says %j", (schema, value, expected) => {
    expect(faults(schema, value)).toEqual(expected);
  });

  it.each<[string, string, boolean]>([
    ["date", "2026-02-28", true],
    ["date", "2026-02-31", false],
    ["date", "28.2.2026", false],
    ["time", "18:30", true],
    ["time", "18:30:00.5+02:00", true],
    ["time", "25:00", false],
    ["date-time", "2026-02-28T18:30:00Z", true],
    ["date-time", "2026-02-28T18:30", true],
    ["date-time", "2026-02-28", false],
    ["duration", "PT1H30M", true],
    ["duration", "P2DT0.5S", true],
    ["duration", "1:30:00", true],
    ["duration", "P", false],
    ["duration", "soon", false],
    ["uuid", "123e4567-e89b-12d3-a456-426614174000", true],
    ["uuid", "123", false],
    ["email", "a@b.example", true],
    ["email", "no-at-sign", false],
    ["uri", "https://x.example/", true],
    ["uri", "x.example", false],
    ["binary", "aGVsbG8=", true],
    ["binary", "a-b_", true],
    ["binary", "ä", false],
    ["of-an-unknown-kind", "anything", true],
  ])("a %s: %s", (format, value, isGood) => {
    expect(faults({ type: "string", format }, value)).toHaveLength(isGood ? 0 : 1);
  });

  it("counts characters as Python does, and matches patterns", () => {
    expect(faults({ type: "string", maxLength: 2 }, "🎲🎲")).toEqual([]);
    expect(faults({ type: "string", minLength: 1 }, "")).toEqual(["needs at least 1 character"]);
    expect(faults({ type: "string", maxLength: 2 }, "abc")).toEqual(["may have at most 2 characters"]);
    expect(faults({ type: "string", pattern: "^\\d{5}$" }, "1234")).toEqual(["must match ^\\d{5}$"]);
  });

  it("lets a pattern pass that JavaScript cannot read", () => {
    expect(faults({ type: "string", pattern: "(?P<name>x)" }, "y")).toEqual([]);
  });

  it("says which item of a list is wrong", () => {
    expect(faults({ type: "array", items: { type: "integer" } }, [1, "x"])).toEqual(["/1 must be a whole number"]);
    expect(faults({ type: "array", items: {}, minItems: 2 }, [1])).toEqual(["needs at least 2 items"]);
    expect(faults({ type: "array", items: {}, maxItems: 1 }, [1, 2])).toEqual(["may have at most 1 item"]);
    expect(faults({ type: "array", items: {}, uniqueItems: true }, [{ a: 1 }, { a: 1 }])).toEqual(["items must be unique"]);
    expect(faults({ type: "array", prefixItems: [{ type: "integer" }] }, [1, 2])).toEqual(["/1 unexpected item"]);
    expect(faults({ type: "array" }, {})).toEqual(["must be a list"]);
  });

  it("says what is missing in an object, and what is too much", () => {
    const closed = { type: "object", properties: { a: { type: "integer" }, "b/c": {} }, required: ["a", "b/c"], additionalProperties: false };

    expect(faults(closed, { x: 1 })).toEqual(["/a is required", "/b~1c is required", "/x unknown field"]);
    expect(faults({ ...closed, additionalProperties: undefined }, { a: 1, "b/c": 0, x: 1 })).toEqual([]);
    expect(faults(closed, [])).toEqual(["must be an object"]);
  });

  it("checks the names and values of a map", () => {
    const map = { type: "object", additionalProperties: { type: "integer" }, propertyNames: { enum: ["a", "b"] }, maxProperties: 1 };

    expect(faults(map, { a: 1 })).toEqual([]);
    expect(faults(map, { c: "x" })).toEqual(["/c the name must be one of a, b", "/c must be a whole number"]);
    expect(faults(map, { a: 1, b: 2 })).toEqual(["may have at most 1 entry"]);
    expect(faults({ type: "object", patternProperties: { "^x": {} } }, { y: 1 })).toEqual(["/y the name must match ^x"]);
  });

  it("checks the alternative that a value is of", () => {
    const of = (kind: string, more: object) => ({ type: "object", title: kind, properties: { kind: { const: kind }, ...more } });
    const pets = { oneOf: [of("cat", { lives: { type: "integer" } }), of("dog", { name: { type: "string" } })], discriminator: { propertyName: "kind" } };

    expect(faults(pets, { kind: "cat", lives: "x" })).toEqual(["/lives must be a whole number"]);
    expect(faults(pets, { kind: "bird" })).toEqual(["must be one of: cat, dog"]);
    expect(faults({ anyOf: [{ type: "integer" }, { type: "boolean" }] }, "x")).toEqual(["must be one of: integer, boolean"]);
    expect(faults({ anyOf: [{ type: "integer", minimum: 5 }, { type: "string" }] }, 3)).toEqual(["must be at least 5"]);
  });

  it("takes decimals as text and as numbers", () => {
    const schema = { anyOf: [{ type: "number", maximum: 10 }, { type: "string" }], format: "decimal" };

    expect(faults(schema, "1.50")).toEqual([]);
    expect(faults(schema, 1.5)).toEqual([]);
    expect(faults(schema, "11")).toEqual(["must be at most 10"]);
    expect(faults(schema, "a lot")).toEqual(["must be a decimal number"]);
  });
});
