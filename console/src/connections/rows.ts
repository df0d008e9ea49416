// Rows of connections and sessions, and how fast connections are.

/** A row of `connections.list`. */
export interface ConnectionRow {
  session: string;
  principal: string;
  subscriptions: number;
  unacked: number;
  outbox_bytes: number;
  link: {
    peer: string;
    scheme: string;
    profile: string;
    version: string | null;
    since_seconds: number;
    read_bytes: number;
    written_bytes: number;
    sent_frames: number;
    buffered_bytes: number;
    is_held_back: boolean;
  };
}

/** A row of `sessions.list`. */
export interface SessionRow {
  session: string;
  principal: string;
  away_seconds: number | null;
  subscriptions: number;
  waiting: number;
  stored_bytes: number;
}

/** A subscription, in `connection.show`. */
export interface SubscriptionRow {
  session: string;
  principal: string;
  id: string;
  destination: string;
  ack: string;
  prefetch: number;
  unacked: number;
}

/** A durable subscription, in `session.show`. */
export interface DurableRow {
  id: string;
  destination: string;
  ack: string;
  is_active: boolean;
  waiting: number;
  stored_bytes: number;
}

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
