// Rows of a result: their columns, and which of them a plot can show.

import { isObject } from "../forms/schema";

export type Row = Record<string, unknown>;

export interface RowColumn {
  name: string;
  /** "number", "time", "text" or "other". */
  kind: "number" | "time" | "text" | "other";
  /** As its table says; empty: unknown. */
  type: string;
}

/** What `job.result` reports about a table's columns. */
export type TableSchema = readonly { name: string; type: unknown }[] | null;

/** Whether a value is a list of objects, which a table can show. */
export function isRows(value: unknown): value is Row[] {
  return Array.isArray(value) && value.length > 0 && value.every(isObject);
}

const NUMBERS = new Set(["integer", "float"]);
const TIMES = new Set(["date", "timestamp", "timestamp_ntz"]);

/** The columns of rows: as their table declares them, else as the rows have them. */
export function columnsOf(rows: readonly Row[], schema: TableSchema): RowColumn[] {
  if (schema !== null) {
    return schema.map(({ name, type }) => {
      const written = typeOf(type);
      const kind = NUMBERS.has(written) || written.startsWith("decimal") ? "number" : TIMES.has(written) ? "time" : written === "string" ? "text" : "other";
      return { name, kind, type: written };
    });
  }
  const names: string[] = [];
  const seen = new Set<string>();
  for (const row of rows) {
    for (const name of Object.keys(row)) {
      if (!seen.has(name)) names.push(name);
      seen.add(name);
    }
  }
  return names.map((name) => ({ name, kind: kindOf(rows.map((row) => row[name])), type: "" }));
}

/** A type as `job.result` writes it, in one line. */
export function typeOf(type: unknown): string {
  if (typeof type === "string") return type;
  if (!isObject(type)) return "";
  if (Array.isArray(type.decimal)) return `decimal(${type.decimal.join(", ")})`;
  if ("list" in type) return `list of ${typeOf(type.list)}`;
  if (Array.isArray(type.map)) return `map of ${type.map.map(typeOf).join(" to ")}`;
  return "struct" in type ? "struct" : "";
}

const DAY = /^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?$/;

function kindOf(values: readonly unknown[]): RowColumn["kind"] {
  const given = values.filter((value) => value !== null && value !== undefined);
  if (given.length === 0) return "other";
  if (given.every((value) => typeof value === "number")) return "number";
  if (given.every((value) => typeof value === "string" && DAY.test(value))) return "time";
  return given.every((value) => typeof value === "string") ? "text" : "other";
}

/** What a plot shows: names of columns. */
export interface Plotted {
  x: string;
  y: string[];
}

const MOST_LINES = 4;

/** The columns that a plot shows at first; null: none suit. */
export function plotOf(rows: readonly Row[], columns: readonly RowColumn[]): Plotted | null {
  if (rows.length < 2) return null;
  const numbers = columns.filter(({ kind }) => kind === "number").map(({ name }) => name);
  const time = columns.find(({ kind }) => kind === "time")?.name;
  const first = columns[0]?.name;
  // Lines by time; else bars by the first text; else the first number as x where it grows from row to row.
  const x = time ?? columns.find(({ kind }) => kind === "text")?.name ?? (numbers.length > 1 && first !== undefined && grows(rows, first) ? first : undefined);
  const y = numbers.filter((name) => name !== x);
  const [lead] = y;
  if (x === undefined || lead === undefined) return null;
  // Others only if they are of the same size: next to counts in thousands, delays would be a flat line.
  const size = largest(rows, lead);
  const alike = y.filter((name) => {
    const other = largest(rows, name);
    return other > size / 20 && other < size * 20;
  });
  return { x, y: alike.slice(0, MOST_LINES) };
}

function grows(rows: readonly Row[], name: string): boolean {
  const values = rows.map((row) => numberOf(row[name]));
  return values.every((value, number) => value !== null && (number === 0 || value > (values[number - 1] ?? Infinity)));
}

function largest(rows: readonly Row[], name: string): number {
  return rows.reduce((most, row) => Math.max(most, Math.abs(numberOf(row[name]) ?? 0)), 0);
}

/** A number, also where it came as text, as decimals do; null: it is none. */
export function numberOf(value: unknown): number | null {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value !== "string" || value.trim() === "") return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}

/** A cell of a table as text. */
export function cellOf(value: unknown): string | number | null {
  if (value === null || value === undefined) return null;
  if (typeof value === "string" || typeof value === "number") return value;
  return JSON.stringify(value);
}

/** Round numbers from 0 or below to the largest value: for an axis. */
export function ticksOf(low: number, most: number, wanted = 4): number[] {
  const high = most > low ? most : low + 1;
  const rough = (high - low) / wanted;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((one) => one >= rough) ?? unit;
  const ticks: number[] = [];
  for (let tick = Math.floor(low / step) * step; tick <= high + step * 1e-9; tick += step) ticks.push(Number(tick.toPrecision(12)));
  if ((ticks.at(-1) ?? 0) < high) ticks.push(Number(((ticks.at(-1) ?? 0) + step).toPrecision(12)));
  return ticks;
}
