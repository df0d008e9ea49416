// Queues, and one of them with its messages.

import { useEffect, useRef, useState } from "preact/hooks";
import { MessageDetails } from "../bodies/message-details";
import type { MessageView, QueueDetails, QueueRow, QueuesListParameters } from "../broker";
import { route } from "../router";
import { session } from "../session";
import { Chart } from "../widgets/chart";
import { confirm } from "../widgets/dialog";
import { bytes, count, duration, rate } from "../widgets/format";
import { usePolled } from "../widgets/poll";
import { Empty, ErrorNote, Loaded, PageHead } from "../widgets/states";
import { Table, type Column } from "../widgets/table";
import { attempt } from "../widgets/toast";
import { DestinationHead, DestinationTable, listView, PublishDialog, useListed } from "./destinations";
import { SendButton, useMayPublish } from "./permission";
import { RateReader } from "./rates";
import { SubscriptionTable } from "./subscriptions";

const EVERY_SECONDS = 2;

const view = listView();

export default function QueuesPage() {
  const [queue] = route.value.rest;
  return queue === undefined ? <Queues /> : <Queue key={queue} name={queue} />;
}

function Queues() {
  const [isPublishing, setPublishing] = useState(false);
  const rates = useRef(new RateReader());
  const listed = useListed<QueueRow>(view, async (wanted, order, signal) => {
    const parameters = { ...wanted, order: order as QueuesListParameters["order"] };
    const listing = await session.broker.queues_list(parameters, { signal });
    rates.current.read(listing.rows, performance.now());
    return listing;
  });

  const columns: Column<QueueRow>[] = [
    { key: "depth", title: "Depth", numeric: true, value: (row) => row.depth, about: "Waiting, un-ACKed and postponed" },
    { key: "unacked", title: "Un-ACKed", numeric: true, secondary: true, about: "Delivered to a consumer, and not acknowledged yet", value: (row) => row.unacked },
    { key: "consumers", title: "Consumers", numeric: true, value: (row) => row.consumers },
    {
      key: "in",
      title: "In",
      numeric: true,
      sortable: false,
      value: (row) => rates.current.of(row.queue)?.in,
      render: (row) => rate(rates.current.of(row.queue)?.in),
    },
    {
      key: "out",
      title: "Out",
      numeric: true,
      sortable: false,
      value: (row) => rates.current.of(row.queue)?.out,
      render: (row) => rate(rates.current.of(row.queue)?.out),
    },
    {
      key: "oldest",
      title: "Oldest",
      numeric: true,
      secondary: true,
      about: "Age of the first message, at least",
      value: (row) => row.oldest_seconds,
      render: (row) => duration(row.oldest_seconds),
    },
    {
      key: "bytes",
      title: "Memory",
      numeric: true,
      secondary: true,
      value: (row) => row.stored_bytes,
      render: (row) => bytes(row.stored_bytes),
    },
    { key: "taken", title: "Accepted", numeric: true, secondary: true, about: "Messages that the queue has accepted since it was created", value: (row) => row.taken },
  ];

  return (
    <>
      <PageHead
        title="Queues"
        about="Each message goes to one consumer. A queue exists while it holds messages or has consumers."
      >
        <button type="button" onClick={() => setPublishing(true)}>
          Publish …
        </button>
      </PageHead>
      <DestinationTable
        listed={listed}
        page="queues"
        label="Queues"
        title="Queue"
        example="/queue/a*"
        empty="No queue holds a message or has a consumer."
        columns={columns}
        nameOf={(row) => row.queue}
      />
      {isPublishing && (
        <PublishDialog to="/queue/" onClose={() => setPublishing(false)} onSent={listed.polled.refresh} />
      )}
    </>
  );
}

/** One reading of a queue, for the charts. */
interface Sample {
  at: number;
  depth: number;
  in: number | null;
  out: number | null;
}

const SAMPLES = 300;

