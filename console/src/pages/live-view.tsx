// Messages of a topic or glob as they come.

import type { TargetedEvent } from "preact";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { BodyView } from "../bodies/body-view";
import { HeadersTable } from "../bodies/headers-table";
import { textOf } from "../bodies/hex";
import type { Body } from "../bodies/reading";
import { session, type NebulaError } from "../session";
import { bytes, count, rate } from "../widgets/format";
import { ErrorNote } from "../widgets/states";
import { FrameBatch, LiveLog, type LiveMessage } from "./live";

// As in the style sheet.
const ROW = 30;
const SHOWN = 14;

/** How many messages came in each of the last seconds. */
class Meter {
  #counts: number[] = [];
  #second = 0;

  count(at: number): void {
    this.#advance(at);
    this.#counts[this.#counts.length - 1]! += 1;
  }

  /** Messages a second, of the last three whole seconds. */
  rate(at: number): number {
    this.#advance(at);
    const whole = this.#counts.slice(-4, -1);
    return whole.length === 0 ? 0 : whole.reduce((sum, each) => sum + each, 0) / whole.length;
  }

  #advance(at: number): void {
    const second = Math.floor(at / 1000);
    if (second - this.#second > 4) this.#counts = [0];
    else for (let each = this.#second; each < second; each += 1) this.#counts.push(0);
    if (this.#counts.length > 8) this.#counts = this.#counts.slice(-5);
    this.#second = second;
  }
}

export function LiveView({ glob }: { glob: string }) {
  const log = useMemo(() => new LiveLog(), [glob]);
  const meter = useMemo(() => new Meter(), [glob]);
  const [, draw] = useReducer((frames: number, _: void) => frames + 1, 0);
  const [error, setError] = useState<NebulaError | null>(null);
  const [opened, setOpened] = useState<LiveMessage | null>(null);
  const [scroll, setScroll] = useState(0);
  const list = useRef<HTMLDivElement>(null);

  useEffect(() => {
    setError(null);
    setOpened(null);
    // Messages arrive in bursts, many of them within a frame: the page is drawn once for all.
    const batch = new FrameBatch(() => draw());
    const leave = session.subscribe(
      glob,
      {},
      (message) => {
        const at = Date.now();
        log.push(message, at);
        meter.count(at);
        batch.request();
      },
      setError,
    );
    // The rate falls although nothing comes.
    const timer = setInterval(() => batch.request(), 1_000);
    return () => {
      leave();
      clearInterval(timer);
      batch.cancel();
    };
  }, [glob]);

  const pause = () => {
    log.pause();
    draw();
  };
  const resume = () => {
    log.resume();
    list.current?.scrollTo(0, 0);
    draw();
  };
  const onScroll = (event: TargetedEvent<HTMLDivElement>) => {
    const top = event.currentTarget.scrollTop;
    // What is read must not move away.
    if (top > ROW && !log.isPaused) log.pause();
    setScroll(top);
  };

  const first = Math.max(0, Math.floor(scroll / ROW) - 4);
  const rows = log.slice(first, SHOWN + 8);
  return (
    <section class="part live" aria-label={`Live view of ${glob}`}>
      <div class="part-head">
        <h2>Live</h2>
        <span class="muted live-counts" data-received={log.received}>
          {log.isPaused
            ? `Paused; ${count(log.missed)} more ${log.missed === 1 ? "has" : "have"} come`
            : `${rate(meter.rate(Date.now()))}, ${count(log.received)} received`}
          {log.skipped > log.missed && `, the last ${count(log.kept)} kept`}
        </span>
        <div class="actions">
          <button
            type="button"
            onClick={() => {
              log.clear();
              setOpened(null);
              draw();
            }}
          >
            Clear
          </button>
          {log.isPaused ? (
            <button type="button" class="primary" onClick={resume}>
              Resume
            </button>
          ) : (
            <button type="button" onClick={pause}>
              Pause
            </button>
          )}
        </div>
      </div>
      {error !== null && <ErrorNote error={error} />}
      <div
        class="live-list"
        ref={list}
        role="region"
        aria-label="Messages, the newest first"
        tabIndex={0}
        onScroll={onScroll}
      >
        {log.kept === 0 ? (
          <p class="table-empty">Nothing has come yet. Messages appear here as they are sent.</p>
        ) : (
          <div class="live-space" style={{ height: `${log.kept * ROW}px` }}>
            <div class="live-rows" style={{ transform: `translateY(${first * ROW}px)` }}>
              {rows.map((message) => (
                <Row
                  key={message.sequence}
                  message={message}
                  isOpened={opened?.sequence === message.sequence}
                  onFocus={pause}
                  onOpen={() => setOpened(message)}
                />
              ))}
            </div>
          </div>
        )}
      </div>
      {opened !== null && <Opened message={opened} onClose={() => setOpened(null)} />}
    </section>
  );
}

function Row({
  message,
  isOpened,
  onFocus,
  onOpen,
}: {
  message: LiveMessage;
  isOpened: boolean;
  onFocus: () => void;
  onOpen: () => void;
}) {
  return (
    <button type="button" class="live-row" aria-pressed={isOpened} onFocus={onFocus} onClick={onOpen}>
      <span class="live-time">{clock(message.at)}</span>
      <span class="live-name">{message.destination}</span>
      <span class="live-text">{previewOf(message.body)}</span>
      <span class="live-size">{bytes(message.body.length)}</span>
    </button>
  );
}

function Opened({ message, onClose }: { message: LiveMessage; onClose: () => void }) {
  const body: Body = useMemo(
    () => ({
      bytes: message.body,
      total: message.body.length,
      destination: message.destination,
      contentType: message.headers["content-type"] ?? "",
    }),
    [message],
  );
  return (
    <div class="opened" role="group" aria-label="Message">
      <div class="opened-head">
        <h3>
          {message.destination} at {clock(message.at)}
        </h3>
        <button type="button" class="icon" aria-label="Close the message" onClick={onClose}>
          ✕
        </button>
      </div>
      <div class="message-details">
        <section>
          <h3>Body</h3>
          <BodyView body={body} />
        </section>
        <section>
          <h3>Headers</h3>
          <HeadersTable headers={message.headers} />
        </section>
      </div>
    </div>
  );
}

/** The beginning of a body on one line. */
export function previewOf(body: Uint8Array, most = 160): string {
  if (body.length === 0) return "(empty)";
  const text = textOf(body.subarray(0, most));
  // The cut may go through a character.
  const whole = text ?? textOf(body.subarray(0, most - 1)) ?? textOf(body.subarray(0, most - 2));
  return whole === null ? `${bytes(body.length)} of bytes` : whole.replace(/\s+/g, " ");
}

function clock(at: number): string {
  const time = new Date(at);
  return `${time.toLocaleTimeString("en-GB")}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}
