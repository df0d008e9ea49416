// Routes in the hash: `#/queues/orders?sort=depth`.

import { signal } from "@preact/signals";

export interface Route {
  /** The page: "queues". */
  page: string;
  /** What follows it, decoded: ["orders"]. */
  rest: string[];
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/").map(decode);
  return { page, rest: rest.filter((part) => part !== ""), query: new URLSearchParams(query) };
}

/** A link: `href("queues", ["a/b"], { sort: "depth" })`. */
export function href(page: string, rest: readonly string[] = [], query: Record<string, string> = {}): string {
  const path = [page, ...rest].map(encodeURIComponent).join("/");
  const search = new URLSearchParams(query).toString();
  return `#/${path}${search && `?${search}`}`;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Where we are. */
export const route = signal<Route>(parseRoute(location.hash));
addEventListener("hashchange", () => (route.value = parseRoute(location.hash)));

/** Go to a page. */
export function go(page: string, rest: readonly string[] = [], query: Record<string, string> = {}): void {
  location.hash = href(page, rest, query);
}
