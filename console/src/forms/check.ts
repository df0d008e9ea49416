// What is wrong with a value, in words, before it is sent. The service has the last word.

import { isObject, type Branch, type Field, type Limits } from "./schema";

/** One fault. `path` is where: names of properties and numbers of items. */
export interface Fault {
  path: Path;
  message: string;
}

export type Path = readonly (string | number)[];

/** A path as a key: `/order/items/0`. */
export function keyOf(path: Path): string {
  return path.map((part) => `/${String(part).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("");
}

/** The faults of a value; none if it fits, as far as can be known here. */
export function check(field: Field, value: unknown, path: Path = []): Fault[] {
  const fault = (message: string): Fault[] => [{ path, message }];
  if (value === null) {
    if (field.nullable || field.kind === "any" || (field.kind === "constant" && field.value === null)) return [];
    return fault("null is not allowed here");
  }
  switch (field.kind) {
    case "any":
      return [];
    case "constant":
      return same(value, field.value) ? [] : fault(`must be ${JSON.stringify(field.value)}`);
    case "choice":
      return field.values.some((one) => same(one, value)) ? [] : fault(`must be one of ${field.values.map((one) => JSON.stringify(one)).join(", ")}`);
    case "number":
      if (typeof value !== "number") return fault(field.integer ? "must be a whole number" : "must be a number");
      if (field.integer && !Number.isInteger(value)) return fault("must be a whole number");
      if (field.integer && !Number.isSafeInteger(value)) {
        return fault("is too large for a browser to send exactly; use `nebula call`");
      }
      return limited(field.limits, value).flatMap(fault);
    case "decimal": {
      const text = typeof value === "number" ? String(value) : value;
      if (typeof text !== "string" || !/^[+-]?(\d+\.?\d*|\.\d+)$/.test(text)) return fault("must be a decimal number");
      return limited(field.limits, Number(text)).flatMap(fault);
    }
    case "text":
      return typeof value === "string" ? textFaults(field, value).flatMap(fault) : fault("must be text");
    case "list": {
      if (!Array.isArray(value)) return fault("must be a list");
      const faults = counted(value.length, field.minimum, field.maximum, "item").flatMap(fault);
      if (field.unique && new Set(value.map((one) => JSON.stringify(one))).size < value.length) {
        faults.push({ path, message: "items must be unique" });
      }
      value.forEach((item, number) => {
        const inner = field.first[number] ?? field.rest;
        if (inner === null) faults.push({ path: [...path, number], message: "unexpected item" });
        else faults.push(...check(inner(), item, [...path, number]));
      });
      return faults;
    }
    case "object":
      return isObject(value) ? objectFaults(field, value, path) : fault("must be an object");
    case "union": {
      const branch = branchOf(field, value);
      if (branch === null) {
        return fault(`must be one of: ${field.branches.map(({ title }) => title).join(", ")}`);
      }
      return check(branch.field(), value, path);
    }
  }
}

/** The alternative that a value is of, or the one that it resembles most; null where it resembles none. */
export function branchOf(field: Extract<Field, { kind: "union" }>, value: unknown): Branch | null {
  if (field.discriminator !== null && isObject(value)) {
    const tag = String(value[field.discriminator]);
    const tagged = field.branches.find(({ tags }) => tags.includes(tag));
    if (tagged !== undefined) return tagged;
    return null;
  }
  const rated = field.branches.map((branch) => ({ branch, faults: check(branch.field(), value).length }));
  const fits = rated.find(({ faults }) => faults === 0);
  if (fits !== undefined) return fits.branch;
  // A model with faults inside is shown with them; text is not shown as a number that it is not.
  const alike = rated.filter(({ branch }) => isAlike(branch.field(), value)).sort((one, other) => one.faults - other.faults);
  return alike[0]?.branch ?? null;
}

function isAlike(field: Field, value: unknown): boolean {
  switch (field.kind) {
    case "object":
      return isObject(value);
    case "list":
      return Array.isArray(value);
    case "number":
      return typeof value === "number";
    case "text":
    case "decimal":
      return typeof value === "string";
    case "union":
      return field.branches.some((branch) => isAlike(branch.field(), value));
    default:
      return false;
  }
}

function objectFaults(field: Extract<Field, { kind: "object" }>, value: Record<string, unknown>, path: Path): Fault[] {
  const faults: Fault[] = [];
  const known = new Set(field.properties.map(({ name }) => name));
  for (const { name, required, field: inner } of field.properties) {
    const given = value[name];
    if (given !== undefined) faults.push(...check(inner(), given, [...path, name]));
    else if (required) faults.push({ path: [...path, name], message: "is required" });
  }
  const others = Object.keys(value).filter((name) => !known.has(name));
  for (const name of others) {
    const here = [...path, name];
    const { pattern, values } = field.names;
    if (field.extra === null) {
      if (field.closed) faults.push({ path: here, message: "unknown field" });
      continue;
    }
    if (values !== null && !values.includes(name)) {
      faults.push({ path: here, message: `the name must be one of ${values.join(", ")}` });
    } else if (pattern !== null && !matches(pattern, name)) {
      faults.push({ path: here, message: `the name must match ${pattern}` });
    }
    faults.push(...check(field.extra(), value[name], here));
  }
  const entries = Object.keys(value).length;
  for (const message of counted(entries, field.minimum, field.maximum, "entry")) faults.push({ path, message });
  return faults;
}

function limited({ minimum, maximum, above, below, multiple }: Limits, value: number): string[] {
  if (minimum !== null && value < minimum) return [`must be at least ${minimum}`];
  if (maximum !== null && value > maximum) return [`must be at most ${maximum}`];
  if (above !== null && value <= above) return [`must be more than ${above}`];
  if (below !== null && value >= below) return [`must be less than ${below}`];
  if (multiple !== null && Math.abs(value / multiple - Math.round(value / multiple)) > 1e-9) {
    return [`must be a multiple of ${multiple}`];
  }
  return [];
}

function textFaults(field: Extract<Field, { kind: "text" }>, value: string): string[] {
  // Characters as Python counts them.
  const length = [...value].length;
  const faults = counted(length, field.minimum, field.maximum, "character");
  if (field.pattern !== null && !matches(field.pattern, value)) faults.push(`must match ${field.pattern}`);
  const form = field.format === null ? undefined : FORMATS[field.format];
  // Length first: "must be a date" would be odd for a field that was left empty.
  if (form !== undefined && !faults.length && !form.test(value)) faults.push(form.words);
  return faults;
}

function counted(count: number, minimum: number | null, maximum: number | null, word: string): string[] {
  const many = (number: number): string => `${number} ${number === 1 ? word : word === "entry" ? "entries" : `${word}s`}`;
  if (minimum !== null && count < minimum) return [`needs at least ${many(minimum)}`];
  if (maximum !== null && count > maximum) return [`may have at most ${many(maximum)}`];
  return [];
}

const DATE = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$/;
const TIME = /^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?$/;

const FORMATS: Record<string, { test: (value: string) => boolean; words: string }> = {
  date: { test: (value) => DATE.test(value) && isDay(value), words: "must be a date: 2026-01-31" },
  time: { test: (value) => TIME.test(value), words: "must be a time: 18:30:00" },
  "date-time": {
    test: (value) => {
      const [day = "", time = ""] = value.split(/[T ]/, 2);
      return DATE.test(day) && isDay(day) && TIME.test(time);
    },
    words: "must be a date and time: 2026-01-31T18:30:00Z",
  },
  duration: {
    test: (value) => /^[+-]?P(?!$)(\d+Y)?(\d+M)?(\d+W)?(\d+(\.\d+)?D)?(T(?=\d)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?$/.test(value) || /^-?(\d+ days?,? )?\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?$/.test(value),
    words: "must be a duration: PT1H30M (an hour and a half), P2D (two days)",
  },
  uuid: {
    test: (value) => /^(urn:uuid:)?[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$/i.test(value),
    words: "must be a UUID: 123e4567-e89b-12d3-a456-426614174000",
  },
  email: { test: (value) => /^[^\s@]+@[^\s@]+$/.test(value), words: "must be an e-mail address" },
  uri: { test: (value) => /^[a-z][a-z0-9+.-]*:/i.test(value), words: "must be a URL, with its scheme" },
  binary: { test: (value) => /^[A-Za-z0-9+/_-]*={0,2}$/.test(value), words: "must be base64" },
};

function isDay(text: string): boolean {
  const day = new Date(`${text}T00:00:00Z`);
  // JavaScript turns 31 February into a day of March.
  return !Number.isNaN(day.getTime()) && day.toISOString().startsWith(text);
}

/** Whether text has what the pattern wants. Patterns of other dialects that JavaScript cannot read match all. */
export function matches(pattern: string, value: string): boolean {
  try {
    return new RegExp(pattern, "u").test(value);
  } catch {
    return true;
  }
}

export function same(one: unknown, other: unknown): boolean {
  return one === other || JSON.stringify(one) === JSON.stringify(other);
}
