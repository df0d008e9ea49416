// What the pages of queues and of topics share: a list that the broker filters, sorts and pages, and heads and dialogs.

import { signal, type Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useRef } from "preact/hooks";
import { Compose, newDraft } from "../bodies/compose";
import { go, href } from "../router";
import { Dialog } from "../widgets/dialog";
import { count } from "../widgets/format";
import { usePolled, type Polled } from "../widgets/poll";
import { ErrorNote, PageHead } from "../widgets/states";
import { Table, type Column, type Sort } from "../widgets/table";
import { globOf, useDebounced } from "./globs";
import "./destinations.css";

const PAGE = 50;
// What the broker skips at most.
const MOST_SKIPPED = 10_000;
const EVERY_SECONDS = 2;

/** Which rows of a list are shown. It is kept while one looks at one of them, and comes back. */
export type ListView = Signal<{ page: number; sort: Sort; filter: string; internal: boolean }>;

export function listView(): ListView {
  return signal({ page: 0, sort: { key: "name", descending: false }, filter: "", internal: false });
}

/** What `queues.list` and `topics.list` are asked for. */
export interface Wanted {
  pattern: string;
  reverse: boolean;
  skip: number;
  limit: number;
  internal: boolean;
}

interface Listing<R> {
  rows: R[];
  matched: number;
}

export interface Listed<R> {
  view: ListView;
  polled: Polled<Listing<R>>;
  /** What is shown: the rows that were read last, until the next ones are there. Null: nothing yet. */
  listing: Listing<R> | null;
}

/** Read the page of a list that is looked at, again and again. */
export function useListed<R>(
  view: ListView,
  read: (wanted: Wanted, order: string, signal: AbortSignal) => Promise<Listing<R>>,
): Listed<R> {
  const { page, sort, filter, internal } = view.value;
  const settled = useDebounced(filter, 250);
  const polled = usePolled(
    (signal) => {
      // By name the broker begins with A, else with the greatest.
      const reverse = sort.key === "name" ? sort.descending : !sort.descending;
      const wanted = { pattern: globOf(settled), reverse, skip: page * PAGE, limit: PAGE, internal };
      return read(wanted, sort.key, signal);
    },
    EVERY_SECONDS,
    [settled, sort.key, sort.descending, page, internal],
  );
  const last = useRef<Listing<R> | null>(null);
  if (polled.data !== null) last.current = polled.data;
  return { view, polled, listing: polled.data ?? last.current };
}

/** The table of a list. The first column is the name, with a link to the destination's own page. */
export function DestinationTable<R>({
  listed: { view, polled, listing },
  page: name,
  label,
  title,
  example,
  empty,
  columns,
  nameOf,
}: {
  listed: Listed<R>;
  page: string;
  label: string;
  title: string;
  example: string;
  empty: string;
  columns: Column<R>[];
  nameOf: (row: R) => string;
}) {
  const { page, sort, filter, internal } = view.value;
  const change = (next: Partial<ListView["value"]>) => (view.value = { ...view.value, page: 0, ...next });
  const named: Column<R> = {
    key: "name",
    title,
    value: nameOf,
    render: (row) => (
      <a class="destination-link" href={href(name, [nameOf(row)])}>
        {nameOf(row)}
      </a>
    ),
  };
  return (
    <>
      {polled.error !== null && polled.error.code !== "lost" && (
        <ErrorNote error={polled.error} onRetry={polled.refresh} />
      )}
      <Table
        label={label}
        rows={listing?.rows ?? []}
        columns={[named, ...columns]}
        rowKey={nameOf}
        pageSize={PAGE}
        filter={`Part of a name, or a glob: ${example}`}
        empty={listing === null ? "Loading …" : empty}
        onSelect={(row) => go(name, [nameOf(row)])}
        remote={{
          total: Math.min(listing?.matched ?? 0, MOST_SKIPPED + PAGE),
          page,
          sort,
          filter,
          onPage: (next) => change({ page: next }),
          onSort: (next) => change({ sort: next }),
          onFilter: (next) => change({ filter: next }),
        }}
        tools={
          <label class="tick">
            <input
              type="checkbox"
              checked={internal}
              onChange={(event) => change({ internal: event.currentTarget.checked })}
            />
            Show Nebula’s own
          </label>
        }
      />
      {listing !== null && listing.matched > MOST_SKIPPED + PAGE && (
        <p class="muted">
          {count(listing.matched)} {name} match; the first {count(MOST_SKIPPED + PAGE)} can be paged through. Filter to
          see the others.
        </p>
      )}
    </>
  );
}

/** The head of a destination's own page. */
export function DestinationHead({
  page,
  back,
  name,
  children,
}: {
  page: string;
  back: string;
  name: string;
  children?: ComponentChildren;
}) {
  return (
    <PageHead
      title={
        <>
          <a class="back" href={href(page)}>
            ← {back}
          </a>
          <div class="destination">{name}</div>
        </>
      }
    >
      {children}
    </PageHead>
  );
}

/** A dialog that publishes to a destination, or to one that begins so. */
export function PublishDialog({
  to,
  onClose,
  onSent,
}: {
  to: string;
  onClose: () => void;
  onSent?: () => void;
}) {
  return (
    <Dialog wide title="Publish a message" onClose={onClose}>
      <Compose draft={newDraft(to)} {...(onSent === undefined ? {} : { onSent })} />
    </Dialog>
  );
}
