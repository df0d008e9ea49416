// Uses nebula.js as a page would, one thing after the other, and tells the server of the page what came of it.
//
// Usage: page.html?port=PORT. POST /results/page has {"check", "ok", "detail"}, and at the end {"check": null}.

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
