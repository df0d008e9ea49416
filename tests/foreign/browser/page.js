// Uses nebula.js as a page would, one thing after the other, and tells the server of the page what came of it.
//
// Usage: page.html?port=PORT. POST /results/page has {"check", "ok", "detail"}, and at the end {"check": null}.

import { Client } from "@stomp/stompjs";
import { Nebula, NebulaError } from "nebula";

// As it is on pages that are neither from this machine nor from https.
delete Crypto.prototype.randomUUID;

const { port } = Object.fromEntries(new URLSearchParams(location.search));
const url = (number) => `ws://127.0.0.1:${number}/stomp`;
const nebula = new Nebula(url(port), { reconnectDelay: 50 });

function tell(result) {
  return fetch("/results/page", { method: "POST", body: JSON.stringify(result) });
}

function expect(actual, expected) {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(expected)];
  if (is !== should) throw new Error(`${is} instead of ${should}`);
}

/** The error that a promise is rejected with. */
async function failure(promise) {
  try {
    await promise;
  } catch (error) {
    if (error instanceof NebulaError) return error;
    throw error;
  }
  throw new Error("nothing was thrown");
}

/** The sessions of all pages, as the broker knows them. */
async function sessions() {
  const { rows } = await nebula.call("/queue/nebula.broker", "connections.list", { principal: "anonymous" });
  return rows.map(({ session }) => session);
}

/** Have the broker end our connection, and others like it. */
async function loseConnection() {
  const lost = new Promise((resolve) => nebula.addEventListener("lost", resolve, { once: true }));
  const ends = (await sessions()).map((session) => nebula.call("/queue/nebula.broker", "connection.end", [session]));
  await Promise.allSettled([...ends, lost]);
}

/** All items of a stream, then the code of its error or null. */
async function read(stream) {
  const items = [];
  try {
    for await (const item of stream) items.push(item);
    return [items, null];
  } catch (error) {
    if (error instanceof NebulaError) return [items, error.code];
    throw error;
  }
}

