import { describe, expect, it } from "vitest";
import { asCommand, asCurl, asPython, notesOn, pythonOf, shellOf, type Written } from "./calls";

const PLACE = { url: "ws://localhost:8080", http: "http://localhost:8080" };
const CALL: Written = {
  address: "/queue/prices",
  verb: "quote",
  parameters: { symbol: "ABC", qty: 2, deep: true, at: null },
  schema: { type: "object", properties: { symbol: { type: "string" }, qty: { type: "integer" } } },
  kind: "call",
  place: PLACE,
  timeout: 30,
  priority: null,
  login: { kind: "none" },
};
const PLAIN: Written = { ...CALL, parameters: {} };
// What a verb takes that has one parameter, a list or a model.
const LIST = { type: "array", "x-parameter": "values" };
const MODEL = { type: "object", "x-parameter": "order", properties: { item: { type: "string" } } };
const ALICE = { kind: "passcode", login: "alice" } as const;
const TOKEN = { kind: "token" } as const;
const HOSTILE = { url: 'ws://h/a$(id)"`id`/stomp', http: null };

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
      "import os\n\nfrom nebula import sync\n\nwith sync.Client(\"ws://alice:\" + os.environ[\"PASSCODE\"] + \"@localhost:8080\") as client:",
    );
    expect(asPython({ ...PLAIN, login: TOKEN })).toContain('"ws://:" + os.environ["TOKEN"] + "@localhost:8080"');
    expect(asPython({ ...PLAIN, login: TOKEN, place: { url: "ws://h/{id}/stomp", http: null } })).toContain(' + "@h/{id}/stomp")');
    expect(asPython({ ...PLAIN, login: TOKEN, place: HOSTILE })).toContain(' + "@h/a$(id)\\"`id`/stomp")');
  });

  it("gives lists by position, and a model or list that is taken whole also if it is empty", () => {
    expect(asPython({ ...CALL, parameters: ["ABC"] })).toContain('"quote", ["ABC"])');
    expect(asPython({ ...PLAIN, parameters: [], schema: LIST })).toContain('"quote", [])');
    expect(asPython({ ...PLAIN, schema: MODEL })).toContain('"quote", {})');
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
    expect(asCurl({ ...PLAIN, login: TOKEN })).toBe(
      `echo "Authorization: Bearer $TOKEN" | curl -s -H @- --json '{}' http://localhost:8080/call/prices/quote`,
    );
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
    expect(asCommand({ ...PLAIN, login: ALICE })).toBe('NEBULA_BROKER=ws://alice:"$PASSCODE"@localhost:8080 nebula call prices quote');
    expect(asCommand({ ...PLAIN, login: TOKEN })).toBe('NEBULA_BROKER=ws://:"$TOKEN"@localhost:8080 nebula call prices quote');
    expect(asCommand({ ...PLAIN, login: { kind: "passcode", login: 'a$"`b!' } })).toContain(`NEBULA_BROKER='ws://a%24%22%60b!:'"$PASSCODE"@localhost`);
  });

  it("has nothing of an address run by the shell", () => {
    expect(asCommand({ ...PLAIN, place: HOSTILE })).toContain("--broker 'ws://h/a$(id)\"`id`/stomp' ");
    expect(asCommand({ ...PLAIN, login: TOKEN, place: HOSTILE })).toContain("NEBULA_BROKER=ws://:\"$TOKEN\"'@h/a$(id)\"`id`/stomp' ");
  });

  it("gives a list by the names of the contract", () => {
    expect(asCommand({ ...CALL, parameters: ["ABC", 2] })).toMatch(/ quote symbol=ABC qty:=2$/);
    expect(asCommand({ ...CALL, parameters: "ABC" })).toMatch(/ quote symbol=ABC$/);
    expect(asCommand({ ...CALL, parameters: [1, 2], schema: LIST })).toMatch(/ quote 'values:=\[1,2\]'$/);
    expect(asCommand({ ...CALL, parameters: [], schema: LIST })).toMatch(/ quote 'values:=\[\]'$/);
    expect(asCommand({ ...CALL, parameters: [], schema: {} })).toMatch(/ quote$/);
  });

  it("is not written, but explained, where it would say something else", () => {
    for (const written of [
      { ...CALL, parameters: ["ABC", 2, 3] },
      { ...CALL, parameters: 5, schema: LIST },
      { ...CALL, parameters: [{ item: "a" }], schema: MODEL },
    ]) {
      expect(asCommand(written)).toBeNull();
      expect(notesOn(written, "command").join()).toContain("gives parameters by name");
    }
    for (const name of ["a=b", "a:b", ""]) {
      const written = { ...CALL, parameters: { [name]: 1 } };

      expect(asCommand(written)).toBeNull();
      expect(notesOn(written, "command")).toEqual([`\`nebula call\` cannot give a parameter named “${name}”. Use Python or curl.`]);
    }
  });

  it("has no options in the words of the call", () => {
    expect(asCommand({ ...CALL, parameters: { "-x": 1, "my-key": "größe" } })).toBe(
      "nebula call --broker ws://localhost:8080 -- prices quote -x:=1 'my-key=größe'",
    );
    expect(asCommand({ ...PLAIN, verb: "-h" })).toMatch(/ -- prices -h$/);
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
