// Avro's binary encoding, read by a schema. The libraries for it compile readers with `new Function`, which the
// page's Content-Security-Policy forbids; this one interprets the schema.
//
// The broker has checked a body against its schema before it is delivered. Bodies of destinations without a schema
// can be anything, so every length is still checked against the data that is there.

/** A schema as in an `.avsc` file, read from JSON. */
export type Schema = string | Schema[] | { type: Schema; [attribute: string]: unknown };

/** The data is not a datum of its schema, or the schema is none. */
export class AvroError extends Error {
  override name = "AvroError";
}

const PRIMITIVES = new Set(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]);

// The bounds of the broker: a datum can be small and its value large, such as an array of a million nulls.
const MOST_VALUES = 200_000;
const MOST_LEVELS = 64;

type Named = { definition: Record<string, unknown>; namespace: string };

/** The position in the data, and what was read of it. */
export class Reader {
  #at = 0;
  #values = 0;
  readonly #view: DataView;

  constructor(readonly data: Uint8Array) {
    this.#view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  }

  get isAtEnd(): boolean {
    return this.#at === this.data.length;
  }

  /** Bytes that were not read yet. */
  get left(): number {
    return this.data.length - this.#at;
  }

  count(): void {
    this.#values += 1;
    if (this.#values > MOST_VALUES) throw new AvroError(`more than ${MOST_VALUES} values`);
  }

  byte(): number {
    const byte = this.data[this.#at];
    if (byte === undefined) throw new AvroError("the data ends too early");
    this.#at += 1;
    return byte;
  }

  /** A zigzag varint of up to 64 bits. */
  long(): bigint {
    let number = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.byte();
      number |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) {
        if (number >> 64n) break;
        return (number >> 1n) ^ -(number & 1n);
      }
    }
    throw new AvroError("a number of more than 64 bits");
  }

  /** A number that must not be negative, and not larger than what is left of the data. */
  length(): number {
    const length = this.long();
    if (length < 0n || length > BigInt(this.left)) throw new AvroError(`a length of ${length}`);
    return Number(length);
  }

  bytes(length: number): Uint8Array {
    if (length > this.left) throw new AvroError("the data ends too early");
    const found = this.data.subarray(this.#at, this.#at + length);
    this.#at += length;
    return found;
  }

  float(): number {
    this.#need(4);
    const number = this.#view.getFloat32(this.#at, true);
    this.#at += 4;
    return number;
  }

  double(): number {
    this.#need(8);
    const number = this.#view.getFloat64(this.#at, true);
    this.#at += 8;
    return number;
  }

  text(): string {
    const bytes = this.bytes(this.length());
    try {
      return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    } catch {
      throw new AvroError("a text that is not UTF-8");
    }
  }

  #need(bytes: number): void {
    if (bytes > this.left) throw new AvroError("the data ends too early");
  }
}

/**
 * The value of a datum, as JSON shows it: bytes as `0x…`, decimals as numbers in text, dates and times in ISO 8601,
 * numbers beyond what JavaScript counts exactly as bigint.
 *
 * @throws {AvroError}
 */
export function decodeDatum(schema: Schema, data: Uint8Array): unknown {
  const reader = new Reader(data);
  const value = new Decoder(schema).read(reader);
  if (!reader.isAtEnd) throw new AvroError(`${reader.left} bytes are left over`);
  return value;
}

/** Reads data of one schema. */
export class Decoder {
  readonly #names = new Map<string, Named>();

  constructor(readonly schema: Schema) {
    this.#collect(schema, "");
  }

  read(reader: Reader): unknown {
    return this.#read(this.schema, reader, "", 0);
  }

  /** The name of a union's branch, or of any type. */
  #nameOf(schema: Schema): string {
    if (typeof schema === "string") return schema;
    if (Array.isArray(schema)) return "union";
    return typeof schema.name === "string" ? schema.name : this.#nameOf(schema.type);
  }

