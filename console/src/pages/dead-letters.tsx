// Dead letters: why they died, and what to do with them.

import { signal } from "@preact/signals";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { Compose, draftOf } from "../bodies/compose";
import { MessageDetails } from "../bodies/message-details";
import { bodyOf } from "../bodies/reading";
import type { DeadLetter, Letters, MessageView, Replayed } from "../broker";
import { go, href, route } from "../router";
import { session, type NebulaError } from "../session";
import { Dialog, confirm } from "../widgets/dialog";
import { bytes, count, duration, time } from "../widgets/format";
import { asNebulaError, usePolled } from "../widgets/poll";
import { Empty, ErrorNote, Loaded, PageHead } from "../widgets/states";
import { Table, type Column } from "../widgets/table";
import { toast } from "../widgets/toast";
import {
  copiedHeaders,
  letters,
  notReadText,
  onDiskText,
  REASONS,
  reasonText,
  replayedText,
} from "./letters";
import "./destinations.css";

// What the broker lists in one reply.
const LISTED = 1_000;
const MOST_AT_ONCE = 100_000;
const WHOLE_BYTES = 1_000_000;

/** What is listed. */
interface Selection {
  source: string;
  reason: string;
  order: "newest" | "oldest";
}

/** Which letters an act is about: chosen ones, or all of a filter. */
type Which = { numbers: number[] } | { source: string | null; reason: string | null };

const selection = signal<Selection>({ source: "", reason: "", order: "newest" });
const chosen = signal<ReadonlySet<number>>(new Set());

export default function DeadLettersPage() {
  const [number] = route.value.rest;
  return number === undefined ? <DeadLetters /> : <Letter key={number} number={Number(number)} />;
}

