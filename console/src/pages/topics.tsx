// Topics, and a live view of one or of a glob.

import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { Compose, newDraft } from "../bodies/compose";
import { go, href, route } from "../router";
import { session } from "../session";
import { Dialog } from "../widgets/dialog";
import { bytes, count } from "../widgets/format";
import { usePolled } from "../widgets/poll";
import { ErrorNote, Loaded, PageHead } from "../widgets/states";
import { Table, type Column, type Sort } from "../widgets/table";
import { globOf, isGlob, useDebounced } from "./globs";
import { LiveView } from "./live-view";
import { SendButton, useMayPublish } from "./permission";
import { SubscriptionTable, type SubscriptionRow } from "./subscriptions";
import "./destinations.css";

const PAGE = 50;
const MOST_SKIPPED = 10_000;
const PREFIX = "/topic/";

/** A topic or a last value, as `topics.list` has it. */
export interface TopicRow {
  topic: string;
  kind: "topic" | "last-value";
  subscribers: number | null;
  waiting: number;
  stored_bytes: number;
  has_value: boolean | null;
  changed_seconds: number | null;
  sender: string | null;
  owner: string | null;
}

interface Listing {
  rows: TopicRow[];
  matched: number;
}

export interface TopicDetails {
  summary: TopicRow;
  subscriptions: SubscriptionRow[];
}

const view = signal<{ page: number; sort: Sort; filter: string; internal: boolean }>({
  page: 0,
  sort: { key: "name", descending: false },
  filter: "",
  internal: false,
});

export default function TopicsPage() {
  const [topic] = route.value.rest;
  return topic === undefined ? <Topics /> : <Topic key={topic} name={topic} />;
}

function Topics() {
  const [isPublishing, setPublishing] = useState(false);
  return (
    <>
      <PageHead title="Topics" about="Each message goes to all subscribers of that moment.">
        <button type="button" onClick={() => setPublishing(true)}>
          Publish …
        </button>
      </PageHead>
      <Watch />
      {session.may("topics.list") ? (
        <TopicTable />
      ) : (
        <p class="muted">
          The list of topics needs the right to call <code>topics.list</code>. You can watch those that you may subscribe
          to.
        </p>
      )}
      {isPublishing && (
        <Dialog wide title="Publish a message" onClose={() => setPublishing(false)}>
          <Compose draft={newDraft(PREFIX)} />
        </Dialog>
      )}
    </>
  );
}

function Watch() {
  const [glob, setGlob] = useState(PREFIX);
  const problem = watchable(glob);
  return (
    <form
      class="watch"
      onSubmit={(event) => {
        event.preventDefault();
        if (problem === null) go("topics", [glob.trim()]);
      }}
    >
      <input
        aria-label="Topic or glob to watch"
        value={glob}
        placeholder="/topic/orders.*"
        spellcheck={false}
        onInput={(event) => setGlob(event.currentTarget.value)}
      />
      <button type="submit" class="primary" disabled={problem !== null} title={problem ?? undefined}>
        Watch live
      </button>
    </form>
  );
}

/** Why a destination cannot be watched; null: it can. To watch a queue would be to consume from it. */
export function watchable(glob: string): string | null {
  const name = glob.trim();
  if (name.startsWith(PREFIX)) return name.length > PREFIX.length ? null : "Name a topic, or a glob such as /topic/**";
  if (session.valuePrefixes.value.some((prefix) => name.startsWith(prefix))) return null;
  return "Only topics and last values can be watched: to subscribe to a queue takes its messages away.";
}

