// Uses the generated `depot.ts` as a program in TypeScript would: what is right compiles, and what is wrong does not.
// Usage: node run.js PORT. Prints what came of each call as a line of JSON.

import { Nebula, NebulaError, type Job, type JobState } from "@nebula-rpc/client";
import { Depot, ErrorCode, Level, Mixed, Side, type Order, type Point } from "./depot.js";

declare const process: { argv: string[] };

const nebula = new Nebula(`ws://127.0.0.1:${process.argv[2]}/stomp`);
await nebula.connect();
const depot = new Depot(nebula);
const tell = (what: string, value: unknown) => console.log(JSON.stringify([what, value]));

const price: string = await depot.price({ item: "lamp", qty: 2, side: Side.SELL, limit: "1.50" }, { timeout: 9_000 });
tell("decimals are strings", price);

const order: Order = { symbol: "A", payment: { kind: "cash", coins: 2 }, copies: 3, level: Level.HIGH };
const { order: told, total } = await depot.place(order);
// In a reply a field with a default is always there.
const tags: string[] = told.place.tags;
const parts: number = told.parts.length;
tell("models", [total, told.side, told.payment, told.when, tags, parts, told.labels["x"] ?? null]);
// A reply is good for a request.
tell("models again", (await depot.place(told)).total);

const paid = await depot.pay({ payment: { kind: "card", number: "7" }, then: Mixed.WORD });
if (paid?.kind === "card") tell("unions", paid.number);
if (paid?.kind === "cash") tell("unions", paid.coins);

const pair: [{ fast: boolean; note?: string }, string] = await depot.list({
  options: { fast: true },
  ident: "00000000-0000-0000-0000-000000000003",
});
tell("tuples", pair);
tell("maps", (await depot.scores({ a: 1 }))["a"]);
tell("arrays as a whole", (await depot.price_list([{ x: 1 }, { x: 2 }])).map(({ x, y }) => [x, y]));
const nothing: void = await depot.close();
tell("nothing", nothing ?? null);

const points: number[] = [];
for await (const { x } of depot.ticks({ start: { x: 5 }, count: 1000 }, { credit: 10 })) {
  points.push(x);
  if (points.length === 3) break;
}
tell("streams", points);

const job: Job<Record<string, number>[]> = await depot.stock({ items: 2 });
const states: JobState[] = [];
for await (const { state } of job.watch()) states.push(state);
tell("jobs", [states.at(-1), (await job.result()).map(({ item }) => item)]);
tell("parameters that are left out", (await (await depot.stock()).result()).length);

try {
  await depot.price({ item: "lamp", qty: 101 });
} catch (error) {
  if (error instanceof NebulaError && error.code === ErrorCode.OutOfStock) tell("errors", error.details);
}
await nebula.close();

// Never called: it need only be judged by the compiler.
export async function wrong(): Promise<void> {
  // @ts-expect-error: a parameter is missing
  await depot.price({});
  // @ts-expect-error: a parameter has another type
  await depot.price({ item: "lamp", qty: "two" });
  // @ts-expect-error: there is no such parameter
  await depot.price({ item: "lamp", quantity: 2 });
  // @ts-expect-error: there is no such member of the enumeration
  await depot.price({ item: "lamp", side: "lend" });
  // @ts-expect-error: parameters are no positions
  await depot.price("lamp");
  // @ts-expect-error: there is no such verb
  await depot.cheapest({ item: "lamp" });
  // @ts-expect-error: the result is a string
  (await depot.price({ item: "lamp" })).toFixed(2);
  // @ts-expect-error: a union needs its tag
  await depot.pay({ payment: { number: "7" } });
  // @ts-expect-error: and the fields of what the tag says
  await depot.pay({ payment: { kind: "card", coins: 7 } });
  // @ts-expect-error: a result may be null
  (await depot.pay({ payment: { kind: "cash" } })).kind;
  // @ts-expect-error: a field of a model has another type
  await depot.place({ ...order, labels: { a: ["b"] } });
  // @ts-expect-error: a tuple has two
  pair[2];
  // @ts-expect-error: a stream is not awaited
  (await depot.ticks({ start: { x: 1 } })).x;
  // @ts-expect-error: a call has no credit
  await depot.price({ item: "lamp" }, { credit: 1 });
  // @ts-expect-error: a job is a handle, not its result
  (await depot.stock()).length;
  // @ts-expect-error: this may be missing
  ({ x: 1 } as Point).tags.length;
}
