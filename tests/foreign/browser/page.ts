// Uses nebula.js as a page in TypeScript would: what is right compiles, and what is wrong does not.

import { Job, Nebula, NebulaError, type JobState, type JobStatus } from "./nebula.js";

interface Tick {
  symbol: string;
  cents: number;
}

const nebula = new Nebula("ws://localhost:61680/stomp", { login: "me", passcode: "it", reconnectDelay: 0 });
nebula.addEventListener("lost", () => {});
await nebula.connect();

const price: number = await nebula.call<number>("prices", "quote", { symbol: "ABC" }, { timeout: 1_000 });
const unknown: unknown = await nebula.call("prices", "quote");
for await (const tick of nebula.stream<Tick>("prices", "ticks", ["ABC"], { credit: 10 })) {
  const cents: number = tick.cents;
  if (cents > price) break;
}

const job: Job<string[]> = await nebula.start<string[]>("reports", "delays", { month: 1 });
for await (const status of job.watch()) {
  const state: JobState = status.state;
  if (state === "running") await job.cancel();
}
const told: JobStatus = await nebula.job(job.id).status();
const rows: string[] = await job.result();

const receipt: Record<string, string> = await nebula.publish("/queue/orders", new Uint8Array([1]), { colour: "red" });
await nebula.publish("/queue/orders", receipt["receipt-id"] ?? "");

try {
  await nebula.subscribe("X/news", (message) => message.ack(), { ack: "client" });
} catch (error) {
  if (error instanceof NebulaError && error.retryable) throw new NebulaError(error.code, told.note ?? rows[0] ?? "");
}

// @ts-expect-error: a call by name needs a verb
await nebula.call("prices");
// @ts-expect-error: a call has no credit
await nebula.call("prices", "quote", [], { credit: 1 });
// @ts-expect-error: a stream is no promise
(await nebula.stream("prices", "ticks")).length;
// @ts-expect-error: there is no such state
told.state === "finished";
// @ts-expect-error: jobs come from a client
new Job(nebula, "reports/1");
// @ts-expect-error: it only tells
nebula.connected = true;

export { unknown };