function Queue({ name }: { name: string }) {
  const rates = useRef(new RateReader());
  const samples = useRef<Sample[]>([]);
  const [isPublishing, setPublishing] = useState(false);
  const mayPublish = useMayPublish(name);
  const polled = usePolled(
    async (signal) => {
      const found = await session.broker.queue_show({ queue: name }, { signal });
      rates.current.read([found.summary], performance.now());
      const now = rates.current.of(name);
      const sample = { at: Date.now() / 1000, depth: found.summary.depth, in: now?.in ?? null, out: now?.out ?? null };
      samples.current = [...samples.current.slice(1 - SAMPLES), sample];
      return found;
    },
    EVERY_SECONDS,
    [name],
  );
  const isGone = polled.error?.code === "not-found";
  const depth = isGone ? 0 : (polled.data?.summary.depth ?? 0);

  const purge = async () => {
    const isSure = await confirm({
      title: "Purge the queue?",
      body: (
        <>
          <p>
            All messages that wait in <code>{name}</code> are dropped for good: {count(depth)} at present. They do not
            become dead letters.
          </p>
          <p>Messages that a consumer holds un-ACKed stay.</p>
        </>
      ),
      action: "Purge",
      danger: true,
    });
    if (!isSure) return;
    let purged = 0;
    await attempt(
      async () => (purged = await session.broker.queue_purge({ queue: name })),
      () => `${count(purged)} ${purged === 1 ? "message" : "messages"} purged from ${name}`,
    );
    polled.refresh();
  };

  return (
    <>
      <DestinationHead page="queues" back="Queues" name={name}>
        <SendButton may={mayPublish} destination={name} onClick={() => setPublishing(true)}>
          Publish …
        </SendButton>
        {session.may("queue.purge") && (
          <button type="button" class="danger" disabled={depth === 0} onClick={() => void purge()}>
            Purge …
          </button>
        )}
      </DestinationHead>
      {isGone ? (
        <Empty title="The queue is empty">
          It holds no messages and has no consumers, so it does not exist at present. The next message or subscription
          creates it.
        </Empty>
      ) : (
        <Loaded polled={polled}>
          {(details) => <QueueParts name={name} details={details} rates={rates.current} samples={samples.current} />}
        </Loaded>
      )}
      {isPublishing && <PublishDialog to={name} onClose={() => setPublishing(false)} onSent={polled.refresh} />}
    </>
  );
}

function QueueParts({
  name,
  details,
  rates,
  samples,
}: {
  name: string;
  details: QueueDetails;
  rates: RateReader;
  samples: readonly Sample[];
}) {
  const { summary } = details;
  const now = rates.of(name);
  const times = samples.map(({ at }) => at);
  return (
    <>
      <dl class="tiles">
        <Tile title="Depth" small={`of ${count(details.max_messages)}; ${count(summary.unacked)} un-ACKed`}>
          {count(summary.depth)}
        </Tile>
        <Tile title="In" small={`${count(summary.taken)} accepted in all`}>
          {rate(now?.in)}
        </Tile>
        <Tile title="Out">{rate(now?.out)}</Tile>
        <Tile title="Oldest message" small={summary.postponed > 0 ? `${count(summary.postponed)} postponed` : undefined}>
          {duration(summary.oldest_seconds)}
        </Tile>
        <Tile title="Memory" small={`of ${bytes(details.max_bytes)}`}>
          {bytes(summary.stored_bytes)}
        </Tile>
        <Tile title="On disk alone" small={bytes(summary.paged_bytes)}>
          {count(summary.paged_out)}
        </Tile>
      </dl>
      <div class="grid">
        <Chart
          title="Depth"
          times={times}
          format={count}
          series={[{ label: "messages", colour: "--chart-1", values: samples.map(({ depth }) => depth) }]}
        />
        <Chart
          title="Messages per second"
          times={times}
          series={[
            { label: "in", colour: "--chart-2", values: samples.map((each) => each.in) },
            { label: "out", colour: "--chart-3", values: samples.map((each) => each.out) },
          ]}
        />
      </div>
      {session.may("queue.peek") && <Peek name={name} />}
      <section class="part">
        <div class="part-head">
          <h2>Consumers</h2>
          <span>
            {details.is_exclusive && <span class="pill">exclusive</span>}{" "}
            {details.auto_delete && <span class="pill">deleted with its last consumer</span>}
          </span>
        </div>
        <SubscriptionTable label="Consumers" rows={details.subscriptions} empty="This queue has no consumers." />
      </section>
    </>
  );
}

function Tile({ title, small, children }: { title: string; small?: string | undefined; children: string }) {
  return (
    <div class="tile">
      <dt>{title}</dt>
      <dd>
        {children}
        {small !== undefined && <small>{small}</small>}
      </dd>
    </div>
  );
}

const PEEKED = 10;
const PREVIEW_BYTES = 400;
const WHOLE_BYTES = 1_000_000;

