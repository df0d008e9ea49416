import { describe, expect, it } from "vitest";
import { keyOf } from "./check";
import { begunDraft, draftOf, emptyDraft, outcomeOf, placeDetails, type Draft } from "./draft";
import { fieldOf } from "./schema";

const ORDER = {
  $defs: {
    Address: {
      type: "object",
      properties: { street: { type: "string" }, zip: { type: "string", pattern: "^\\d{5}$" } },
      required: ["street", "zip"],
    },
    Cat: { type: "object", title: "Cat", properties: { kind: { const: "cat", default: "cat" }, lives: { type: "integer", default: 9 } } },
    Dog: { type: "object", title: "Dog", properties: { kind: { const: "dog", default: "dog" }, name: { type: "string" } }, required: ["name"] },
  },
  type: "object",
  properties: {
    id: { type: "integer" },
    items: { type: "array", items: { type: "string" }, minItems: 1 },
    address: { $ref: "#/$defs/Address" },
    pet: { oneOf: [{ $ref: "#/$defs/Cat" }, { $ref: "#/$defs/Dog" }], discriminator: { propertyName: "kind" } },
    tags: { type: "object", additionalProperties: { type: "integer" }, default: {} },
    at: { anyOf: [{ type: "string", format: "date-time" }, { type: "null" }], default: null },
    price: { anyOf: [{ type: "number" }, { type: "string" }], format: "decimal", default: "1.5" },
    pair: { type: "array", prefixItems: [{ type: "integer" }, { type: "string" }], minItems: 2, maxItems: 2 },
    either: { anyOf: [{ type: "integer" }, { type: "string" }] },
    any: {},
  },
  required: ["id", "items", "address", "pet"],
};

/** Messages by key. */
function faultsOf(schema: unknown, draft: Draft): Record<string, string> {
  return Object.fromEntries(outcomeOf(fieldOf(schema), draft).faults.map(({ path, message }) => [keyOf(path), message]));
}

function typed(text: string): Draft {
  return { is: "typed", text };
}

describe("emptyDraft", () => {
  it("opens what is required, and leaves out the rest", () => {
    const draft = emptyDraft(fieldOf(ORDER));

    expect(draft).toMatchObject({
      is: "object",
      named: {
        id: { is: "typed", text: "" },
        items: { is: "list", items: [{ draft: { is: "typed" } }] },
        address: { is: "object", named: { street: { is: "typed" }, zip: { is: "typed" } } },
        pet: { is: "union", index: 0 },
        tags: { is: "absent" },
        price: { is: "absent" },
      },
    });
  });

  it("ends for models that contain themselves", () => {
    const schema = { $defs: { Node: { type: "object", properties: { next: { anyOf: [{ $ref: "#/$defs/Node" }, { type: "null" }] } } } }, $ref: "#/$defs/Node" };

    expect(emptyDraft(fieldOf(schema))).toMatchObject({ named: { next: { is: "absent" } } });
  });

  it("reports each required field that it is missing", () => {
    expect(faultsOf(ORDER, emptyDraft(fieldOf(ORDER)))).toEqual({
      "/id": "is required",
      "/address/zip": "must match ^\\d{5}$",
    });
  });

  it("sends constants without being asked", () => {
    const field = fieldOf({ type: "object", properties: { kind: { const: "cat", default: "cat" } } });

    expect(outcomeOf(field, emptyDraft(field)).value).toEqual({ kind: "cat" });
  });
});

