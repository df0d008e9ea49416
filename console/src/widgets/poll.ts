// Values that are polled while the page is visible.

import { useEffect, useRef, useState } from "preact/hooks";
import { NebulaError, session } from "../session";

export interface Polled<T> {
  /** What was read last; null: nothing yet. It stays while the broker is away. */
  data: T | null;
  /** Why the last attempt failed. */
  error: NebulaError | null;
  /** Read at once, after a change of one's own. */
  refresh: () => void;
}

/**
 * Read a value every few seconds: not while the page is hidden or the broker is away, and never twice at a time.
 *
 * @param read what is read; the signal ends it when the component is gone
 * @param seconds between the end of one and the begin of the next; 0: only once
 * @param deps as of `useEffect`: when they change, what was read is forgotten
 */
export function usePolled<T>(
  read: (signal: AbortSignal) => Promise<T>,
  seconds: number,
  deps: readonly unknown[] = [],
): Polled<T> {
  const [state, setState] = useState<{ data: T | null; error: NebulaError | null }>({ data: null, error: null });
  const again = useRef(() => {});
  const latest = useRef(read);
  latest.current = read;
  const epoch = session.epoch.value;
  const isOpen = session.isOpen.value;

  useEffect(() => setState({ data: null, error: null }), deps);

  useEffect(() => {
    if (!isOpen) return;
    const gone = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isReading = false;
    let isWanted = false;

    const round = async () => {
      clearTimeout(timer);
      if (isReading) {
        isWanted = true;
        return;
      }
      if (document.hidden) return;
      isReading = true;
      try {
        const data = await latest.current(gone.signal);
        if (!gone.signal.aborted) setState({ data, error: null });
      } catch (error) {
        if (!gone.signal.aborted) setState((last) => ({ data: last.data, error: asNebulaError(error) }));
      } finally {
        isReading = false;
      }
      if (gone.signal.aborted) return;
      if (isWanted) {
        isWanted = false;
        void round();
      } else if (seconds > 0) timer = setTimeout(round, seconds * 1000);
    };

    const seen = () => void (document.hidden || round());
    again.current = () => void round();
    document.addEventListener("visibilitychange", seen);
    void round();
    return () => {
      gone.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [epoch, isOpen, seconds, ...deps]);

  return { ...state, refresh: () => again.current() };
}

/** Any error as one with a code. */
export function asNebulaError(error: unknown): NebulaError {
  if (error instanceof NebulaError) return error;
  return new NebulaError("page-error", error instanceof Error ? error.message : String(error));
}