function TopicTable() {
  const { page, sort, filter, internal } = view.value;
  const settled = useDebounced(filter, 250);
  const polled = usePolled(
    (signal) =>
      session.broker<Listing>(
        "topics.list",
        {
          pattern: globOf(settled),
          kind: "topic",
          order: sort.key,
          reverse: sort.key === "name" ? sort.descending : !sort.descending,
          skip: page * PAGE,
          limit: PAGE,
          internal,
        },
        { signal },
      ),
    2,
    [settled, sort.key, sort.descending, page, internal],
  );
  const last = useRef<Listing | null>(null);
  if (polled.data !== null) last.current = polled.data;
  const listing = polled.data ?? last.current;
  const columns: Column<TopicRow>[] = [
    {
      key: "name",
      title: "Topic",
      value: (row) => row.topic,
      render: (row) => (
        <a class="destination-link" href={href("topics", [row.topic])}>
          {row.topic}
        </a>
      ),
    },
    { key: "subscribers", title: "Subscribers", numeric: true, value: (row) => row.subscribers },
    {
      key: "waiting",
      title: "Waiting",
      numeric: true,
      about: "Messages that wait for subscribers",
      value: (row) => row.waiting,
    },
    {
      key: "bytes",
      title: "Memory",
      numeric: true,
      secondary: true,
      value: (row) => row.stored_bytes,
      render: (row) => bytes(row.stored_bytes),
    },
  ];
  return (
    <>
      {polled.error !== null && polled.error.code !== "lost" && (
        <ErrorNote error={polled.error} onRetry={polled.refresh} />
      )}
      <Table
        label="Topics"
        rows={listing?.rows ?? []}
        columns={columns}
        rowKey={(row) => row.topic}
        pageSize={PAGE}
        filter="Part of a name, or a glob: /topic/a*"
        empty={listing === null ? "Loading …" : "No topic has a subscriber at present."}
        onSelect={(row) => go("topics", [row.topic])}
        remote={{
          total: Math.min(listing?.matched ?? 0, MOST_SKIPPED + PAGE),
          page,
          sort,
          filter,
          onPage: (next) => (view.value = { ...view.value, page: next }),
          onSort: (next) => (view.value = { ...view.value, sort: next, page: 0 }),
          onFilter: (next) => (view.value = { ...view.value, filter: next, page: 0 }),
        }}
        tools={
          <label class="tick">
            <input
              type="checkbox"
              checked={internal}
              onChange={(event) => (view.value = { ...view.value, internal: event.currentTarget.checked, page: 0 })}
            />
            Show Nebula’s own
          </label>
        }
      />
      {listing !== null && listing.matched > MOST_SKIPPED + PAGE && (
        <p class="muted">
          {count(listing.matched)} topics match; the first {count(MOST_SKIPPED + PAGE)} can be paged through. Filter to see
          the others.
        </p>
      )}
    </>
  );
}

function Topic({ name }: { name: string }) {
  const [isPublishing, setPublishing] = useState(false);
  const mayPublish = useMayPublish(name);
  const problem = watchable(name);
  return (
    <>
      <PageHead
        title={
          <>
            <a class="back" href={href("topics")}>
              ← Topics
            </a>
            <div class="destination">{name}</div>
          </>
        }
      >
        {!isGlob(name) && (
          <SendButton may={mayPublish} destination={name} onClick={() => setPublishing(true)}>
            Publish …
          </SendButton>
        )}
      </PageHead>
      {problem === null ? <LiveView glob={name} /> : <p class="note warn">{problem}</p>}
      {session.may("topic.show") && name.startsWith(PREFIX) && <Subscribers name={name} />}
      {isPublishing && (
        <Dialog wide title="Publish a message" onClose={() => setPublishing(false)}>
          <Compose draft={newDraft(name)} />
        </Dialog>
      )}
    </>
  );
}

function Subscribers({ name }: { name: string }) {
  const polled = usePolled(
    async (signal) => {
      try {
        return await session.broker<TopicDetails>("topic.show", { topic: name }, { signal });
      } catch (error) {
        // A topic exists while it has subscribers.
        if ((error as { code?: string }).code === "not-found") return "none";
        throw error;
      }
    },
    3,
    [name],
  );
  return (
    <section class="part">
      <h2>Subscribers</h2>
      <Loaded polled={polled}>
        {(details) => (
          <SubscriptionTable
            label="Subscribers"
            rows={details === "none" ? [] : details.subscriptions}
            empty="It has no subscribers."
          />
        )}
      </Loaded>
    </section>
  );
}