const CHECKS = {
  "calls before it is connected are lost": async () => {
    expect((await failure(nebula.call("shop", "ping"))).code, "lost");
  },
  "connects": async () => {
    await nebula.connect();
    expect(nebula.connected, true);
  },
  "connects once however often it is told to": async () => {
    await nebula.connect();
    const other = new Nebula(url(port));
    await Promise.all([other.connect(), other.connect()]);
    await other.close();
    await other.connect();
    expect(await other.call("shop", "echo", ["once more"]), "once more");
    await other.close();
  },
  "gets values": async () => {
    expect(await nebula.call("shop", "quote", { symbol: "ABC", qty: 2 }), 2.5);
    expect(await nebula.call("shop", "quote", ["ABC", 4]), 5);
    expect(await nebula.call("/queue/shop", "quote", "ABC"), 1.25);
    expect(await nebula.call("shop", "nothing"), null);
    for (const value of [null, 0, false, "", [], { größe: "grün ✓ 😀" }]) {
      expect(await nebula.call("shop", "echo", { value }), value);
    }
  },
  "has many calls in flight": async () => {
    const numbers = Array.from({ length: 200 }, (_, number) => number);
    expect(await Promise.all(numbers.map((value) => nebula.call("shop", "echo", { value }))), numbers);
  },
  "rejects with the error of the service": async () => {
    const error = await failure(nebula.call("shop", "refuse"));
    expect([error.code, error.message, error.details, error.retryable], ["sold-out", "none left", { left: 0 }, true]);
    expect((await failure(nebula.call("shop", "quote", {}))).code, "bad-parameters");
  },
  "is told at once that nobody serves": async () => {
    const error = await failure(nebula.call("nobody", "ping", null, { timeout: 60_000 }));
    expect([error.code, error.retryable], ["no-responder", true]);
  },
  "gives up after its time": async () => {
    expect((await failure(nebula.call("shop", "wait", [], { timeout: 50 }))).code, "timeout");
  },
  "takes a call back": async () => {
    const controller = new AbortController();
    const call = nebula.call("shop", "wait", [], { signal: controller.signal });
    await nebula.call("shop", "waits");
    controller.abort();
    expect((await failure(call)).code, "aborted");
    // Long before its own time would have ended it.
    expect(await nebula.call("shop", "was_withdrawn", null, { timeout: 10_000 }), true);
    expect((await failure(nebula.call("shop", "ping", null, { signal: controller.signal }))).code, "aborted");
  },
  "may not read everything": async () => {
    expect((await failure(nebula.subscribe("/queue/nebula.broker", () => {}))).code, "refused");
  },
  "sends messages of text and bytes, and has the broker's verdict": async () => {
    const heard = [];
    const all = new Promise((resolve) => {
      const take = ({ binaryBody, headers }) => heard.push([[...binaryBody], headers.colour]) === 2 && resolve();
      void nebula.subscribe("/topic/sent", take).then(async () => {
        await nebula.publish("/topic/sent", "A", { colour: "red" });
        await nebula.publish("/topic/sent", new Uint8Array([0, 255]));
      });
    });
    await all;
    expect(heard, [[[65], "red"], [[0, 255], undefined]]);
    const refused = await failure(nebula.publish("/queue/nobody", "A", { "require-consumers": "true" }));
    expect(refused.code, "rejected-no-consumer");
  },
  "reads a stream to its end": async () => {
    const [items, code] = await read(nebula.stream("shop", "numbers", { up_to: 2000 }));
    expect([items.length, items[0], items.at(-1), code], [2000, 0, 1999, null]);
    expect(await read(nebula.stream("shop", "numbers", { up_to: 0 })), [[], null]);
    expect(await read(nebula.stream("shop", "numbers", [7], { credit: 1 })), [[0, 1, 2, 3, 4, 5, 6], null]);
  },
  "reads two streams and calls meanwhile": async () => {
    const other = nebula.stream("shop", "numbers", [1000]);
    let sum = 0;
    for await (const number of nebula.stream("shop", "numbers", [100])) {
      sum += number + (await other.next()).value + (await nebula.call("shop", "echo", [1]));
    }
    await other.return();
    expect(sum, 10_000);
  },
  "closes the handler when the loop is left": async () => {
    for await (const number of nebula.stream("shop", "numbers", [1e9])) if (number === 500) break;
    const yielded = await nebula.call("shop", "was_left", null, { timeout: 10_000 });
    expect(yielded < 2000, true);
  },
  "slows the handler when it is slow": async () => {
    const stream = nebula.stream("shop", "numbers", [1e9], { credit: 10 });
    await stream.next();
    // Each of these is behind what the handler could have sent.
    for (let calls = 0; calls < 20; calls += 1) await nebula.call("shop", "echo", [calls]);
    expect((await nebula.call("shop", "so_far")) <= 12, true);
    await stream.return();
    await nebula.call("shop", "was_left", null, { timeout: 10_000 });
  },
  "has the error of a stream behind its items": async () => {
    expect(await read(nebula.stream("shop", "failing")), [[1], "sold-out"]);
    expect(await read(nebula.stream("shop", "nope")), [[], "unknown-verb"]);
    expect(await read(nebula.stream("nobody", "numbers", [1])), [[], "no-responder"]);
    expect(await read(nebula.stream("shop", "quote", ["ABC"])), [[], "not-a-stream"]);
  },
  "ends a stream after its time": async () => {
    expect(await read(nebula.stream("shop", "silent", [], { timeout: 300 })), [[1], "timeout"]);
  },
  "leaves a stream by a signal": async () => {
    const controller = new AbortController();
    const stream = nebula.stream("shop", "numbers", [1e9], { signal: controller.signal });
    await stream.next();
    controller.abort();
    expect((await failure(stream.next())).code, "aborted");
    await nebula.call("shop", "was_left", null, { timeout: 10_000 });
    expect(await read(nebula.stream("shop", "numbers", [1], { signal: controller.signal })), [[], "aborted"]);
  },
  "loses its streams with the connection": async () => {
    const stream = nebula.stream("shop", "silent");
    expect((await stream.next()).value, 1);
    const next = failure(stream.next());
    await loseConnection();
    expect((await next).code, "lost");
    await nebula.connect();
    expect(await read(nebula.stream("shop", "numbers", [2])), [[0, 1], null]);
  },
  "watches a job to its end": async () => {
    const job = await nebula.start("shop", "count", { up_to: 3 });
    const seen = [];
    for await (const status of job.watch()) seen.push(status);
    expect(seen.at(-1).state, "done");
    expect(seen.every((status, at) => at === 0 || status.seq > seen[at - 1].seq), true);
    expect(await job.result(), 3);
    expect((await nebula.job(job.id).status()).state, "done");
  },
  "is told why a job failed": async () => {
    const job = await nebula.start("shop", "count", { up_to: -1 });
    const error = await failure(job.result());
    expect([error.code, error.message], ["backwards", "cannot count down"]);
  },
  "cancels a job": async () => {
    const job = await nebula.start("shop", "count", { up_to: 1_000_000 });
    let last;
    for await (last of job.watch()) if (last.state === "running") await job.cancel();
    expect(last.state, "cancelled");
  },
  "loses its calls with the connection, and connects again": async () => {
    const heard = [];
    for (const event of ["lost", "connected"]) nebula.addEventListener(event, ({ type }) => heard.push(type));
    const call = failure(nebula.call("shop", "wait"));
    await nebula.call("shop", "waits");
    await loseConnection();
    expect((await call).code, "lost");
    await nebula.connect();
    expect(await nebula.call("shop", "echo", ["again"]), "again");
    expect(heard, ["lost", "connected"]);
  },
  "watches no further where the connection was lost meanwhile": async () => {
    const job = await nebula.start("shop", "count", { up_to: 1_000_000 });
    const watched = job.watch();
    await watched.next();
    await loseConnection();
    await nebula.connect();
    const error = await failure((async () => {
      for await (const _ of watched);
    })());
    expect(error.code, "lost");
    await job.cancel();
    expect((await failure(job.result())).code, "cancelled");
  },
  "connects again when it is told to, where it does not by itself": async () => {
    const other = new Nebula(url(port), { reconnectDelay: 0 });
    const before = await sessions();
    await other.connect();
    const [session] = (await sessions()).filter((each) => !before.includes(each));
    const lost = new Promise((resolve) => other.addEventListener("lost", resolve));
    await nebula.call("/queue/nebula.broker", "connection.end", [session]);
    await lost;
    expect((await failure(other.call("shop", "ping"))).code, "lost");
    await other.connect();
    expect(other.connected, true);
    await other.close();
  },
  "fails at once where an answer cannot be read": async () => {
    const service = new Client({ brokerURL: url(port) });
    await new Promise((resolve) => {
      service.onConnect = resolve;
      service.activate();
    });
    const bodies = ["{", "3", ""];
    service.subscribe("/queue/broken", ({ headers }) => {
      const answer = { "neb-in-reply-to": headers["neb-reply-id"], "neb-response": "true" };
      service.publish({ destination: headers["neb-reply-to"], headers: answer, body: bodies.shift() });
    });
    await new Promise((resolve) => {
      service.watchForReceipt("there", resolve);
      service.publish({ destination: "/topic/there", headers: { receipt: "there" } });
    });
    expect((await failure(nebula.call("broken", "x"))).code, "unexpected-reply");
    expect((await failure(nebula.call("broken", "x"))).code, "unexpected-reply");
    expect(await read(nebula.stream("broken", "x")), [[], "unexpected-reply"]);
    await service.deactivate();
  },
  "cannot connect where nobody listens": async () => {
    // A port that browsers may use, and that nobody does.
    expect((await failure(new Nebula(url(1024)).connect())).code, "lost");
  },
  "fails what is in flight when it is closed": async () => {
    const call = failure(nebula.call("shop", "wait"));
    await nebula.close();
    expect((await call).code, "lost");
    expect(nebula.connected, false);
  },
};

for (const [check, run] of Object.entries(CHECKS)) {
  try {
    await run();
    await tell({ check, ok: true, detail: "" });
  } catch (error) {
    await tell({ check, ok: false, detail: String(error.stack ?? error) });
  }
}
await tell({ check: null });
