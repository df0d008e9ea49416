// GenericEnvelope: the body of a MaXaM message (docs/reference/avro.md).

import { AvroError, Reader } from "./avro";

const TOPIC = 1;
const FINGERPRINT = 2;
const BODY = 3;
const TIMESTAMP = 4;
const TOMBSTONE = 5;
const KNOWN = new Set([TOPIC, FINGERPRINT, BODY, TIMESTAMP, TOMBSTONE]);
const MOST_ITEMS = 1_000;

export interface Envelope {
  topic: string | null;
  /** Of the schema of the body: 16 hexadecimal digits, the highest first. */
  fingerprint: string | null;
  /** An Avro datum. */
  body: Uint8Array | null;
  /** Milliseconds since 1970. */
  timestamp: number | null;
  /** It deletes the value. */
  isTombstone: boolean;
  /** Keys that are not ours. */
  others: number[];
}

/**
 * Read an envelope.
 *
 * @throws {AvroError} it is none
 */
export function readEnvelope(data: Uint8Array): Envelope {
  const items = new Map<number, Uint8Array>();
  const reader = new Reader(data);
  for (let count = reader.long(); count !== 0n; count = reader.long()) {
    if (count < 0n) {
      count = -count;
      reader.length();
    }
    if (count > MOST_ITEMS || items.size + Number(count) > MOST_ITEMS) throw new AvroError("too many items");
    for (; count > 0n; count -= 1n) {
      const key = Number(reader.long());
      const value = reader.bytes(reader.length());
      if (KNOWN.has(key) && items.has(key)) throw new AvroError(`the key ${key} twice`);
      items.set(key, value);
    }
  }
  if (!reader.isAtEnd) throw new AvroError("bytes are left over behind the envelope");
  const fingerprint = items.get(FINGERPRINT);
  if (fingerprint !== undefined && fingerprint.length !== 8) {
    throw new AvroError(`a fingerprint of ${fingerprint.length} bytes`);
  }
  const timestamp = items.get(TIMESTAMP);
  const topic = items.get(TOPIC);
  return {
    topic: topic === undefined ? null : new TextDecoder().decode(topic),
    fingerprint: fingerprint === undefined ? null : fingerprintOf(fingerprint),
    body: items.get(BODY) ?? null,
    timestamp: timestamp === undefined ? null : Number(new Reader(timestamp).long()),
    isTombstone: items.has(TOMBSTONE),
    others: [...items.keys()].filter((key) => !KNOWN.has(key)),
  };
}

/** The envelope of a body; null where the body is none, or none that can be told from any other bytes. */
export function envelopeOf(data: Uint8Array): Envelope | null {
  try {
    const found = readEnvelope(data);
    const isEmpty = found.fingerprint === null && !found.isTombstone && found.topic === null;
    return isEmpty ? null : found;
  } catch {
    return null;
  }
}

/** A fingerprint's eight bytes, the lowest first, as people write it. */
export function fingerprintOf(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"))
    .reverse()
    .join("");
}

/** A datum in Avro's single-object encoding: C3 01, a fingerprint, the datum; null: it is none. */
export function singleObjectOf(data: Uint8Array): { fingerprint: string; datum: Uint8Array } | null {
  if (data.length < 10 || data[0] !== 0xc3 || data[1] !== 0x01) return null;
  return { fingerprint: fingerprintOf(data.subarray(2, 10)), datum: data.subarray(10) };
}

/** What an envelope says, for people. */
export function fieldsOfEnvelope(envelope: Envelope): [string, string][] {
  const fields: [string, string][] = [];
  if (envelope.topic !== null) fields.push(["topic", envelope.topic]);
  if (envelope.timestamp !== null) {
    const time = new Date(envelope.timestamp);
    fields.push(["timestamp", Number.isNaN(time.getTime()) ? String(envelope.timestamp) : time.toISOString()]);
  }
  if (envelope.isTombstone) fields.push(["tombstone", "deletes the value"]);
  if (envelope.others.length > 0) fields.push(["other keys", envelope.others.join(", ")]);
  return fields;
}
