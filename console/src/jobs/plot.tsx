// A plot of few columns: lines over numbers and times, bars over names. Plain SVG, drawn in a fixed frame.

import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { short } from "../widgets/format";
import { cellOf, numberOf, ticksOf } from "./rows";

export interface PlotProps {
  label: string;
  x: readonly unknown[];
  isText: boolean;
  isTime: boolean;
  series: readonly { name: string; values: readonly (number | null)[] }[];
}

const HEIGHT = 260;
const LEFT = 52;
const RIGHT = 12;
const TOP = 10;
const BOTTOM = 46;
/** More bars than these are thinner than a pixel or two. */
const MOST_BARS = 120;
const COLOURS = 5;

function colourOf(number: number): string {
  return `var(--chart-${(number % COLOURS) + 1})`;
}

export function Plot({ label, x, isText, isTime, series }: PlotProps): JSX.Element {
  const [place, width] = useWidth();
  const shown = isText ? Math.min(x.length, MOST_BARS) : x.length;
  const values = series.flatMap(({ values: all }) => all.slice(0, shown)).filter((value) => value !== null);
  const ticks = ticksOf(Math.min(0, ...values), Math.max(0, ...values));
  const [low, high] = [ticks[0] ?? 0, ticks.at(-1) ?? 1];
  const [inner, tall] = [Math.max(50, width - LEFT - RIGHT), HEIGHT - TOP - BOTTOM];
  const yOf = (value: number): number => TOP + tall * (1 - (value - low) / (high - low || 1));
  return (
    <figure class="plot" ref={place}>
      <svg width={width} height={HEIGHT} role="img" aria-label={label}>
        {ticks.map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={LEFT + inner} y1={yOf(tick)} y2={yOf(tick)} class={tick === 0 ? "plot-zero" : "plot-grid"} />
            <text x={LEFT - 8} y={yOf(tick) + 4} text-anchor="end">{short(tick)}</text>
          </g>
        ))}
        {isText ? (
          <Bars x={x.slice(0, shown)} series={series} inner={inner} yOf={yOf} />
        ) : (
          <Lines x={x} isTime={isTime} series={series} inner={inner} yOf={yOf} />
        )}
      </svg>
      <figcaption>
        {series.map(({ name }, number) => (
          <span key={name} class="plot-key">
            <svg width="10" height="10" aria-hidden="true"><rect width="10" height="10" rx="3" fill={colourOf(number)} /></svg>
            {name}
          </span>
        ))}
        {shown < x.length && <span class="muted">the first {shown} of {x.length}</span>}
      </figcaption>
    </figure>
  );
}

interface PartProps {
  x: readonly unknown[];
  series: PlotProps["series"];
  inner: number;
  yOf: (value: number) => number;
}

function Bars({ x, series, inner, yOf }: PartProps): JSX.Element {
  const slot = inner / Math.max(1, x.length);
  const bar = Math.min(48, (slot * 0.75) / Math.max(1, series.length));
  // As many names as there is room for.
  const every = Math.ceil(58 / slot);
  return (
    <>
      {x.map((name, number) => {
        const middle = LEFT + slot * (number + 0.5);
        return (
          <g key={number}>
            {series.map(({ name: what, values }, place) => {
              const value = values[number];
              if (value === null || value === undefined) return null;
              const left = middle + (place - series.length / 2) * bar;
              const [top, bottom] = [yOf(Math.max(0, value)), yOf(Math.min(0, value))];
              return (
                <rect key={what} x={left} y={top} width={Math.max(1, bar - 1)} height={Math.max(1, bottom - top)} rx="2" fill={colourOf(place)}>
                  <title>{`${String(cellOf(name))}: ${value} ${what}`}</title>
                </rect>
              );
            })}
            {number % every === 0 && (
              <text x={middle} y={HEIGHT - BOTTOM + 18} text-anchor="middle">{cut(String(cellOf(name) ?? "–"), Math.floor((slot * every) / 7))}</text>
            )}
          </g>
        );
      })}
    </>
  );
}

function Lines({ x, isTime, series, inner, yOf }: PartProps & { isTime: boolean }): JSX.Element {
  const places = x.map((value) => (isTime ? timeOf(value) : numberOf(value)));
  const known = places.filter((place) => place !== null);
  const [first, last] = [Math.min(...known), Math.max(...known)];
  const xOf = (place: number): number => LEFT + ((place - first) / (last - first || 1)) * inner;
  const marks = isTime ? evenly(first, last, Math.max(2, Math.floor(inner / 120))) : ticksOf(first, last, Math.max(2, Math.floor(inner / 90))).filter((one) => one >= first && one <= last);
  return (
    <>
      {marks.map((mark) => (
        <text key={mark} x={xOf(mark)} y={HEIGHT - BOTTOM + 18} text-anchor="middle">{isTime ? momentOf(mark, last - first) : short(mark)}</text>
      ))}
      {series.map(({ name, values }, number) => {
        const points = values
          .map((value, row) => ({ value, place: places[row] ?? null }))
          .filter((one): one is { value: number; place: number } => one.value !== null && one.place !== null)
          .sort((one, other) => one.place - other.place);
        const path = points.map(({ value, place }, row) => `${row === 0 ? "M" : "L"}${xOf(place).toFixed(1)} ${yOf(value).toFixed(1)}`).join("");
        return (
          <g key={name}>
            <path d={path} fill="none" stroke={colourOf(number)} stroke-width="2" stroke-linejoin="round" />
            {points.length <= 60 && points.map(({ value, place }) => (
              <circle key={place} cx={xOf(place)} cy={yOf(value)} r="3" fill={colourOf(number)}>
                <title>{`${isTime ? new Date(place).toISOString() : place}: ${value} ${name}`}</title>
              </circle>
            ))}
          </g>
        );
      })}
    </>
  );
}

function timeOf(value: unknown): number | null {
  const time = typeof value === "string" ? Date.parse(value.replace(" ", "T")) : Number.NaN;
  return Number.isNaN(time) ? null : time;
}

function evenly(first: number, last: number, wanted: number): number[] {
  return Array.from({ length: wanted }, (_, number) => first + ((last - first) * (number + 0.5)) / wanted);
}

function momentOf(time: number, span: number): string {
  const text = new Date(time).toISOString();
  return span > 2 * 86_400_000 ? text.slice(0, 10) : text.slice(5, 16).replace("T", " ");
}

function cut(text: string, most: number): string {
  return text.length > Math.max(3, most) ? `${text.slice(0, Math.max(2, most - 1))}…` : text;
}

/** The width that there is. */
function useWidth(): [{ current: HTMLElement | null }, number] {
  const place = useRef<HTMLElement>(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const element = place.current;
    if (element === null || typeof ResizeObserver === "undefined") return;
    const observer = new ResizeObserver(() => setWidth(Math.max(200, element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [place, width];
}
