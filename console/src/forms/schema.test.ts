import { describe, expect, it } from "vitest";
import { fieldOf, type Field } from "./schema";

function object(field: Field): Extract<Field, { kind: "object" }> {
  if (field.kind !== "object") throw new Error(`this is a ${field.kind}`);
  return field;
}

function property(field: Field, name: string): Field {
  const found = object(field).properties.find((one) => one.name === name);
  if (found === undefined) throw new Error(`there is no ${name}`);
  return found.field();
}

describe("fieldOf", () => {
  it("reads what a verb takes", () => {
    const field = fieldOf({
      type: "object",
      additionalProperties: false,
      properties: { symbol: { type: "string", title: "Symbol", minLength: 1 }, qty: { type: "integer", default: 1 } },
      required: ["symbol"],
    });

    expect(object(field).closed).toBe(true);
    expect(object(field).extra).toBeNull();
    expect(object(field).properties.map(({ name, required }) => [name, required])).toEqual([
      ["symbol", true],
      ["qty", false],
    ]);
    expect(property(field, "qty")).toMatchObject({ kind: "number", integer: true, default: 1 });
  });

  it("follows references, and keeps what is next to them", () => {
    const field = fieldOf({
      $defs: { Color: { type: "string", enum: ["red", "blue"], title: "Color" } },
      type: "object",
      properties: { color: { $ref: "#/$defs/Color", default: "red", description: "of the car" } },
    });

    expect(property(field, "color")).toMatchObject({
      kind: "choice",
      values: ["red", "blue"],
      default: "red",
      title: "Color",
      description: "of the car",
    });
  });

  it("follows references with escaped names, and those that lead nowhere to anything", () => {
    const field = fieldOf({
      $defs: { "a/b~c": { type: "integer" } },
      properties: { one: { $ref: "#/$defs/a~1b~0c" }, other: { $ref: "#/$defs/none" }, far: { $ref: "http://x/y" } },
    });

    expect(property(field, "one").kind).toBe("number");
    expect(property(field, "other").kind).toBe("any");
    expect(property(field, "far").kind).toBe("any");
  });

  it("reads models that contain themselves", () => {
    const schema = {
      $defs: { Node: { type: "object", properties: { children: { type: "array", items: { $ref: "#/$defs/Node" } } } } },
      $ref: "#/$defs/Node",
    };

    const children = property(fieldOf(schema), "children");
    const inner = children.kind === "list" ? children.rest?.() : undefined;

    expect(inner?.kind).toBe("object");
    expect(inner && property(inner, "children").kind).toBe("list");
  });

  it("survives references that go round in circles", () => {
    expect(fieldOf({ $defs: { A: { $ref: "#/$defs/A" } }, $ref: "#/$defs/A" }).kind).toBe("any");
  });

  it("takes an optional as what may be null", () => {
    const field = fieldOf({ anyOf: [{ type: "string", format: "date", maxLength: 10 }, { type: "null" }], default: null, title: "Day" });

    expect(field).toMatchObject({ kind: "text", format: "date", maximum: 10, nullable: true, default: null, title: "Day" });
  });

  it("takes a list of types as a union, and one with null as an optional", () => {
    expect(fieldOf({ type: ["integer", "null"], minimum: 3 })).toMatchObject({ kind: "number", nullable: true, limits: { minimum: 3 } });
    expect(fieldOf({ type: ["integer", "string"] })).toMatchObject({ kind: "union", discriminator: null });
  });

  it("keeps null of a union with several alternatives", () => {
    const field = fieldOf({ anyOf: [{ type: "integer" }, { type: "boolean" }, { type: "null" }] });

    expect(field).toMatchObject({ kind: "union", nullable: true });
    expect(field.kind === "union" && field.branches.map(({ title }) => title)).toEqual(["integer", "boolean"]);
  });

  it("tells the alternatives of a union by their discriminator", () => {
    const cat = { type: "object", title: "Cat", properties: { kind: { const: "cat", default: "cat" } } };
    const dog = { type: "object", title: "Dog", properties: { kind: { enum: ["dog", "wolf"] } } };
    const field = fieldOf({
      $defs: { Cat: cat, Dog: dog },
      oneOf: [{ $ref: "#/$defs/Cat" }, { $ref: "#/$defs/Dog" }],
      discriminator: { propertyName: "kind", mapping: {} },
    });

    expect(field).toMatchObject({ kind: "union", discriminator: "kind" });
    expect(field.kind === "union" && field.branches.map(({ title, tags }) => [title, tags])).toEqual([
      ["Cat", ["cat"]],
      ["Dog", ["dog", "wolf"]],
    ]);
  });

  it("finds a discriminator without a name", () => {
    const of = (kind: string) => ({ type: "object", properties: { type: { const: kind }, x: { type: "integer" } } });

    expect(fieldOf({ anyOf: [of("a"), of("b")] })).toMatchObject({ kind: "union", discriminator: "type" });
    expect(fieldOf({ anyOf: [of("a"), { type: "object", properties: {} }] })).toMatchObject({ discriminator: null });
  });

  it("numbers alternatives of one name", () => {
    const field = fieldOf({ anyOf: [{ type: "array", items: {} }, { type: "array", items: { type: "integer" } }] });

    expect(field.kind === "union" && field.branches.map(({ title }) => title)).toEqual(["list", "list (2)"]);
  });

  it("takes constants, single values and unions of constants", () => {
    expect(fieldOf({ const: 5, type: "integer" })).toMatchObject({ kind: "constant", value: 5 });
    expect(fieldOf({ enum: ["one"] })).toMatchObject({ kind: "constant", value: "one" });
    expect(fieldOf({ anyOf: [{ const: "a" }, { const: "b" }, { type: "null" }] })).toMatchObject({ kind: "choice", values: ["a", "b"], nullable: true });
    expect(fieldOf({ enum: ["a", "b", null] })).toMatchObject({ kind: "choice", values: ["a", "b"], nullable: true });
    expect(fieldOf({ type: "null" })).toMatchObject({ kind: "constant", value: null });
  });

  it("takes a Decimal as one, however pydantic writes it", () => {
    expect(fieldOf({ anyOf: [{ type: "number", minimum: 0 }, { type: "string" }], format: "decimal" })).toMatchObject({ kind: "decimal", limits: { minimum: 0 } });
    expect(fieldOf({ anyOf: [{ type: "number" }, { type: "string", pattern: "^[+-]?\\d*$" }] }).kind).toBe("decimal");
    expect(fieldOf({ anyOf: [{ type: "number" }, { type: "string" }] }).kind).toBe("union");
    expect(fieldOf({ anyOf: [{ type: "number" }, { type: "string" }, { type: "null" }], format: "decimal" })).toMatchObject({ kind: "decimal", nullable: true });
  });

  it("reads the places of a tuple, and what may follow them", () => {
    const pair = fieldOf({ type: "array", prefixItems: [{ type: "integer" }, { type: "string" }], minItems: 2, maxItems: 2 });
    const more = fieldOf({ type: "array", prefixItems: [{ type: "integer" }], items: { type: "string" } });

    expect(pair.kind === "list" && pair.first.map((one) => one().kind)).toEqual(["number", "text"]);
    expect(pair.kind === "list" && pair.rest).toBeNull();
    expect(more.kind === "list" && more.rest?.().kind).toBe("text");
  });

  it("reads maps, with rules for their names", () => {
    const map = object(fieldOf({ type: "object", additionalProperties: { type: "integer" }, propertyNames: { pattern: "^a" }, minProperties: 1 }));
    const dated = object(fieldOf({ type: "object", patternProperties: { "^\\d+$": { type: "string" } }, additionalProperties: false }));
    const free = object(fieldOf({ type: "object" }));

    expect(map.extra?.().kind).toBe("number");
    expect(map.names.pattern).toBe("^a");
    expect(map.minimum).toBe(1);
    expect(dated.names.pattern).toBe("^\\d+$");
    expect(dated.extra?.().kind).toBe("text");
    expect(free.extra?.().kind).toBe("any");
  });

  it("lets others into a model only where it says so", () => {
    const part = { type: "object", properties: { x: {} } };

    expect(object(fieldOf(part)).extra).toBeNull();
    expect(object(fieldOf({ ...part, additionalProperties: true })).extra).not.toBeNull();
  });

  it("joins the parts of allOf", () => {
    const field = fieldOf({
      $defs: { Base: { type: "object", properties: { a: { type: "integer" } }, required: ["a"] } },
      allOf: [{ $ref: "#/$defs/Base" }, { properties: { b: { type: "string" } }, required: ["b"] }],
      title: "Both",
    });

    expect(field.title).toBe("Both");
    expect(object(field).properties.map(({ name, required }) => [name, required])).toEqual([["a", true], ["b", true]]);
  });

  it("takes bytes as such, however they are marked", () => {
    expect(fieldOf({ type: "string", format: "binary" })).toMatchObject({ kind: "text", format: "binary" });
    expect(fieldOf({ type: "string", contentEncoding: "base64" })).toMatchObject({ kind: "text", format: "binary" });
  });

  it("takes what it does not know as anything", () => {
    for (const schema of [{}, true, null, 7, { title: "Any" }, { type: "strange" }]) expect(fieldOf(schema).kind).toBe("any");
  });
});
