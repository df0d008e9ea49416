// What has been typed into a form so far, and the value that it stands for.
//
// A draft keeps what was typed, also where it is no value (a number of which only the minus sign is there), so that a
// form never loses anything. It is immutable: a change makes a new draft along the way to what changed.

import { branchOf, check, keyOf, same, type Fault, type Path } from "./check";
import { isObject, type Branch, type Field } from "./schema";

export type Draft =
  /** Not given: the service uses its default. */
  | { is: "absent" }
  | { is: "null" }
  /** Text, numbers, dates, and JSON for what may be anything. */
  | { is: "typed"; text: string }
  /** One of the values of a choice, by its number; -1: none yet. */
  | { is: "chosen"; index: number }
  | { is: "constant" }
  | { is: "object"; named: Record<string, Draft>; more: Entry[] }
  | { is: "list"; items: Item[] }
  | { is: "union"; index: number; inner: Draft };

export interface Entry {
  id: number;
  name: string;
  draft: Draft;
}

export interface Item {
  id: number;
  draft: Draft;
}

const ABSENT: Draft = { is: "absent" };

let lastId = 0;

/** A number for an item or an entry, by which a page knows it again when others come before it. */
export function newId(): number {
  lastId += 1;
  return lastId;
}

/** A form where nothing has been typed yet: optional fields are absent, required ones empty. */
export function emptyDraft(field: Field): Draft {
  // What is required is shown open, at once; inside, the same rule.
  switch (field.kind) {
    case "object":
      return { is: "object", named: Object.fromEntries(field.properties.map((one) => [one.name, ofProperty(one.required, one.field())])), more: [] };
    case "list": {
      const first = field.first.map((inner) => ({ id: newId(), draft: emptyDraft(inner()) }));
      const rest: Item[] = [];
      // As many as the schema requires, but not hundreds.
      if (field.rest !== null) {
        const inner = field.rest();
        const wanted = Math.min(field.minimum ?? 0, 10) - first.length;
        for (let number = 0; number < wanted; number += 1) rest.push({ id: newId(), draft: emptyDraft(inner) });
      }
      return { is: "list", items: [...first, ...rest] };
    }
    case "union": {
      const [first] = field.branches;
      return first === undefined ? ABSENT : { is: "union", index: 0, inner: emptyDraft(first.field()) };
    }
    case "choice":
      return { is: "chosen", index: -1 };
    case "constant":
      return { is: "constant" };
    default:
      return { is: "typed", text: "" };
  }
}

function ofProperty(required: boolean, field: Field): Draft {
  if (required || field.kind === "constant") return emptyDraft(field);
  return ABSENT;
}

/** The draft of an optional field that the user begins to fill in: its default where there is one. */
export function begunDraft(field: Field): Draft {
  return field.default === undefined || field.default === null ? emptyDraft(field) : draftOf(field, field.default);
}

/** The draft of a known value. What does not fit the field stays in it as far as it can be shown. */
export function draftOf(field: Field, value: unknown): Draft {
  if (value === undefined) return ABSENT;
  if (value === null) {
    if (field.kind === "constant") return { is: "constant" };
    return field.kind === "any" ? { is: "typed", text: "null" } : { is: "null" };
  }
  switch (field.kind) {
    case "object": {
      if (!isObject(value)) return emptyDraft(field);
      const known = new Set(field.properties.map(({ name }) => name));
      const named = Object.fromEntries(
        field.properties.map(({ name, required, field: inner }) => {
          const given = value[name];
          return [name, given === undefined ? ofProperty(required, inner()) : draftOf(inner(), given)];
        }),
      );
      const extra = field.extra;
      const more = Object.entries(value)
        .filter(([name]) => !known.has(name) && extra !== null)
        .map(([name, one]) => ({ id: newId(), name, draft: extra === null ? ABSENT : draftOf(extra(), one) }));
      return { is: "object", named, more };
    }
    case "list": {
      const given = Array.isArray(value) ? value : [];
      const items = given.map((one, number) => {
        const inner = field.first[number] ?? field.rest;
        return { id: newId(), draft: inner === null ? { is: "typed" as const, text: JSON.stringify(one) } : draftOf(inner(), one) };
      });
      for (const inner of field.first.slice(items.length)) items.push({ id: newId(), draft: emptyDraft(inner()) });
      return { is: "list", items };
    }
    case "union": {
      const branch = branchOf(field, value);
      const index = branch === null ? 0 : field.branches.indexOf(branch);
      const inner = field.branches[index];
      return inner === undefined ? ABSENT : { is: "union", index, inner: draftOf(inner.field(), value) };
    }
    case "choice":
      return { is: "chosen", index: field.values.findIndex((one) => same(one, value)) };
    case "constant":
      return { is: "constant" };
    case "any":
      return { is: "typed", text: JSON.stringify(value, null, 2) };
    default:
      return { is: "typed", text: typeof value === "string" ? value : JSON.stringify(value) };
  }
}