function DeadLetters() {
  const { source, reason, order } = selection.value;
  // The number of the row before the first one; 0: the list begins at its start.
  const [after, setAfter] = useState(0);
  const [replaying, setReplaying] = useState<Which | null>(null);
  // Apart from the selection: a list that arrives meanwhile would take back what is being typed.
  const [typed, setTyped] = useState(source);
  const sources = useId();
  const polled = usePolled(
    (signal) =>
      session.broker.dlq_list(
        { source: source || null, reason: reason || null, after, limit: LISTED, ...(order === "newest" && { reverse: true }) },
        { signal },
      ),
    5,
    [source, reason, order, after],
  );
  const last = useRef<Letters | null>(null);
  if (polled.data !== null) last.current = polled.data;
  const listed = polled.data ?? last.current;
  const rows = listed?.rows ?? [];
  // Those that were not looked at can be replayed and purged, too.
  const isEmpty = rows.length === 0 && after === 0 && !listed?.on_disk;
  // The others are out of reach of a replay or purge until those before them are gone.
  const atHand = rows.filter((row) => row.is_at_hand);
  const marked = rows.filter((row) => chosen.value.has(row.number));
  const known = useMemo(() => [...new Set(rows.map((row) => row.source))].sort(), [rows]);

  const select = (next: Partial<Selection>) => {
    selection.value = { ...selection.value, ...next };
    chosen.value = new Set();
    setAfter(0);
  };
  const mark = (numbers: readonly number[], is: boolean) => {
    const next = new Set(chosen.value);
    for (const number of numbers) {
      if (is) next.add(number);
      else next.delete(number);
    }
    chosen.value = next;
  };
  const which: Which =
    marked.length > 0
      ? { numbers: marked.map((row) => row.number) }
      : { source: source || null, reason: reason || null };
  const done = () => {
    chosen.value = new Set();
    polled.refresh();
  };

  const mayMark = session.may("dlq.replay") || session.may("dlq.purge");
  const columns: Column<DeadLetter>[] = [
    ...(mayMark
      ? [
          {
            key: "chosen",
            title: "Choose",
            sortable: false,
            value: () => null,
            render: (row: DeadLetter) => (
              <input
                disabled={!row.is_at_hand}
                type="checkbox"
                aria-label={`Choose dead letter ${row.number}`}
                checked={chosen.value.has(row.number)}
                onChange={(event) => mark([row.number], event.currentTarget.checked)}
              />
            ),
          },
        ]
      : []),
    {
      key: "number",
      title: "Number",
      value: (row) => row.number,
      render: (row) =>
        session.may("dlq.show") ? <a href={href("dead-letters", [String(row.number)])}>{row.number}</a> : row.number,
    },
    { key: "source", title: "From", value: (row) => row.source, render: (row) => <code>{row.source}</code> },
    {
      key: "reason",
      title: "Why",
      value: (row) => `${row.reason} ${row.code} ${row.text}`,
      render: (row) => (
        <>
          <Reason reason={row.reason} />{" "}
          {!row.is_at_hand && (
            <span class="pill" title="It can be replayed and purged when those before it are gone.">
              on disk
            </span>
          )}{" "}
          <span class="muted">{row.code || row.text}</span>
        </>
      ),
    },
    { key: "died_at", title: "When", numeric: true, value: (row) => row.died_at, render: (row) => time(row.died_at) },
    { key: "deliveries", title: "Deliveries", numeric: true, secondary: true, value: (row) => row.deliveries },
    { key: "sender", title: "Sender", secondary: true, value: (row) => row.sender },
    {
      key: "size",
      title: "Size",
      numeric: true,
      secondary: true,
      value: (row) => row.body_bytes,
      render: (row) => bytes(row.body_bytes),
    },
  ];

  return (
    <>
      <PageHead
        title="Dead letters"
        about="Messages that could not be delivered. They stay here until they are replayed, purged or consumed."
      >
        {session.may("dlq.replay") && (
          <button type="button" class="primary" disabled={isEmpty} onClick={() => setReplaying(which)}>
            Replay {nameOf(which)} …
          </button>
        )}
        {session.may("dlq.purge") && (
          <button type="button" class="danger" disabled={isEmpty} onClick={() => void purge(which, done)}>
            Purge {nameOf(which)} …
          </button>
        )}
      </PageHead>
      {polled.error !== null && polled.error.code !== "lost" && (
        <ErrorNote error={polled.error} onRetry={polled.refresh} />
      )}
      <Table
        label="Dead letters"
        rows={rows}
        columns={columns}
        rowKey={(row) => String(row.number)}
        pageSize={50}
        filter="Filter what is listed"
        empty={emptyText(listed, after, selection.value)}
        {...(session.may("dlq.show") ? { onSelect: (row: DeadLetter) => go("dead-letters", [String(row.number)]) } : {})}
        tools={
          <>
            <select
              aria-label="Order"
              value={order}
              onChange={(event) => select({ order: event.currentTarget.value === "oldest" ? "oldest" : "newest" })}
            >
              <option value="newest">Newest first</option>
              <option value="oldest">Oldest first</option>
            </select>
            <select
              aria-label="Reason"
              value={reason}
              onChange={(event) => select({ reason: event.currentTarget.value })}
            >
              <option value="">Any reason</option>
              {REASONS.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
            <input
              class="source"
              aria-label="Source"
              list={sources}
              placeholder="Any source"
              value={typed}
              onInput={(event) => setTyped(event.currentTarget.value)}
              // On `change`, not on each key: a part of a name is the name of nothing.
              onChange={(event) => select({ source: event.currentTarget.value.trim() })}
            />
            <datalist id={sources}>
              {known.map((each) => (
                <option key={each} value={each} />
              ))}
            </datalist>
            {mayMark && atHand.length > 0 && (
              <button
                type="button"
                onClick={() => mark(atHand.map((row) => row.number), marked.length < atHand.length)}
              >
                {marked.length < atHand.length ? "Choose all listed" : "Choose none"}
              </button>
            )}
          </>
        }
      />
      {(after > 0 || rows.length === LISTED) && (
        <div class="actions">
          {after > 0 && (
            <button type="button" onClick={() => setAfter(0)}>
              Back to the {order}
            </button>
          )}
          {rows.length === LISTED && (
            // Not while the rows are still those of another order.
            <button type="button" disabled={polled.data === null} onClick={() => setAfter(rows.at(-1)?.number ?? 0)}>
              {order === "newest" ? "Older ones" : "Newer ones"}
            </button>
          )}
        </div>
      )}
      {atHand.length < rows.length && (
        <p class="muted">
          Dead letters “on disk” can be replayed and purged when those before them are gone: “Oldest first” begins with
          those.
        </p>
      )}
      {listed !== null && listed.on_disk > 0 && <p class="muted">{notReadText(listed.on_disk)}</p>}
      {replaying !== null && <Replay which={replaying} onClose={() => setReplaying(null)} onDone={done} />}
    </>
  );
}

function emptyText(listed: Letters | null, after: number, { source, reason }: Selection): string {
  if (listed === null) return "Loading …";
  if (listed.on_disk > 0) return "Nothing found, but not all dead letters were looked at.";
  if (after > 0) return "There are no more dead letters.";
  return source || reason ? "No dead letter has this source and reason." : "There are no dead letters.";
}

function nameOf(which: Which): string {
  if ("numbers" in which) return count(which.numbers.length);
  return which.source !== null || which.reason !== null ? "all of these" : "all";
}

/** Which letters an act is about, in words. */
function describe(which: Which) {
  if ("numbers" in which) return which.numbers.length === 1 ? "this dead letter" : letters(which.numbers.length);
  const { source, reason } = which;
  return (
    <>
      all dead letters
      {source !== null && (
        <>
          {" "}
          from <code>{source}</code>
        </>
      )}
      {reason !== null && ` with the reason “${reason}”`}
      {source === null && reason === null && ", whatever their source and reason"}
    </>
  );
}

function parametersOf(which: Which): Record<string, unknown> {
  return "numbers" in which
    ? { numbers: which.numbers }
    : { source: which.source, reason: which.reason, limit: MOST_AT_ONCE };
}

function Reason({ reason }: { reason: string }) {
  return (
    <span class={reason === "expired" || reason === "full" ? "pill warn" : "pill bad"} title={reasonText(reason)}>
      {reason}
    </span>
  );
}

async function purge(which: Which, done: () => void): Promise<void> {
  const isSure = await confirm({
    title: "Purge dead letters?",
    body: (
      <p>
        The broker drops {describe(which)} for good. This cannot be undone.
      </p>
    ),
    action: "Purge",
    danger: true,
  });
  if (!isSure) return;
  try {
    const outcome = await session.broker.dlq_purge(parametersOf(which), { timeout: 60_000 });
    toast([`${letters(outcome.purged)} purged.`, outcome.on_disk > 0 ? onDiskText(outcome.on_disk) : ""].join(" ").trim());
  } catch (error) {
    const { code, message } = asNebulaError(error);
    toast(`${message} (${code})`, "failed");
  }
  done();
}

/** Asks where to, and replays. */
function Replay({ which, onClose, onDone }: { which: Which; onClose: () => void; onDone: () => void }) {
  const [to, setTo] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [outcome, setOutcome] = useState<Replayed | null>(null);
  const [error, setError] = useState<NebulaError | null>(null);
  const name = useId();
  const [isElsewhere, setElsewhere] = useState(false);

  const replay = async () => {
    setBusy(true);
    setError(null);
    try {
      const target = isElsewhere ? to.trim() : null;
      const parameters = { ...parametersOf(which), to: target };
      setOutcome(await session.broker.dlq_replay(parameters, { timeout: 60_000 }));
      onDone();
    } catch (failure) {
      setError(asNebulaError(failure));
    } finally {
      setBusy(false);
    }
  };

  return (
    <Dialog
      title="Replay dead letters"
      onClose={onClose}
      actions={
        outcome === null ? (
          <>
            <button type="button" onClick={onClose}>
              Cancel
            </button>
            <button
              type="button"
              class="primary"
              disabled={isBusy || (isElsewhere && to.trim() === "")}
              onClick={() => void replay()}
            >
              {isBusy ? "Replaying …" : "Replay"}
            </button>
          </>
        ) : (
          <button type="button" class="primary" onClick={onClose}>
            Close
          </button>
        )
      }
    >
      {outcome === null ? (
        <>
          <p>
            The broker moves {describe(which)} into a queue, in the order in which they died. Each is a new message there,
            with its sender, headers and body, but without its expiry; it is not a dead letter any more.
          </p>
          <fieldset class="choices">
            <legend class="hidden">Where to</legend>
            <label class="tick">
              <input type="radio" name={name} checked={!isElsewhere} onChange={() => setElsewhere(false)} />
              Back to the queue that it was sent to
            </label>
            <label class="tick">
              <input type="radio" name={name} checked={isElsewhere} onChange={() => setElsewhere(true)} />
              To another queue
            </label>
          </fieldset>
          {isElsewhere && (
            <label class="field">
              Queue
              <input value={to} placeholder="/queue/orders" onInput={(event) => setTo(event.currentTarget.value)} />
            </label>
          )}
        </>
      ) : (
        <p role="status">{replayedText(outcome)}</p>
      )}
      {error !== null && <ErrorNote error={error} />}
    </Dialog>
  );
}

function Letter({ number }: { number: number }) {
  const [isReplaying, setReplaying] = useState(false);
  const [isEditing, setEditing] = useState(false);
  const polled = usePolled(
    (signal) => session.broker.dlq_show({ number, max_bytes: WHOLE_BYTES }, { signal }),
    0,
    [number],
  );
  const view = polled.data;
  const back = () => go("dead-letters");
  return (
    <>
      <PageHead
        title={
          <>
            <a class="back" href={href("dead-letters")}>
              ← Dead letters
            </a>
            <div>Dead letter {number}</div>
          </>
        }
      >
        {view !== null && session.may("dlq.replay") && (
          <button type="button" class="primary" onClick={() => setReplaying(true)}>
            Replay …
          </button>
        )}
        {view !== null && (
          <button
            type="button"
            disabled={view.is_cut}
            title={view.is_cut ? "Its body is too large to be edited here." : undefined}
            onClick={() => setEditing(true)}
          >
            Edit a copy …
          </button>
        )}
        {view !== null && session.may("dlq.purge") && (
          <button type="button" class="danger" onClick={() => void purge({ numbers: [number] }, back)}>
            Purge …
          </button>
        )}
      </PageHead>
      {polled.error?.code === "not-found" ? (
        <Empty title="There is no such dead letter any more">
          It was replayed, purged or consumed; or it is on disk, until those before it are gone.
        </Empty>
      ) : (
        <Loaded polled={polled}>
          {(found) => (
            <>
              <LetterFacts view={found} />
              <MessageDetails view={found} />
            </>
          )}
        </Loaded>
      )}
      {isReplaying && (
        <Replay which={{ numbers: [number] }} onClose={() => setReplaying(false)} onDone={polled.refresh} />
      )}
      {isEditing && view !== null && <EditedCopy view={view} onClose={() => setEditing(false)} onDropped={back} />}
    </>
  );
}

function LetterFacts({ view }: { view: MessageView }) {
  const { headers } = view;
  const reason = headers["dead-letter-reason"] ?? "";
  const at = Number(headers["dead-letter-at"]) / 1000;
  const source = headers["dead-letter-from"] ?? "";
  return (
    <div class="card">
      <dl class="facts">
        <dt>Why</dt>
        <dd>
          <Reason reason={reason} /> {reasonText(reason)}
        </dd>
        {headers["dead-letter-code"] !== undefined && (
          <>
            <dt>Error</dt>
            <dd>
              <code>{headers["dead-letter-code"]}</code>
            </dd>
          </>
        )}
        {headers["dead-letter-text"] !== undefined && (
          <>
            <dt>Explanation</dt>
            <dd>{headers["dead-letter-text"]}</dd>
          </>
        )}
        {headers["dead-letter-handler"] !== undefined && (
          <>
            <dt>Handler</dt>
            <dd>
              <code>{headers["dead-letter-handler"]}</code>
            </dd>
          </>
        )}
        <dt>From</dt>
        <dd>
          {source.startsWith("/queue/") ? (
            <a class="destination-link" href={href("queues", [source])}>
              {source}
            </a>
          ) : (
            <code>{source}</code>
          )}
        </dd>
        <dt>When</dt>
        <dd>{Number.isFinite(at) ? `${time(at)}, ${duration(Date.now() / 1000 - at)} ago` : "–"}</dd>
        <dt>Deliveries</dt>
        <dd>{headers["dead-letter-deliveries"] ?? "0"}</dd>
        <dt>Sender</dt>
        <dd>{view.sender}</dd>
        <dt>Stored</dt>
        <dd>{view.is_persistent ? "persistent, on disk" : "in memory"}</dd>
    </dl>
    </div>
  );
}

/** Sends an edited copy, and then drops the dead letter if that is wanted. */
function EditedCopy({ view, onClose, onDropped }: { view: MessageView; onClose: () => void; onDropped: () => void }) {
  const [isDropped, setDropped] = useState(session.may("dlq.purge"));
  const isGone = useRef(false);
  const close = () => (isGone.current ? onDropped() : onClose());
  const draft = useMemo(
    () => draftOf(view.headers["dead-letter-from"] ?? "", copiedHeaders(view), bodyOf(view).bytes),
    [view],
  );
  useEffect(() => {
    isGone.current = false;
  }, [view]);

  const drop = async (): Promise<string> => {
    if (!isDropped || isGone.current) return isGone.current ? "" : `Dead letter ${view.number} stays.`;
    try {
      const { purged } = await session.broker.dlq_purge({ numbers: [view.number] });
      isGone.current = true;
      return purged === 1 ? `Dead letter ${view.number} is dropped.` : `Dead letter ${view.number} was gone already.`;
    } catch (error) {
      return `Dead letter ${view.number} stays: ${asNebulaError(error).message}.`;
    }
  };

  return (
    <Dialog wide title={`Edit a copy of dead letter ${view.number}`} onClose={close}>
      <p>
        This sends a new message, whose sender is you
        {session.principal.value !== view.sender && <>, and not {view.sender}</>}. The dead letter itself does not change;
        it is dropped only after the broker has accepted the copy.
      </p>
      <Compose draft={draft} action="Send the copy" onSent={drop}>
        {session.may("dlq.purge") ? (
          <label class="tick">
            <input
              type="checkbox"
              checked={isDropped}
              onChange={(event) => setDropped(event.currentTarget.checked)}
            />
            Then drop the dead letter
          </label>
        ) : (
          <p class="muted">
            The dead letter stays: to drop it needs the right to call <code>dlq.purge</code>.
          </p>
        )}
      </Compose>
    </Dialog>
  );
}
