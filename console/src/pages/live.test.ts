import { describe, expect, it } from "vitest";
import { LiveLog } from "./live";

function message(text: string) {
  return { headers: { destination: "/topic/a" }, binaryBody: new TextEncoder().encode(text) };
}

const texts = (log: LiveLog) => log.slice(0, 1_000).map(({ body }) => new TextDecoder().decode(body));

describe("LiveLog", () => {
  it("keeps the newest messages, and counts the others", () => {
    const log = new LiveLog(3);
    for (const text of "abcde") log.push(message(text), 0);

    expect(texts(log)).toEqual(["e", "d", "c"]);
    expect(log.slice(1, 1).map(({ sequence }) => sequence)).toEqual([4]);
    expect([log.received, log.skipped]).toEqual([5, 2]);
  });

  it("counts what comes while it is paused, and goes on with what comes then", () => {
    const log = new LiveLog(3);
    log.push(message("a"), 0);
    log.pause();
    log.push(message("b"), 0);

    expect([texts(log), log.missed]).toEqual([["a"], 1]);
    log.resume();
    log.push(message("c"), 0);
    expect([texts(log), log.missed, log.skipped]).toEqual([["c", "a"], 0, 1]);
  });

  it("keeps no more than some megabytes, but the newest one at least", () => {
    const log = new LiveLog(500);
    const large = { headers: {}, binaryBody: new Uint8Array(6 * 1024 * 1024) };
    for (let count = 0; count < 4; count += 1) log.push(large, 0);
    expect(log.kept).toBe(2);
    log.push({ headers: {}, binaryBody: new Uint8Array(20 * 1024 * 1024) }, 0);

    expect(log.kept).toBe(1);
    expect(log.skipped).toBe(4);
  });

  it("forgets everything when it is cleared", () => {
    const log = new LiveLog(3);
    log.push(message("a"), 0);
    log.clear();

    expect([texts(log), log.received]).toEqual([[], 0]);
  });
});
