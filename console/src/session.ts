// The connection to the broker, and what its principal may do.

import { computed, effect, signal, type ReadonlySignal } from "@preact/signals";
import { Nebula, NebulaError, type CallOptions, type Job, type StreamOptions } from "nebula";
import type { IMessage } from "@stomp/stompjs";
import { NebulaService } from "./broker";

export { NebulaError };
export type Message = IMessage;

/** How a user signs in; "none" is anonymous, or a client certificate of TLS. */
export type Credentials =
  | { kind: "none" }
  | { kind: "passcode"; login: string; passcode: string }
  | { kind: "token"; token: string };

/** "lost": the broker is gone, and the page tries to reach it again. */
export type ConnectionState = "signed-out" | "connecting" | "open" | "lost";

interface Standing {
  destination: string;
  headers: Record<string, string>;
  heard: (message: Message) => void;
  failed: (error: NebulaError) => void;
  open: { unsubscribe(): void } | null;
}

/** Where the broker's WebSocket is: next to the folder that the page came from. */
export function socketUrl(page: Location = location): string {
  const url = new URL("../stomp", page.href.split("#")[0]);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  url.search = "";
  return url.href;
}

export class Session {
  readonly #state = signal<ConnectionState>("signed-out");
  readonly #rights = signal<Rights | null>(null);
  readonly #epoch = signal(0);
  readonly #kind = signal<Credentials["kind"]>("none");
  readonly #standing = new Set<Standing>();
  #nebula: Nebula | null = null;

  /** The broker's own verbs. */
  readonly broker = new NebulaService(this);
  /** The state of the connection. */
  readonly state: ReadonlySignal<ConnectionState> = this.#state;
  /** Whether calls can be made. */
  readonly isOpen = computed(() => this.#state.value === "open");
  /** Grows with each connection: what was read before may be out of date. */
  readonly epoch: ReadonlySignal<number> = this.#epoch;
  /** Who we are to the broker; null: unknown. */
  readonly principal = computed(() => this.#rights.value?.principal ?? null);
  /** What the names of last values begin with. */
  readonly valuePrefixes = computed(() => this.#rights.value?.valuePrefixes ?? ["X/"]);

  /** Sign in. Rejects with a `NebulaError` where the broker refuses, or is not there. */
  async signIn(credentials: Credentials): Promise<void> {
    await this.signOut();
    const nebula = new Nebula(socketUrl(), {
      ...(credentials.kind === "passcode" ? { login: credentials.login, passcode: credentials.passcode } : {}),
      ...(credentials.kind === "token" ? { passcode: credentials.token } : {}),
      timeout: 15_000,
    });
    this.#nebula = nebula;
    this.#state.value = "connecting";
    nebula.addEventListener("connected", () => void this.#connected(nebula));
    nebula.addEventListener("lost", () => {
      if (this.#nebula === nebula) this.#state.value = "lost";
    });
    try {
      await nebula.connect();
    } catch (error) {
      if (this.#nebula === nebula) {
        this.#nebula = null;
        this.#state.value = "signed-out";
      }
      throw error;
    }
    // A passcode is kept in memory only, and gone when the page is loaded again.
    this.#kind.value = credentials.kind;
  }

  /** How we signed in. */
  get kind(): Credentials["kind"] {
    return this.#kind.value;
  }

  /** Sign out, and forget everything. */
  async signOut(): Promise<void> {
    const nebula = this.#nebula;
    this.#nebula = null;
    this.#state.value = "signed-out";
    this.#rights.value = null;
    for (const each of this.#standing) each.open = null;
    await nebula?.close();
  }

  /** Call a verb of a service (a name, or a destination). */
  call<T = unknown>(service: string, verb: string, parameters?: unknown, options?: CallOptions): Promise<T> {
    return this.#client().call<T>(service, verb, parameters, options);
  }

  /** The items that a verb yields. */
  stream<T = unknown>(
    service: string,
    verb: string,
    parameters?: unknown,
    options?: StreamOptions,
  ): AsyncGenerator<T, void, void> {
    return this.#client().stream<T>(service, verb, parameters, options);
  }

  /** Start a job. */
  start<T = unknown>(service: string, verb: string, parameters?: unknown, options?: CallOptions): Promise<Job<T>> {
    return this.#client().start<T>(service, verb, parameters, options);
  }

  /** The job of an id. */
  job<T = unknown>(id: string): Job<T> {
    return this.#client().job<T>(id);
  }

  /**
   * Subscribe until the returned function is called. It is subscribed again with each new connection.
   *
   * @param failed called where the broker refuses it
   */
  subscribe(
    destination: string,
    headers: Record<string, string>,
    heard: (message: Message) => void,
    failed: (error: NebulaError) => void = () => {},
  ): () => void {
    const standing: Standing = { destination, headers, heard, failed, open: null };
    this.#standing.add(standing);
    if (this.#nebula?.connected) void this.#open(standing, this.#nebula);
    return () => {
      this.#standing.delete(standing);
      const open = standing.open;
      standing.open = null;
      if (this.#nebula?.connected) open?.unsubscribe();
    };
  }

  /**
   * Send a message, and wait for the broker's verdict: the headers of its RECEIPT. Rejects with a `NebulaError` where
   * it is not taken.
   */
  async send(
    destination: string,
    headers: Record<string, string>,
    body: string | Uint8Array,
  ): Promise<Record<string, string>> {
    return this.#client().publish(destination, body, headers);
  }

  /** Whether the principal may call one of the broker's verbs. Read in a component, it follows the connection. */
  may(verb: string): boolean {
    return this.#rights.value?.verbs.has(verb) ?? false;
  }

  #client(): Nebula {
    if (this.#nebula === null) throw new NebulaError("lost", "not signed in", { retryable: true });
    return this.#nebula;
  }

  async #connected(nebula: Nebula): Promise<void> {
    if (this.#nebula !== nebula) return;
    const rights = await readRights(nebula);
    if (this.#nebula !== nebula || !nebula.connected) return;
    this.#rights.value = rights;
    this.#state.value = "open";
    this.#epoch.value += 1;
    for (const each of this.#standing) void this.#open(each, nebula);
  }

  async #open(standing: Standing, nebula: Nebula): Promise<void> {
    try {
      const open = await nebula.subscribe(standing.destination, standing.heard, standing.headers);
      if (this.#standing.has(standing)) standing.open = open;
      else if (nebula.connected) open.unsubscribe();
    } catch (error) {
      if (error instanceof NebulaError && error.code !== "lost") standing.failed(error);
    }
  }
}

interface Rights {
  principal: string;
  verbs: Set<string>;
  valuePrefixes: string[];
}

async function readRights(nebula: Nebula): Promise<Rights | null> {
  try {
    const mine = await new NebulaService(nebula).rights_mine();
    return { principal: mine.principal, verbs: new Set(mine.verbs), valuePrefixes: mine.value_prefixes };
  } catch {
    return null;
  }
}

/** The session of the page. */
export const session = new Session();

/** Run something with each new connection, beginning with the present one. */
export function onConnection(act: () => void): () => void {
  return effect(() => {
    if (session.epoch.value > 0 && session.isOpen.value) act();
  });
}
