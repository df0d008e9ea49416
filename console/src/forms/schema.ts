// JSON Schema, as pydantic writes it, read into fields that a form can show.
//
// docs/decisions/0072: why there is no library for it.
//
// Everything below a field is a function: models may contain themselves, so a field is read when it is looked at.

/** What a value may be. */
export type Field = Common &
  (
    | { kind: "object"; properties: Property[]; extra: (() => Field) | null; names: NameRules; closed: boolean; minimum: number | null; maximum: number | null }
    | { kind: "list"; first: (() => Field)[]; rest: (() => Field) | null; minimum: number | null; maximum: number | null; unique: boolean }
    | { kind: "union"; branches: Branch[]; discriminator: string | null }
    | { kind: "choice"; values: unknown[] }
    | { kind: "constant"; value: unknown }
    | { kind: "number"; integer: boolean; limits: Limits }
    | { kind: "decimal"; limits: Limits }
    | { kind: "text"; format: string | null; minimum: number | null; maximum: number | null; pattern: string | null }
    | { kind: "any" }
  );

export interface Common {
  title: string;
  description: string;
  /** Null may be given. */
  nullable: boolean;
  deprecated: boolean;
  /** Or `undefined`. */
  default: unknown;
  example: unknown;
}

export interface Property {
  name: string;
  required: boolean;
  field: () => Field;
}

export interface Branch {
  title: string;
  /** The values of the discriminator that select it. */
  tags: string[];
  field: () => Field;
}

export interface Limits {
  minimum: number | null;
  maximum: number | null;
  /** The limit itself is not allowed. */
  above: number | null;
  below: number | null;
  multiple: number | null;
}

export interface NameRules {
  pattern: string | null;
  values: string[] | null;
}

export type Schema = Record<string, unknown>;

const NO_NAME_RULES: NameRules = { pattern: null, values: null };

/** The field that a schema describes. */
export function fieldOf(schema: unknown, root: Schema = isObject(schema) ? schema : {}): Field {
  return read(schema, root, 0);
}

function read(given: unknown, root: Schema, depth: number): Field {
  const schema = resolve(given, root);
  const common = commonOf(schema);
  const later = (part: unknown): (() => Field) => once(() => read(part, root, depth + 1));

  if ("const" in schema) return { ...common, kind: "constant", value: schema.const };
  if (Array.isArray(schema.enum)) {
    const values = schema.enum as unknown[];
    const [only] = values;
    if (values.length === 1 && !common.nullable) return { ...common, kind: "constant", value: only };
    const nullable = common.nullable || values.includes(null);
    return { ...common, nullable, kind: "choice", values: values.filter((value) => value !== null) };
  }

  const parts = alternatives(schema);
  if (parts !== null) return union(schema, parts, common, root, depth);

  switch (schema.type) {
    case "boolean":
      return { ...common, kind: "choice", values: [true, false] };
    case "integer":
    case "number":
      return { ...common, kind: "number", integer: schema.type === "integer", limits: limitsOf(schema) };
    case "string":
      if (schema.format === "decimal") return { ...common, kind: "decimal", limits: limitsOf(schema) };
      return {
        ...common,
        kind: "text",
        format: formatOf(schema),
        minimum: numberOf(schema.minLength),
        maximum: numberOf(schema.maxLength),
        pattern: textOf(schema.pattern),
      };
    case "array":
      return {
        ...common,
        kind: "list",
        first: Array.isArray(schema.prefixItems) ? schema.prefixItems.map(later) : [],
        rest: schema.items === false || (schema.items === undefined && schema.prefixItems !== undefined) ? null : later(schema.items ?? {}),
        minimum: numberOf(schema.minItems),
        maximum: numberOf(schema.maxItems),
        unique: schema.uniqueItems === true,
      };
    case "object":
      return object(schema, common, later);
    case "null":
      return { ...common, kind: "constant", value: null };
    default:
      // Some schemas say what is in an object and not that it is one.
      return isObject(schema.properties) ? object(schema, common, later) : { ...common, kind: "any" };
  }
}

