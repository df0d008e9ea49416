import { beforeEach, expect, it, vi } from "vitest";
import { NebulaError } from "../session";
import type { LogLine } from "./model";

const call = vi.hoisted(() => vi.fn());
vi.mock("../session", async () => {
  const { NebulaError } = await import("nebula");
  return { NebulaError, session: { call, epoch: { value: 1 } } };
});
const { followLog } = await import("./log");
const { askJob } = await import("./asking");

beforeEach(() => call.mockReset());

function page(numbers: number[], isOver: boolean, next = numbers.at(-1) ?? 0): { lines: LogLine[]; next: number; is_over: boolean } {
  return { lines: numbers.map((number) => ({ number, at: 0, text: `line ${number}` })), next, is_over: isOver };
}

async function follow(): Promise<{ numbers: number[]; errors: (string | null)[] }> {
  const numbers: number[] = [];
  const errors: (string | null)[] = [];
  await followLog("a/1", new AbortController().signal, (lines) => numbers.push(...lines.map((line) => line.number)), (error) => errors.push(error?.code ?? null));
  return { numbers, errors };
}

it("reads what there is, and waits for what follows", async () => {
  call.mockResolvedValueOnce(page([1, 2], false)).mockResolvedValueOnce(page([], false, 2)).mockResolvedValueOnce(page([3], true));

  expect((await follow()).numbers).toEqual([1, 2, 3]);
  expect(call.mock.calls.map(([, verb, given]) => [verb, given.after, given.timeout])).toEqual([
    ["job.log", undefined, undefined],
    ["job.log", 2, 20],
    ["job.log", 2, 20],
  ]);
});

it("ends where it may not read", async () => {
  call.mockRejectedValueOnce(new NebulaError("not-allowed", "it belongs to another principal"));

  expect(await follow()).toEqual({ numbers: [], errors: ["not-allowed"] });
});

it("asks the instance that has the job, and remembers it", async () => {
  call
    .mockRejectedValueOnce(new NebulaError("elsewhere", "", { details: { via: "/queue/b.7" } }))
    .mockResolvedValueOnce("there")
    .mockResolvedValueOnce("there");

  expect(await askJob("b/1", "job.show")).toBe("there");
  expect(await askJob("b/1", "job.show")).toBe("there");
  expect(call.mock.calls.map(([queue]) => queue)).toEqual(["/queue/b", "/queue/b.7", "/queue/b.7"]);
});

it("does not follow to the queue of another service", async () => {
  call.mockRejectedValueOnce(new NebulaError("elsewhere", "", { details: { via: "/queue/bank.7" } }));

  await expect(askJob("c/1", "job.cancel")).rejects.toMatchObject({ code: "elsewhere" });
});