  #collect(schema: Schema, namespace: string): void {
    if (typeof schema === "string") return;
    if (Array.isArray(schema)) {
      for (const each of schema) this.#collect(each, namespace);
      return;
    }
    if (typeof schema !== "object" || schema === null) throw new AvroError("a schema that is none");
    const own = namespaceOf(schema, namespace);
    if (typeof schema.name === "string") {
      this.#names.set(fullName(schema.name, own), { definition: schema, namespace: own });
    }
    if (schema.type === "record" || schema.type === "error") {
      for (const field of fieldsOf(schema)) this.#collect(field.type, own);
    } else if (schema.type === "array") this.#collect(schema.items as Schema, own);
    else if (schema.type === "map") this.#collect(schema.values as Schema, own);
    else if (typeof schema.type === "object") this.#collect(schema.type, own);
  }

  #read(schema: Schema, reader: Reader, namespace: string, level: number): unknown {
    if (level > MOST_LEVELS) throw new AvroError(`more than ${MOST_LEVELS} levels`);
    reader.count();
    if (Array.isArray(schema)) {
      const branch = schema[Number(reader.long())];
      if (branch === undefined) throw new AvroError("a union has no such branch");
      return this.#read(branch, reader, namespace, level + 1);
    }
    if (typeof schema === "string") {
      if (PRIMITIVES.has(schema)) return readPrimitive(schema, reader);
      const found = this.#names.get(fullName(schema, namespace)) ?? this.#names.get(schema);
      if (found === undefined) throw new AvroError(`the type ${schema} is not defined`);
      return this.#readDefined(found.definition, reader, found.namespace, level);
    }
    return this.#readDefined(schema, reader, namespaceOf(schema, namespace), level);
  }

  #readDefined(schema: Record<string, unknown>, reader: Reader, namespace: string, level: number): unknown {
    const type = schema.type as Schema;
    switch (type) {
      case "record":
      case "error": {
        const entries = fieldsOf(schema).map(
          (field) => [field.name, this.#read(field.type, reader, namespace, level + 1)] as const,
        );
        // Not an assignment to `{}`: a field may be called `__proto__`.
        return Object.fromEntries(entries);
      }
      case "enum": {
        const symbols = schema.symbols as string[];
        const symbol = symbols[Number(reader.long())];
        if (symbol === undefined) throw new AvroError(`${this.#nameOf(schema as Schema)} has no such symbol`);
        return symbol;
      }
      case "fixed": {
        const bytes = reader.bytes(Number(schema.size));
        return logicalBytes(bytes, schema) ?? hexOf(bytes);
      }
      case "array": {
        const items: unknown[] = [];
        for (const _ of blocks(reader)) items.push(this.#read(schema.items as Schema, reader, namespace, level + 1));
        return items;
      }
      case "map": {
        const entries: [string, unknown][] = [];
        for (const _ of blocks(reader)) {
          const key = reader.text();
          entries.push([key, this.#read(schema.values as Schema, reader, namespace, level + 1)]);
        }
        return Object.fromEntries(entries);
      }
      case "bytes": {
        const bytes = reader.bytes(reader.length());
        return logicalBytes(bytes, schema) ?? hexOf(bytes);
      }
      case "int":
      case "long": {
        const number = readPrimitive(type, reader) as number | bigint;
        return logicalNumber(number, schema.logicalType) ?? number;
      }
      default:
        return this.#read(type, reader, namespace, level + 1);
    }
  }
}

/** One turn for each item of an array or map. */
function* blocks(reader: Reader): Generator<void> {
  for (let count = reader.long(); count !== 0n; count = reader.long()) {
    // A negative count is followed by the block's size in bytes, for readers that skip it.
    if (count < 0n) {
      count = -count;
      reader.length();
    }
    for (; count > 0n; count -= 1n) yield;
  }
}

function readPrimitive(type: string, reader: Reader): unknown {
  switch (type) {
    case "null":
      return null;
    case "boolean": {
      const byte = reader.byte();
      if (byte > 1) throw new AvroError(`a boolean of ${byte}`);
      return byte === 1;
    }
    case "int":
    case "long": {
      const number = reader.long();
      return Number.isSafeInteger(Number(number)) ? Number(number) : number;
    }
    case "float":
      return reader.float();
    case "double":
      return reader.double();
    case "bytes":
      return hexOf(reader.bytes(reader.length()));
    default:
      return reader.text();
  }
}

function logicalNumber(number: number | bigint, logicalType: unknown): string | null {
  const value = BigInt(number);
  switch (logicalType) {
    case "date":
      return moment(value * 86_400_000n)?.slice(0, 10) ?? null;
    case "time-millis":
      return timeOfDay(value, 1_000n, 3);
    case "time-micros":
      return timeOfDay(value, 1_000_000n, 6);
    case "timestamp-millis":
      return moment(value);
    case "timestamp-micros":
      return moment(value / 1_000n, value, 6);
    case "timestamp-nanos":
      return moment(value / 1_000_000n, value, 9);
    case "local-timestamp-millis":
      return moment(value)?.slice(0, -1) ?? null;
    case "local-timestamp-micros":
      return moment(value / 1_000n, value, 6)?.slice(0, -1) ?? null;
    default:
      return null;
  }
}

/** Milliseconds since 1970 as text; with the finer part of `exact`, in this number of digits. */
function moment(milliseconds: bigint, exact?: bigint, digits = 3): string | null {
  const date = new Date(Number(milliseconds));
  if (Number.isNaN(date.getTime())) return null;
  const text = date.toISOString();
  if (exact === undefined || exact < 0n) return text;
  const fraction = String(exact % 10n ** BigInt(digits)).padStart(digits, "0");
  return text.replace(/\.\d{3}Z$/, `.${fraction}Z`);
}

function timeOfDay(value: bigint, perSecond: bigint, digits: number): string | null {
  if (value < 0n || value >= 86_400n * perSecond) return null;
  const seconds = value / perSecond;
  const parts = [seconds / 3600n, (seconds / 60n) % 60n, seconds % 60n].map((part) => String(part).padStart(2, "0"));
  return `${parts.join(":")}.${String(value % perSecond).padStart(digits, "0")}`;
}

function logicalBytes(bytes: Uint8Array, schema: Record<string, unknown>): string | null {
  if (schema.logicalType === "decimal") return decimalOf(bytes, Number(schema.scale ?? 0));
  if (schema.logicalType === "uuid" && bytes.length === 16) {
    return hexOf(bytes).slice(2).replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
  return null;
}

/** A two's-complement number, the highest byte first, with this number of digits behind the point. */
function decimalOf(bytes: Uint8Array, scale: number): string | null {
  if (bytes.length === 0 || bytes.length > 128 || !Number.isInteger(scale) || scale < 0 || scale > 400) return null;
  let number = 0n;
  for (const byte of bytes) number = (number << 8n) | BigInt(byte);
  if ((bytes[0] ?? 0) >= 0x80) number -= 1n << BigInt(8 * bytes.length);
  const digits = String(number < 0n ? -number : number).padStart(scale + 1, "0");
  const sign = number < 0n ? "-" : "";
  if (scale === 0) return sign + digits;
  return `${sign}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}

/** Bytes as `0x0a1b`. */
export function hexOf(bytes: Uint8Array): string {
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

function fieldsOf(schema: Record<string, unknown>): { name: string; type: Schema }[] {
  if (!Array.isArray(schema.fields)) throw new AvroError("a record without fields");
  return schema.fields as { name: string; type: Schema }[];
}

function namespaceOf(schema: Record<string, unknown>, around: string): string {
  // A name with dots has its namespace in it.
  if (typeof schema.name === "string" && schema.name.includes(".")) {
    return schema.name.slice(0, schema.name.lastIndexOf("."));
  }
  return typeof schema.namespace === "string" ? schema.namespace : around;
}

function fullName(name: string, namespace: string): string {
  return name.includes(".") || namespace === "" ? name : `${namespace}.${name}`;
}
