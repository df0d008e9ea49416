// Last values as a tree that changes as they do.

import { effect } from "@preact/signals";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import { BodyView } from "../bodies/body-view";
import { Compose, draftOf } from "../bodies/compose";
import { HeadersTable } from "../bodies/headers-table";
import type { Body } from "../bodies/reading";
import { go, route } from "../router";
import { session, type NebulaError } from "../session";
import { Dialog, confirm } from "../widgets/dialog";
import { bytes, count, duration } from "../widgets/format";
import { usePolled } from "../widgets/poll";
import { Empty, ErrorNote, PageHead } from "../widgets/states";
import { attempt } from "../widgets/toast";
import { useDebounced } from "./globs";
import { FrameBatch } from "./live";
import { previewOf } from "./live-view";
import { SendButton, useMayPublish } from "./permission";
import { ValueTree, type Node, type Row, type Value } from "./value-tree";
import "./destinations.css";

// As in the style sheet.
const ROW = 30;

export default function LastValuesPage() {
  const prefixes = session.valuePrefixes.value;
  const [glob, setGlob] = useState("");
  const settled = useDebounced(glob.trim(), 400);
  const [filter, setFilter] = useState("");
  const [selected] = route.value.rest;
  const [isPublishing, setPublishing] = useState(false);
  const globs = settled === "" ? prefixes.map((prefix) => `${prefix}**`) : [settled];
  const isForeign = settled !== "" && !prefixes.some((prefix) => settled.startsWith(prefix));
  return (
    <>
      <PageHead title="Last values" about="Each name has one value, the last that was sent. They change here as they do.">
        <button type="button" onClick={() => setPublishing(true)}>
          Set a value …
        </button>
      </PageHead>
      <div class="watch">
        <input
          type="search"
          aria-label="Filter the values"
          placeholder="Filter by name"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <input
          aria-label="Glob of the values to subscribe to"
          title="Only these values are subscribed to; useful where there are very many."
          placeholder={`Load only a glob: ${prefixes[0] ?? "X/"}prices.*`}
          value={glob}
          spellcheck={false}
          onInput={(event) => setGlob(event.currentTarget.value)}
        />
      </div>
      {isForeign ? (
        <p class="note warn">
          Names of last values begin with {prefixes.map((prefix) => `“${prefix}”`).join(" or ")}.
        </p>
      ) : (
        <Values key={globs.join("\n")} globs={globs} filter={filter} selected={selected ?? null} />
      )}
      {isPublishing && (
        <Dialog wide title="Set a last value" onClose={() => setPublishing(false)}>
          <Compose
            draft={{ destination: prefixes[0] ?? "X/", headers: {}, body: "", kind: "json" }}
            action="Set"
          />
        </Dialog>
      )}
    </>
  );
}

function Values({ globs, filter, selected }: { globs: readonly string[]; filter: string; selected: string | null }) {
  const tree = useMemo(() => new ValueTree(), []);
  const [, draw] = useReducer((frames: number, _: void) => frames + 1, 0);
  const [error, setError] = useState<NebulaError | null>(null);

  useEffect(() => {
    const batch = new FrameBatch(() => draw());
    // A new connection gets a new snapshot: what was deleted meanwhile is not in it.
    const forget = effect(() => {
      void session.epoch.value;
      tree.clear();
    });
    const leave = globs.map((glob) =>
      session.subscribe(
        glob,
        { eager: "true", snapshot: "true" },
        (message) => {
          tree.take(message, Date.now());
          batch.request();
        },
        setError,
      ),
    );
    return () => {
      forget();
      for (const each of leave) each();
      batch.cancel();
    };
  }, []);

  const select = (node: Node) => go("values", [node.path]);
  const node = selected === null ? null : tree.find(selected);
  const rows = tree.rows(filter);
  return (
    <>
      {error !== null && <ErrorNote error={error} />}
      <div class={selected === null ? "values" : "values with-value"}>
        <section class="part" aria-label="Tree of values">
          <p class="muted live-counts" role="status">
            {tree.isComplete
              ? `${count(tree.size)} ${tree.size === 1 ? "value" : "values"}`
              : `Loading … ${count(tree.size)} values`}
            {tree.left > 0 && `; ${count(tree.left)} more are not shown: narrow them by a glob`}
          </p>
          {tree.size === 0 && tree.isComplete && (
            <Empty title="There are no values">
              A value that you may read appears here as soon as it is sent.
            </Empty>
          )}
          {tree.size > 0 && rows.length === 0 && <p class="table-empty">Nothing matches.</p>}
          {/* A tree without items would be a fault for screen readers. */}
          {rows.length > 0 && (
            <Tree
              rows={rows}
              selected={selected}
              onToggle={(each, isOpen) => {
                tree.toggle(each, isOpen);
                draw();
              }}
              onSelect={select}
            />
          )}
        </section>
        {selected !== null && (
          <Details key={selected} destination={selected} value={node?.value ?? null} changes={node?.changes ?? 0} />
        )}
      </div>
    </>
  );
}