function object(schema: Schema, common: Common, later: (part: unknown) => () => Field): Field {
  const named = isObject(schema.properties) ? schema.properties : {};
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  const more = schema.additionalProperties;
  const patterns = isObject(schema.patternProperties) ? Object.entries(schema.patternProperties) : [];
  const properties = Object.entries(named).map(([name, part]) => ({
    name,
    required: required.has(name),
    field: later(part),
  }));
  const names = isObject(schema.propertyNames)
    ? { pattern: textOf(schema.propertyNames.pattern), values: textsOf(schema.propertyNames.enum) }
    : NO_NAME_RULES;
  const bounds = { minimum: numberOf(schema.minProperties), maximum: numberOf(schema.maxProperties) };
  const [pattern] = patterns;
  if (pattern !== undefined && !isObject(more)) {
    const rules = { ...names, pattern: names.pattern ?? pattern[0] };
    return { ...common, kind: "object", properties, extra: later(pattern[1]), names: rules, closed: true, ...bounds };
  }
  if (isObject(more)) return { ...common, kind: "object", properties, extra: later(more), names, closed: false, ...bounds };
  // Without properties it is a map of anything; with some, others are let in by those models only that say so.
  const isFree = more === true || (more === undefined && properties.length === 0);
  return { ...common, kind: "object", properties, extra: isFree ? later({}) : null, names, closed: more === false, ...bounds };
}

function union(schema: Schema, parts: Schema[], common: Common, root: Schema, depth: number): Field {
  const resolved = parts.map((part) => resolve(part, root));
  const others = parts.filter((_, number) => !isNull(resolved[number]));
  const nullable = common.nullable || others.length < parts.length;
  const kinds = others.map((part) => resolve(part, root));
  if (isDecimal(schema, kinds)) {
    const limits = limitsOf(kinds.find((one) => one.type === "number") ?? {});
    return { ...common, nullable, kind: "decimal", limits };
  }
  const [only] = others;
  if (only !== undefined && others.length === 1) {
    const inner = read(only, root, depth + 1);
    return {
      ...inner,
      title: common.title || inner.title,
      description: common.description || inner.description,
      default: common.default === undefined ? inner.default : common.default,
      example: common.example === undefined ? inner.example : common.example,
      deprecated: common.deprecated || inner.deprecated,
      nullable: nullable || inner.nullable,
    };
  }
  // Several constants are a choice between them.
  if (kinds.length > 0 && kinds.every((one) => "const" in one)) {
    return { ...common, nullable, kind: "choice", values: kinds.map((one) => one.const) };
  }
  const told = isObject(schema.discriminator) ? schema.discriminator : {};
  const discriminator = textOf(told.propertyName) ?? commonConstant(kinds);
  const branches = others.map((part, number): Branch => {
    const kind = kinds[number] ?? {};
    return {
      title: titleOf(kind),
      tags: discriminator === null ? [] : tagsOf(kind, discriminator, root),
      field: once(() => read(part, root, depth + 1)),
    };
  });
  return { ...common, nullable, kind: "union", branches: distinct(branches), discriminator };
}

/** The parts of which a value has to be one; or null. */
function alternatives(schema: Schema): Schema[] | null {
  for (const key of ["anyOf", "oneOf"]) {
    const parts = schema[key];
    if (Array.isArray(parts)) return parts.map((part) => (isObject(part) ? part : {}));
  }
  if (!Array.isArray(schema.type)) return null;
  // What else is said counts for whichever type it fits; titles and defaults are those of the whole.
  const { title: _title, description: _description, default: _default, examples: _examples, ...rest } = schema;
  return schema.type.map((type: unknown) => ({ ...rest, type }));
}

/** A schema with what it refers to in place. What is next to a reference wins. */
function resolve(given: unknown, root: Schema): Schema {
  let schema: Schema = isObject(given) ? given : given === false ? { enum: [] } : {};
  for (let steps = 0; steps < 50; steps += 1) {
    if (typeof schema.$ref === "string") {
      const { $ref, ...rest } = schema;
      schema = { ...lookUp(schema.$ref, root), ...rest };
    } else if (Array.isArray(schema.allOf)) {
      const { allOf, ...rest } = schema;
      schema = (allOf as unknown[]).map((part) => resolve(part, root)).reduce<Schema>(merge, {});
      schema = merge(schema, rest);
    } else return schema;
  }
  return {};
}

