// The last messages of a subscription, however many come.

/** A message as the live view keeps it. */
export interface LiveMessage {
  /** Counts all that came, from 1. */
  sequence: number;
  /** Milliseconds since 1970, by this page's clock. */
  at: number;
  destination: string;
  headers: Record<string, string>;
  body: Uint8Array;
}

/** What a subscription's message is made of; stompjs has more. */
export interface Incoming {
  headers: Record<string, string>;
  binaryBody: Uint8Array;
}

/** Of a thousand messages of a megabyte each, a page could not keep all. */
const MOST_BYTES = 16 * 1024 * 1024;

/**
 * A ring of the newest messages, which is bounded in number and in bytes. While it is paused what comes is counted
 * and not kept.
 */
export class LiveLog {
  #ring: (LiveMessage | undefined)[];
  #next = 0;
  #kept = 0;
  #bytes = 0;
  #received = 0;
  #missed = 0;
  #paused = false;

  constructor(readonly capacity = 500) {
    this.#ring = new Array<LiveMessage | undefined>(capacity);
  }

  /** Messages that came. */
  get received(): number {
    return this.#received;
  }

  /** Messages that came while it was paused. */
  get missed(): number {
    return this.#missed;
  }

  /** Messages that came and are not kept: older than the newest ones, or missed. */
  get skipped(): number {
    return this.#received - this.#kept;
  }

  get isPaused(): boolean {
    return this.#paused;
  }

  push(incoming: Incoming, at: number): void {
    this.#received += 1;
    if (this.#paused) {
      this.#missed += 1;
      return;
    }
    const { binaryBody: body, headers } = incoming;
    this.#drop();
    this.#ring[this.#next] = { sequence: this.#received, at, destination: headers["destination"] ?? "", headers, body };
    this.#next = (this.#next + 1) % this.capacity;
    this.#kept += 1;
    this.#bytes += body.length;
    while (this.#bytes > MOST_BYTES && this.#kept > 1) this.#dropOldest();
  }

  pause(): void {
    this.#paused = true;
  }

  /** Go on with what comes now. */
  resume(): void {
    this.#paused = false;
    this.#missed = 0;
  }

  clear(): void {
    this.#ring = new Array<LiveMessage | undefined>(this.capacity);
    this.#next = this.#kept = this.#bytes = this.#received = this.#missed = 0;
  }

  /** A number of the kept messages, from a place on; place 0 is the newest. */
  slice(from: number, count: number): LiveMessage[] {
    const found: LiveMessage[] = [];
    for (let place = from; place < Math.min(from + count, this.#kept); place += 1) {
      const message = this.#ring[(this.#next - 1 - place + 2 * this.capacity) % this.capacity];
      if (message !== undefined) found.push(message);
    }
    return found;
  }

  get kept(): number {
    return this.#kept;
  }

  #drop(): void {
    if (this.#kept === this.capacity) this.#dropOldest();
  }

  #dropOldest(): void {
    const place = (this.#next - this.#kept + this.capacity) % this.capacity;
    this.#bytes -= this.#ring[place]?.body.length ?? 0;
    this.#ring[place] = undefined;
    this.#kept -= 1;
  }
}

/** Runs something at most once for each frame that the browser draws. */
export class FrameBatch {
  #handle: number | null = null;

  constructor(readonly act: () => void) {}

  request(): void {
    this.#handle ??= requestAnimationFrame(() => {
      this.#handle = null;
      this.act();
    });
  }

  cancel(): void {
    if (this.#handle !== null) cancelAnimationFrame(this.#handle);
    this.#handle = null;
  }
}
