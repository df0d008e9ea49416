// Senders, destinations and receivers: three columns, and lines between them.

import type { FlowRow } from "../broker";

/** A line: from a sender to a destination, or from there to a receiver. */
export interface Edge {
  from: string;
  to: string;
  /** Messages per second; null: not known yet. */
  rate: number | null;
}

export type Column = "sender" | "destination" | "receiver";

export interface Node {
  /** Unique in the picture. */
  key: string;
  name: string;
  column: Column;
  rate: number;
  x: number;
  y: number;
}

export interface Picture {
  nodes: Node[];
  edges: Edge[];
  width: number;
  height: number;
  /** Nodes that had no place. */
  left: number;
}

export interface Rated {
  sender: string;
  destination: string;
  receivers: string[];
  rate: number | null;
  messages: number;
}

/** Rates of flows between two readings. */
export class FlowReader {
  #before = new Map<string, number>();
  #at = 0;

  /** @param at in seconds */
  read(flows: readonly FlowRow[], at: number): Rated[] {
    const seconds = at - this.#at;
    const next = new Map<string, number>();
    const rated = flows.map(({ sender, destination, messages, receivers }) => {
      const key = `${sender}\n${destination}`;
      const before = this.#before.get(key);
      next.set(key, messages);
      const grown = before === undefined ? -1 : messages - before;
      return { sender, destination, receivers, messages, rate: grown < 0 || seconds <= 0 ? null : grown / seconds };
    });
    this.#before = next;
    this.#at = at;
    return rated;
  }
}

// This number of destinations that differ in only one part of their name is drawn as one.
const ALIKE = 4;

/**
 * The names under which destinations are drawn: "X/EGM.*.Meter" for many that are alike, and the own name for each
 * other. Parts are what stands between dots; the first of them is never replaced.
 */
export function grouped(destinations: readonly string[]): Map<string, string> {
  const names = new Map(destinations.map((each) => [each, each]));
  // Names may be alike in several parts, one after the other.
  for (let round = 0; round < 4; round += 1) {
    const alike = new Map<string, Set<string>>();
    for (const name of new Set(names.values())) {
      for (const glob of globsOf(name)) {
        const found = alike.get(glob) ?? new Set();
        alike.set(glob, found.add(name));
      }
    }
    let best: string | null = null;
    const folded = new Map<string, string>();
    for (const [glob, found] of [...alike].sort(([, one], [, other]) => other.size - one.size)) {
      if (found.size < ALIKE) break;
      best = glob;
      for (const name of found) if (!folded.has(name)) folded.set(name, glob);
    }
    if (best === null) break;
    for (const [destination, name] of names) names.set(destination, folded.get(name) ?? name);
  }
  return names;
}

function globsOf(name: string): string[] {
  const parts = name.split(".");
  return parts.flatMap((part, place) =>
    place === 0 || part === "*" ? [] : [parts.map((each, at) => (at === place ? "*" : each)).join(".")],
  );
}

const ROW = 46;
const TOP = 34;
export const NODE_HEIGHT = 34;

/**
 * Lay out what is sent.
 *
 * @param width of the picture
 * @param most nodes of a column; those with the highest rates stay
 */
export function picture(flows: readonly Rated[], width: number, most = 30): Picture {
  const sums = { sender: new Map<string, number>(), destination: new Map<string, number>() };
  const receivers = new Map<string, number>();
  const into = new Map<string, Edge>();
  const out = new Map<string, Edge>();
  const names = grouped([...new Set(flows.map(({ destination }) => destination))]);
  for (const flow of flows) {
    const destination = names.get(flow.destination) ?? flow.destination;
    const rate = flow.rate ?? 0;
    add(sums.sender, flow.sender, rate);
    add(sums.destination, destination, rate);
    merge(into, `sender:${flow.sender}`, `destination:${destination}`, flow.rate);
    for (const receiver of flow.receivers) {
      // Of a queue only one of them gets each message, and which is not known.
      add(receivers, receiver, rate / flow.receivers.length);
      merge(out, `destination:${destination}`, `receiver:${receiver}`, flow.rate);
    }
  }
  const columns: [Column, Map<string, number>][] = [
    ["sender", sums.sender],
    ["destination", sums.destination],
    ["receiver", receivers],
  ];
  const nodes: Node[] = [];
  let left = 0;
  let height = 0;
  columns.forEach(([column, found], place) => {
    const sorted = [...found].sort(([one, first], [other, second]) => second - first || one.localeCompare(other));
    const shown = sorted.slice(0, most);
    left += sorted.length - shown.length;
    // By name within what is shown, so that nothing jumps while rates change.
    shown.sort(([one], [other]) => one.localeCompare(other));
    shown.forEach(([name, rate], row) => {
      const x = (place * (width - nodeWidth(width))) / 2;
      nodes.push({ key: `${column}:${name}`, name, column, rate, x, y: TOP + row * ROW });
    });
    height = Math.max(height, shown.length);
  });
  const keys = new Set(nodes.map(({ key }) => key));
  const edges = [...into.values(), ...out.values()].filter(({ from, to }) => keys.has(from) && keys.has(to));
  return { nodes, edges, width, height: TOP + 12 + height * ROW - (ROW - NODE_HEIGHT), left };
}

/** How wide a node is in a picture. */
export function nodeWidth(width: number): number {
  return Math.min(240, Math.floor(width * 0.27));
}

function add(sums: Map<string, number>, name: string, rate: number): void {
  sums.set(name, (sums.get(name) ?? 0) + rate);
}

function merge(edges: Map<string, Edge>, from: string, to: string, rate: number | null): void {
  const key = `${from}\n${to}`;
  const before = edges.get(key);
  const sum = before?.rate == null ? rate : before.rate + (rate ?? 0);
  edges.set(key, { from, to, rate: sum });
}

/** A line from the right side of one node to the left side of another. */
export function path(from: Node, to: Node, width: number): string {
  const begin = { x: from.x + nodeWidth(width), y: from.y + NODE_HEIGHT / 2 };
  const end = { x: to.x, y: to.y + NODE_HEIGHT / 2 };
  const middle = (begin.x + end.x) / 2;
  return `M${begin.x},${begin.y} C${middle},${begin.y} ${middle},${end.y} ${end.x},${end.y}`;
}

/** How thick a line is: by the logarithm of its rate. */
export function thickness(rate: number | null): number {
  return rate === null || rate <= 0 ? 1 : Math.min(8, 1.5 + Math.log10(1 + rate) * 1.6);
}
