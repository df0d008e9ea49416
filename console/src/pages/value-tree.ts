// Last values as a tree by the parts of their names.

import { envelopeOf } from "../bodies/envelope";
import type { Incoming } from "./live";

/** A last value, as it came last. */
export interface Value {
  destination: string;
  headers: Record<string, string>;
  body: Uint8Array;
  /** Milliseconds since 1970, by this page's clock. */
  at: number;
}

export interface Node {
  /** Its part of the name: "GM000107". */
  name: string;
  /** The whole name up to here; names of values below it begin so. */
  path: string;
  level: number;
  parent: Node | null;
  children: Map<string, Node>;
  value: Value | null;
  /** Values at it and below it. */
  count: number;
  /** Changes at it and below it, since the page looks. */
  changes: number;
}

/** A node as it is shown. */
export interface Row {
  node: Node;
  isOpen: boolean;
  /** Its place among its siblings, from 1, and how many they are. */
  place: number;
  siblings: number;
}

/** More are counted and not kept. */
const MOST_VALUES = 50_000;

// What is open at first: few enough to be seen at once.
const OPEN_LEVELS = 3;
const OPEN_CHILDREN = 12;

const names = new Intl.Collator("en", { numeric: true });

export class ValueTree {
  #root = makeNode("", "", -1, null);
  #leaves = new Map<string, Node>();
  #sorted = new WeakMap<Node, Node[]>();
  #shape = 0;
  #left = 0;
  #changes = 0;
  #isComplete = false;
  #rows: { key: string; rows: Row[] } | null = null;
  readonly #opened = new Map<string, boolean>();

  /** Values that are kept. */
  get size(): number {
    return this.#leaves.size;
  }

  /** Values that came and were not kept, because there are too many. */
  get left(): number {
    return this.#left;
  }

  /** Changes since the snapshot was complete. */
  get changes(): number {
    return this.#changes;
  }

  /** Whether all values that there were at the beginning have come. */
  get isComplete(): boolean {
    return this.#isComplete;
  }

  clear(): void {
    this.#root = makeNode("", "", -1, null);
    this.#leaves.clear();
    this.#left = this.#changes = 0;
    this.#isComplete = false;
    this.#reshape();
  }

  /** Take a message of a subscription with `eager` and `snapshot`. */
  take(message: Incoming, at: number): void {
    const { headers, binaryBody: body } = message;
    const destination = headers["destination"] ?? "";
    const isEnd = headers["snapshot"] === "end";
    // Where no value could have it, an empty message to the subscription's own destination ends the snapshot.
    const isMark = isEnd && body.length === 0 && !this.#leaves.has(destination);
    if (this.#isComplete) this.#changes += 1;
    if (!isMark) {
      if (isDeletion(headers, body)) this.#remove(destination);
      else this.#set({ destination, headers, body, at });
    }
    if (isEnd) this.#isComplete = true;
  }

  find(destination: string): Node | null {
    return this.#leaves.get(destination) ?? null;
  }

  /** Open or close a node. */
  toggle(node: Node, isOpen: boolean): void {
    this.#opened.set(node.path, isOpen);
    this.#reshape();
  }

  /** The nodes that are shown: those of open ones, or the ones on the way to values with `filter` in their names. */
  rows(filter: string): readonly Row[] {
    const wanted = filter.trim().toLowerCase();
    const key = `${this.#shape} ${wanted}`;
    if (this.#rows?.key === key) return this.#rows.rows;
    const rows: Row[] = [];
    if (wanted === "") this.#collect(this.#root, rows);
    else this.#collectMatching(this.#root, this.#matching(wanted), rows);
    this.#rows = { key, rows };
    return rows;
  }

  #matching(wanted: string): Set<Node> {
    const found = new Set<Node>();
    for (const [destination, leaf] of this.#leaves) {
      if (!destination.toLowerCase().includes(wanted)) continue;
      for (let node: Node | null = leaf; node !== null && !found.has(node); node = node.parent) found.add(node);
    }
    return found;
  }

  #collect(node: Node, rows: Row[]): void {
    const children = this.#childrenOf(node);
    children.forEach((child, at) => {
      const isOpen = child.children.size > 0 && this.#isOpen(child);
      rows.push({ node: child, isOpen, place: at + 1, siblings: children.length });
      if (isOpen) this.#collect(child, rows);
    });
  }

  #collectMatching(node: Node, found: ReadonlySet<Node>, rows: Row[]): void {
    const children = this.#childrenOf(node).filter((child) => found.has(child));
    children.forEach((child, at) => {
      const isOpen = child.children.size > 0;
      rows.push({ node: child, isOpen, place: at + 1, siblings: children.length });
      this.#collectMatching(child, found, rows);
    });
  }

  #isOpen(node: Node): boolean {
    const chosen = this.#opened.get(node.path);
    return chosen ?? (node.level < OPEN_LEVELS && node.children.size <= OPEN_CHILDREN);
  }

  #childrenOf(node: Node): Node[] {
    let found = this.#sorted.get(node);
    if (found === undefined) {
      found = [...node.children.values()].sort((one, other) => names.compare(one.name, other.name));
      this.#sorted.set(node, found);
    }
    return found;
  }

  #set(value: Value): void {
    let leaf = this.#leaves.get(value.destination);
    if (leaf === undefined) {
      if (this.#leaves.size >= MOST_VALUES) {
        this.#left += 1;
        return;
      }
      leaf = this.#add(value.destination);
    }
    leaf.value = value;
    if (this.#isComplete) for (let node: Node | null = leaf; node !== null; node = node.parent) node.changes += 1;
  }

  #add(destination: string): Node {
    let node = this.#root;
    for (const path of pathsOf(destination)) {
      const name = path.slice(node.path.length).replace(/[./]$/, "") || path;
      let child = node.children.get(path);
      if (child === undefined) {
        child = makeNode(name, path, node.level + 1, node);
        node.children.set(path, child);
        this.#sorted.delete(node);
      }
      node = child;
    }
    for (let each: Node | null = node; each !== null; each = each.parent) each.count += 1;
    this.#leaves.set(destination, node);
    this.#reshape();
    return node;
  }

  #remove(destination: string): void {
    const leaf = this.#leaves.get(destination);
    if (leaf === undefined) return;
    this.#leaves.delete(destination);
    leaf.value = null;
    for (let node: Node | null = leaf; node !== null; node = node.parent) {
      node.count -= 1;
      node.changes += 1;
      if (node.count === 0 && node.parent !== null) {
        node.parent.children.delete(node.path);
        this.#sorted.delete(node.parent);
      }
    }
    this.#reshape();
  }

  #reshape(): void {
    this.#shape += 1;
  }
}

/** The names of the nodes on the way to a value: "X/", "X/EGM.", "X/EGM.GM1". */
export function pathsOf(destination: string): string[] {
  const paths: string[] = [];
  for (let at = 0; at < destination.length; at += 1) {
    const character = destination[at];
    if ((character === "." || character === "/") && at < destination.length - 1) paths.push(destination.slice(0, at + 1));
  }
  paths.push(destination);
  return paths;
}

function isDeletion(headers: Record<string, string>, body: Uint8Array): boolean {
  if (body.length === 0) return true;
  if (headers["content-type"] === "application/json") return false;
  return envelopeOf(body)?.isTombstone ?? false;
}

function makeNode(name: string, path: string, level: number, parent: Node | null): Node {
  return { name, path, level, parent, children: new Map(), value: null, count: 0, changes: 0 };
}