/** What a draft stands for. */
export interface Outcome {
  /** `undefined`: nothing was given. With faults it is what there is so far. */
  value: unknown;
  faults: Fault[];
}

/** The value of a draft, with everything that is wrong with it. */
export function outcomeOf(field: Field, draft: Draft, isRequired = true): Outcome {
  const faults: Fault[] = [];
  const value = valueOf(field, draft, isRequired, [], faults);
  // What cannot be read at all is no value: of that place the first fault is enough.
  const seen = new Set(faults.map(({ path }) => keyOf(path)));
  if (value !== undefined) {
    for (const fault of check(field, value)) if (!seen.has(keyOf(fault.path))) faults.push(fault);
  }
  return { value, faults };
}

function valueOf(field: Field, draft: Draft, isRequired: boolean, path: Path, faults: Fault[]): unknown {
  const fault = (message: string): undefined => void faults.push({ path, message });
  switch (draft.is) {
    case "absent":
      return isRequired ? fault("is required") : undefined;
    case "null":
      return null;
    case "constant":
      return field.kind === "constant" ? field.value : undefined;
    case "chosen":
      if (field.kind !== "choice") return undefined;
      if (draft.index < 0) return isRequired ? fault("choose one") : undefined;
      return field.values[draft.index];
    case "typed":
      return typedValue(field, draft.text, isRequired, fault);
    case "object": {
      if (field.kind !== "object") return undefined;
      const made: Record<string, unknown> = {};
      for (const { name, required, field: inner } of field.properties) {
        const value = valueOf(inner(), draft.named[name] ?? ABSENT, required, [...path, name], faults);
        if (value !== undefined) made[name] = value;
      }
      const taken = new Set(field.properties.map(({ name }) => name));
      for (const { name, draft: one } of draft.more) {
        if (field.extra === null) continue;
        const value = valueOf(field.extra(), one, true, [...path, name], faults);
        if (taken.has(name)) faults.push({ path: [...path, name], message: "duplicate name" });
        taken.add(name);
        // `__proto__` as a name must not change what the object is.
        if (value !== undefined) Object.defineProperty(made, name, { value, enumerable: true, configurable: true, writable: true });
      }
      return made;
    }
    case "list": {
      if (field.kind !== "list") return undefined;
      const made: unknown[] = [];
      draft.items.forEach(({ draft: one }, number) => {
        const inner = field.first[number] ?? field.rest;
        if (inner === null) return;
        // One that cannot be read keeps its place, so that the faults of others are shown where they are.
        made.push(valueOf(inner(), one, true, [...path, number], faults) ?? null);
      });
      return made;
    }
    case "union": {
      if (field.kind !== "union") return undefined;
      const branch = field.branches[draft.index];
      return branch === undefined ? fault("choose one") : valueOf(branch.field(), draft.inner, isRequired, path, faults);
    }
  }
}

