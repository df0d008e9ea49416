import { describe, expect, it } from "vitest";
import { addressOf, byService, differ, isBuiltIn, readInstance, versionsOf, type Instance } from "./model";

function instance(service: string, name: string, more: Partial<Instance> = {}): Instance {
  return { service, name, queue: null, queues: [], verbs: [], schemas: "", version: "", busy: 0, waiting: 0, started_at: 0, ...more };
}

describe("readInstance", () => {
  const told = { service: "prices", name: "a1", queue: "/queue/prices.a1", queues: ["/queue/prices"], verbs: ["quote"], schemas: "ab", version: "1.2", busy: 1, waiting: 2, started_at: 3 };

  it("reads what an instance says", () => {
    expect(readInstance(JSON.stringify(told), "X/nebula.services.prices.a1")).toEqual(told);
  });

  it("believes of an instance only what is its own", () => {
    expect(readInstance(JSON.stringify(told), "X/nebula.services.other.a1")).toBeNull();
    expect(readInstance(JSON.stringify({ ...told, queue: "/queue/bank.1" }), "X/nebula.services.prices.a1")?.queue).toBeNull();
  });

  it("survives what is no instance", () => {
    for (const body of ["", "{", "7", "null", "{}", '{"service": 3}']) expect(readInstance(body, "X/nebula.services.a.b")).toBeNull();
    const odd = { service: "a", name: "b", verbs: "no list", busy: "many" };
    expect(readInstance(JSON.stringify(odd), "X/nebula.services.a.b")).toMatchObject({ verbs: [], busy: 0 });
  });
});

it("groups instances by service", () => {
  const groups = byService([instance("b", "2"), instance("a", "1"), instance("b", "1")]);

  expect([...groups].map(([name, group]) => [name, group.map((one) => one.name)])).toEqual([
    ["a", ["1"]],
    ["b", ["1", "2"]],
  ]);
});

it("sees contracts that differ, where they are known", () => {
  expect(differ([instance("a", "1", { schemas: "x" }), instance("a", "2", { schemas: "y" })])).toBe(true);
  expect(differ([instance("a", "1", { schemas: "x" }), instance("a", "2")])).toBe(false);
});

it("lists versions as people count", () => {
  expect(versionsOf([instance("a", "1", { version: "1.10" }), instance("a", "2", { version: "1.9" }), instance("a", "3")])).toBe("1.9, 1.10");
});

it("asks a service where it listens", () => {
  expect(addressOf([instance("a", "1", { queues: ["/queue/other"] })], "a")).toBe("/queue/other");
  expect(addressOf([], "a")).toBe("/queue/a");
});

it("knows the verbs that every service has", () => {
  expect(["ping", "stats", "describe", "job.list", "engine.status"].every(isBuiltIn)).toBe(true);
  expect(["quote", "jobs", "pinger"].some(isBuiltIn)).toBe(false);
});
