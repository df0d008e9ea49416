// A table that sorts, filters and pages. It renders one page, so ten thousand rows cost no more than fifty.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { count } from "./format";

export type Cell = string | number | boolean | null | undefined;

export interface Column<R> {
  key: string;
  title: string;
  /** What it is sorted and filtered by; also shown unless there is `render`. */
  value: (row: R) => Cell;
  render?: (row: R) => ComponentChildren;
  /** Numbers are right-aligned. */
  numeric?: boolean;
  /** Explains the column; a tooltip of its head. */
  about?: string;
  sortable?: boolean;
  /** Left out on narrow screens. */
  secondary?: boolean;
}

export interface Sort {
  key: string;
  descending: boolean;
}

/** Rows that the broker sorts, filters and pages: `rows` is one page. */
export interface Remote {
  total: number;
  page: number;
  sort: Sort | null;
  filter: string;
  onPage: (page: number) => void;
  onSort: (sort: Sort) => void;
  onFilter?: (filter: string) => void;
}

export interface TableProps<R> {
  /** Says what it is to a screen reader: "Queues". */
  label: string;
  rows: readonly R[];
  columns: readonly Column<R>[];
  rowKey: (row: R) => string;
  initialSort?: Sort;
  pageSize?: number;
  /** The placeholder of the filter; without it the table has no filter. */
  filter?: string;
  empty?: ComponentChildren;
  selected?: string | null;
  onSelect?: (row: R) => void;
  remote?: Remote;
  /** Next to the filter. */
  tools?: ComponentChildren;
}

export function Table<R>(props: TableProps<R>) {
  const { label, rows, columns, rowKey, remote, pageSize = 50 } = props;
  const [ownSort, setOwnSort] = useState<Sort | null>(props.initialSort ?? null);
  const [ownFilter, setOwnFilter] = useState("");
  const [ownPage, setOwnPage] = useState(0);
  const sort = remote ? remote.sort : ownSort;
  const filter = remote ? remote.filter : ownFilter;

  const arranged = useMemo(
    () => (remote ? rows : arrange(rows, columns, ownSort, ownFilter)),
    [rows, columns, ownSort, ownFilter, remote !== undefined],
  );
  const total = remote ? remote.total : arranged.length;
  const pages = Math.max(1, Math.ceil(total / pageSize));
  const page = Math.min(remote ? remote.page : ownPage, pages - 1);
  const shown = remote ? rows : arranged.slice(page * pageSize, (page + 1) * pageSize);

  const setPage = (next: number) => (remote ? remote.onPage(next) : setOwnPage(next));
  useEffect(() => setOwnPage(0), [ownFilter, ownSort]);
  const sortBy = (column: Column<R>) => {
    // Of numbers the largest are wanted first.
    const first = column.numeric ?? false;
    const next = { key: column.key, descending: sort?.key === column.key ? !sort.descending : first };
    if (remote) remote.onSort(next);
    else setOwnSort(next);
  };
  const setFilter = (text: string) => (remote ? remote.onFilter?.(text) : setOwnFilter(text));

  return (
    <div class="table">
      {(props.filter !== undefined || props.tools !== undefined) && (
        <div class="table-tools">
          {props.filter !== undefined && (
            <input
              type="search"
              aria-label={`Filter ${label}`}
              placeholder={props.filter}
              value={filter}
              onInput={(event) => setFilter(event.currentTarget.value)}
            />
          )}
          {props.tools}
        </div>
      )}
      <div class="table-scroll" role="region" aria-label={label} tabIndex={0}>
        <table>
          <thead>
            <tr>
              {columns.map((column) => (
                <th
                  key={column.key}
                  scope="col"
                  class={classes(column)}
                  title={column.about}
                  aria-sort={sort?.key === column.key ? (sort.descending ? "descending" : "ascending") : undefined}
                >
                  {column.sortable === false ? (
                    column.title
                  ) : (
                    <button type="button" onClick={() => sortBy(column)}>
                      {column.title}
                      <span class="sort" aria-hidden="true">
                        {sort?.key === column.key ? (sort.descending ? "▾" : "▴") : ""}
                      </span>
                    </button>
                  )}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row) => {
              const key = rowKey(row);
              const { onSelect } = props;
              return (
                <tr
                  key={key}
                  class={onSelect && "selectable"}
                  aria-selected={props.selected === undefined ? undefined : props.selected === key}
                  onClick={
                    onSelect &&
                    ((event) => {
                      // Buttons and links in a row have their own meaning.
                      const { target } = event;
                      if (target instanceof Element && target.closest("a, button, input") === null) onSelect(row);
                    })
                  }
                >
                  {columns.map((column) => (
                    <td key={column.key} class={classes(column)}>
                      {column.render ? column.render(row) : text(column.value(row))}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
        {shown.length === 0 && (
          <div class="table-empty">{filter ? `Nothing matches “${filter}”.` : (props.empty ?? "Nothing is here.")}</div>
        )}
      </div>
      {total > pageSize && (
        <nav class="pager" aria-label={`Pages of ${label}`}>
          <span class="muted">
            {count(page * pageSize + 1)}–{count(Math.min(total, (page + 1) * pageSize))} of {count(total)}
          </span>
          <button type="button" disabled={page === 0} onClick={() => setPage(0)} aria-label="First page">
            «
          </button>
          <button type="button" disabled={page === 0} onClick={() => setPage(page - 1)} aria-label="Page before">
            ‹
          </button>
          <button type="button" disabled={page >= pages - 1} onClick={() => setPage(page + 1)} aria-label="Next page">
            ›
          </button>
          <button type="button" disabled={page >= pages - 1} onClick={() => setPage(pages - 1)} aria-label="Last page">
            »
          </button>
        </nav>
      )}
    </div>
  );
}

function classes<R>(column: Column<R>): string {
  return [column.numeric ? "numeric" : "", column.secondary ? "secondary" : ""].join(" ").trim();
}

function text(cell: Cell): string {
  if (cell === null || cell === undefined) return "–";
  if (typeof cell === "boolean") return cell ? "yes" : "no";
  return typeof cell === "number" ? count(cell) : cell;
}

/** The rows that match, in order. */
export function arrange<R>(
  rows: readonly R[],
  columns: readonly Column<R>[],
  sort: Sort | null,
  filter: string,
): readonly R[] {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const matching =
    words.length === 0
      ? rows
      : rows.filter((row) => {
          const all = columns.map((column) => String(column.value(row) ?? "")).join("\n").toLowerCase();
          return words.every((word) => all.includes(word));
        });
  const column = columns.find(({ key }) => key === sort?.key);
  if (sort === null || column === undefined) return matching;
  const direction = sort.descending ? -1 : 1;
  return [...matching].sort((one, other) => compare(column.value(one), column.value(other), direction));
}

const names = new Intl.Collator("en", { numeric: true });

// What is not known comes last, whichever way it is sorted.
function compare(one: Cell, other: Cell, direction: number): number {
  const isMissing = one === null || one === undefined;
  if (isMissing || other === null || other === undefined) {
    return Number(isMissing) - Number(other === null || other === undefined);
  }
  if (typeof one === "string" && typeof other === "string") return direction * names.compare(one, other);
  return direction * (Number(one) - Number(other));
}
