// What ran when, as a picture. The table has the same jobs, with their links for the keyboard.

import { useEffect, useRef, useState } from "preact/hooks";
import { go } from "../router";
import { duration } from "../widgets/format";
import { lookOf, ranFor, serviceOf, ulidOf, wordOf, type JobRow } from "./model";
import { marksOf, spanOf, timelineOf } from "./timeline";

const LINE = 14;
const HEAD = 20;
const GAP = 8;
const AXIS = 22;

const SPANS: readonly (readonly [string, string])[] = [
  ["0", "fit"],
  ["900", "15 minutes"],
  ["3600", "an hour"],
  ["21600", "6 hours"],
  ["86400", "a day"],
];

export function TimelineView({ rows, now }: { rows: readonly JobRow[]; now: number }) {
  const [span, setSpan] = useState("0");
  const place = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(Math.max(240, element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, [rows.length === 0]);
  if (rows.length === 0) return null;

  const seconds = Number(span) || spanOf(rows, now);
  const { from, to, lanes } = timelineOf(rows, now, seconds);
  const tops: number[] = [];
  let height = 4;
  for (const lane of lanes) {
    tops.push(height);
    height += HEAD + lane.lines * LINE + GAP;
  }
  const xOf = (part: number): number => part * (width - 2) + 1;
  const marks = marksOf(from, to, Math.max(2, Math.floor(width / 110)));
  const isLong = seconds > 2 * 86_400 || new Date(from * 1000).toDateString() !== new Date(to * 1000).toDateString();
  return (
    <section class="card timeline" aria-label="Timeline">
      <div class="timeline-head">
        <h2>Timeline</h2>
        <label>
          <span class="muted">last</span>{" "}
          <select value={span} onChange={(event) => setSpan(event.currentTarget.value)}>
            {SPANS.map(([value, title]) => <option key={value} value={value}>{value === "0" ? `${duration(seconds)} (${title})` : title}</option>)}
          </select>
        </label>
      </div>
      <div ref={place}>
        {lanes.length === 0 ? (
          <p class="muted">No jobs in this period.</p>
        ) : (
          <svg width={width} height={height + AXIS} role="img" aria-label={`${rows.length} jobs over the last ${duration(seconds)}`}>
            {marks.map((mark) => {
              const x = xOf((mark - from) / (to - from));
              return (
                <g key={mark}>
                  <line x1={x} x2={x} y1={0} y2={height} class="plot-grid" />
                  <text x={Math.min(width - 30, Math.max(26, x))} y={height + 15} text-anchor="middle">{clock(mark, seconds, isLong)}</text>
                </g>
              );
            })}
            {lanes.map((lane, number) => {
              const top = tops[number] ?? 0;
              return (
                <g key={lane.name}>
                  <text x={2} y={top + 13} class="timeline-name">{lane.name}{lane.hidden > 0 && ` (${lane.hidden} more not drawn)`}</text>
                  {lane.bars.map(({ row, line, waits, runs }) => {
                    const y = top + HEAD + line * LINE;
                    const ran = ranFor(row, now);
                    return (
                      <g key={row.job} class="timeline-bar" onClick={() => go("jobs", [serviceOf(row.job), ulidOf(row.job)])}>
                        <title>{`${row.verb}: ${wordOf(row.state)}${ran === null ? "" : `, ran ${duration(ran)}`}`}</title>
                        {waits && <rect class="timeline-wait" x={xOf(waits[0])} y={y + 3} width={Math.max(1, xOf(waits[1]) - xOf(waits[0]))} height={LINE - 8} />}
                        {runs && <rect class={`timeline-run ${lookOf(row.state)}`} x={xOf(runs[0])} y={y} width={Math.max(3, xOf(runs[1]) - xOf(runs[0]))} height={LINE - 2} rx="2" />}
                      </g>
                    );
                  })}
                </g>
              );
            })}
          </svg>
        )}
      </div>
      <p class="timeline-keys">
        <Key look="timeline-wait" word="waiting" />
        <Key look="timeline-run accent" word="running" />
        <Key look="timeline-run ok" word="done" />
        <Key look="timeline-run bad" word="failed, lost, timed out" />
        <Key look="timeline-run warn" word="cancelled" />
      </p>
    </section>
  );
}

function Key({ look, word }: { look: string; word: string }) {
  return (
    <span class="plot-key">
      <svg width="10" height="10" aria-hidden="true"><rect class={look} width="10" height="10" rx="2" /></svg>
      {word}
    </span>
  );
}

function clock(at: number, span: number, withDay: boolean): string {
  const then = new Date(at * 1000);
  const text = then.toLocaleTimeString("en-GB");
  const day = withDay && text.startsWith("00:00") ? then.toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : "";
  return day || (span < 600 ? text : text.slice(0, 5));
}

