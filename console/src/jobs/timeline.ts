// When jobs waited and ran: bars in lanes, as numbers from 0 to 1.

import { serviceOf, type JobRow } from "./model";

export interface Bar {
  row: JobRow;
  /** Its line within the lane, from 0. */
  line: number;
  /** From when it was accepted to its start. */
  waits: [number, number] | null;
  runs: [number, number] | null;
}

export interface Lane {
  name: string;
  lines: number;
  bars: Bar[];
  /** Jobs for which there was no line. */
  hidden: number;
}

export interface Timeline {
  from: number;
  to: number;
  lanes: Lane[];
}

const MOST_LINES = 6;
const MOST_LANES = 12;

/** Seconds from the first of these jobs to now, but no more than a day. */
export function spanOf(rows: readonly JobRow[], now: number): number {
  const first = rows.reduce((least, row) => Math.min(least, row.accepted_at), now);
  return Math.min(86_400, Math.max(60, (now - first) * 1.05));
}

export function timelineOf(rows: readonly JobRow[], now: number, span: number): Timeline {
  const from = now - span;
  const placeOf = (at: number): number => Math.min(1, Math.max(0, (at - from) / span));
  const lanes = new Map<string, { lane: Lane; free: number[] }>();
  // The oldest first: a line is taken again when its job has ended.
  for (const row of [...rows].sort((one, other) => one.accepted_at - other.accepted_at)) {
    const end = row.ended_at ?? now;
    if (end < from || row.accepted_at > now) continue;
    const name = `${serviceOf(row.job)} ${row.verb}`;
    let found = lanes.get(name);
    if (found === undefined) {
      if (lanes.size >= MOST_LANES) continue;
      found = { lane: { name, lines: 0, bars: [], hidden: 0 }, free: [] };
      lanes.set(name, found);
    }
    const { lane, free } = found;
    let line = free.findIndex((until) => until <= row.accepted_at);
    if (line < 0) line = free.length;
    if (line >= MOST_LINES) {
      lane.hidden += 1;
      continue;
    }
    // A short job takes the room of a dot, so that those after it do not lie on it.
    free[line] = Math.max(end, row.accepted_at + span / 200);
    lane.lines = free.length;
    const start = row.started_at ?? end;
    lane.bars.push({
      row,
      line,
      waits: start > row.accepted_at ? [placeOf(row.accepted_at), placeOf(start)] : null,
      runs: row.started_at === null ? null : [placeOf(row.started_at), placeOf(end)],
    });
  }
  return { from, to: now, lanes: [...lanes.values()].map(({ lane }) => lane).sort((one, other) => one.name.localeCompare(other.name)) };
}

/** Round times for an axis, in seconds since 1970. */
export function marksOf(from: number, to: number, wanted: number): number[] {
  const steps = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
  const step = steps.find((one) => (to - from) / one <= wanted) ?? 86_400;
  // In local time: midnight is a round time of the reader's.
  const shift = new Date(from * 1000).getTimezoneOffset() * 60;
  const marks: number[] = [];
  for (let mark = Math.ceil((from - shift) / step) * step + shift; mark <= to; mark += step) marks.push(mark);
  return marks;
}
