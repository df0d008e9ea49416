import { describe, expect, it } from "vitest";
import type { Schema } from "./avro";
import { fieldsOfEnvelope, readEnvelope } from "./envelope";
import { bytesOfHex, hexLines, hexText, textOf } from "./hex";
import type { MessageView } from "../broker";
import { bodyOf, jsonOf, prettyJson, readAvro, readPlain, type Body, type SchemaSource } from "./reading";

const hex = (digits: string) => bytesOfHex(digits) ?? new Uint8Array();

const METER: Schema = { type: "record", name: "venue.Meter_v1", fields: [{ name: "cents", type: "long" }] };
const FINGERPRINT = "0807060504030201";

const known: SchemaSource = {
  get: (fingerprint) =>
    fingerprint === FINGERPRINT
      ? Promise.resolve({ name: "venue.Meter_v1", definition: METER })
      : Promise.reject(new Error(`no schema ${fingerprint}`)),
  bare: (destination) =>
    Promise.resolve(
      destination === "X/bare" ? { name: "venue.Meter_v1", fingerprint: FINGERPRINT, definition: METER } : null,
    ),
};

function body(bytes: Uint8Array, more: Partial<Body> = {}): Body {
  return { bytes, total: bytes.length, destination: "/queue/a", contentType: "", ...more };
}

// Topic "X/m", fingerprint, timestamp of 1,000 ms, body of 1250 cents.
const ENVELOPE = "08 02 06 58 2f 6d 04 10 01 02 03 04 05 06 07 08 08 04 d0 0f 06 04 c4 13 00";

describe("readAvro", () => {
  it("decodes the datum in an envelope by its fingerprint", async () => {
    const found = await readAvro(body(hex(ENVELOPE)), known);

    expect(found).toMatchObject({ name: "venue.Meter_v1", fingerprint: FINGERPRINT, value: { cents: 1250 } });
    expect(found?.envelope).toMatchObject({ topic: "X/m", timestamp: 1_000, isTombstone: false });
  });

  it("says why where the schema is not known", async () => {
    const other = ENVELOPE.replace("01 02 03", "09 02 03");

    await expect(readAvro(body(hex(other)), known)).rejects.toThrow("no schema 0807060504030209");
  });

  it("reads a tombstone without a schema", async () => {
    const found = await readAvro(body(hex("02 0a 00 00")), known);

    expect(found?.envelope?.isTombstone).toBe(true);
    expect(fieldsOfEnvelope(found!.envelope!)).toEqual([["tombstone", "deletes the value"]]);
  });

  it("decodes a datum in single-object encoding", async () => {
    const found = await readAvro(body(hex("c3 01 01 02 03 04 05 06 07 08 c4 13")), known);

    expect(found).toMatchObject({ value: { cents: 1250 }, envelope: null });
  });

  it("decodes a bare datum by the schema of its destination", async () => {
    const found = await readAvro(body(hex("c4 13"), { destination: "X/bare" }), known);

    expect(found?.value).toEqual({ cents: 1250 });
    expect(await readAvro(body(hex("c4 13")), known)).toBeNull();
  });

  it("decodes a request in Avro, with its parameters", async () => {
    // "price", bytes of a single object, no description.
    const request = "0a 70 72 69 63 65 02 18 c3 01 01 02 03 04 05 06 07 08 c4 13 00";
    const found = await readAvro(body(hex(request), { contentType: "avro/binary" }), known);

    expect(found?.value).toEqual({ verb: "price", parameters: { cents: 1250 }, description: null });
  });

  it("does not decode the beginning of a body", async () => {
    const cut = body(hex(ENVELOPE), { total: 10_000, contentType: "avro/binary" });

    await expect(readAvro(cut, known)).rejects.toThrow("only the beginning");
  });

  it("takes other bytes for what they are", async () => {
    for (const digits of ["", "00", "ff fe fd", "7b 7d", "02 00 00 00"]) {
      expect(await readAvro(body(hex(digits)), known)).toBeNull();
    }
  });
});

describe("readEnvelope", () => {
  it.each([
    ["a key twice", "04 0a 00 0a 00 00"],
    ["bytes behind it", "00 00"],
    ["a fingerprint of one byte", "02 04 02 01 00"],
    ["more items than there are bytes", "fe ff ff ff 0f"],
  ])("refuses %s", (_, digits) => {
    expect(() => readEnvelope(hex(digits))).toThrow();
  });
});

describe("readPlain", () => {
  it("reads JSON and text", () => {
    expect(readPlain(body(new TextEncoder().encode('{"a":1}')))).toEqual({ json: { a: 1 }, text: '{"a":1}', isCut: false });
    expect(readPlain(body(new TextEncoder().encode("a:1")))).toEqual({ json: undefined, text: "a:1", isCut: false });
  });

  it("takes no beginning of a body for JSON", () => {
    expect(readPlain(body(new TextEncoder().encode("12"), { total: 3 }))).toMatchObject({ json: undefined, isCut: true });
  });

  it("takes bytes for no text", () => {
    expect(textOf(hex("00 01"))).toBeNull();
    expect(textOf(hex("ff"))).toBeNull();
  });
});

describe("JSON", () => {
  it("is shown with all digits of its numbers", () => {
    const text = '{"id":12345678901234567890,"small":1.5}';

    // Node passes the source of numbers on from version 22.
    const shown = prettyJson(jsonOf(text));

    expect(JSON.parse(shown)).toEqual(JSON.parse(text));
    expect(prettyJson({ big: 12345678901234567890n })).toContain("12345678901234567890\n");
  });

  it("that is malformed is none", () => {
    expect(jsonOf("{")).toBeUndefined();
  });
});

describe("hex", () => {
  it("is shown with what of it is ASCII", () => {
    expect(hexLines(hex("41 42 00 ff"))).toEqual([
      "00000000  41 42 00 ff                                       AB..",
    ]);
    expect(hexLines(new Uint8Array(40), 20)).toHaveLength(2);
  });

  it("can be edited and read again", () => {
    const bytes = Uint8Array.from({ length: 20 }, (_, at) => at);

    expect(bytesOfHex(hexText(bytes))).toEqual(bytes);
    expect(bytesOfHex("0")).toBeNull();
    expect(bytesOfHex("zz")).toBeNull();
  });
});

describe("bodyOf", () => {
  const view: MessageView = {
    number: 1,
    destination: "/queue/DLQ",
    sender: "alice",
    headers: { "dead-letter-from": "/queue/orders", "content-type": "text/plain" },
    body: "aGk=",
    encoding: "base64",
    body_bytes: 2,
    is_cut: false,
    is_persistent: true,
    attempts: 0,
    age_seconds: 1,
    expires_in_seconds: null,
  };

  it("has the bytes, and where the message was sent to", () => {
    const body = bodyOf(view);

    expect(textOf(body.bytes)).toBe("hi");
    expect(body).toMatchObject({ total: 2, destination: "/queue/orders", contentType: "text/plain" });
  });
});
