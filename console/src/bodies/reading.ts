// What a message's body is: JSON, text, Avro, or bytes.

import type { MessageView } from "../broker";
import { decodeDatum, AvroError, type Schema } from "./avro";
import { envelopeOf, singleObjectOf, type Envelope } from "./envelope";
import { bytesOfBase64, bytesOfHex, textOf } from "./hex";

/** A body, or its beginning, with what says how to read it. */
export interface Body {
  bytes: Uint8Array;
  /** Bytes of the whole body. */
  total: number;
  destination: string;
  contentType: string;
}

/** The body of a message that a verb has shown. */
export function bodyOf(view: MessageView): Body {
  return {
    bytes: view.encoding === "base64" ? bytesOfBase64(view.body) : new TextEncoder().encode(view.body),
    total: view.body_bytes,
    // Where a schema is bound, it is bound to the destination that the message was sent to.
    destination: view.headers["dead-letter-from"] ?? view.headers["original-destination"] ?? view.destination,
    contentType: view.headers["content-type"] ?? "",
  };
}

/** A JSON value whose whole numbers are exact: those that JavaScript would round are bigint. Undefined: it is none. */
export function jsonOf(text: string): unknown {
  try {
    // Not all browsers pass the source on, nor do TypeScript's types.
    const exact = (_: string, value: unknown, context?: { source?: string }) =>
      typeof value === "number" &&
      !Number.isSafeInteger(value) &&
      context?.source !== undefined &&
      /^-?\d+$/.test(context.source)
        ? BigInt(context.source)
        : value;
    return JSON.parse(text, exact as (key: string, value: unknown) => unknown);
  } catch {
    return undefined;
  }
}

/** A value as indented JSON; bigint as a number of all its digits. */
export function prettyJson(value: unknown): string {
  const exact: bigint[] = [];
  const text = JSON.stringify(
    value,
    (_, each: unknown) => (typeof each === "bigint" ? `\u0000${exact.push(each) - 1}` : each),
    2,
  );
  if (text === undefined) return "";
  return exact.length === 0 ? text : text.replace(/"\\u0000(\d+)"/g, (_, place: string) => String(exact[Number(place)]));
}

/** What a body is without asking the broker. */
export interface Plain {
  /** Undefined: it is no JSON. */
  json: unknown;
  /** Null: it is no text. */
  text: string | null;
  isCut: boolean;
}

export function readPlain(body: Body): Plain {
  const isCut = body.bytes.length < body.total;
  const text = textOf(body.bytes);
  return { json: text === null || isCut ? undefined : jsonOf(text), text, isCut };
}

/** An Avro body, decoded. */
export interface AvroReading {
  /** The name of its type. */
  name: string | null;
  fingerprint: string | null;
  value: unknown;
  envelope: Envelope | null;
}

/** Schemas by fingerprint and by destination, as the broker knows them. */
export interface SchemaSource {
  get(fingerprint: string): Promise<{ name: string; definition: Schema }>;
  /** The one schema of a destination whose bodies are data without an envelope; or null. */
  bare(destination: string): Promise<{ name: string; fingerprint: string; definition: Schema } | null>;
}

/** Requests and replies in Avro are one such record. */
const MESSAGE: Schema = {
  type: "record",
  name: "nebula.Message",
  fields: [
    { name: "verb", type: "string" },
    { name: "parameters", type: ["null", "bytes", "string"], default: null },
    { name: "description", type: ["null", "string"], default: null },
  ],
};

/**
 * Decode a body by its schema; null: it is not Avro, as far as can be told.
 *
 * @throws {AvroError} it is Avro, and cannot be decoded; what `source` throws where it has no such schema
 */
export async function readAvro(body: Body, source: SchemaSource): Promise<AvroReading | null> {
  if (body.bytes.length === 0) return null;
  if (body.bytes.length < body.total) {
    if (!body.contentType.includes("avro")) return null;
    throw new AvroError("only the beginning of the body is here");
  }
  const envelope = envelopeOf(body.bytes);
  if (envelope !== null) return readEnveloped(envelope, source);
  const single = singleObjectOf(body.bytes);
  if (single !== null) {
    const { name, definition } = await source.get(single.fingerprint);
    const value = decodeDatum(definition, single.datum);
    return { name, fingerprint: single.fingerprint, value, envelope: null };
  }
  if (body.contentType === "avro/binary") {
    const found = await readMessage(body.bytes, source);
    if (found !== null) return found;
  }
  const bare = await source.bare(body.destination);
  if (bare === null) return null;
  const value = decodeDatum(bare.definition, body.bytes);
  return { name: bare.name, fingerprint: bare.fingerprint, value, envelope: null };
}

async function readEnveloped(envelope: Envelope, source: SchemaSource): Promise<AvroReading> {
  const { fingerprint, body } = envelope;
  if (fingerprint === null || body === null) return { name: null, fingerprint, value: null, envelope };
  const { name, definition } = await source.get(fingerprint);
  return { name, fingerprint, value: decodeDatum(definition, body), envelope };
}

async function readMessage(bytes: Uint8Array, source: SchemaSource): Promise<AvroReading | null> {
  let message: Record<string, unknown>;
  try {
    message = decodeDatum(MESSAGE, bytes) as Record<string, unknown>;
  } catch {
    return null;
  }
  const parameters = message.parameters;
  if (typeof parameters !== "string") return { name: "nebula.Message", fingerprint: null, value: message, envelope: null };
  // The union of bytes and string: bytes are shown as 0x…, and a string here is JSON, which cannot begin so.
  const bytesOfIt = parameters.startsWith("0xc301") ? bytesOfHex(parameters.slice(2)) : null;
  const datum = bytesOfIt === null ? null : singleObjectOf(bytesOfIt);
  if (datum !== null) {
    const { definition } = await source.get(datum.fingerprint);
    message.parameters = decodeDatum(definition, datum.datum);
    return { name: "nebula.Message", fingerprint: datum.fingerprint, value: message, envelope: null };
  }
  message.parameters = jsonOf(parameters) ?? parameters;
  return { name: "nebula.Message", fingerprint: null, value: message, envelope: null };
}
