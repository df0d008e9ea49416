// What a job returned: rows page by page, as a table and a plot; all else as JSON.

import { useState } from "preact/hooks";
import { Json } from "../services/value";
import { Views } from "../services/views";
import { bytes, count } from "../widgets/format";
import { usePolled } from "../widgets/poll";
import { Loaded } from "../widgets/states";
import { toast } from "../widgets/toast";
import { askJob } from "./asking";
import type { JobResult } from "./model";
import { columnsOf, isRows, plotOf, type Row, type TableSchema } from "./rows";
import { RowsPlot, RowsTable } from "./rows-view";

interface Page {
  data: Row[];
  schema: TableSchema;
  next: string | null;
  total: number;
}

const SIZES = [50, 200, 1_000];
/** A file of more rows belongs to `nebula job result`, which does not hold them in memory. */
const MOST_SAVED = 200_000;

export function JobResultView({ job, result }: { job: string; result: JobResult }) {
  const hasRows = result.path !== undefined || isRows(result.value);
  return (
    <section class="card" aria-label="Result">
      <h2>Result</h2>
      {result.path !== undefined && (
        <p class="muted">
          <code>{result.path}</code>
          {result.rows !== undefined && `, ${count(result.rows)} rows`}
          {result.bytes !== undefined && `, ${bytes(result.bytes)}`}
        </p>
      )}
      {hasRows ? (
        <Pages job={job} />
      ) : result.value === undefined || result.value === null ? (
        <p class="muted">The job returned nothing (null).</p>
      ) : (
        <Json value={result.value} label="Result" />
      )}
    </section>
  );
}

/** One page at a time: each names the next one. */
function Pages({ job }: { job: string }) {
  const [size, setSize] = useState(200);
  // The names of the pages before the present one, and its own; the first has none.
  const [names, setNames] = useState<readonly (string | null)[]>([null]);
  const [view, setView] = useState<"table" | "plot" | "json">("table");
  const name = names.at(-1) ?? null;
  const polled = usePolled(
    (signal) => askJob<Page>(job, "job.result", { rows: size, ...(name === null ? {} : { page: name }) }, { signal }),
    0,
    [job, size, name],
  );
  const [starts, setStarts] = useState<readonly number[]>([0]);
  const start = starts.at(-1) ?? 0;
  return (
    <Loaded polled={polled}>
      {({ data, schema, next, total }) => {
        if (data.length > 0 && !isRows(data)) return <Json value={data} label="Result" />;
        const columns = columnsOf(data, schema);
        const plot = plotOf(data, columns);
        const shown = view === "plot" && plot === null ? "table" : view;
        const isWhole = names.length === 1 && next === null;
        return (
          <>
            <div class="try-head">
              <Views name="Show the result as" views={[["table", "Table"], ...(plot === null ? [] : [["plot", "Plot"] as const]), ["json", "JSON"]]} chosen={shown} onChoose={setView} />
              <Save job={job} total={total} />
            </div>
            {shown === "table" && <RowsTable label="Rows of the result" rows={data} columns={columns} from={start} />}
            {shown === "plot" && plot !== null && <RowsPlot label="Result" rows={data} columns={columns} first={plot} />}
            {shown === "json" && <Json value={data} label="Rows of the result" />}
            {!isWhole && (
              <nav class="pager result-pager" aria-label="Pages of the result">
                <span class="muted">rows {count(start + 1)}–{count(start + data.length)} of {count(total)}</span>
                <label>
                  <span class="hidden">Rows on a page</span>
                  <select
                    value={String(size)}
                    onChange={(event) => {
                      setSize(Number(event.currentTarget.value));
                      setNames([null]);
                      setStarts([0]);
                    }}
                  >
                    {SIZES.map((one) => <option key={one} value={String(one)}>{one} rows</option>)}
                  </select>
                </label>
                <button
                  type="button"
                  disabled={names.length === 1}
                  onClick={() => {
                    setNames(names.slice(0, -1));
                    setStarts(starts.slice(0, -1));
                  }}
                >
                  Previous rows
                </button>
                <button
                  type="button"
                  disabled={next === null}
                  onClick={() => {
                    setNames([...names, next]);
                    setStarts([...starts, start + data.length]);
                  }}
                >
                  Next rows
                </button>
              </nav>
            )}
          </>
        );
      }}
    </Loaded>
  );
}

/** All rows as a file, a line of JSON for each. */
function Save({ job, total }: { job: string; total: number }) {
  const [read, setRead] = useState<number | null>(null);
  const isTooLong = total > MOST_SAVED;
  const save = async (): Promise<void> => {
    const lines: string[] = [];
    let page: string | null = null;
    setRead(0);
    try {
      do {
        const got: Page = await askJob<Page>(job, "job.result", { rows: 5_000, ...(page === null ? {} : { page }) });
        for (const row of got.data) lines.push(JSON.stringify(row));
        page = got.next;
        setRead(lines.length);
      } while (page !== null);
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([lines.map((line) => `${line}\n`).join("")], { type: "application/x-ndjson" }));
      link.download = `${job.replace("/", "-")}.ndjson`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    } catch (error) {
      toast(error instanceof Error ? error.message : String(error), "failed");
    } finally {
      setRead(null);
    }
  };
  return (
    <button type="button" class="small" disabled={read !== null || isTooLong} title={isTooLong ? "Too many rows for a browser; use `nebula job result`" : undefined} onClick={() => void save()}>
      {read === null ? "Save as JSON lines" : `${count(read)} of ${count(total)} …`}
    </button>
  );
}