function typedValue(field: Field, text: string, isRequired: boolean, fault: (message: string) => undefined): unknown {
  const trimmed = text.trim();
  switch (field.kind) {
    case "number": {
      if (trimmed === "") return isRequired ? fault("is required") : undefined;
      const isNumber = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/.test(trimmed);
      const value = Number(trimmed);
      if (!isNumber || !Number.isFinite(value)) return fault(field.integer ? "must be a whole number" : "must be a number");
      return value;
    }
    case "decimal":
      // As text: a number of JavaScript would round it.
      if (trimmed === "") return isRequired ? fault("is required") : undefined;
      return trimmed;
    case "text":
      if (text === "" && !isRequired) return undefined;
      if (trimmed === "" && field.format !== null && field.format !== "binary") return fault("is required");
      // What surrounds a date or an id is none of it; of text it may be meant.
      return field.format === null ? text : trimmed;
    default:
      if (trimmed === "") return isRequired ? fault("is required, as JSON") : undefined;
      try {
        return JSON.parse(trimmed) as unknown;
      } catch (error) {
        return fault(`must be JSON: ${error instanceof Error ? error.message : String(error)}`);
      }
  }
}

/** What the service has found wrong, at the places of a form. */
export interface Placed {
  faults: Fault[];
  /** What belongs to no place that the form has. */
  others: string[];
}

/** Put the `details` of a `bad-parameters` error at their fields. */
export function placeDetails(field: Field, value: unknown, details: unknown): Placed {
  const faults: Fault[] = [];
  const others: string[] = [];
  for (const detail of Array.isArray(details) ? details : []) {
    if (!isObject(detail) || typeof detail.message !== "string") continue;
    const where = typeof detail.field === "string" ? detail.field : "";
    const path = pathOf(field, value, where === "" ? [] : where.split("."));
    if (path.length > 0) faults.push({ path, message: detail.message });
    else others.push(where ? `${where}: ${detail.message}` : detail.message);
  }
  return { faults, others };
}

/**
 * Where a field's name as pydantic writes it (`order.pet.dog.name`) leads. It also names the alternatives of unions,
 * which have no place of their own; the way ends at the last place that is known.
 */
function pathOf(field: Field, value: unknown, parts: string[]): Path {
  const path: (string | number)[] = [];
  let here: Field | null = field;
  let left = parts;
  while (left.length > 0 && here !== null) {
    const [part = "", ...rest]: string[] = left;
    if (here.kind === "union") {
      const branch: Branch | null = branchOf(here, value) ?? here.branches[0] ?? null;
      const next: Field | null = branch === null ? null : branch.field();
      // The alternative's name, unless the path goes straight on.
      const goesOn: boolean = next !== null && step(next, value, left) !== null && !isTag(here, part);
      here = next;
      left = goesOn ? left : rest;
      continue;
    }
    const found = step(here, value, left);
    if (found === null) break;
    path.push(found.part);
    here = found.field;
    value = isObject(value) ? value[String(found.part)] : Array.isArray(value) ? value[Number(found.part)] : undefined;
    left = left.slice(found.taken);
  }
  return path;
}

function isTag(field: Extract<Field, { kind: "union" }>, part: string): boolean {
  return field.branches.some(({ tags, title }) => tags.includes(part) || title === part);
}

/** One step of a path: names may contain dots themselves, so the longest one that exists counts. */
function step(field: Field, value: unknown, left: string[]): { part: string | number; field: Field | null; taken: number } | null {
  if (field.kind === "list") {
    const number = Number(left[0]);
    if (!Number.isInteger(number)) return null;
    const inner = field.first[number] ?? field.rest;
    return { part: number, field: inner === null ? null : inner(), taken: 1 };
  }
  if (field.kind !== "object") return null;
  for (let taken = left.length; taken > 0; taken -= 1) {
    const name = left.slice(0, taken).join(".");
    const property = field.properties.find((one) => one.name === name);
    if (property !== undefined) return { part: name, field: property.field(), taken };
    if (field.extra !== null && isObject(value) && name in value) return { part: name, field: field.extra(), taken };
  }
  return null;
}
