import { expect, test } from "vitest";
import { alarmsOf } from "./alarms";
import type { BrokerStatus } from "../broker";

function status(more: Partial<BrokerStatus> = {}): BrokerStatus {
  return {
    version: "1",
    uptime_seconds: 60,
    not_ready: null,
    connections: 1,
    max_connections: 100,
    sessions: 0,
    received: 0,
    sent_frames: 0,
    read_bytes: 0,
    written_bytes: 0,
    memory_bytes: 0,
    max_memory_bytes: 100,
    outbox_bytes: 0,
    held_back: 0,
    delayed: 0,
    dead_letters: 0,
    dropped: {},
    events: {},
    ended: {},
    kinds: {},
    principals: 1,
    pools: { memory: { limit: 100, reserved: 0, used: 10, largest: 10, refusals: 0 } },
    store: null,
    ...more,
  };
}

const keys = (...given: Parameters<typeof alarmsOf>) => alarmsOf(...given).map(({ key }) => key);

test("a broker that is well has no alarms", () => expect(keys(status(), status())).toEqual([]));

test("the worst comes first, and each says what to do", () => {
  const alarms = alarmsOf(status({ dead_letters: 1, not_ready: "the disk is nearly full" }), null);

  expect(alarms.map(({ key, level }) => [key, level])).toEqual([
    ["not-ready", "bad"],
    ["dead-letters", "warn"],
  ]);
  expect(alarms[0]!.cure).toContain("Free space");
  expect(alarms[1]!.title).toBe("1 dead letter");
});

test.each([
  [89, []],
  [90, ["warn"]],
  [98, ["bad"]],
])("with %i of 100 of a pool in use the alarms are %j", (used, levels) => {
  const pools = { disk: { limit: 100, reserved: 0, used, largest: used, refusals: 0 } };

  expect(alarmsOf(status({ pools }), null).map(({ level }) => level)).toEqual(levels);
});

test("what was lost or refused before the page was opened is no news", () => {
  const old = { "rejected-full": 7 };

  expect(keys(status({ dropped: old }), null)).toEqual([]);
  expect(keys(status({ dropped: old }), status({ dropped: old }))).toEqual([]);
  expect(keys(status({ dropped: { "rejected-full": 8, purged: 3 } }), status({ dropped: old }))).toEqual([
    "dropped-rejected-full",
  ]);
});

test("a queue with messages and no consumer is named, and the dead letters are not", () => {
  const queues = [
    { queue: "/queue/DLQ", depth: 3, consumers: 0, unacked: 0 },
    { queue: "/queue/busy", depth: 3, consumers: 1, unacked: 0 },
    { queue: "/queue/idle", depth: 3, consumers: 0, unacked: 0 },
  ];

  const [alarm, ...others] = alarmsOf(status(), null, queues);

  expect(others).toEqual([]);
  expect(alarm!.title).toBe("/queue/idle has messages (3) and no consumer");
});

test("a store whose batches take long is slow", () => {
  const store = { commits: 10, rows: 0, seconds: 1, backlog: 0, waiting: 2 };

  expect(keys(status({ store: { ...store, commits: 20, seconds: 6 } }), status({ store }))).toEqual(["slow-store"]);
  expect(keys(status({ store: { ...store, commits: 20, seconds: 2 } }), status({ store }))).toEqual([]);
});