interface TreeProps {
  rows: readonly Row[];
  selected: string | null;
  onToggle: (node: Node, isOpen: boolean) => void;
  onSelect: (node: Node) => void;
}

/** A tree that draws only the rows in sight. The focus stays on it, and the arrow keys move in it. */
function Tree({ rows, selected, onToggle, onSelect }: TreeProps) {
  const list = useRef<HTMLDivElement>(null);
  const [scroll, setScroll] = useState(0);
  const [height, setHeight] = useState(560);
  const [active, setActive] = useState<string | null>(null);
  const at = Math.max(0, rows.findIndex(({ node }) => node.path === (active ?? selected)));

  useEffect(() => {
    const element = list.current;
    if (element === null) return;
    const sized = new ResizeObserver(() => setHeight(element.clientHeight));
    sized.observe(element);
    return () => sized.disconnect();
  }, []);

  const move = (place: number) => {
    const bounded = Math.min(rows.length - 1, Math.max(0, place));
    const row = rows[bounded];
    if (row === undefined || list.current === null) return;
    setActive(row.node.path);
    const top = bounded * ROW;
    if (top < list.current.scrollTop) list.current.scrollTop = top;
    else if (top + ROW > list.current.scrollTop + height) list.current.scrollTop = top + ROW - height;
  };

  const onKeyDown = (event: KeyboardEvent) => {
    const row = rows[at];
    if (row === undefined) return;
    const { node, isOpen } = row;
    const acts: Record<string, () => void> = {
      ArrowDown: () => move(at + 1),
      ArrowUp: () => move(at - 1),
      PageDown: () => move(at + Math.floor(height / ROW)),
      PageUp: () => move(at - Math.floor(height / ROW)),
      Home: () => move(0),
      End: () => move(rows.length - 1),
      ArrowRight: () => (node.children.size > 0 && !isOpen ? onToggle(node, true) : move(at + 1)),
      ArrowLeft: () => {
        if (isOpen) onToggle(node, false);
        else move(rows.findIndex((each) => each.node === node.parent));
      },
      Enter: () => (node.value === null ? onToggle(node, !isOpen) : onSelect(node)),
      " ": () => (node.value === null ? onToggle(node, !isOpen) : onSelect(node)),
    };
    const act = acts[event.key];
    if (act === undefined) return;
    event.preventDefault();
    act();
  };

  const first = Math.max(0, Math.floor(scroll / ROW) - 5);
  const shown = rows.slice(first, first + Math.ceil(height / ROW) + 10);
  const current = rows[at];
  return (
    <div
      class="tree"
      ref={list}
      role="tree"
      aria-label="Last values"
      tabIndex={0}
      aria-activedescendant={current && shown.includes(current) ? idOf(current.node) : undefined}
      onScroll={(event) => setScroll(event.currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
    >
      <div class="tree-space" role="none" style={{ height: `${rows.length * ROW}px` }}>
        <div role="none" style={{ transform: `translateY(${first * ROW}px)` }}>
          {shown.map((row, place) => {
            const { node, isOpen } = row;
            const hasChildren = node.children.size > 0;
            return (
              <div
                key={`${node.path} ${hasChildren}`}
                id={idOf(node)}
                class={first + place === at ? "tree-row active" : "tree-row"}
                role="treeitem"
                aria-level={node.level + 1}
                aria-posinset={row.place}
                aria-setsize={row.siblings}
                aria-expanded={hasChildren ? isOpen : undefined}
                aria-selected={node.path === selected}
                title={node.path}
                onClick={() => {
                  setActive(node.path);
                  if (node.value !== null) onSelect(node);
                  else onToggle(node, !isOpen);
                }}
              >
                <span class="tree-name" style={{ paddingLeft: `${Math.min(node.level, 12) * 16}px` }}>
                  <span
                    class="tree-sign"
                    aria-hidden="true"
                    onClick={(event) => {
                      if (!hasChildren) return;
                      event.stopPropagation();
                      onToggle(node, !isOpen);
                    }}
                  >
                    {hasChildren ? (isOpen ? "▾" : "▸") : ""}
                  </span>
                  {node.name}
                </span>
                {node.value === null ? (
                  <span class="tree-count">{count(node.count)}</span>
                ) : (
                  <span class="tree-value">{previewOf(node.value.body)}</span>
                )}
                {/* A new element for each change, so that its animation begins again. */}
                {node.changes > 0 && !isOpen && <span class="tree-flash" key={node.changes} aria-hidden="true" />}
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

/** An id has no white space; names may. */
function idOf(node: Node): string {
  return `value-${encodeURIComponent(node.path)}`;
}

function Details({ destination, value, changes }: { destination: string; value: Value | null; changes: number }) {
  const [draft, setDraft] = useState<Value | null>(null);
  const mayPublish = useMayPublish(destination);
  const close = () => go("values");
  const body: Body | null = useMemo(
    () =>
      value && {
        bytes: value.body,
        total: value.body.length,
        destination,
        contentType: value.headers["content-type"] ?? "",
      },
    [value],
  );

  const remove = async () => {
    const isSure = await confirm({
      title: "Delete the value?",
      body: (
        <p>
          <code>{destination}</code> then has no value, and its subscribers are told so. This cannot be undone.
        </p>
      ),
      action: "Delete",
      danger: true,
    });
    // An empty body deletes, also where a schema is bound.
    if (isSure) await attempt(() => session.send(destination, {}, ""), `${destination} deleted`);
  };

  return (
    <section class="part opened value-details" aria-label={`Value of ${destination}`}>
      <div class="opened-head">
        <h2 class="destination">{destination}</h2>
        <button type="button" class="icon" aria-label="Close the value" onClick={close}>
          ✕
        </button>
      </div>
      {value === null || body === null ? (
        <p class="muted">It has no value at present, or you may not read it.</p>
      ) : (
        <>
          <Facts destination={destination} value={value} changes={changes} />
          <div class="actions">
            <SendButton may={mayPublish} destination={destination} onClick={() => setDraft(value)}>
              Change …
            </SendButton>
            <SendButton danger may={mayPublish} destination={destination} onClick={() => void remove()}>
              Delete …
            </SendButton>
          </div>
          <BodyView body={body} />
          <h3>Headers</h3>
          <HeadersTable headers={value.headers} />
        </>
      )}
      {draft !== null && (
        <Dialog wide title="Change the value" onClose={() => setDraft(null)}>
          <Compose draft={draftOf(destination, ownHeaders(draft.headers), draft.body)} action="Set" isFixed />
        </Dialog>
      )}
    </section>
  );
}

function Facts({ destination, value, changes }: { destination: string; value: Value; changes: number }) {
  const mayShow = session.may("topic.show");
  const polled = usePolled(
    async (signal) =>
      mayShow ? session.broker.topic_show({ topic: destination }, { signal }) : null,
    mayShow ? 2 : 0,
    [destination, mayShow],
  );
  const summary = polled.data?.summary;
  return (
    <dl class="facts">
      <dt>Sender</dt>
      <dd>{value.headers["sender"] ?? summary?.sender ?? "–"}</dd>
      {summary?.changed_seconds !== undefined && (
        <>
          <dt>Changed</dt>
          <dd>{duration(summary.changed_seconds)} ago</dd>
        </>
      )}
      <dt>Seen here</dt>
      <dd>
        {count(changes)} {changes === 1 ? "change" : "changes"}, {bytes(value.body.length)}
      </dd>
      {summary?.owner != null && (
        <>
          <dt>Ephemeral</dt>
          <dd>ends with the session {summary.owner}</dd>
        </>
      )}
    </dl>
  );
}

// Of the message that brought it; the next one has its own.
const OF_DELIVERY = new Set(["message-id", "subscription", "destination", "content-length", "ack", "snapshot", "sender"]);

function ownHeaders(headers: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !OF_DELIVERY.has(name)));
}
