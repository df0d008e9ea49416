import { describe, expect, it } from "vitest";
import { AvroError, decodeDatum, type Schema } from "./avro";
import { bytesOfHex } from "./hex";

const hex = (digits: string) => bytesOfHex(digits) ?? new Uint8Array();

// The bytes were written by fastavro: tests/foreign/console/test_queues.py sends such bodies through a broker.
describe("decodeDatum", () => {
  it.each<[string, Schema, string, unknown]>([
    ["null", "null", "", null],
    ["a boolean", "boolean", "01", true],
    ["an int", "int", "03", -2],
    ["a long that JavaScript counts", "long", "80 89 7a", 1_000_000],
    ["a long beyond that", "long", "fe ff ff ff ff ff ff ff ff 01", 9_223_372_036_854_775_807n],
    ["a float", "float", "00 00 c0 3f", 1.5],
    ["a double", "double", "00 00 00 00 00 00 f8 3f", 1.5],
    ["bytes", "bytes", "04 ff 00", "0xff00"],
    ["a text", "string", "06 e2 82 ac", "€"],
    ["an enum", { type: "enum", name: "E", symbols: ["A", "B"] }, "02", "B"],
    ["a fixed", { type: "fixed", name: "F", size: 2 }, "0a 0b", "0x0a0b"],
    ["an array", { type: "array", items: "int" }, "04 02 04 00", [1, 2]],
    ["an array with the size of its block", { type: "array", items: "int" }, "03 04 02 04 00", [1, 2]],
    ["an empty array", { type: "array", items: "int" }, "00", []],
    ["a map", { type: "map", values: "int" }, "02 02 61 02 00", { a: 1 }],
    ["a union", ["null", "string"], "02 02 61", "a"],
    ["a date", { type: "int", logicalType: "date" }, "bc 9b 02", "2019-09-03"],
    ["a timestamp", { type: "long", logicalType: "timestamp-millis" }, "d0 0f", "1970-01-01T00:00:01.000Z"],
    ["a timestamp of microseconds", { type: "long", logicalType: "timestamp-micros" }, "82 89 7a", "1970-01-01T00:00:01.000001Z"],
    ["a time", { type: "int", logicalType: "time-millis" }, "a0 8d 06", "00:00:50.000"],
    ["a decimal", { type: "bytes", logicalType: "decimal", precision: 9, scale: 2 }, "04 04 d2", "12.34"],
    ["a negative decimal", { type: "bytes", logicalType: "decimal", precision: 4, scale: 2 }, "02 ff", "-0.01"],
    ["an unknown logical type", { type: "int", logicalType: "colour" }, "02", 1],
  ])("reads %s", (_, schema, bytes, value) => {
    expect(decodeDatum(schema, hex(bytes))).toEqual(value);
  });

  it("finds named types by their namespace, also recursive ones", () => {
    const schema: Schema = {
      type: "record",
      name: "Tree",
      namespace: "garden",
      fields: [
        { name: "name", type: "string" },
        { name: "branches", type: { type: "array", items: "Tree" } },
        { name: "kind", type: { type: "enum", name: "other.Kind", symbols: ["OAK"] } },
        { name: "again", type: "other.Kind" },
      ],
    };

    const value = decodeDatum(schema, hex("02 61 02 02 62 00 00 00 00 00 00"));

    expect(value).toEqual({
      name: "a",
      branches: [{ name: "b", branches: [], kind: "OAK", again: "OAK" }],
      kind: "OAK",
      again: "OAK",
    });
  });

  it("takes a field called __proto__ for a field", () => {
    const schema: Schema = { type: "record", name: "R", fields: [{ name: "__proto__", type: "int" }] };

    expect(Object.entries(decodeDatum(schema, hex("02")) as object)).toEqual([["__proto__", 1]]);
  });

  it.each<[string, Schema, string]>([
    ["data that end too early", "double", "00"],
    ["bytes left over", "int", "02 02"],
    ["a length beyond the data", "string", "7e 61"],
    ["a negative length", "string", "01"],
    ["a boolean of 2", "boolean", "02"],
    ["a branch that a union has not", ["null", "int"], "04"],
    ["a symbol that an enum has not", { type: "enum", name: "E", symbols: ["A"] }, "02"],
    ["a number of more than 64 bits", "long", "ff ff ff ff ff ff ff ff ff 7f"],
    ["a text that is not UTF-8", "string", "02 ff"],
    ["a type that is not defined", "nowhere.Type", "00"],
    ["an array of more nulls than a value may have", { type: "array", items: "null" }, "fe ff ff ff 0f"],
  ])("refuses %s", (_, schema, bytes) => {
    expect(() => decodeDatum(schema, hex(bytes))).toThrow(AvroError);
  });

  it("refuses levels without end", () => {
    const schema: Schema = { type: "record", name: "R", fields: [{ name: "r", type: "R" }] };

    expect(() => decodeDatum(schema, hex("00"))).toThrow(/levels/);
  });
});
