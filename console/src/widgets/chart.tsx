// Lines over time, by uPlot.

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { colour, isDark } from "../theme";
import { short } from "./format";
import { clock, clocks, spanOf } from "./time-axis";

export interface Series {
  label: string;
  /** A colour of the style sheet: "--chart-1". */
  colour: string;
  values: readonly (number | null)[];
}

export interface ChartProps {
  title: string;
  /** Seconds since 1970. */
  times: readonly number[];
  series: readonly Series[];
  /** How values are written; `short` by default. */
  format?: (value: number) => string;
  height?: number;
  /** Dots alone, not lines. */
  points?: boolean;
  /** The steps of the axis are powers of two, as bytes want it. */
  binary?: boolean;
}

// Steps of an axis: of bytes, of counts, and of anything else.
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const WHOLE = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();
const ANY = [...[-6, -5, -4, -3, -2, -1].flatMap((power) => [1, 2, 5].map((each) => each * 10 ** power)), ...WHOLE];

const HEIGHT = 150;

export function Chart(props: ChartProps) {
  const { title, times, series, format = short, height = HEIGHT, points = false, binary = false } = props;
  // Which point the pointer is at; null: none, and the newest is told.
  const [pointed, setPointed] = useState<number | null>(null);
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const dark = isDark();
  const shape = series.map((each) => `${each.label}:${each.colour}`).join();
  const data = [times, ...series.map(({ values }) => values)] as unknown as uPlot.AlignedData;
  const latest = useRef({ data, format });
  latest.current = { data, format };

  useEffect(() => {
    const parent = place.current;
    if (parent === null) return;
    const write = (value: number | null | undefined) =>
      value === null || value === undefined ? "–" : latest.current.format(value);
    const lines = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false } };
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const made = new uPlot(
      {
        width: parent.clientWidth || 300,
        height,
        // On the right there is room for half of a time with seconds.
        padding: [8, 30, 0, 0],
        cursor: { y: false, drag: { x: false, y: false } },
        legend: { show: false },
        hooks: { setCursor: [({ cursor }) => setPointed(cursor.idx ?? null)] },
        scales: {
          // Not by what uPlot proposes, which is a whole day where there is one time.
          x: { range: (plot) => spanOf(plot.data[0], Date.now() / 1000) },
          y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] },
        },
        axes: [
          { ...lines, font, size: 32, gap: 9, space: 70, values: (_plot, ticks) => clocks(ticks) },
          {
            ...lines,
            font,
            size: 60,
            incrs: (plot) => (binary ? POWERS : isWhole(plot.data) ? WHOLE : ANY),
            values: (_plot, ticks) => ticks.map(write),
          },
        ],
        series: [
          {},
          ...series.map((each) => {
            const stroke = colour(each.colour);
            return {
              label: each.label,
              stroke,
              width: points ? 0 : 1.75,
              // Of a single value there is no line yet.
              points: points ? { show: true, size: 6, fill: stroke } : { show: isSingle, size: 6, fill: stroke },
            };
          }),
        ],
      },
      latest.current.data,
      parent,
    );
    plot.current = made;
    const sized = new ResizeObserver(() => {
      if (parent.clientWidth > 0) made.setSize({ width: parent.clientWidth, height });
    });
    sized.observe(parent);
    return () => {
      sized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, dark, height, points, binary]);

  useEffect(() => plot.current?.setData(latest.current.data), [times, series]);

  const last = series.map(({ label, values }) => `${label} ${written(values.at(-1), format)}`).join(", ");
  const at = pointed === null ? undefined : times[pointed];
  return (
    <figure class="chart" role="img" aria-label={`${title}: ${last}`}>
      <figcaption aria-hidden="true">
        <span>{title}</span>
        {at !== undefined && <span class="muted">{clock(at)}</span>}
      </figcaption>
      <div class="legend" aria-hidden="true">
        {series.map(({ label, colour: name, values }) => (
          <span key={label}>
            <i style={{ background: `var(${name})` }} />
            {label} <b>{written(pointed === null ? values.at(-1) : values[pointed], format)}</b>
          </span>
        ))}
      </div>
      <div ref={place} class="chart-plot" style={{ minHeight: `${height}px` }} aria-hidden="true" />
    </figure>
  );
}

function written(value: number | null | undefined, format: (value: number) => string): string {
  return value === null || value === undefined ? "–" : format(value);
}

function isSingle(plot: uPlot, series: number): boolean {
  return [...(plot.data[series] ?? [])].filter((value) => value != null).length === 1;
}

function isWhole([, ...rows]: uPlot.AlignedData): boolean {
  for (const row of rows) for (const value of row) if (value != null && !Number.isInteger(value)) return false;
  return true;
}
