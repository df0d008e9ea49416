import { cleanup, fireEvent, render, screen, within } from "@testing-library/preact";
import { useState } from "preact/hooks";
import { afterEach, describe, expect, it } from "vitest";
import { draftOf, emptyDraft, outcomeOf, placeDetails } from "./draft";
import { SchemaForm } from "./form";
import { fieldOf } from "./schema";
import type { Fault } from "./check";

afterEach(cleanup);

let value: unknown;
let faults: Fault[];

/** A form that shows its own faults, and leaves its value in `value`. */
function Trial({ schema, given, told = [] }: { schema: unknown; given?: unknown; told?: Fault[] }) {
  const field = fieldOf(schema);
  const [draft, setDraft] = useState(() => (given === undefined ? emptyDraft(field) : draftOf(field, given)));
  const outcome = outcomeOf(field, draft);
  value = outcome.value;
  faults = outcome.faults;
  return <SchemaForm field={field} draft={draft} onChange={setDraft} faults={[...told, ...faults]} notes={{ symbol: "of the share" }} />;
}

function type(label: string | RegExp, text: string): void {
  fireEvent.input(screen.getByLabelText(label), { target: { value: text } });
}

function choose(label: string | RegExp, text: string): void {
  const select = screen.getByLabelText(label);
  const option = within(select).getByText(text);
  fireEvent.change(select, { target: { value: option.getAttribute("value") } });
}

