import { describe, expect, it } from "vitest";
import { asCommand, asCurl, asPython, notesOn, pythonOf, shellOf, type Written } from "./calls";

const PLACE = { url: "ws://localhost:8080", http: "http://localhost:8080" };
const CALL: Written = {
  address: "/queue/prices",
  verb: "quote",
  parameters: { symbol: "ABC", qty: 2, deep: true, at: null },
  kind: "call",
  place: PLACE,
  timeout: 30,
  priority: null,
  login: { kind: "none" },
};
const PLAIN: Written = { ...CALL, parameters: {} };
const ALICE = { kind: "passcode", login: "alice" } as const;
const TOKEN = { kind: "token" } as const;

describe("asPython", () => {
  it("writes a call", () => {
    expect(asPython(CALL)).toBe(
      'from nebula import sync\n\nwith sync.Client("ws://localhost:8080") as client:\n    print(client.call("prices", "quote", {"symbol": "ABC", "qty": 2, "deep": True, "at": None}))',
    );
  });

  it("writes streams and jobs in their way, and leaves out what is empty", () => {
    expect(asPython({ ...PLAIN, kind: "stream", timeout: null })).toContain('    for item in client.stream("prices", "quote"):\n        print(item)');
    expect(asPython({ ...PLAIN, kind: "job", timeout: null })).toContain('    job = client.start("prices", "quote")\n    print(job.result())');
  });

  it("has the options, and the instance as the service's name", () => {
    const instance = { ...PLAIN, address: "/queue/prices.3f2a9c41" };

    expect(asPython({ ...instance, timeout: 2.5 })).toContain('client.call("prices.3f2a9c41", "quote", timeout=2.5)');
    expect(asPython({ ...instance, kind: "job", timeout: 5, priority: 8 })).toContain('client.start("prices.3f2a9c41", "quote", timeout=5, priority=8)');
    expect(asPython({ ...PLAIN, kind: "stream", timeout: 30 })).toContain('client.stream("prices", "quote", timeout=30)');
  });

  it("takes passcodes and tokens from the environment", () => {
    expect(asPython({ ...PLAIN, login: ALICE })).toContain(
      "import os\n\nfrom nebula import sync\n\nwith sync.Client(f\"ws://alice:{os.environ['PASSCODE']}@localhost:8080\") as client:",
    );
    expect(asPython({ ...PLAIN, login: TOKEN })).toContain("f\"ws://:{os.environ['TOKEN']}@localhost:8080\"");
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
    expect(asCurl({ ...PLAIN, kind: "stream", timeout: null })).toBe("curl -s -N -H 'Accept: application/x-ndjson' --json '{}' http://localhost:8080/call/prices/quote");
  });

  it("has the time limit in milliseconds, as long as HTTP allows, and the instance", () => {
    expect(asCurl({ ...PLAIN, timeout: 2.5 })).toContain(" -H 'Neb-Timeout: 2500' ");
    expect(asCurl({ ...PLAIN, timeout: 900 })).toContain(" -H 'Neb-Timeout: 300000' ");
    expect(notesOn({ ...PLAIN, timeout: 900 }, "curl")).toContain("A call over HTTP takes 300 s at most.");
    expect(asCurl({ ...PLAIN, address: "/queue/prices.3f2a9c41" })).toContain("http://localhost:8080/call/prices.3f2a9c41/quote");
  });

  it("says that HTTP has no priorities", () => {
    const job: Written = { ...PLAIN, kind: "job", priority: 8 };

    expect(notesOn(job, "curl")).toContain("A call over HTTP has no priority: the job gets the default.");
    expect(notesOn(job, "python")).toEqual([]);
  });

  it("leaves the passcode to curl, and takes a token from the environment", () => {
    expect(asCurl({ ...PLAIN, login: ALICE })).toContain(" -u alice ");
    expect(asCurl({ ...PLAIN, login: TOKEN })).toContain(' -H "Authorization: Bearer $TOKEN" ');
  });

  it("is not written, but explained, where no address for HTTP is known", () => {
    const far: Written = { ...PLAIN, place: { url: "stomp://broker.example:61613", http: null } };

    expect(asCurl(far)).toBeNull();
    expect(notesOn(far, "curl").join()).toContain("--broker ws://HOST:PORT");
  });
});

describe("asCommand", () => {
  it("writes text as text and all else as JSON", () => {
    expect(asCommand({ ...CALL, parameters: { symbol: "A B", qty: 2, list: ["x"], empty: "" } })).toBe(
      `nebula call --broker ws://localhost:8080 prices quote 'symbol=A B' qty:=2 'list:=["x"]' empty=`,
    );
  });

  it("has the options", () => {
    expect(asCommand({ ...PLAIN, kind: "job", timeout: 5, priority: 0, address: "/queue/prices.3f2a9c41" })).toBe(
      "nebula call --broker ws://localhost:8080 --timeout 5 --priority 0 prices.3f2a9c41 quote",
    );
  });

  it("reads streams by their own command", () => {
    expect(asCommand({ ...PLAIN, kind: "stream", timeout: null })).toBe("nebula stream --broker ws://localhost:8080 prices quote");
  });

  it("takes passcodes and tokens from the environment, and encodes a login", () => {
    expect(asCommand({ ...PLAIN, login: ALICE })).toBe('NEBULA_BROKER="ws://alice:$PASSCODE@localhost:8080" nebula call prices quote');
    expect(asCommand({ ...PLAIN, login: TOKEN })).toBe('NEBULA_BROKER="ws://:$TOKEN@localhost:8080" nebula call prices quote');
    expect(asCommand({ ...PLAIN, login: { kind: "passcode", login: 'a$"`b!' } })).toContain('"ws://a%24%22%60b%21:$PASSCODE@');
  });
});

describe("notesOn", () => {
  it("says where the login comes from", () => {
    expect(notesOn({ ...PLAIN, login: ALICE }, "command").join()).toContain("`PASSCODE` to the passcode of alice");
    expect(notesOn({ ...PLAIN, login: ALICE }, "curl").join()).toContain("curl asks for the passcode of alice");
    expect(notesOn({ ...PLAIN, login: TOKEN }, "python").join()).toContain("`TOKEN`");
    expect(notesOn(PLAIN, "python")).toEqual([]);
  });

  it("names what certificates need", () => {
    const place = { url: "wss://broker.example", http: "https://broker.example" };

    expect(notesOn({ ...PLAIN, place }, "command").join()).toContain("`NEBULA_CA`");
    expect(notesOn({ ...PLAIN, place }, "curl").join()).toContain("`--cacert`");
  });
});

it("quotes what a shell would read", () => {
  expect(shellOf("a$b")).toBe("'a$b'");
  expect(shellOf("")).toBe("''");
  expect(shellOf("plain-1.2/x=y")).toBe("plain-1.2/x=y");
});
