import { describe, expect, it } from "vitest";
import { asCommand, asCurl, asPython, brokerUrl, pythonOf, shellOf, type Written } from "./calls";

const CALL: Written = {
  service: "prices",
  verb: "quote",
  parameters: { symbol: "ABC", qty: 2, deep: true, at: null },
  kind: "call",
  page: "http://localhost:8080/console/#/services/prices",
};

it("finds the broker next to the console", () => {
  expect(brokerUrl("http://localhost:8080/console/#/x")).toBe("ws://localhost:8080");
  expect(brokerUrl("https://broker.example/a/console/index.html?x=1")).toBe("wss://broker.example/a");
});

describe("asPython", () => {
  it("writes a call", () => {
    expect(asPython(CALL)).toBe(
      'from nebula import sync\n\nwith sync.Client("ws://localhost:8080") as client:\n    print(client.call("prices", "quote", {"symbol": "ABC", "qty": 2, "deep": True, "at": None}))',
    );
  });

  it("writes streams and jobs in their way, and leaves out what is empty", () => {
    expect(asPython({ ...CALL, kind: "stream", parameters: {} })).toContain('    for item in client.stream("prices", "quote"):\n        print(item)');
    expect(asPython({ ...CALL, kind: "job", parameters: {} })).toContain('    job = client.start("prices", "quote")\n    print(job.result())');
  });

  it("writes values as Python does", () => {
    expect(pythonOf({ a: [true, false, null, 1.5, "it's \"x\"\n"], b: {} })).toBe('{"a": [True, False, None, 1.5, "it\'s \\"x\\"\\n"], "b": {}}');
  });
});

describe("asCurl", () => {
  it("writes a call, and quotes for the shell", () => {
    expect(asCurl({ ...CALL, parameters: { name: "it's" } })).toBe(`curl -s --json '{"name":"it'\\''s"}' http://localhost:8080/call/prices/quote`);
  });

  it("asks for the items of a stream", () => {
    expect(asCurl({ ...CALL, kind: "stream", parameters: {} })).toBe("curl -s -N -H 'Accept: application/x-ndjson' --json '{}' http://localhost:8080/call/prices/quote");
  });
});

describe("asCommand", () => {
  it("writes text as text and all else as JSON", () => {
    expect(asCommand({ ...CALL, parameters: { symbol: "A B", qty: 2, list: ["x"], empty: "" } })).toBe(
      `nebula call --broker ws://localhost:8080 prices quote 'symbol=A B' qty:=2 'list:=["x"]' empty=`,
    );
  });
});

it("quotes what a shell would read", () => {
  expect(shellOf("a$b")).toBe("'a$b'");
  expect(shellOf("")).toBe("''");
  expect(shellOf("plain-1.2/x=y")).toBe("plain-1.2/x=y");
});