describe("SchemaForm", () => {
  const QUOTE = {
    type: "object",
    properties: { symbol: { type: "string", minLength: 1 }, qty: { type: "integer", default: 1, minimum: 1 }, when: { type: "string", format: "date" } },
    required: ["symbol"],
  };

  it("makes a value of what is typed", () => {
    render(<Trial schema={QUOTE} />);

    type("symbol", "ABC");
    type("qty", "3");
    type("when", "2026-01-31");

    expect(value).toEqual({ symbol: "ABC", qty: 3, when: "2026-01-31" });
    expect(faults).toEqual([]);
  });

  it("shows defaults, notes and limits, and leaves out what is cleared", () => {
    render(<Trial schema={QUOTE} given={{ symbol: "ABC", qty: 3 }} />);

    expect(screen.getByLabelText<HTMLInputElement>("qty").placeholder).toBe("default: 1");
    expect(screen.getByText("of the share · not empty")).toBeTruthy();
    type("qty", "");

    expect(value).toEqual({ symbol: "ABC" });
  });

  it("ties what is wrong to its control", () => {
    render(<Trial schema={QUOTE} />);

    type("symbol", "ABC");
    type("qty", "0");

    const control = screen.getByLabelText("qty");
    const described = (control.getAttribute("aria-describedby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent);
    expect(control.getAttribute("aria-invalid")).toBe("true");
    expect(described).toContain("must be at least 1");
  });

  it("shows what the service has found wrong at the same place", () => {
    const { faults: told } = placeDetails(fieldOf(QUOTE), { symbol: "A" }, [{ field: "symbol", message: "is not listed" }]);
    render(<Trial schema={QUOTE} given={{ symbol: "A" }} told={told} />);

    expect(screen.getByText("is not listed")).toBeTruthy();
    expect(screen.getByLabelText("symbol").getAttribute("aria-invalid")).toBe("true");
  });

  it("opens an optional model on demand, and leaves it out again", () => {
    const schema = { type: "object", properties: { at: { anyOf: [{ type: "object", properties: { x: { type: "number" } }, required: ["x"] }, { type: "null" }], default: null } } };
    render(<Trial schema={schema} />);
    expect(value).toEqual({});

    fireEvent.click(screen.getByLabelText("Set at"));
    type("x", "1.5");
    expect(value).toEqual({ at: { x: 1.5 } });

    fireEvent.click(screen.getByLabelText("Clear at"));
    expect(value).toEqual({});
  });

  it("adds, moves and removes items", () => {
    render(<Trial schema={{ type: "object", properties: { items: { type: "array", items: { type: "string" }, maxItems: 2 } }, required: ["items"] }} />);

    fireEvent.click(screen.getByLabelText("Add an item to items"));
    type("items, item 1", "a");
    fireEvent.click(screen.getByLabelText("Add an item to items"));
    type("items, item 2", "b");
    expect(screen.getByLabelText<HTMLButtonElement>("Add an item to items").disabled).toBe(true);
    fireEvent.click(screen.getByLabelText("Move item 2 of items up"));
    expect(value).toEqual({ items: ["b", "a"] });

    fireEvent.click(screen.getByLabelText("Remove item 1 of items"));
    expect(value).toEqual({ items: ["a"] });
  });

  it("takes names and values of a map", () => {
    render(<Trial schema={{ type: "object", properties: { tags: { type: "object", additionalProperties: { type: "integer" } } }, required: ["tags"] }} />);

    fireEvent.click(screen.getByText("Add an entry"));
    type("name", "a.b");
    type("value of a.b", "2");

    expect(value).toEqual({ tags: { "a.b": 2 } });
  });

  it("changes between the alternatives of a union", () => {
    const of = (kind: string, name: string, type: string) => ({ type: "object", title: kind, properties: { kind: { const: kind }, [name]: { type } }, required: [name] });
    render(<Trial schema={{ type: "object", properties: { pet: { oneOf: [of("cat", "lives", "integer"), of("dog", "name", "string")] } }, required: ["pet"] }} />);

    type("lives", "7");
    expect(value).toEqual({ pet: { kind: "cat", lives: 7 } });

    choose("Kind of pet", "dog");
    type("name", "Rex");
    expect(value).toEqual({ pet: { kind: "dog", name: "Rex" } });
  });

  it("takes alternatives without parts", () => {
    render(<Trial schema={{ type: "object", properties: { either: { anyOf: [{ type: "integer" }, { type: "string" }] } }, required: ["either"] }} />);

    choose("Kind of either", "text");
    type("either", "7");

    expect(value).toEqual({ either: "7" });
  });

  it("gives choices their own type, and can leave them out", () => {
    render(<Trial schema={{ type: "object", properties: { deep: { type: "boolean", default: false }, color: { enum: ["red", 2] } }, required: ["color"] }} />);

    choose("deep", "true");
    choose("color", "2");
    expect(value).toEqual({ deep: true, color: 2 });

    choose("deep", "default: false");
    expect(value).toEqual({ color: 2 });
  });

  it("has a box for null where leaving out means something else", () => {
    const optional = (more: object) => ({ anyOf: [{ type: "integer" }, { type: "null" }], ...more });
    render(<Trial schema={{ type: "object", properties: { a: optional({ default: 5 }), b: optional({ default: null }), c: optional({}) }, required: ["c"] }} />);
    expect(screen.queryByLabelText("b is null")).toBeNull();

    fireEvent.click(screen.getByLabelText("a is null"));
    fireEvent.click(screen.getByLabelText("c is null"));

    expect(value).toEqual({ a: null, c: null });
  });

  it("takes JSON where anything may be given", () => {
    render(<Trial schema={{ type: "object", properties: { value: {} }, required: ["value"] }} />);

    type("value", '{"a": 1}');

    expect(value).toEqual({ value: { a: 1 } });
  });

  it("says so where there is nothing to give", () => {
    render(<Trial schema={{ type: "object", properties: {}, additionalProperties: false }} />);

    expect(screen.getByText("This verb takes no parameters.")).toBeTruthy();
    expect(value).toEqual({});
  });

  it("has a label for every control", () => {
    const schema = {
      $defs: { Node: { type: "object", properties: { name: { type: "string" }, children: { type: "array", items: { $ref: "#/$defs/Node" } }, blob: { type: "string", format: "binary" }, at: { type: "string", format: "date-time" } }, required: ["name", "children", "blob", "at"] } },
      $ref: "#/$defs/Node",
    };
    render(<Trial schema={schema} given={{ name: "a", children: [{ name: "b", children: [] }], blob: "", at: "" }} />);

    const controls = [...document.querySelectorAll<HTMLInputElement>("input, select, textarea")];
    const unnamed = controls.filter((one) => !one.labels?.length && !one.getAttribute("aria-label"));
    expect(controls.length).toBeGreaterThan(6);
    expect(unnamed).toEqual([]);
    expect(new Set(controls.map(({ id }) => id).filter(Boolean)).size).toBe(controls.filter(({ id }) => id).length);
  });
});
