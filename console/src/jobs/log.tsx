// A job's log as it is written.

import { useEffect, useRef, useState } from "preact/hooks";
import { session, type NebulaError } from "../session";
import { asNebulaError } from "../widgets/poll";
import { CopyButton } from "../widgets/copy";
import { ErrorNote } from "../widgets/states";
import { time } from "../widgets/format";
import { askJob } from "./asking";
import type { LogLine } from "./model";

interface Page {
  lines: LogLine[];
  next: number;
  is_over: boolean;
}

const MOST_LINES = 1_000;
/** Seconds that the service waits for a line. */
const WAIT = 20;
const AGAIN_AFTER = 3_000;

/** Follow the log of a job: all lines that are kept, then each one as it comes. */
export async function followLog(job: string, signal: AbortSignal, heard: (lines: LogLine[], isOver: boolean) => void, failed: (error: NebulaError | null) => void): Promise<void> {
  let after: number | null = null;
  while (!signal.aborted) {
    try {
      const parameters: Record<string, unknown> = after === null ? { limit: MOST_LINES } : { limit: MOST_LINES, after, timeout: WAIT };
      const page: Page = await askJob<Page>(job, "job.log", parameters, { signal, timeout: (WAIT + 10) * 1_000 });
      if (signal.aborted) return;
      failed(null);
      after = page.next;
      heard(page.lines, page.is_over);
      if (page.is_over) return;
    } catch (error) {
      if (signal.aborted) return;
      const told = asNebulaError(error);
      // Services and brokers come back; rights and jobs that are forgotten do not.
      if (!told.retryable && !["timeout", "lost", "no-responder"].includes(told.code)) {
        failed(told);
        return;
      }
      failed(told.code === "lost" ? null : told);
      await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER));
    }
  }
}

export function JobLog({ job, isOver }: { job: string; isOver: boolean }) {
  const [lines, setLines] = useState<readonly LogLine[]>([]);
  const [isComplete, setComplete] = useState(false);
  const [error, setError] = useState<NebulaError | null>(null);
  const [isFollowing, setFollowing] = useState(true);
  const place = useRef<HTMLDivElement>(null);
  const epoch = session.epoch.value;

  useEffect(() => {
    const gone = new AbortController();
    setComplete(false);
    setLines([]);
    void followLog(
      job,
      gone.signal,
      (more, over) => {
        if (more.length > 0) setLines((before) => [...before, ...more].slice(-MOST_LINES));
        setComplete(over);
      },
      setError,
    );
    return () => gone.abort();
  }, [job, epoch]);

  useEffect(() => {
    const list = place.current;
    if (isFollowing && list !== null) list.scrollTop = list.scrollHeight;
  }, [lines, isFollowing]);

  const lost = (lines[0]?.number ?? 1) - 1;
  const text = lines.map((line) => line.text).join("\n");
  return (
    <section class="card job-log" aria-label="Log">
      <div class="try-head">
        <h2>Log</h2>
        <span class="actions">
          {!isComplete && !isOver && error === null && <span class="status ok">live</span>}
          <label class="check">
            <input type="checkbox" checked={isFollowing} onChange={() => setFollowing(!isFollowing)} /> scroll to the end
          </label>
          <CopyButton text={text} />
        </span>
      </div>
      {error !== null && <ErrorNote error={error} />}
      {lost > 0 && <p class="muted">{lost} earlier lines are gone: a job keeps its last 1,000 lines.</p>}
      {lines.length === 0 ? (
        <p class="muted">{isComplete ? "The job logged nothing." : "Nothing logged yet."}</p>
      ) : (
        <div
          ref={place}
          class="log"
          role="log"
          aria-label="Lines of the log"
          tabIndex={0}
          onScroll={(event) => {
            const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
            // A user who scrolls up wants to read there; at the end, following goes on.
            const isAtEnd = scrollHeight - scrollTop - clientHeight < 24;
            if (isAtEnd !== isFollowing) setFollowing(isAtEnd);
          }}
        >
          <ol>
            {lines.map(({ number, at, text: words }) => (
              <li key={number}><span class="log-at">{time(at)}</span><span class="log-text">{words}</span></li>
            ))}
          </ol>
        </div>
      )}
    </section>
  );
}
