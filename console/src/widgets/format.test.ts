import { expect, test } from "vitest";
import { bytes, count, duration, percent, plural, rate, short, shortId, time } from "./format";

test.each([
  [0, "0 B"],
  [1023, "1,023 B"],
  [1536, "1.5 KiB"],
  [10 * 1024 * 1024, "10 MiB"],
  [3 * 1024 ** 5, "3072 TiB"],
  [null, "–"],
])("bytes(%s) is %s", (value, text) => expect(bytes(value)).toBe(text));

test.each([
  [0, "0 s"],
  [0.0000004, "0 µs"],
  [0.35, "350 ms"],
  [4.25, "4.3 s"],
  [59.6, "60 s"],
  [185, "3 min"],
  [7200, "2 h"],
  [5 * 3600 + 1200, "5 h 20 min"],
  [76 * 3600, "3 d 4 h"],
  [undefined, "–"],
])("duration(%s) is %s", (value, text) => expect(duration(value)).toBe(text));

test.each([
  [7, "7"],
  [7.25, "7.3"],
  [999, "999"],
  [9_999, "9,999"],
  [12_345, "12k"],
  [2_500_000, "2.5M"],
  [3e9, "3G"],
])("short(%s) is %s", (value, text) => expect(short(value)).toBe(text));

test("counts, rates and fractions", () => {
  expect(count(1234567)).toBe("1,234,567");
  expect(rate(0.5)).toBe("0.5/s");
  expect(percent(0.126)).toBe("13%");
  expect([plural(1, "message"), plural(2, "message"), plural(0, "entry", "entries")]).toEqual([
    "1 message",
    "2 messages",
    "0 entries",
  ]);
});

test("only ids that programs made are shortened", () => {
  expect(shortId("a".repeat(64))).toBe("aaaaaaaa…aaaaaa");
  expect(shortId("billing-service-of-the-north")).toBe("billing-service-of-the-north");
});

test("a time of another day has its date", () => {
  const now = new Date(2026, 1, 3, 12, 0, 0);

  expect(time(new Date(2026, 1, 3, 9, 5, 7).getTime() / 1000, now)).toBe("09:05:07");
  expect(time(new Date(2026, 0, 31, 9, 5, 7).getTime() / 1000, now)).toBe("2026-01-31 09:05:07");
});