function merge(one: Schema, other: Schema): Schema {
  const merged = { ...one, ...other };
  if (isObject(one.properties) && isObject(other.properties)) {
    merged.properties = { ...one.properties, ...other.properties };
  }
  if (Array.isArray(one.required) && Array.isArray(other.required)) {
    merged.required = [...new Set([...one.required, ...other.required])];
  }
  return merged;
}

function lookUp(reference: string, root: Schema): Schema {
  if (!reference.startsWith("#")) return {};
  let found: unknown = root;
  for (const part of reference.slice(1).split("/").filter(Boolean)) {
    const name = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
    found = isObject(found) ? found[name] : undefined;
  }
  return isObject(found) ? found : {};
}

function commonOf(schema: Schema): Common {
  const examples = Array.isArray(schema.examples) ? schema.examples : [];
  return {
    title: textOf(schema.title) ?? "",
    description: textOf(schema.description) ?? "",
    nullable: false,
    deprecated: schema.deprecated === true,
    default: schema.default,
    example: examples[0],
  };
}

function limitsOf(schema: Schema): Limits {
  return {
    minimum: numberOf(schema.minimum),
    maximum: numberOf(schema.maximum),
    above: numberOf(schema.exclusiveMinimum),
    below: numberOf(schema.exclusiveMaximum),
    multiple: numberOf(schema.multipleOf),
  };
}

function formatOf(schema: Schema): string | null {
  if (schema.contentEncoding === "base64" || schema.contentEncoding === "base64url") return "binary";
  return textOf(schema.format);
}

/** Whether this is how pydantic describes a `Decimal`: a number, or text that is one. */
function isDecimal(schema: Schema, kinds: Schema[]): boolean {
  const types = kinds.map((one) => one.type).sort();
  if (types.length !== 2 || types[0] !== "number" || types[1] !== "string") return false;
  const text = kinds.find((one) => one.type === "string") ?? {};
  return schema.format === "decimal" || text.format === "decimal" || /\\d/.test(String(text.pattern ?? ""));
}

function titleOf(schema: Schema): string {
  if (textOf(schema.title) !== null) return String(schema.title);
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return "list";
  if (schema.type === "string") return ({ "date-time": "date and time", binary: "bytes" } as Record<string, string>)[String(schema.format)] ?? textOf(schema.format) ?? "text";
  return typeof schema.type === "string" ? schema.type : "anything";
}

/** A property that each of the alternatives requires to be a constant: by it they can be told apart. */
function commonConstant(kinds: Schema[]): string | null {
  const [first] = kinds;
  if (first === undefined || !isObject(first.properties)) return null;
  for (const [name, part] of Object.entries(first.properties)) {
    if (!isObject(part) || !("const" in part)) continue;
    const isEverywhere = kinds.every((one) => {
      const other = isObject(one.properties) ? one.properties[name] : undefined;
      return isObject(other) && "const" in other;
    });
    if (isEverywhere) return name;
  }
  return null;
}

function tagsOf(schema: Schema, discriminator: string, root: Schema): string[] {
  const properties = isObject(schema.properties) ? schema.properties : {};
  const part = resolve(properties[discriminator], root);
  if ("const" in part) return [String(part.const)];
  return Array.isArray(part.enum) ? part.enum.map(String) : [];
}

function distinct(branches: Branch[]): Branch[] {
  const seen = new Map<string, number>();
  return branches.map((branch) => {
    const count = (seen.get(branch.title) ?? 0) + 1;
    seen.set(branch.title, count);
    return count === 1 ? branch : { ...branch, title: `${branch.title} (${count})` };
  });
}

function once<T>(make: () => T): () => T {
  let made: { value: T } | null = null;
  return () => (made ??= { value: make() }).value;
}

export function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isNull(schema: Schema | undefined): boolean {
  return schema !== undefined && (schema.type === "null" || ("const" in schema && schema.const === null));
}

function numberOf(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

function textOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function textsOf(value: unknown): string[] | null {
  return Array.isArray(value) ? value.map(String) : null;
}
