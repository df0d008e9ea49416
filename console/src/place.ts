// Where programs reach the broker of this page.

/** Addresses of a broker. */
export interface Place {
  /** As Python and `nebula call` take it, without a login. */
  url: string;
  /** What the paths of calls over HTTP follow; null: not known. */
  http: string | null;
}

const SOCKET = "/stomp";

/**
 * The addresses of the broker.
 *
 * @param page the address of the console: `https://broker.example/console/`
 * @param told the broker's address, as `nebula console` has written it into the page; null: the broker itself served it
 */
export function placeOf(page: string, told: string | null): Place {
  const text = told ?? new URL("../stomp", page.split("#")[0]).href.replace(/^http/, "ws");
  const [, scheme, host, path] = /^(\w+):\/\/([^/]*)(.*)$/.exec(text) ?? [];
  if (scheme !== "ws" && scheme !== "wss") return { url: text, http: null };
  return {
    // Clients add this path to an address without one.
    url: path === SOCKET ? `${scheme}://${host}` : text,
    http: path?.endsWith(SOCKET) ? `${scheme.replace("ws", "http")}://${host}${path.slice(0, -SOCKET.length)}` : null,
  };
}

/** Host and port. */
export function hostOf({ url }: Place): string {
  return url.split("/")[2] ?? "";
}

/** The broker of this page. */
export function thisPlace(): Place {
  return placeOf(location.href, document.querySelector<HTMLMetaElement>('meta[name="nebula-broker"]')?.content ?? null);
}