/** The first waiting messages; nothing is consumed. */
function Peek({ name }: { name: string }) {
  // The numbers behind which the pages begin; the last one is shown.
  const [pages, setPages] = useState<readonly number[]>([0]);
  const [opened, setOpened] = useState<number | null>(null);
  const after = pages.at(-1) ?? 0;
  const polled = usePolled(
    (signal) =>
      session.broker.queue_peek(
        { queue: name, after, limit: PEEKED, max_bytes: PREVIEW_BYTES },
        { signal },
      ),
    5,
    [name, after],
  );
  const rows = polled.data ?? [];
  const columns: Column<MessageView>[] = [
    {
      key: "number",
      title: "Number",
      value: (row) => row.number,
      render: (row) => (
        <button
          type="button"
          class="link"
          aria-expanded={opened === row.number}
          aria-label={`Message ${row.number}`}
          onClick={() => setOpened(opened === row.number ? null : row.number)}
        >
          {row.number}
        </button>
      ),
    },
    {
      key: "body",
      title: "Body",
      value: (row) => row.body,
      render: (row) => (
        <span class="preview">{row.encoding === "text" ? row.body.slice(0, 200) : `${bytes(row.body_bytes)} of bytes`}</span>
      ),
    },
    { key: "age", title: "Age", numeric: true, value: (row) => row.age_seconds, render: (row) => duration(row.age_seconds) },
    { key: "size", title: "Size", numeric: true, secondary: true, value: (row) => row.body_bytes, render: (row) => bytes(row.body_bytes) },
    { key: "attempts", title: "Failed", numeric: true, secondary: true, about: "Deliveries that failed", value: (row) => row.attempts },
    { key: "sender", title: "Sender", secondary: true, value: (row) => row.sender },
  ];
  const unsortable = columns.map((column) => ({ ...column, sortable: false }));
  return (
    <section class="part">
      <div class="part-head">
        <h2>Waiting messages</h2>
        <div class="actions">
          <button type="button" disabled={pages.length === 1} onClick={() => setPages(pages.slice(0, -1))}>
            Previous
          </button>
          <button
            type="button"
            disabled={rows.length < PEEKED}
            onClick={() => setPages([...pages, rows.at(-1)?.number ?? after])}
          >
            Next {PEEKED}
          </button>
        </div>
      </div>
      {polled.error !== null && polled.error.code !== "lost" && polled.error.code !== "not-found" && (
        <ErrorNote error={polled.error} onRetry={polled.refresh} />
      )}
      <Table
        label="Waiting messages"
        rows={rows}
        columns={unsortable}
        rowKey={(row) => String(row.number)}
        selected={opened === null ? null : String(opened)}
        onSelect={(row) => setOpened(row.number)}
        empty={polled.data === null ? "Loading …" : "No message waits."}
      />
      {opened !== null && <Peeked name={name} number={opened} onClose={() => setOpened(null)} />}
    </section>
  );
}

function Peeked({ name, number, onClose }: { name: string; number: number; onClose: () => void }) {
  const place = useRef<HTMLDivElement>(null);
  const polled = usePolled(
    async (signal) => {
      const asked = { queue: name, after: number - 1, limit: 1, max_bytes: WHOLE_BYTES };
      const [found] = await session.broker.queue_peek(asked, { signal });
      return found?.number === number ? found : "gone";
    },
    0,
    [name, number],
  );
  useEffect(() => place.current?.focus(), [number]);
  return (
    <div class="opened" ref={place} tabIndex={-1} role="group" aria-label={`Message ${number}`}>
      <div class="opened-head">
        <h3>Message {number}</h3>
        <button type="button" class="icon" aria-label="Close the message" onClick={onClose}>
          ✕
        </button>
      </div>
      <Loaded polled={polled}>
        {(found) =>
          found === "gone" ? (
            <p class="muted">The message does not wait any more: it was consumed, has expired, or was purged.</p>
          ) : (
            <>
              <MessageFacts view={found} />
              <MessageDetails view={found} />
            </>
          )
        }
      </Loaded>
    </div>
  );
}

function MessageFacts({ view }: { view: MessageView }) {
  return (
    <p class="muted">
      From {view.sender}, {duration(view.age_seconds)} ago. {view.is_persistent ? "Persistent." : "In memory only."}
      {view.expires_in_seconds !== null && ` Expires in ${duration(view.expires_in_seconds)}.`}
      {view.attempts > 0 && ` ${count(view.attempts)} ${view.attempts === 1 ? "delivery has" : "deliveries have"} failed.`}
    </p>
  );
}