describe("outcomeOf", () => {
  it("leaves out what is not given", () => {
    const schema = { type: "object", properties: { a: { type: "string", default: "x" }, b: { type: "integer" } }, required: ["b"] };
    const draft: Draft = { is: "object", named: { a: typed(""), b: typed(" 7 ") }, more: [] };

    expect(outcomeOf(fieldOf(schema), draft)).toEqual({ value: { b: 7 }, faults: [] });
  });

  it("sends required text as it was typed, empty or with spaces", () => {
    expect(outcomeOf(fieldOf({ type: "string" }), typed(""))).toEqual({ value: "", faults: [] });
    expect(outcomeOf(fieldOf({ type: "string" }), typed(" a "))).toEqual({ value: " a ", faults: [] });
    expect(outcomeOf(fieldOf({ type: "string", format: "date" }), typed(" 2026-01-31 "))).toEqual({ value: "2026-01-31", faults: [] });
  });

  it("keeps what was typed where it is no value, and says so once", () => {
    expect(faultsOf({ type: "integer" }, typed("-"))).toEqual({ "": "must be a whole number" });
    expect(faultsOf({ type: "integer" }, typed("1.5"))).toEqual({ "": "must be a whole number" });
    expect(faultsOf({ type: "number" }, typed("1e999"))).toEqual({ "": "must be a number" });
    expect(faultsOf({ type: "number" }, typed("0x10"))).toEqual({ "": "must be a number" });
    expect(outcomeOf(fieldOf({ type: "number" }), typed("1e3")).value).toBe(1000);
  });

  it("sends decimals as text, exactly as typed", () => {
    const field = fieldOf({ anyOf: [{ type: "number" }, { type: "string" }], format: "decimal" });

    expect(outcomeOf(field, typed("0.10000000000000000001"))).toEqual({ value: "0.10000000000000000001", faults: [] });
  });

  it("reads JSON where anything may be given", () => {
    expect(outcomeOf(fieldOf({}), typed('{"a": [1]}'))).toEqual({ value: { a: [1] }, faults: [] });
    expect(faultsOf({}, typed("{"))[""]).toMatch(/^must be JSON: /);
  });

  it("gives values of their own type for choices", () => {
    const field = fieldOf({ enum: [1, "1", true] });

    expect(outcomeOf(field, { is: "chosen", index: 0 }).value).toBe(1);
    expect(outcomeOf(field, { is: "chosen", index: 2 }).value).toBe(true);
    expect(outcomeOf(field, { is: "chosen", index: -1 }).faults).toEqual([{ path: [], message: "choose one" }]);
  });

  it("tells null from nothing", () => {
    const schema = { type: "object", properties: { a: { anyOf: [{ type: "integer" }, { type: "null" }] } } };

    expect(outcomeOf(fieldOf(schema), { is: "object", named: { a: { is: "null" } }, more: [] }).value).toEqual({ a: null });
    expect(outcomeOf(fieldOf(schema), { is: "object", named: { a: { is: "absent" } }, more: [] }).value).toEqual({});
  });

  it("gives the entries of a map, and says which name is there twice", () => {
    const field = fieldOf({ type: "object", additionalProperties: { type: "integer" } });
    const entries = [
      { id: 1, name: "a", draft: typed("1") },
      { id: 2, name: "a", draft: typed("2") },
    ];

    expect(outcomeOf(field, { is: "object", named: {}, more: entries })).toEqual({
      value: { a: 2 },
      faults: [{ path: ["a"], message: "duplicate name" }],
    });
  });

  it("takes __proto__ as a name like others", () => {
    const field = fieldOf({ type: "object", additionalProperties: { type: "integer" } });
    const { value } = outcomeOf(field, { is: "object", named: {}, more: [{ id: 1, name: "__proto__", draft: typed("1") }] });

    expect(JSON.stringify(value)).toBe('{"__proto__":1}');
  });

  it("keeps the places of a list where one cannot be read", () => {
    const field = fieldOf({ type: "array", items: { type: "integer" } });
    const items = ["1", "x", "3.5"].map((text, id) => ({ id, draft: typed(text) }));

    expect(faultsOf({ type: "array", items: { type: "integer" } }, { is: "list", items })).toEqual({
      "/1": "must be a whole number",
      "/2": "must be a whole number",
    });
    expect(outcomeOf(field, { is: "list", items: items.slice(0, 1) })).toEqual({ value: [1], faults: [] });
  });
});

describe("draftOf", () => {
  it("shows a value so that the same value comes out again", () => {
    const field = fieldOf(ORDER);
    const value = {
      id: 7,
      items: ["a", "b"],
      address: { street: "Main", zip: "12345" },
      pet: { kind: "dog", name: "Rex" },
      tags: { x: 1, "a.b": 2 },
      at: null,
      price: "1.50",
      pair: [1, "a"],
      either: "text",
      any: { deep: [true] },
    };

    expect(outcomeOf(field, draftOf(field, value))).toEqual({ value, faults: [] });
  });

  it("leaves out what the value leaves out", () => {
    const field = fieldOf(ORDER);
    const value = { id: 1, items: ["a"], address: { street: "s", zip: "12345" }, pet: { kind: "cat" } };

    expect(outcomeOf(field, draftOf(field, value)).value).toEqual(value);
  });

  it("shows the default of what is begun", () => {
    expect(begunDraft(fieldOf({ type: "object", additionalProperties: { type: "integer" }, default: { a: 1 } }))).toMatchObject({ more: [{ name: "a", draft: { text: "1" } }] });
    expect(begunDraft(fieldOf({ anyOf: [{ type: "object", properties: { x: { type: "number" } }, required: ["x"] }, { type: "null" }], default: null }))).toMatchObject({ is: "object", named: { x: { is: "typed" } } });
  });

  it("shows what does not fit as far as it can", () => {
    expect(draftOf(fieldOf({ type: "integer" }), "abc")).toEqual(typed("abc"));
    expect(draftOf(fieldOf({ type: "array", items: { type: "integer" } }), "abc")).toEqual({ is: "list", items: [] });
  });
});

describe("placeDetails", () => {
  const value = { order: { id: "x", pet: { kind: "dog" }, tags: { "a.b": "x" }, items: ["a"], pair: [1], either: [] } };
  const field = fieldOf({ ...ORDER, properties: { order: { $ref: "#/$defs/Order" } }, required: ["order"], $defs: { ...ORDER.$defs, Order: { type: "object", properties: ORDER.properties } } });

  it.each([
    ["order.id", "/order/id"],
    ["order.items.0", "/order/items/0"],
    ["order.address.street", "/order/address/street"],
    // pydantic names the alternative that it tried.
    ["order.pet.dog.name", "/order/pet/name"],
    ["order.either.int", "/order/either"],
    ["order.pair.1", "/order/pair/1"],
    ["order.tags.a.b", "/order/tags/a.b"],
    // What it does not know ends at the last place that it does.
    ["order.id.constrained-int", "/order/id"],
  ])("puts %s at %s", (name, key) => {
    const { faults, others } = placeDetails(field, value, [{ field: name, message: "wrong" }]);

    expect(faults.map(({ path }) => keyOf(path))).toEqual([key]);
    expect(others).toEqual([]);
  });

  it("tells what has no place in words", () => {
    expect(placeDetails(field, value, [{ field: "foo", message: "Unexpected keyword argument" }, { message: "odd" }])).toEqual({
      faults: [],
      others: ["foo: Unexpected keyword argument", "odd"],
    });
    expect(placeDetails(field, value, { code: 3 })).toEqual({ faults: [], others: [] });
    expect(placeDetails(field, value, undefined)).toEqual({ faults: [], others: [] });
  });
});
