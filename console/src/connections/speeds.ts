// How fast connections are.

import type { ConnectionRow } from "../broker";

/** Bytes per second; null: not known yet. */
export interface Speed {
  read: number | null;
  written: number | null;
}

interface Reading {
  at: number;
  read: number;
  written: number;
  speed: Speed;
}

/** How fast connections are, by what they had read and written the time before. */
export class Speeds {
  #before = new Map<string, Reading>();

  /**
   * Take note of all rows.
   *
   * @param at in seconds
   */
  note(rows: readonly ConnectionRow[], at: number): void {
    const next = new Map<string, Reading>();
    for (const { session, link } of rows) {
      const { read_bytes: read, written_bytes: written } = link;
      const before = this.#before.get(session);
      const seconds = before === undefined ? 0 : at - before.at;
      // A client-id that has connected again begins at 0.
      const isSame = before !== undefined && seconds > 0 && read >= before.read && written >= before.written;
      const speed = isSame
        ? { read: (read - before.read) / seconds, written: (written - before.written) / seconds }
        : { read: null, written: null };
      next.set(session, { at, read, written, speed });
    }
    this.#before = next;
  }

  of(session: string): Speed {
    return this.#before.get(session)?.speed ?? { read: null, written: null };
  }
}
