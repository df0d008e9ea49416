// Numbers as people read them.

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB"];
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** 1,234,567 */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : whole.format(value);
}

/** 1.2 MiB */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  let size = value;
  let unit = 0;
  while (Math.abs(size) >= 1024 && unit < BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? whole.format(size) : size.toFixed(size < 10 ? 1 : 0)} ${BYTES[unit]}`;
}

/** 12.3k: short, for axes and tiles. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  return size >= 100 || Number.isInteger(value) ? whole.format(value) : trim(value);
}

function trim(value: number): string {
  return value.toFixed(Math.abs(value) < 10 ? 1 : 0).replace(/\.0$/, "");
}

/** 12.3/s */
export function rate(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : `${short(value)}/s`;
}

/** 350 ms, 4.2 s, 3 min, 5 h 20 min, 3 d 4 h */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.001) return seconds <= 0 ? "0 s" : `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${trim(seconds)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  const hours = Math.floor(seconds / 3600);
  if (hours < 48) return two(hours, "h", Math.floor((seconds % 3600) / 60), "min");
  return two(Math.floor(hours / 24), "d", hours % 24, "h");
}

function two(first: number, unit: string, second: number, smaller: string): string {
  return second === 0 ? `${first} ${unit}` : `${first} ${unit} ${second} ${smaller}`;
}

/** An id that a program made, or a fingerprint, shortened for a table; what people have named stays as it is. */
export function shortId(id: string): string {
  return /^[0-9a-f-]{20,}$/i.test(id) || id.length > 48 ? `${id.slice(0, 8)}…${id.slice(-6)}` : id;
}

/** "1 message", "2 messages" */
export function plural(number: number, one: string, many = `${one}s`): string {
  return `${count(number)} ${number === 1 ? one : many}`;
}

/** 12% */
export function percent(fraction: number | null | undefined): string {
  return fraction === null || fraction === undefined ? "–" : `${Math.round(fraction * 100)}%`;
}

/** 14:03:22, with the date unless it is today's. */
export function time(seconds: number | null | undefined, now: Date = new Date()): string {
  if (seconds === null || seconds === undefined) return "–";
  const then = new Date(seconds * 1000);
  const clock = then.toLocaleTimeString("en-GB");
  return then.toDateString() === now.toDateString() ? clock : `${isoDate(then)} ${clock}`;
}

function isoDate(then: Date): string {
  const two = (part: number) => String(part).padStart(2, "0");
  return `${then.getFullYear()}-${two(then.getMonth() + 1)}-${two(then.getDate())}`;
}
